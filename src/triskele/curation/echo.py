"""Recognising what recall has given: a text that only says it again is not a new memory."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from triskele.errors import BadInput
from triskele.stores.protocol import Store
from triskele.types import LinkKind

# What stands between the parts of a label, such as id, date and origin.
LABEL_SEPARATOR = " · "
# A label has so many parts at least; a project's name may hold the separator too.
_LABEL_PARTS = range(4, 9)
_MAX_LINES = 200
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


def label_print(label: str) -> str:
    """The fingerprint of the label under which a memory was given."""
    return _print(f"label {_plain(label)}")


def _label_prints(text: str) -> set[str]:
    """The fingerprints of all labels that a text may begin its lines with."""
    lines = [_LIST_MARK.sub("", line).split(LABEL_SEPARATOR) for line in text.splitlines()[:_MAX_LINES]]
    counts = ((parts, count) for parts in lines for count in _LABEL_PARTS if count <= len(parts))
    return {label_print(LABEL_SEPARATOR.join(parts[:count])) for parts, count in counts}


def recognised(store: Store, text: str, *, project: str | None = None) -> str | None:
    """The id of an injected memory that this text repeats, whole or in part; `project` is where it would be kept."""
    labelled = store.uses.echoed(_label_prints(text))
    if labelled:
        return next(iter(labelled.values()))[0]
    sentences = _sentences(text)
    parts = [_print(said) for said in sentences if len(said) >= SHORTEST]
    whole = _print(" ".join(sentences))
    found = store.uses.echoed({whole, *parts})
    if whole in found:
        return _visible(store, found[whole], project)
    # Every sentence must have been given; of a short one nobody knows.
    if not parts or len(parts) < len(sentences) or not all(part in found for part in parts):
        return None
    seen = [_visible(store, found[part], project) for part in parts]
    return seen[0] if all(seen) else None


def refuse(store: Store, text: str, *, project: str | None = None) -> None:
    """Raise where a text repeats what recall has given."""
    id = recognised(store, text, project=project)
    if id is not None:
        raise BadInput(f"this repeats memory {id}, which recall gave you: it is stored already, edit it if it changed")


def _visible(store: Store, ids: list[str], project: str | None) -> str | None:
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
