"""The complaints of the database and the disk as errors of one line each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from triskele.base.files import is_full
from triskele.errors import StoreDamaged, StoreUnavailable


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn the database's complaints into one clear line each."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreUnavailable(f"the store {path} is busy with other writers: try again") from error
    except (apsw.ReadOnlyError, apsw.PermissionsError, PermissionError) as error:
        raise StoreUnavailable(f"the store {path} is read-only") from error
    except apsw.FullError as error:
        raise StoreUnavailable(f"no space left for the store {path}: nothing was changed") from error
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, UnicodeDecodeError) as error:
        raise StoreDamaged(
            f"the store {path} is damaged or not a triskele store ({error}): restore a backup"
        ) from error
    except (apsw.CantOpenError, apsw.IOError, OSError) as error:
        if isinstance(error, OSError) and is_full(error):
            raise StoreUnavailable(f"no space left for the store {path}: nothing was changed") from error
        raise StoreUnavailable(f"cannot use {path} as a store: {error}") from error
