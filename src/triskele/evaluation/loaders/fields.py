"""Objects out of a file, read with checks that name the place of what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from triskele import validation
from triskele.errors import BadInput


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object and where it stands."""

    values: Mapping[str, Any]
    where: str

    @staticmethod
    def of(value: object, where: str) -> Fields:
        """The value as an object; anything else is refused."""
        if not isinstance(value, dict):
            raise BadInput(f"{where}: is not a JSON object")
        return Fields(value, where)

    def wrong(self, problem: str) -> BadInput:
        """An error that names this place."""
        return BadInput(f"{self.where}: {problem}")

    def text(self, *keys: str) -> str:
        """The text under the first of the keys that is there; it may be empty."""
        return cleaned(self._typed(str, "text", *keys))

    def optional_text(self, key: str) -> str:
        """The text under a key, empty where there is none."""
        return "" if self.values.get(key) is None else self.text(key)

    def name(self, *keys: str) -> str:
        """An id, written as text or as a whole number."""
        value = self._typed((str, int), "text or a whole number", *keys)
        return validation.clean(str(value), f"{self.where}: the {keys[0]}") or self._missing(keys[0])

    def whole(self, key: str) -> int:
        """A whole number."""
        return int(self._typed(int, "a whole number", key))

    def object(self, key: str) -> Fields:
        """An object under a key."""
        return Fields.of(self._typed(dict, "an object", key), f"{self.where}, {key}")

    def parts(self, key: str) -> list[Any]:
        """A list of anything."""
        return list(self._typed(list, "a list", key))

    def texts(self, key: str) -> list[str]:
        """A list of texts."""
        return [text_of(part, f"{self.where}, {key} {place}") for place, part in enumerate(self.parts(key), 1)]

    def objects(self, key: str) -> Iterator[Fields]:
        """A list of objects, each with its place."""
        return objects(self.parts(key), f"{self.where}, {key}")

    def _typed(self, kind: type | tuple[type, ...], wanted: str, *keys: str) -> Any:
        key = next((key for key in keys if self.values.get(key) is not None), None)
        if key is None:
            self._missing(keys[0])
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, kind):
            raise self.wrong(f"has a {key} that is not {wanted}")
        return value

    def _missing(self, key: str) -> NoReturn:
        raise self.wrong(f"has no {key}")


def objects(parts: list[Any], where: str) -> Iterator[Fields]:
    """Every part of a list as an object with its place."""
    for place, part in enumerate(parts, start=1):
        yield Fields.of(part, f"{where} {place}")


def list_of(value: object, where: str) -> list[Any]:
    """The value as a list; anything else is refused."""
    if not isinstance(value, list):
        raise BadInput(f"{where}: is not a list")
    return value


def text_of(value: object, where: str) -> str:
    """The value as clean text; anything else is refused."""
    if not isinstance(value, str):
        raise BadInput(f"{where}: is not text")
    return cleaned(value)


def cleaned(text: str) -> str:
    """A text without invisible controls."""
    if text.replace("\n", " ").replace("\t", " ").isprintable():
        return text.strip()
    # Public dumps hold halves of emoji and stray NULs; one of them must not cost the whole set.
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return validation.clean(whole.replace("\x00", ""), "the text")
