"""Files of one JSON object a line, as people and judges write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from triskele.errors import BadInput

LARGEST_BYTES = 64 * 2**20


def read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object with the place to name where it is wrong."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise BadInput(f"{path} is larger than {LARGEST_BYTES // 2**20} MB")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{path}, line {number}", _object(line, f"{path}, line {number}")


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write objects to a new file that only the user can read."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    try:
        with path.open("x", encoding="utf-8") as file:
            path.chmod(0o600)
            file.write(text)
    except FileExistsError:
        raise BadInput(f"{path} exists already: name a new file") from None
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error


def text_of(row: Mapping[str, Any], name: str, place: str) -> str:
    """A value that must be a text with something in it."""
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{place}: has no {name}")
    return value.strip()


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        raise BadInput(f"{place}: is not valid JSON") from None
    if not isinstance(value, dict):
        raise BadInput(f"{place}: is not a JSON object")
    return value
