"""Base classes of both databases: the dialect, and statements over the rows of one owner.

A value is marked by `?`, or by `?1` where it occurs several times; a database with other marks translates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from triskele.store.values import EMBED, MOST_TRIES, NAMES, Named
from triskele.types import LinkKind

# The journal as a cursor names it.
NEWEST_ENTRY = "coalesce((SELECT seq || '@' || at FROM journal WHERE owner = ?1 ORDER BY seq DESC LIMIT 1), '')"
# The jobs of a kind that wait.
PENDING = f"owner = ? AND kind = ? AND tries < {MOST_TRIES}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The parts of statements that databases write differently."""

    # The condition that a column is in a list, marked `?` or as {}; and the list {} as a table of `value` and `key`.
    listed: str
    listed_as: str
    elements: str
    # The condition that a version has a tag.
    has_tag: Callable[[str], tuple[str, list[Any]]]
    # Before a column: no index may be chosen by it.
    unindexed: str = ""
    # After a table: read it by the index of models, in the order of its rows, or by the index of contents.
    by_model: str = ""
    in_row_order: str = ""
    by_content: str = ""
    # After a condition on versions: leave out what others share.
    own: str = ""
    keeps_tokens: bool = False


class Rows(ABC):
    """The rows of one owner in one transaction."""

    dialect: ClassVar[Dialect]

    def __init__(self, owner: str) -> None:
        self.owner = owner

    @abstractmethod
    def run(self, sql: str, bindings: Sequence[Any]) -> Any:
        """Execute a statement; its cursor."""

    @abstractmethod
    def changed(self, sql: str, bindings: Sequence[Any]) -> int:
        """Execute a statement; how many rows it changed."""

    @abstractmethod
    def insert_vectors(self, fingerprint: str, vectors: Mapping[str, bytes], tokens: Mapping[str, bytes]) -> None:
        """Write a model's vectors by content hash, without contents erased meanwhile."""

    @abstractmethod
    def put_name(self, named: Named) -> int:
        """Write a name, or what is new about it; its number."""

    @abstractmethod
    def add_mentions(self, row: int, mentions: Sequence[tuple[int, str]]) -> None:
        """Write what a version mentions, as (name, kind), without the names that it mentions already."""

    @abstractmethod
    def drop_mentions(self) -> list[int]:
        """Delete the mentions of erased versions, and names without mentions; the names that were mentioned."""

    @abstractmethod
    def respell(self, names: Sequence[int]) -> None:
        """Replace the spelling of names that no version holds any more by their key."""

    def has_old_conversations(self, kept: int, kept_when_over: int, most: int) -> bool:  # noqa: ARG002
        """Whether conversations may be older than two moments, or more than a number."""
        return True

    def complete_jobs(self, kind: str, keys: Iterable[str]) -> None:
        """Remove jobs that are done."""
        sql = f"DELETE FROM jobs WHERE owner = ? AND kind = ? AND key {self.dialect.listed}"
        self.run(sql, [self.owner, kind, list(keys)])

    def one(self, sql: str, *bindings: Any) -> Sequence[Any] | None:
        """The first row of a statement whose first mark is the owner."""
        row: Sequence[Any] | None = self.run(sql, [self.owner, *bindings]).fetchone()
        return row

    def all(self, sql: str, *bindings: Any) -> list[Any]:
        """The rows of a statement whose first mark is the owner."""
        rows: list[Any] = self.run(sql, [self.owner, *bindings]).fetchall()
        return rows


class OwnerDatabase(ABC):
    """A database as one owner uses it."""

    dialect: ClassVar[Dialect]
    owner: str

    @abstractmethod
    def all(self, sql: str, *bindings: Any) -> list[Any]:
        """The rows of a query whose first mark is the owner."""

    @abstractmethod
    def all_now(self, sql: str, *bindings: Any) -> list[Any]:
        """The rows of such a query as of now, inside a snapshot too."""

    @abstractmethod
    def writing(self, *, wait: bool = True) -> AbstractContextManager[Rows]:
        """A durable transaction; without `wait` a store that is being written refuses at once."""

    @abstractmethod
    def noting(self, *, keeps: bool = False) -> AbstractContextManager[Rows]:
        """A transaction that waits for neither writers nor the disk; `keeps` says that it writes usage only."""

    def pending_keys(self, kind: str, limit: int) -> list[str]:
        """The keys of the oldest jobs that wait."""
        keys = self.all(f"SELECT key FROM jobs WHERE {PENDING} ORDER BY job LIMIT ?", kind, limit)
        return [str(key) for (key,) in keys]

    def documents(self, kind: str) -> Iterable[tuple[str, str]]:
        """The keys and values of a kind, ordered by key."""
        return self.all("SELECT key, value FROM documents WHERE owner = ? AND kind = ? ORDER BY key", kind)

    def may_have_links(self, ids: Sequence[str], kind: LinkKind | None) -> Sequence[str]:  # noqa: ARG002
        """The ids without those that certainly have no links of a kind."""
        return ids

    def may_supersede(self) -> bool:
        """Whether a memory may ever have replaced another."""
        return True

    @abstractmethod
    def heads(self, fingerprint: str) -> Sequence[Any]:
        """The epoch and the columns of `head_columns` for a model, as of one moment."""


def head_columns(mentions: str, by_model: str = "") -> tuple[str, ...]:
    """What `Heads` holds of an owner and a model, besides the epoch."""
    return (
        NEWEST_ENTRY,
        f"(SELECT coalesce(max(slot), 0) FROM vectors{by_model} WHERE owner = ?1 AND fingerprint = ?2)",
        f"(SELECT coalesce(max(mention), 0) FROM {mentions} WHERE owner = ?1)",
        "(SELECT coalesce(max(merge), 0) FROM merges WHERE owner = ?1)",
        *(
            f"(SELECT count(*) FROM jobs WHERE owner = ?1 AND kind = '{kind}' AND tries < {MOST_TRIES})"
            for kind in (EMBED, NAMES)
        ),
    )
