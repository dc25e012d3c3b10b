"""Recognising what recall has given: a text that only says it again is not a new memory."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from triskele.errors import BadInput
from triskele.stores.protocols import OwnerStore
from triskele.types import LinkKind

# One line of the fence around injected memories; `serving/hook/fence.py` writes it.
FENCED = re.compile(r"^\W*([0-9a-z]{8,16}) · \d{4}-\d\d-\d\d · (?:private · )?origin \w+ · project \"", re.MULTILINE)
# A memory of many sentences is known by the first of them.
MOST_PRINTS = 40
# A sentence this short is said by anybody; alone it gives nothing away.
SHORTEST = 20

_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+")
_LIST_MARK = re.compile(r"^\s*(?:[>*•–-]|\d+[.)]|#+)\s+", re.MULTILINE)
_WRAPPING = " \t\"'`“”‘’«»*_.!?…。！？;,"


def prints(text: str) -> tuple[str, ...]:
    """The fingerprints of a text: of the whole, and of each sentence that is long enough to be its own."""
    sentences = _sentences(text)
    telling = [said for said in sentences if len(said) >= SHORTEST][:MOST_PRINTS]
    return tuple(dict.fromkeys(_print(said) for said in (" ".join(sentences), *telling) if said))


def recognised(store: OwnerStore, text: str, *, project: str | None = None) -> str | None:
    """The id of an injected memory that this text repeats, whole or in part; `project` is where it would be kept."""
    if fenced := FENCED.search(text):
        # Whatever the fence quotes came from here, even if it has been erased since.
        return next(iter(store.find(fenced[1], limit=1)), fenced[1])
    sentences = _sentences(text)
    parts = [_print(said) for said in sentences if len(said) >= SHORTEST]
    whole = _print(" ".join(sentences))
    found = store.usage.echoed({whole, *parts})
    if whole in found:
        return _visible(store, found[whole], project)
    # Every sentence must have been given; of a short one nobody knows.
    if not parts or len(parts) < len(sentences) or not all(part in found for part in parts):
        return None
    seen = [_visible(store, found[part], project) for part in parts]
    return seen[0] if all(seen) else None


def refuse(store: OwnerStore, text: str, *, project: str | None = None) -> None:
    """Raise where a text repeats what recall has given."""
    id = recognised(store, text, project=project)
    if id is not None:
        raise BadInput(f"this repeats memory {id}, which recall gave you: it is stored already, edit it if it changed")


def _visible(store: OwnerStore, ids: list[str], project: str | None) -> str | None:
    """The first of these memories that a reader in a project sees: what others say elsewhere may be news here."""
    standing = store.memories(ids)
    replaced = {link.target for link in store.links(ids, kind=LinkKind.SUPERSEDES) if link.target in standing}
    for id in ids:
        # What was forgotten or replaced is not there any more: saying it again is news.
        if id in standing and id not in replaced and (project is None or standing[id].project in (project, "")):
            return id
    return None


def _sentences(text: str) -> list[str]:
    return [said for part in _SENTENCE.split(_LIST_MARK.sub("", text)) if (said := _plain(part))]


def _plain(text: str) -> str:
    """One sentence without the marks around it, its blanks, its case and its forms of letters."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    if not folded.isascii():
        folded = "".join(character for character in folded if unicodedata.category(character) != "Cf")
    return " ".join(folded.split()).strip(_WRAPPING)


def _print(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
