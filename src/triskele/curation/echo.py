"""Detecting echoes: a text that only repeats injected memories is not a new memory."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from triskele.base.text import SENTENCE_END
from triskele.errors import BadInput
from triskele.stores.protocol import Store
from triskele.types import LinkKind

# One line of the fence around injected memories; `serving/hook/fence.py` writes it.
FENCED = re.compile(r"^\W*([0-9a-z]{8,16}) · \d{4}-\d\d-\d\d · (?:private · )?origin \w+ · project \"", re.MULTILINE)
# Of a long memory only the first sentences are fingerprinted.
MOST_PRINTS = 40
# Shorter sentences are too common to identify a memory.
SHORTEST = 20

_SENTENCE = re.compile(SENTENCE_END)
_LIST_MARK = re.compile(r"^\s*(?:[>*•–-]|\d+[.)]|#+)\s+", re.MULTILINE)
_WRAPPING = " \t\"'`“”‘’«»*_.!?…。！？;,"


def prints(text: str) -> tuple[str, ...]:
    """The fingerprints of a text: of the whole, and of each sentence that is long enough."""
    sentences = _sentences(text)
    long = [sentence for sentence in sentences if len(sentence) >= SHORTEST][:MOST_PRINTS]
    return tuple(dict.fromkeys(_print(part) for part in (" ".join(sentences), *long) if part))


def recognised(store: Store, text: str, *, project: str | None = None) -> str | None:
    """The id of an injected memory that this text repeats, whole or in part; `project` is where it would be stored."""
    if fenced := FENCED.search(text):
        # A fenced text was injected, even if its memory has been erased since.
        return next(iter(store.find(fenced[1], limit=1)), fenced[1])
    sentences = _sentences(text)
    parts = [_print(sentence) for sentence in sentences if len(sentence) >= SHORTEST]
    whole = _print(" ".join(sentences))
    sources = store.uses.echoed({whole, *parts})
    if whole in sources:
        return _visible(store, sources[whole], project)
    # Every sentence must have been injected; short ones have no fingerprint.
    if not parts or len(parts) < len(sentences) or not all(part in sources for part in parts):
        return None
    visible = [_visible(store, sources[part], project) for part in parts]
    return visible[0] if all(visible) else None


def refuse(store: Store, text: str, *, project: str | None = None) -> None:
    """Raise BadInput if a text repeats an injected memory."""
    id = recognised(store, text, project=project)
    if id is not None:
        raise BadInput(f"this repeats memory {id}, which recall returned: it is already stored; edit it if it changed")


def _visible(store: Store, ids: list[str], project: str | None) -> str | None:
    """The first of these memories that is visible in a project: a memory of another project may be new here."""
    standing = store.memories(ids)
    replaced = {link.target for link in store.links(ids, kind=LinkKind.SUPERSEDES) if link.target in standing}
    for id in ids:
        # A forgotten or replaced memory may be stored again.
        if id in standing and id not in replaced and (project is None or standing[id].project in (project, "")):
            return id
    return None


def _sentences(text: str) -> list[str]:
    return [sentence for part in _SENTENCE.split(_LIST_MARK.sub("", text)) if (sentence := _plain(part))]


def _plain(text: str) -> str:
    """One sentence without surrounding punctuation, in one case, with single spaces and NFKC letters."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    if not folded.isascii():
        folded = "".join(character for character in folded if unicodedata.category(character) != "Cf")
    return " ".join(folded.split()).strip(_WRAPPING)


def _print(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
