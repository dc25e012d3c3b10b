"""The catalog: columns over every version that filters and ranking read without a query to the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from triskele.index.corpus import Facts, Ints, is_called
from triskele.index.lifecycle import DerivedIndex
from triskele.store.owner import OwnerStore
from triskele.store.values import CatalogRow, Cursor
from triskele.text import timestamps
from triskele.types import Action, Role, Scope

_EVER = np.iinfo(np.int64).max
_NEVER = np.iinfo(np.int64).min

_ROLES = {role.value: code for code, role in enumerate(Role)}
_ANY_MOMENT = timestamps.EPOCH
_MOST_VIEWS = 8
_ZERO_IF_UNKNOWN = frozenset({"is_visible", "importance"})
# The turns next to a turn, nearest first.
_OFFSETS = tuple(side * distance for distance in range(1, 9) for side in (-1, 1))


class ScopeView(NamedTuple):
    """Which entries a scope contains, and which its reader may read at all; None if it may read every one."""

    is_visible: NDArray[np.bool_]
    is_readable: NDArray[np.bool_] | None


@dataclass(slots=True)
class Codes:
    """Numbers for names, and the rows of each tag; they only ever grow."""

    places: dict[tuple[str, str], int] = field(default_factory=dict)
    access: dict[tuple[str, str], int] = field(default_factory=dict)
    categories: dict[str, int] = field(default_factory=dict)
    sessions: dict[tuple[str, str, str], int] = field(default_factory=dict)
    speakers: dict[str, int] = field(default_factory=dict)
    tagged: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Columns:
    """One entry per version, in order of rows."""

    rows: Ints
    places: Ints
    access: Ints
    categories: Ints
    importance: NDArray[np.float64]
    sessions: Ints
    positions: Ints
    speakers: Ints
    roles: Ints
    happened: Ints
    valid_from: Ints
    valid_to: Ints
    known_from: Ints
    known_to: Ints
    slots: Ints
    codes: Codes

    def scoped(self, scope: Scope) -> ScopeView:
        """Which versions a scope contains, and which it may read at all; the last views are kept."""
        # One that depends on the moment is another each time.
        kept = None if self._has_periods and not scope.any_time else replace(scope, as_of=_ANY_MOMENT)
        if kept is not None and (view := self._views.get(kept)) is not None:
            return view
        is_readable = self._readable(scope)
        view = ScopeView(self._mask(scope, is_readable), is_readable)
        if kept is not None:
            if len(self._views) >= _MOST_VIEWS:
                self._views.clear()
            self._views[kept] = view
        return view

    def is_everything(self, scope: Scope) -> bool:
        """Whether the projects of a scope are all that its owner has."""
        projects = scope.projects
        names = self.codes.places.copy()
        return projects is None or all(project in projects for owner, project in names if owner == scope.owner)

    def _mask(self, scope: Scope, is_readable: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        wanted: list[int] = [
            code
            # A copy: another thread may be adding names.
            for (owner, project), code in self.codes.places.copy().items()
            if owner == scope.owner and (scope.projects is None or project in scope.projects)
        ]
        is_wanted = np.zeros(len(self.codes.places), dtype=np.bool_)
        is_wanted[wanted] = True
        seen = is_wanted[self.places]
        if is_readable is not None:
            seen &= is_readable
        if scope.known_at is None:
            seen &= self._is_current
        else:
            moment = timestamps.to_micros(scope.known_at)
            seen &= (self.known_from <= moment) & (moment < self.known_to)
        if not scope.any_time and self._has_periods:
            moment = timestamps.to_micros(scope.as_of)
            seen &= (self.valid_from <= moment) & (moment < self.valid_to)
        if scope.since is not None:
            seen &= self.happened >= timestamps.to_micros(scope.since)
        if scope.until is not None:
            seen &= self.happened < timestamps.to_micros(scope.until)
        if scope.category is not None:
            seen &= self.categories == self.codes.categories.get(scope.category, -1)
        for tag in scope.tags:
            seen &= np.isin(self.rows, self.codes.tagged.get(tag, []))
        return seen

    @cached_property
    def _views(self) -> dict[Scope, ScopeView]:
        """Nothing here changes any more: whatever is written makes other columns."""
        return {}

    @cached_property
    def _first(self) -> int:
        return int(self.rows[0])

    @cached_property
    def _has_no_gaps(self) -> bool:
        return int(self.rows[-1]) - self._first + 1 == len(self.rows)

    @cached_property
    def _is_current(self) -> NDArray[np.bool_]:
        """Which versions no later one has replaced."""
        return np.equal(self.known_to, _EVER)

    @cached_property
    def _has_periods(self) -> bool:
        """Whether any version is valid for a time only."""
        return bool((self.valid_from != _NEVER).any() or (self.valid_to != _EVER).any())

    def _readable(self, scope: Scope) -> NDArray[np.bool_] | None:
        """Which versions the sensitivities and origins of a scope allow; None if it allows all of them."""
        if scope.sensitivities is None and scope.origins is None:
            return None
        # A copy: another thread may be adding pairs.
        pairs = self.codes.access.copy()
        is_allowed = np.zeros(len(pairs), dtype=np.bool_)
        for (sensitivity, origin), code in pairs.items():
            is_allowed[code] = (scope.sensitivities is None or sensitivity in scope.sensitivities) and (
                scope.origins is None or origin in scope.origins
            )
        # Most stores contain nothing that the reader may not see: then there is nothing to filter.
        return None if is_allowed.all() else is_allowed[self.access]

    def find(self, rows: Sequence[int] | Ints) -> Ints:
        """The positions of some rows, all of which are in the catalog."""
        return np.searchsorted(self.rows, np.asarray(rows, dtype=np.int64)).astype(np.int64)

    def locate(self, rows: Ints) -> tuple[NDArray[np.bool_], Ints]:
        """Whether each row is in the catalog, and the positions of those that are."""
        if not len(self.rows):
            return np.zeros(len(rows), dtype=np.bool_), np.empty(0, dtype=np.int64)
        if self._has_no_gaps:
            # As in the file of a single owner where nothing was erased: a row number gives its place.
            at = rows - self._first
            is_known = (at >= 0) & (at < len(self.rows))
        else:
            at = self.rows.searchsorted(rows)
            is_known = self.rows.take(at, mode="clip") == rows
        return is_known, at if np.logical_and.reduce(is_known) else at[is_known]

    @cached_property
    def _conversations(self) -> tuple[Ints, Ints]:
        """The current entries of conversations in their order, and the place of every entry in that order."""
        talking = np.flatnonzero((self.sessions >= 0) & self._is_current)
        order = talking[np.lexsort((self.positions[talking], self.sessions[talking]))]
        rank = np.full(len(self.rows), -1, dtype=np.int64)
        rank[order] = np.arange(len(order))
        return order, rank

    def neighbours(self, at: Ints, offsets: Sequence[int]) -> Ints:
        """For entries of conversations, the current entries at some distance in the same one; −1 for no entry."""
        found = np.full((len(at), len(offsets)), -1, dtype=np.int64)
        order, rank = self._conversations
        if not len(order):
            return found
        for column, offset in enumerate(offsets):
            there = rank[at] + offset
            inside = (rank[at] >= 0) & (there >= 0) & (there < len(order))
            other = np.where(inside, order[np.clip(there, 0, len(order) - 1)], -1)
            same = inside & (self.sessions[np.maximum(other, 0)] == self.sessions[at])
            found[:, column] = np.where(same, other, -1)
        return found


class ScopedColumns:
    """What a scope shows of the catalog."""

    def __init__(self, columns: Columns, scope: Scope) -> None:
        self.columns = columns
        self.scope = scope
        self.size = len(columns.rows)
        self.is_everything = columns.is_everything(scope)
        self.is_visible, self.is_readable = columns.scoped(scope)

    def facts(self, rows: Ints, *, reach: int = 0) -> Facts:
        """Visibility, importance, session and speaker of some rows, with the neighbours up to `reach` turns away."""
        columns = self.columns
        is_known, at = columns.locate(rows)
        facts = Facts(
            self.is_visible[at],
            columns.importance[at],
            columns.sessions[at],
            self._neighbours(at, reach),
            columns.speakers[at],
            columns.roles[at],
            columns.happened[at],
        )
        return facts if len(at) == len(rows) else _scattered(facts, is_known)

    def _neighbours(self, at: Ints, reach: int) -> Ints:
        """The rows of the neighbours of some entries that the scope may read; −1 for none."""
        beside = self.columns.neighbours(at, _OFFSETS[: 2 * reach])
        has = beside >= 0
        if not has.any():
            return beside
        if self.is_readable is not None:
            has &= self.is_readable[beside]
        return np.where(has, self.columns.rows[beside], -1)

    def speakers(self, codes: Iterable[int]) -> dict[int, str]:
        """The names of some speakers."""
        wanted = set(codes)
        # A copy: another thread may be adding names.
        return {code: name for name, code in self.columns.codes.speakers.copy().items() if code in wanted}

    def rows_of_speaker(self, name: str, most: int) -> Ints:
        """The newest rows of those who are called by a name."""
        columns = self.columns
        codes = [code for speaker, code in columns.codes.speakers.copy().items() if is_called(speaker, name)]
        if not codes:
            return np.empty(0, dtype=np.int64)
        at = np.flatnonzero(np.isin(columns.speakers, codes) & self.is_visible)
        return columns.rows[at[np.lexsort((-at, -columns.happened[at]))][:most]]


def _scattered(facts: Facts, is_known: NDArray[np.bool_]) -> Facts:
    """Facts of the rows that are known, by all rows of the request."""
    found = []
    for column in fields(Facts):
        known = getattr(facts, column.name)
        missing = 0 if column.name in _ZERO_IF_UNKNOWN else -1
        values = np.full((len(is_known), *known.shape[1:]), missing, dtype=known.dtype)
        values[is_known] = known
        found.append(values)
    return Facts(*found)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Columns with the cursor and the slot up to which they reach."""

    columns: Columns
    cursor: Cursor
    slot: int


@dataclass(frozen=True, slots=True)
class _Changes:
    """New columns, of all versions or only of changed ones, and the slots of rows that got a vector."""

    columns: Columns
    placed: Sequence[tuple[int, int]] = ()
    is_all: bool = True

    def __len__(self) -> int:
        return len(self.columns.rows) + len(self.placed)


class Catalog(DerivedIndex[_Kept, _Changes, Columns]):
    """The columns of a store, as fresh as its journal and its vectors; in memory only."""

    follows = ("journal", "slot")

    def __init__(self, store: OwnerStore, fingerprint: str) -> None:
        super().__init__(store)
        self.fingerprint = fingerprint

    def _open(self, epoch: str) -> _Kept | None:
        if self._view is None or self._stamp[0] != epoch:
            return None
        return _Kept(self._view, *cast("tuple[Cursor, int]", self._stamp[1]))

    def _since(self, kept: _Kept | None) -> _Changes:
        vectors = self._store.vectors
        changed = None if kept is None else self._changed_since(kept.cursor)
        if kept is None or changed is None:
            return _Changes(_columns(vectors.catalog(self.fingerprint), Codes()))
        columns = _columns(vectors.catalog(self.fingerprint, ids=sorted(changed)), kept.columns.codes)
        return _Changes(columns, vectors.newly_placed(self.fingerprint, after=kept.slot), is_all=False)

    def _changed_since(self, cursor: Cursor) -> set[str] | None:
        """The memories that changed; None if some were erased, so that all have to be read again."""
        changed: set[str] = set()
        while (page := self._store.changes_since(cursor)).entries:
            if any(entry.action is Action.ERASED for entry in page.entries):
                return None
            changed |= {entry.id for entry in page.entries if entry.link_kind is None}
            cursor = page.cursor
        return changed

    def _join(self, kept: _Kept | None, tail: _Changes) -> Columns:
        if kept is None or tail.is_all:
            return tail.columns
        columns = _merged(kept.columns, tail.columns)
        known = np.isin([row for row, _ in tail.placed], columns.rows)
        placed = [pair for pair, is_known in zip(tail.placed, known, strict=True) if is_known]
        slots = columns.slots.copy()
        slots[columns.find([row for row, _ in placed])] = [slot for _, slot in placed]
        return replace(columns, slots=slots)


def _merged(old: Columns, new: Columns) -> Columns:
    """The old columns with changed entries replaced and new ones, whose rows are higher, appended."""
    if not len(new.rows):
        return old
    is_known = np.isin(new.rows, old.rows)
    at = old.find(new.rows[is_known])
    joined: dict[str, Any] = {"codes": old.codes}
    for column in fields(Columns):
        if column.name != "codes":
            values = getattr(old, column.name).copy()
            values[at] = getattr(new, column.name)[is_known]
            joined[column.name] = np.concatenate([values, getattr(new, column.name)[~is_known]])
    return Columns(**joined)


def _columns(entries: Iterable[CatalogRow], codes: Codes) -> Columns:
    listed = list(entries)
    columns: list[Any] = list(zip(*listed, strict=True)) if listed else [()] * len(CatalogRow._fields)
    rows, owners, projects, *access, categories, tags, importance, sessions, positions = columns[:10]
    speakers, roles, happened, valid_from, valid_to, known_from, known_to, slots = columns[10:]
    talks = [
        codes.sessions.setdefault((owner, project, session), len(codes.sessions)) if session is not None else -1
        for owner, project, session in zip(owners, projects, sessions, strict=True)
    ]
    for row, names in zip(rows, tags, strict=True):
        for tag in names:
            codes.tagged.setdefault(tag, []).append(row)
    return Columns(
        rows=np.array(rows, dtype=np.int64),
        places=_coded(zip(owners, projects, strict=True), codes.places),
        access=_coded(zip(*access, strict=True), codes.access),
        categories=_coded(categories, codes.categories),
        importance=np.array(importance, dtype=np.float64),
        sessions=np.array(talks, dtype=np.int64),
        positions=np.array([position or 0 for position in positions], dtype=np.int64),
        speakers=_coded(speakers, codes.speakers),
        roles=np.array([_ROLES.get(role, -1) for role in roles], dtype=np.int64),
        happened=np.array(happened, dtype=np.int64),
        valid_from=_times(valid_from, _NEVER),
        valid_to=_times(valid_to, _EVER),
        known_from=_times(known_from, _NEVER),
        known_to=_times(known_to, _EVER),
        slots=np.array(slots, dtype=np.int64),
        codes=codes,
    )


def _coded(names: Iterable[Any], codes: dict[Any, int]) -> Ints:
    """The numbers of some names, new ones where they are new; −1 for no name."""
    return np.array([-1 if name is None else codes.setdefault(name, len(codes)) for name in names], dtype=np.int64)


def _times(values: Iterable[int | None], missing: int) -> Ints:
    return np.array([missing if value is None else value for value in values], dtype=np.int64)
