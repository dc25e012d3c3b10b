"""Points in time: UTC everywhere, microseconds in the store, ISO 8601 in text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from triskele.errors import BadInput

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def now() -> datetime:
    """The current time."""
    return datetime.now(UTC)


def to_micros(moment: datetime) -> int:
    """Whole microseconds since 1970, exact."""
    return (moment - EPOCH) // MICROSECOND


def from_micros(micros: int) -> datetime:
    """The inverse of `to_micros`."""
    return EPOCH + timedelta(microseconds=micros)


def to_text(moment: datetime) -> str:
    """ISO 8601 with a Z, with microseconds only if they are not zero."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse(text: str) -> datetime:
    """Parse a date or a date and time; without a time zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadInput(f"not a date: {text[:40]!r} (write 2026-03-14 or 2026-03-14T09:30:00Z)") from error
