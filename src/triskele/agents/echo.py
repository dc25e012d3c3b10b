"""Fingerprints of texts given to agents: recognise and refuse their echo, and count their use."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping

from triskele.errors import BadInput
from triskele.store.owner import OwnerStore
from triskele.store.values import Use
from triskele.text.words import SENTENCE_END, tokens_of
from triskele.types import Answer, LinkKind, Memory, Sensitivity

# The separator of the parts of a label, such as id, date and origin.
LABEL_SEPARATOR = " · "
# The least number of parts of a label; a project's name may hold the separator too.
_LABEL_PARTS = range(4, 9)
_MAX_LINES = 200
# Of a long memory only the first sentences are fingerprinted.
MOST_FINGERPRINTS = 40
# Shorter sentences are too common to identify a memory.
SHORTEST = 20

_SENTENCE = re.compile(SENTENCE_END)
_LIST_MARK = re.compile(r"^\s*(?:[>*•–-]|\d+[.)]|#+)\s+", re.MULTILINE)
_WRAPPING = " \t\"'`“”‘’«»*_.!?…。！？;,"


def fingerprints(text: str) -> tuple[str, ...]:
    """The fingerprints of a whole text and of its longer sentences."""
    sentences = _sentences(text)
    long = [sentence for sentence in sentences if len(sentence) >= SHORTEST][:MOST_FINGERPRINTS]
    return tuple(dict.fromkeys(_fingerprint(part) for part in (" ".join(sentences), *long) if part))


def label_fingerprint(label: str) -> str:
    """The fingerprint of the label under which a memory was given."""
    return _fingerprint(f"label {_plain(label)}")


def _label_fingerprints(text: str) -> set[str]:
    """The fingerprints of labels that may begin the lines of a text."""
    lines = [_LIST_MARK.sub("", line).split(LABEL_SEPARATOR) for line in text.splitlines()[:_MAX_LINES]]
    counts = ((parts, count) for parts in lines for count in _LABEL_PARTS if count <= len(parts))
    return {label_fingerprint(LABEL_SEPARATOR.join(parts[:count])) for parts, count in counts}


def recognised(store: OwnerStore, text: str, *, project: str | None = None) -> str | None:
    """The id of an injected memory that a text repeats, if any."""
    labelled = store.usage.echoed(_label_fingerprints(text))
    if labelled:
        return next(iter(labelled.values()))[0]
    sentences = _sentences(text)
    parts = [_fingerprint(sentence) for sentence in sentences if len(sentence) >= SHORTEST]
    whole = _fingerprint(" ".join(sentences))
    sources = store.usage.echoed({whole, *parts})
    if whole in sources:
        return _visible(store, sources[whole], project)
    # Every sentence must have been injected; short ones have no fingerprint.
    if not parts or len(parts) < len(sentences) or not all(part in sources for part in parts):
        return None
    visible = [_visible(store, sources[part], project) for part in parts]
    return visible[0] if all(visible) else None


def refuse(store: OwnerStore, text: str, *, project: str | None = None, private: bool = True) -> None:
    """Raise BadInput if a text repeats an injected memory, a private one only if the writer may know it."""
    id = recognised(store, text, project=project)
    memory = store.memories([id]).get(id) if id is not None else None
    is_hidden = memory is not None and memory.sensitivity is Sensitivity.PRIVATE and not private
    if id is not None and not is_hidden:
        raise BadInput(f"this repeats memory {id}, which recall returned: it is already stored; edit it if it changed")


def _visible(store: OwnerStore, ids: list[str], project: str | None) -> str | None:
    """The first of these memories that is visible in a project."""
    memories = store.memories(ids)
    replaced = {link.target for link in store.links(ids, kind=LinkKind.SUPERSEDES) if link.target in memories}
    for id in ids:
        # A forgotten or replaced memory may be stored again.
        if id in memories and id not in replaced and (project is None or memories[id].project in (project, "")):
            return id
    return None


def _sentences(text: str) -> list[str]:
    return [sentence for part in _SENTENCE.split(_LIST_MARK.sub("", text)) if (sentence := _plain(part))]


def _plain(text: str) -> str:
    """One sentence, folded, without surrounding punctuation."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    spaced = " ".join(folded.split())
    # What can be printed holds no invisible characters: few texts are read character by character.
    if not (spaced.isascii() or spaced.isprintable()):
        spaced = " ".join("".join(each for each in folded if unicodedata.category(each) != "Cf").split())
    return spaced.strip(_WRAPPING)


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def note_recall(store: OwnerStore, answer: Answer, *, to_agent: bool = False) -> None:
    """Count the memories of an answer, with fingerprints for agents."""
    memories = [*(hit.memory for hit in answer.hits), *answer.resolutions]
    uses = [
        Use(each.id, tokens_of(each.content), each.content_hash, fingerprints(each.content))
        if to_agent
        else Use(each.id, 0, each.content_hash)
        for each in memories
    ]
    if uses:
        store.usage.recalled(uses)


def note_injection(
    store: OwnerStore,
    memories: Iterable[Memory],
    *,
    conversation: str | None,
    tokens: Mapping[str, int],
    labels: Mapping[str, str] | None = None,
    client: str = "",
    project: str = "",
) -> None:
    """Count injected memories, with fingerprints of texts and labels."""
    labelled = {id: (label_fingerprint(label),) for id, label in (labels or {}).items()}
    injected = [
        Use(each.id, tokens[each.id], each.content_hash, (*fingerprints(each.content), *labelled.get(each.id, ())))
        for each in memories
    ]
    if injected:
        store.usage.injected(conversation, injected, client=client, project=project)
