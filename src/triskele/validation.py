"""One check for every field of a memory and every option of a request."""

from __future__ import annotations

import math
import operator
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex, TypeVar, get_args

from triskele.errors import BadInput
from triskele.requests import FusionName, LegName, OrderName, RerankName
from triskele.text import timestamps
from triskele.text.words import SENTENCE_END
from triskele.types import ALPHABET, ID_LENGTH, Link, LinkKind, Memory, Origin, Role, Scope, Sensitivity, Sort

if TYPE_CHECKING:
    from triskele.config import MemorySettings
    from triskele.replies.rooms import GranteeKind, Subject
    from triskele.requests import Draft

SHORTEST_PREFIX = 4
MAX_POSITION = 2**53
# Of the tags together, and of the keywords.
MAX_LABEL_CHARACTERS = 500
MAX_LIMIT = 200
MAX_BUDGET = 1_000_000
MAX_LISTED = 1000
MAX_OFFSET = 2**31 - 1

Moment = datetime | str
FilePath = str | os.PathLike[str]
_Kind = TypeVar("_Kind", bound=StrEnum)

# What programs call the parts of a conversation.
_OTHER_NAMES = {"human": Role.USER, "ai": Role.ASSISTANT, "model": Role.ASSISTANT, "function": Role.TOOL}
_KEPT_CONTROLS = "\n\t"
# Joiners have a meaning in many scripts; every other format character can hide text from a reader.
_KEPT_FORMATS = "\u200c\u200d\u00ad"
_UNREAD_LENGTH = 1_000_000
_PLURALS = {"sensitivity": "sensitivities", "origin": "origins"}
_SENTENCE_END = re.compile(f"({SENTENCE_END})")


def check_prefix(reference: str) -> str:
    """An id or the first characters of one."""
    prefix = check_text(reference, "an id").strip().lower()
    if not SHORTEST_PREFIX <= len(prefix) <= ID_LENGTH or not set(prefix) <= set(ALPHABET):
        raise BadInput(
            f"no memory {reference[:40]!r}: ids look like 1kpn46 and have at least {SHORTEST_PREFIX} characters;"
            " `triskele list` shows them"
        )
    return prefix


def check_text(text: str, what: str) -> str:
    """The text as it is; refuses every other type."""
    if not isinstance(text, str):
        raise BadInput(f"{what} must be a text, not {_type_of(text)}")
    return text


def check_texts(texts: Iterable[str], what: str) -> list[str]:
    """The texts of a list; refuses a single text, which would be read letter by letter."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise BadInput(f"{what} must be a list of texts, not {_type_of(texts)}")
    return [check_text(text, f"each of the {what}") for text in texts]


def check_path(path: FilePath) -> Path:
    """The path of a file, given as a text or as a path."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in os.fspath(path):
        raise BadInput(f"not the path of a file: {str(path)[:40]!r}")
    return Path(path)


def clean(text: str, what: str) -> str:
    """The text without invisible controls; refuses binary data and invalid Unicode."""
    if check_text(text, what).isprintable():
        return text.strip()
    if "\x00" in text:
        raise BadInput(f"{what} contains a NUL character: it looks like binary data, not text")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise BadInput(f"{what} is not valid Unicode (a lone surrogate or undecodable bytes)")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(character for character in text if _is_visible(character)).strip()


def check_content(text: str, settings: MemorySettings) -> str:
    """The cleaned content of a memory, within the limits."""
    # A huge text is refused before it is cleaned.
    is_huge = isinstance(text, str) and len(text) > _UNREAD_LENGTH
    content = text if is_huge else clean(text, "the memory")
    if not content:
        raise BadInput("the memory is empty")
    if len(content) > settings.max_characters:
        raise BadInput(
            f"the memory has {len(content):,} characters, the limit is {settings.max_characters:,}: "
            "keep one fact per memory, or split the text at sentences",
            remedy="split",
        )
    return content


def check_category(category: str, settings: MemorySettings) -> str:
    """One of the configured categories."""
    name = clean(category, "the category").lower()
    if name not in settings.categories:
        raise BadInput(f"unknown category {category[:40]!r}: choose one of {', '.join(settings.categories)}")
    return name


def clean_tag(tag: str) -> str:
    """A tag as memories keep it: in lower case, without commas."""
    return " ".join(clean(tag, "a tag").lower().replace(",", " ").split())


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Lower-case tags without duplicates, in the given order."""
    cleaned = map(clean_tag, check_texts(tags, "tags"))
    distinct = tuple(dict.fromkeys(tag for tag in cleaned if tag))
    _check_length(", ".join(distinct), "the tags")
    return distinct


def check_keywords(keywords: str) -> str:
    """Keywords, within the length limit."""
    text = " ".join(clean(keywords, "the keywords").split())
    _check_length(text, "the keywords")
    return text


def check_importance(importance: float) -> float:
    """A number from 0 to 1."""
    if not isinstance(importance, SupportsFloat) or isinstance(importance, str):
        raise BadInput(f"importance must be a number, not {_type_of(importance)}")
    if not (math.isfinite(importance) and 0 <= importance <= 1):
        raise BadInput(f"importance must be between 0 and 1, not {float(importance):g}")
    # Adding zero turns -0.0, which a row cannot keep, into 0.0.
    return float(importance) + 0.0


def check_name(text: str, what: str, limit: int = 200) -> str:
    """A short single-line name: a project, an owner, a session."""
    name = " ".join(clean(text, what).split())
    if len(name) > limit:
        raise BadInput(f"{what} is longer than {limit} characters")
    return name


def new_link(source: str, kind: str, target: str, at: datetime) -> Link:
    """A link of a checked kind between two memories, known from this moment on."""
    return Link(source=source, kind=check_member(LinkKind, kind, "kind of link"), target=target, known_from=at)


def check_member(kind: type[_Kind], text: str, what: str) -> _Kind:
    """A member of an enum, or its name."""
    if isinstance(text, kind):
        return text
    name = clean(text, f"the {what}").lower() if isinstance(text, str) else ""
    if name not in tuple(kind):
        raise BadInput(f"unknown {what} {str(text)[:40]!r}: choose one of {', '.join(kind)}")
    return kind(name)


def _members(kind: type[_Kind], names: Iterable[str] | None, what: str) -> frozenset[_Kind] | None:
    if names is None:
        return None
    return frozenset(check_member(kind, name, what) for name in check_texts(names, _PLURALS[what]))


def role_called(name: str) -> Role:
    """The role for the name that another program uses; `other` if it is unknown."""
    lowered = name.strip().lower()
    return _OTHER_NAMES.get(lowered) or (Role(lowered) if lowered in tuple(Role) else Role.OTHER)


def usual_category(settings: MemorySettings) -> str:
    """The category of a memory without one."""
    return "facts" if "facts" in settings.categories else settings.categories[0]


def check_moment(value: Moment | None) -> datetime | None:
    """A point in time with a time zone."""
    if not isinstance(value, datetime | str | None):
        raise BadInput(f"a point in time must be a text or a datetime, not {_type_of(value)}")
    if isinstance(value, datetime) and value.tzinfo is None:
        raise BadInput(f"a point in time needs a time zone: {value!r}")
    return timestamps.parse(value) if isinstance(value, str) else value


def check_when(value: Moment | None, *, at_end: bool = False) -> datetime | None:
    """A point in time, or the beginning or end of the period that words such as `last week` name."""
    if not isinstance(value, str):
        return check_moment(value)
    # Imported here: few calls name a time in words.
    from triskele.text import periods

    return (periods.parse_end if at_end else periods.parse_start)(value, timestamps.now())


def check_range(since: Moment | None, until: Moment | None) -> tuple[datetime | None, datetime | None]:
    """The beginning and the end of the time that memories may be about; `until` includes what it names."""
    start, end = check_when(since), check_when(until, at_end=True)
    if start is not None and end is not None and end <= start:
        raise BadInput(f"until {until} ends before since {since} begins")
    return start, end


def check_consistent(memory: Memory) -> None:
    """Refuse a period that ends too early, and a tool in the role of the user."""
    if memory.valid_from and memory.valid_to and memory.valid_to <= memory.valid_from:
        raise BadInput("valid-to must be later than valid-from")
    if memory.role is Role.USER and memory.origin in (Origin.TOOL, Origin.WEB):
        raise BadInput(f"a text of origin {memory.origin} cannot have the role user: only what the user said has it")


def check_share(
    memory: str | None, tag: str | None, user: str | None, group: str | None
) -> tuple[Subject, str, GranteeKind, str]:
    """What is shared and with whom; exactly one of each pair must be named."""
    if (memory is None) == (tag is None):
        raise BadInput("name either a memory or a tag to share")
    if (user is None) == (group is None):
        raise BadInput("name either a user or a group to share with")
    subject: Subject = "tag" if memory is None else "memory"
    kind: GranteeKind = "group" if user is None else "user"
    return subject, memory or clean_tag(tag or ""), kind, user or group or ""


def check_choice(text: str, choices: Sequence[str], what: str) -> str:
    """One of some names."""
    if text not in choices:
        raise BadInput(f"unknown {what} {str(text)[:40]!r}: choose one of {', '.join(choices)}")
    return text


def check_whole(number: int, what: str, *, least: int = 0, most: int, unit: str = "") -> int:
    """A whole number within bounds."""
    if not isinstance(number, SupportsIndex):
        raise BadInput(f"{what} must be a whole number, not {_type_of(number)}")
    whole = operator.index(number)
    if not least <= whole <= most:
        raise BadInput(f"{what} must be between {least} and {most:,}{unit}, not {number}")
    return whole


def check_limit(limit: int) -> int:
    """The number of hits that an answer may have."""
    return check_whole(limit, "limit", least=1, most=MAX_LIMIT)


def check_drafts(drafts: Sequence[Draft]) -> list[Draft]:
    """Drafts, each a dictionary with its content."""
    listed: list[Any] = list(drafts) if isinstance(drafts, list | tuple) else [drafts]
    for draft in listed:
        if not isinstance(draft, Mapping) or "content" not in draft:
            raise BadInput('each of the memories must be a dictionary with its "content"')
    return listed


def _type_of(value: object) -> str:
    return "a text" if isinstance(value, str) else "None" if value is None else type(value).__name__


def fitting_pieces(text: str, limit: int) -> list[str]:
    """The text as it is; a longer one cut at sentence ends."""
    return [text] if len(text) <= limit else split_sentences(text, limit)


def split_sentences(text: str, limit: int) -> list[str]:
    """Cut a text at sentence ends into pieces of at most `limit` characters; line breaks are kept."""
    pieces: list[str] = []
    sentences = _SENTENCE_END.split(clean(text, "the text"))
    for sentence, before in zip(sentences[::2], ["", *sentences[1::2]], strict=True):
        glue = "\n" if "\n" in before else " "
        for part in _within(sentence.strip(), limit):
            if pieces and part and len(pieces[-1]) + 1 + len(part) <= limit:
                pieces[-1] += glue + part
            elif part:
                pieces.append(part)
            glue = " "
    return pieces


def _within(sentence: str, limit: int) -> Iterable[str]:
    while len(sentence) > limit:
        cut = sentence.rfind(" ", 1, limit + 1)
        cut = cut if cut > 0 else limit
        yield sentence[:cut].strip()
        sentence = sentence[cut:].strip()
    yield sentence


def _check_length(text: str, what: str) -> None:
    if len(text) > MAX_LABEL_CHARACTERS:
        raise BadInput(f"{what} have {len(text)} characters, the limit is {MAX_LABEL_CHARACTERS}")


def _is_visible(character: str) -> bool:
    category = unicodedata.category(character)
    if category == "Cc":
        return character in _KEPT_CONTROLS
    return category != "Cf" or character in _KEPT_FORMATS


def narrowed(
    scope: Scope,
    settings: MemorySettings,
    *,
    category: str | None = None,
    tags: Iterable[str] = (),
    as_of: Moment | None = None,
    known_at: Moment | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    sensitivities: Iterable[str] | None = None,
    origins: Iterable[str] | None = None,
    trusted: frozenset[str] | None = None,
) -> Scope:
    """A scope with the filters that a reader asks for, checked."""
    recorded, (start, end) = check_when(known_at), check_range(since, until)
    return replace(
        scope,
        sensitivities=_members(Sensitivity, sensitivities, "sensitivity"),
        origins=_members(Origin, origins, "origin"),
        category=None if category is None else check_category(category, settings),
        tags=frozenset(check_tags(tags) if tags else ()),
        as_of=check_when(as_of) or recorded or scope.as_of,
        known_at=recorded,
        since=start,
        until=end,
        trusted=trusted,
    )


Check = Callable[[Any, "MemorySettings"], Any]


def _optional_name(what: str) -> Check:
    return lambda value, _: check_name(value, what) or None


def _way(choices: Sequence[str]) -> Check:
    return lambda value, _: check_choice(value, choices, "way to rank")


def _alone(check: Callable[[Any], Any]) -> Check:
    return lambda value, _: check(value)


# Free texts besides the content and the tags: they are indexed and shown, so they must hold no secret.
LABELS: Mapping[str, str] = {name: f"the {name}" for name in ("keywords", "session", "project", "speaker")}

# The one check of every field of a memory and every option of a request, by its name.
FIELDS: Mapping[str, Check] = {
    "content": check_content,
    "text": lambda value, _: check_text(value, "the question"),
    "title": lambda value, _: check_text(value, "the title"),
    "category": check_category,
    **dict.fromkeys(("tags", "add_tags", "remove_tags"), _alone(check_tags)),
    "importance": _alone(check_importance),
    **{name: _optional_name(description) for name, description in LABELS.items()},
    "keywords": _alone(check_keywords),
    "project": lambda value, _: check_name(value, "the project"),
    "batch": lambda value, _: check_name(value, "the batch"),
    "role": lambda value, _: check_member(Role, value, "role"),
    "position": lambda value, _: check_whole(value, "a position", most=MAX_POSITION),
    "sensitivity": lambda value, _: check_member(Sensitivity, value, "sensitivity"),
    "origin": lambda value, _: check_member(Origin, value, "origin"),
    "sensitivities": lambda value, _: _members(Sensitivity, value, "sensitivity"),
    "origins": lambda value, _: _members(Origin, value, "origin"),
    "kind": lambda value, _: check_member(LinkKind, value, "kind of link"),
    "sort": lambda value, _: check_member(Sort, value, "sort"),
    "limit": _alone(check_limit),
    "budget": lambda value, _: check_whole(value, "budget", least=1, most=MAX_BUDGET, unit=" tokens"),
    "legs": _way(get_args(LegName)),
    "fusion": _way(get_args(FusionName)),
    "rerank": _way(get_args(RerankName)),
    "order": _way((*get_args(OrderName), "near")),
    "created_at": _alone(check_moment),
    **dict.fromkeys(("as_of", "known_at", "since", "until", "at", "valid_from", "valid_to"), _alone(check_when)),
    **dict.fromkeys(("id", "source", "target", "near", "supersedes"), _alone(check_prefix)),
}
