"""The protocol of a memory that every client talks to, on this machine or on a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, Unpack

if TYPE_CHECKING:
    from triskele.config import Settings
    from triskele.replies import Secret, Statistics, Undone
    from triskele.replies.rooms import (
        Access,
        ConceptDetails,
        ConceptOverview,
        ConceptPath,
        ConversationUse,
        EndedShare,
        ExportReport,
        GranteeKind,
        HookCall,
        ImportReport,
        Neighbourhood,
        NewShare,
        Proposal,
        Regrouped,
        Reviewed,
        Shares,
        Subject,
        UserGroup,
    )
    from triskele.requests import AskOptions, Changes, Details, Draft, ListOptions, Moment, Place, RecallOptions
    from triskele.types import (
        Answer,
        Erasure,
        History,
        Injection,
        Memory,
        MemoryDetails,
        MemoryView,
        Outcome,
        Page,
        Related,
        WhyNot,
    )
    from triskele.validation import FilePath


class Concepts(Protocol):
    """The concept graph: names that memories share."""

    def show(self, name: str, *, limit: int = 10, closed: bool = False, **place: Unpack[Place]) -> ConceptDetails:
        """Read a concept with its memories, neighbours and edges; `closed` includes edges that no longer hold."""

    def path(self, start: str, end: str, **place: Unpack[Place]) -> ConceptPath:
        """Find the shortest path between two concepts."""

    def overview(self) -> ConceptOverview:
        """Count the graph, and list the concepts that most memories mention."""

    def neighbourhood(
        self, *, concept: str = "", memory: str = "", at: Moment | None = None, most: int = 60
    ) -> Neighbourhood:
        """Draw what is connected with a concept or a memory, as of now or of a moment."""

    def merge(self, name: str, into: str) -> Regrouped:
        """Merge the names of one concept into another."""

    def split(self, name: str) -> Regrouped:
        """Split a name from its concept."""


class Curation(Protocol):
    """The review queue: changes that wait until the user accepts or rejects them."""

    def proposals(self, *, kind: str | None = None) -> list[Proposal]:
        """List pending proposals, oldest first; of the kind `conflict` are memories that sync could not merge."""

    def accept(self, *ids: str, above: float | None = None) -> Reviewed:
        """Accept proposals in one batch, or all that are at least as sure; of a conflict take the server's version."""

    def reject(self, *ids: str) -> Reviewed:
        """Reject proposals, which are not made again; of a conflict keep the version of this machine."""


class Agents(Protocol):
    """What agents are given without asking."""

    def respond(self, call: HookCall) -> Injection:
        """Answer an event of an agent's client."""

    def digest(self, *, project: str | None = None) -> list[Memory]:
        """List the important memories that sessions of a project start with; private ones are left out."""

    def conversations(self, *, key: str | None = None, limit: int = 20, offset: int = 0) -> list[ConversationUse]:
        """List the conversations that were given memories, newest first."""


class Sharing(Protocol):
    """Memories and tags that users of a server share."""

    def shares(self) -> Shares:
        """List what the user shares and receives."""

    def share(
        self, subject: Subject, target: str, grantee_kind: GranteeKind, grantee: str, *, access: Access = "read"
    ) -> NewShare:
        """Share a memory or a tag with a user or a group; a share that exists gets this access."""

    def unshare(self, subject: Subject, target: str, grantee_kind: GranteeKind, grantee: str) -> EndedShare:
        """End a share, and list the shares that still give its readers access."""

    def trust(self, user: str, *, trusted: bool = True) -> tuple[str, ...]:
        """Let agents be given what a user shares, or stop that; returns the trusted users."""

    def groups(self) -> list[UserGroup]:
        """List the groups with their members."""


class Engine(Protocol):
    """Long-term memory: what remembers, recalls and forgets.

    An id may be given by its first characters. Keywords that are left out have their default; the settings, the
    project and the actor (the name in the journal) hold for every call.
    """

    actor: str

    @property
    def settings(self) -> Settings:
        """The settings of this machine."""

    @property
    def project(self) -> str:
        """The project of calls that name none."""

    @property
    def concepts(self) -> Concepts:
        """The concept graph."""

    @property
    def curation(self) -> Curation:
        """The review queue."""

    @property
    def agents(self) -> Agents:
        """What agents are given."""

    @property
    def sharing(self) -> Sharing:
        """Shares with other users; refused where the memory belongs to one person."""

    # Writes

    def remember(self, content: str, *, supersedes: str | None = None, **details: Unpack[Details]) -> Outcome:
        """Store one memory; a text that is already stored returns its memory."""

    def remember_all(self, drafts: Sequence[Draft]) -> list[Outcome]:
        """Store several memories in one transaction."""

    def edit(self, *ids: str, **changes: Unpack[Changes]) -> list[Outcome]:
        """Change memories in one batch; their older versions stay in the history."""

    def forget(self, *ids: str) -> list[Outcome]:
        """Stop recalling memories; history and undo keep them."""

    def erase(self, *ids: str) -> Erasure:
        """Remove memories for good from every file of the store."""

    def restore(self, *ids: str) -> list[Outcome]:
        """Bring forgotten memories back, unchanged."""

    def seal(self, id: str, *, title: str | None = None) -> Erasure:
        """Make all versions of a memory secret, and erase what was derived from its text."""

    def reveal(self, id: str) -> Secret:
        """Read the text of a secret; the journal records it."""

    def link(self, source: str, kind: str, target: str) -> Outcome:
        """Link two memories."""

    def unlink(self, source: str, kind: str, target: str) -> Outcome:
        """Close a link; the history keeps it."""

    def undo(
        self,
        batch: str | None = None,
        *,
        project: str | None = None,
        all_projects: bool = False,
        anyone: bool = False,
        dry_run: bool = False,
    ) -> Undone:
        """Undo a batch, or this actor's last change; an undo can be undone."""

    # Reads

    def recall(self, text: str, **options: Unpack[RecallOptions]) -> Answer:
        """Find the memories that answer a question, each with its reason."""

    def why_not(self, id: str, text: str, **options: Unpack[AskOptions]) -> WhyNot:
        """Explain why a memory was not found, and what finds it."""

    def related(
        self, *, id: str | None = None, content: str | None = None, project: str | None = None
    ) -> list[Related]:
        """List older memories that a memory or a text repeats, extends or contradicts."""

    def get(self, id: str) -> MemoryDetails:
        """Read the last version of a memory, with its links and its use."""

    def lookup(self, ids: Iterable[str]) -> dict[str, MemoryView]:
        """Read the last versions of memories by their whole ids; unknown ones are left out."""

    def browse(self, **options: Unpack[ListOptions]) -> Page:
        """List memories, a page at a time."""

    def journal(self, *, id: str | None = None, batch: str | None = None, limit: int = 50) -> History:
        """List changes, newest first, of all or of one memory or batch."""

    def shorten(self, ids: Iterable[str]) -> dict[str, str]:
        """Give the shortest unique prefix of each id, for display."""

    def stats(self) -> Statistics:
        """Count what is stored, pending and used."""

    # Files

    def export_memories(
        self,
        target: FilePath,
        *,
        format: str = "jsonl",
        private: bool = False,
        with_secrets: bool = False,
        current_only: bool = False,
    ) -> ExportReport:
        """Write memories to a new file."""

    def import_memories(
        self,
        source: FilePath,
        *,
        format: str | None = None,
        dry_run: bool = False,
        project: str | None = None,
        keep_origin: bool = False,
    ) -> ImportReport:
        """Import the memories of a file, all or none; without a format the file is recognised."""

    # Lifecycle

    def acting_as(self, actor: str, *, reads_private: bool = True) -> Self:
        """Return the same memory for another actor, who may not read private memories unless this allows it."""

    def working_in(self, folder: Path, project: str | None = None) -> Self:
        """Return the same memory for a named project, or the project of a folder."""

    def close(self) -> None:
        """Close files and connections."""

    def __enter__(self) -> Self:
        """Return the memory, which closes with the block."""

    def __exit__(self, *_: object) -> None:
        """Close the memory."""
