"""The composition root: settings in, a memory that remembers, recalls and forgets out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele import config, validation
from triskele.base import timestamps
from triskele.base.ids import new_batch
from triskele.config import Settings
from triskele.curation import agreement, projects, recall_log, undo
from triskele.curation.usage import AfterAnswer
from triskele.errors import AmbiguousId, BadInput, NotFound, StoreDamaged, StoreNewer, StoreOlder
from triskele.index.analysis import analyzer_of
from triskele.recall import plan as plans
from triskele.recall.plan import AS_RANKED, CROSS, DEFAULT, NEAR, SHIPPED, Adopted, Plan, leg_depth
from triskele.recall.runtime import ModelRuntime
from triskele.stores import factory
from triskele.stores.protocols import Census, Maintenance, OwnerStore, Store
from triskele.types import (
    EVERYWHERE,
    USER,
    Add,
    Answer,
    Change,
    Connect,
    Disconnect,
    Forget,
    JournalEntry,
    Link,
    LinkKind,
    Memory,
    Outcome,
    Query,
    Reveal,
    Scope,
    Sort,
    is_secret,
    withholds,
)

if TYPE_CHECKING:
    from triskele.curation.health import Health
    from triskele.curation.proposals import Proposals
    from triskele.index.lexical import LexicalIndex
    from triskele.index.local import SemanticIndex
    from triskele.ingest import Drafter
    from triskele.recall.hosted.egress_log import Sent
    from triskele.recall.why_not import WhyNot
    from triskele.stores.vault import Ask, StoreVault

_NARROWING = ("category", "tags", "as_of", "known_at", "since", "until")


def open_memory(
    store: str | None = None, *, settings: Settings | None = None, folder: Path | None = None, ask: Ask | None = None
) -> Engine:
    """Open the memory at a store address, or the user's own; `ask` supplies the passphrase of a vault."""
    settings = settings or config.load(store_url=store)
    return Engine(settings, folder or Path.cwd(), ask=ask)


def restore_memory(source: Path, *, settings: Settings, ask: Ask | None = None) -> tuple[Engine, Path | None]:
    """Replace a store by a verified backup, even one that cannot be opened; returns the memory and the old files."""
    try:
        if not factory.exists(settings):
            raise StoreDamaged(f"the store {settings.store.url} is missing or empty")
        engine = open_memory(settings=settings, ask=ask)
    except (StoreDamaged, StoreNewer, StoreOlder):
        kept = factory.replace_damaged(settings, source)
        engine = open_memory(settings=settings, ask=ask)
        engine.reindex()
        return engine, kept
    try:
        return engine, engine.restore_backup(source)
    except BaseException:
        engine.close()
        raise


class Engine:
    """Long-term memory: the one object through which memories are changed and recalled."""

    def __init__(self, settings: Settings, folder: Path, *, ask: Ask | None = None, store: Store | None = None) -> None:
        """Open the store of the settings, or bind one that engines of other owners share, and leave that open."""
        self.settings = settings
        self.actor = USER
        self._analyzer = analyzer_of(settings)
        unbound = store or factory.open_store(settings)
        self.store: OwnerStore = unbound.of(settings.memory.owner)
        self._workplace = projects.Workplace(self.store, folder, settings.project)
        self._maintenance = unbound.maintenance
        self._close_store = unbound.close if store is None else lambda: None
        self._index_folder = factory.index_folder(settings)
        self._ask = ask
        self.after_answer = AfterAnswer()
        self.erased_copies: list[Path] = []
        # Shared by those who act as others.
        self._vault, self._lexical = cache(self._open_vault), cache(self._open_lexical)
        self.runtime = ModelRuntime(settings, self._index_folder, self.store, self._lexical, self._vault)

    def __enter__(self) -> Engine:
        self.after_answer.refuse_closed()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close files and connections."""
        self.after_answer.close()
        self.runtime.close()
        if self._vault.cache_info().currsize:
            self.vault.close()
        if self._lexical.cache_info().currsize:
            self.lexical.close()
        self._close_store()

    @property
    def project(self) -> str:
        """The project of the settings, or of the folder."""
        return self._workplace.project

    def acting_as(self, actor: str) -> Engine:
        """The same memory; the journal names this actor instead of the user."""
        other = copy(self)
        other.actor = actor
        return other

    def working_in(self, folder: Path, named: str | None = None) -> Engine:
        """The same memory; its project is the named one, or that of this folder."""
        other = copy(self)
        other._workplace = projects.Workplace(self.store, folder, named)
        other.__dict__.pop("_drafter", None)
        return other

    # Vault and drafter load many rules and ciphers, which reading does not need; writing needs no index.

    @property
    def lexical(self) -> LexicalIndex:
        """The index of the words."""
        return self._lexical()

    def _open_lexical(self) -> LexicalIndex:
        from triskele.index.lexical import LexicalIndex

        return LexicalIndex(self._index_folder, self.store, self._analyzer, tail_cap=self.settings.index.tail_cap)

    @property
    def vault(self) -> StoreVault:
        """Where secrets are sealed."""
        return self._vault()

    def _open_vault(self) -> StoreVault:
        from triskele.stores.vault import StoreVault

        return StoreVault(self.store, self.settings.privacy, self.settings.home, self._ask)

    @cached_property
    def _drafter(self) -> Drafter:
        from triskele.ingest import Drafter

        return Drafter(self.settings.memory, self.project)

    # Writing

    def draft(self, content: str, **details: Any) -> Memory:
        """A checked memory that is not stored yet; details are those of `Drafter.draft`."""
        return self._drafter.draft(content, **details)

    def draft_pieces(self, text: str, **details: Any) -> list[Memory]:
        """A longer text as several memories that are not stored yet; details are those of `Drafter.draft`."""
        return self._drafter.draft_pieces(text, **details)

    def remember(self, content: str, *, supersedes: str | None = None, **details: Any) -> Outcome:
        """Store one memory durably; it can be recalled when this returns. "Since May …" sets its validity."""
        memory = self._drafter.dated(content, **details)
        changes: list[Change] = [Add(memory)]
        if supersedes is not None:
            older = self.resolve(supersedes)
            changes.append(Connect(validation.new_link(memory.id, LinkKind.SUPERSEDES, older, memory.known_from)))
            try:
                return self.apply(changes)[0]
            except NotFound:
                # The text is known already, under another id: that memory is the successor.
                known = self.apply([Add(memory)])[0]
                link = validation.new_link(known.id, LinkKind.SUPERSEDES, older, memory.known_from)
                return replace(known, batch=self.apply([Connect(link)])[0].batch)
        return self.apply(changes)[0]

    def remember_all(self, memories: Iterable[Memory], *, batch: str | None = None) -> list[Outcome]:
        """Store many drafts in one transaction."""
        return self.apply([Add(memory) for memory in validation.check_drafts(memories)], batch=batch)

    def edit(self, reference: str, **changes: Any) -> Outcome:
        """Change a memory's content or details; the older version stays in the history."""
        from triskele.curation import secrecy

        memory = undo.changeable(self.get(reference))
        revised = self._drafter.revised(memory, changes, lambda: secrecy.text_of(self.store, self.vault, memory))
        if "sensitivity" in changes and is_secret(revised) and not is_secret(memory):
            sealed = self.seal(memory.id, title=changes.get("title"))
            if not changes.keys() - {"sensitivity", "title"}:
                return sealed
        return self.apply(secrecy.revision(memory, revised))[0]

    def restore(self, reference: str) -> Outcome:
        """Bring a forgotten memory back, unchanged."""
        return self.apply([undo.restoration(self.get(reference))])[0]

    def seal(self, reference: str, *, title: str | None = None) -> Outcome:
        """Make a memory secret in all its versions; everything derived from its text is erased."""
        from triskele.curation import secrecy

        versions = secrecy.sealed_versions(self.store, self.vault, self.resolve(reference), title, self.settings.memory)
        return self._with_copies([self.store.seal(versions, batch=new_batch(), actor=self.actor)])[0]

    def reveal(self, reference: str) -> str:
        """The text of a secret; the journal notes that it was shown."""
        from triskele.curation import secrecy

        memory = self.get(reference)
        text = secrecy.text_of(self.store, self.vault, memory)
        self.apply([Reveal(memory.id)])
        return text

    def forget(self, *references: str) -> list[Outcome]:
        """Stop recalling these memories; history and undo keep them."""
        return self.apply([Forget(self.resolve(reference)) for reference in references])

    def erase(self, *references: str) -> list[Outcome]:
        """Remove these memories for good from every file of the store; backups made before keep them."""
        ids = list(map(self.resolve, references))
        return self._with_copies(self.store.erase(ids, batch=new_batch(), actor=self.actor))

    def _with_copies(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Erase the texts also from the indexes and the copies next to the store; `erased_copies` names these."""
        self.reindex()
        ids = [outcome.id for outcome in outcomes]
        copies = [] if self._maintenance is None else self._maintenance.erase_from_copies(ids, self.store.owner)
        self.erased_copies = self.lexical.drop_ahead() + copies
        return outcomes

    def link(self, source: str, kind: str, target: str) -> Outcome:
        """Link two memories."""
        link = validation.new_link(self.resolve(source), kind, self.resolve(target), timestamps.now())
        return self.apply([Connect(link)])[0]

    def unlink(self, source: str, kind: str, target: str) -> Outcome:
        """Close a link; the history keeps it."""
        link = validation.new_link(self.resolve(source), kind, self.resolve(target), timestamps.now())
        return self.apply([Disconnect(link)])[0]

    def undo(self, batch: str | None = None, *, project: str | None = None, **wider: bool) -> list[Outcome]:
        """Undo a batch, or this actor's last change to the project; `wider` as in `undo.plan`. It can be undone."""
        planned = undo.plan(self.store, self.actor, self.project if project is None else project, batch, **wider)
        outcomes = planned.told(self.apply(planned.changes, undoes=planned.entries[0].seq))
        self.proposals.undone(planned.batch, outcomes)
        return outcomes

    def apply(self, changes: Sequence[Change], *, batch: str | None = None, undoes: int | None = None) -> list[Outcome]:
        """Apply changes as one journaled transaction."""
        sealed = [self.vault.sealed(change) for change in self._workplace.placed(changes)]
        outcomes = self.store.apply(sealed, batch=batch or new_batch(), actor=self.actor, undoes=undoes)
        if any(map(withholds, changes)):
            self.runtime.take_back()
        self.runtime.wake()
        return outcomes

    # Reading

    def recall(
        self,
        text: str,
        *,
        limit: int | None = None,
        sort: str = Sort.RELEVANCE,
        show_superseded: bool = False,
        legs: Iterable[str] | None = None,
        fusion: str = "default",
        rerank: str = "default",
        order: str = AS_RANKED,
        near: str | None = None,
        budget: int | None = None,
        logged: bool = True,
        hurried: bool = False,
        **filters: Any,
    ) -> Answer:
        """The memories that answer a question, each with its reasons; filters are those of `scope`.

        `near` is a memory: the best hits are ordered by the names they share with it. `hurried` asks local models alone
        and gives no reasons.
        """
        from triskele.recall.pipeline import pack

        settings, asked = self.settings.recall, plans.asked_for(legs, fusion, rerank)
        with self.runtime.moment():
            plan = self.plan_in_force(asked, order=NEAR if near else order)
            plan = plan.in_a_hurry() if hurried else replace(plan, patience_s=self.settings.rerank.timeout_s)
            answer = self.ask(
                text if isinstance(text, str) else validation.check_text(text, "the question"),
                plan,
                limit=settings.limit if limit is None else validation.check_limit(limit),
                sort=sort if isinstance(sort, Sort) else validation.check_sort(sort),
                show_superseded=show_superseded,
                near=self.resolve(near) if near else "",
                hurried=hurried,
                embed_first=settings.embed_first,
                **filters,
            )
        if plan.rerank == CROSS and sort == Sort.RELEVANCE:
            self.after_answer.put(partial(agreement.note, self.store, answer))
        narrowed = show_superseded or any(filters.get(name) for name in _NARROWING)
        is_kept = settings.log and logged and sort == Sort.RELEVANCE and not narrowed
        if is_kept and not self.runtime.egress_policy.quotes_secret(text):
            self.after_answer.put(partial(recall_log.note, self.store, text, answer, timestamps.now()))
        return answer if budget is None else pack(answer, validation.check_budget(budget))

    def ask(
        self,
        text: str,
        plan: Plan,
        *,
        limit: int = 10,
        depth: int | None = None,
        sort: Sort = Sort.RELEVANCE,
        show_superseded: bool = False,
        near: str = "",
        hurried: bool = False,
        embed_first: int = 0,
        model: SemanticIndex | None = None,
        project: str | None = None,
        all_projects: bool = False,
        **filters: Any,
    ) -> Answer:
        """Recall by a plan; with a `depth` the limit changes no candidates, `model` replaces the model in force.

        `embed_first` of the newest memories without vectors are embedded before, where no worker does that.
        """
        from triskele.base.periods import question_period
        from triskele.base.time_grammar import TIME_HINT
        from triskele.recall.pipeline import recall

        scope = self.scope(project=project, all_projects=all_projects, **filters)
        if depth is None:
            depth = leg_depth(self.settings.recall, limit)
            plan = plan if plan.rescored >= limit else replace(plan, rescored=limit)
        query = Query(text=text, scope=scope, limit=limit, depth=depth, sort=sort, near=near, is_explained=not hurried)
        if TIME_HINT.search(text):
            query = replace(query, period=question_period(text, scope.as_of))
        sources = self.runtime.sources(query, plan, local_only=hurried, model=model, embed_first=embed_first)
        named = None if all_projects else project if project is not None else self.project
        return recall(query, plan, sources, project=named, show_superseded=show_superseded)

    def plan_in_force(self, asked: Plan = SHIPPED, order: str = AS_RANKED, model: SemanticIndex | None = None) -> Plan:
        """The plan of recall: the requested one, else the one adopted for the model, else the default."""
        adopted = self.adopted(model) if asked == SHIPPED else None
        plan = adopted.plan if adopted else asked
        rerank = self.runtime.usual_rerank() if plan.rerank == DEFAULT else plan.rerank
        return replace(plan, prior=self.settings.recall.importance_prior, order=order, rerank=rerank)

    def adopted(self, model: SemanticIndex | None = None) -> Adopted | None:
        """The plan that the user's own questions put in force; None if it was measured with another model."""
        found = plans.adopted(self.store)
        semantic = (model or self.semantic()) if found else None
        return found if found and semantic and semantic.embedder.fingerprint == found.fingerprint else None

    def why_not(self, reference: str, text: str, **options: Any) -> WhyNot:
        """Why a memory is not among the hits of this recall, and what would bring it there; options are recall's."""
        from triskele.recall.why_not import Recall, why_not

        plan = self.plan_in_force(plans.asked_for(options.get("legs") or None))
        recall = Recall(self.recall, self.scope, self.runtime.sources, plan, self.settings.recall)
        return why_not(self.get(reference), text, options, recall)

    def semantic(self) -> SemanticIndex | None:
        """The local model and its indexes, opened when first needed; None if there is no model."""
        return self.runtime.semantic()

    def embed(
        self, *, limit: int | None = None, wait: bool = True, progress: Callable[[int], None] | None = None
    ) -> int:
        """Embed memories without vectors and read their names; returns how many; without `wait` writers go first."""
        return self.runtime.embed(limit=limit, wait=wait, progress=progress)

    def work_in_background(self) -> None:
        """Embed what waits, now and after every write, in a thread of this process."""
        self.after_answer.start()
        self.runtime.work_in_background()

    def browse(
        self, *, sort: str = Sort.RECENCY, limit: int = 50, offset: int = 0, any_time: bool = True, **filters: Any
    ) -> list[Memory]:
        """Memories of a scope, newest or most important first; those out of date are included."""
        page = validation.check_page(sort, limit, offset)
        return self.store.browse(replace(self.scope(**filters), any_time=any_time), **page)

    def scope(self, *, project: str | None = None, all_projects: bool = False, **filters: Any) -> Scope:
        """What a reader may see: of a project and what belongs everywhere, by the filters of `validation.narrowed`."""
        named = self.project if project is None else validation.check_name(project, "the project")
        projects = None if all_projects else frozenset({named, EVERYWHERE})
        scope = Scope(owner=self.settings.memory.owner, projects=projects, as_of=timestamps.now())
        return validation.narrowed(scope, self.settings.memory, **filters) if filters else scope

    def resolve(self, reference: str) -> str:
        """The id that starts with a prefix."""
        prefix = validation.check_prefix(reference)
        found = self.store.find(prefix)
        if not found:
            raise NotFound(f"no memory starts with {prefix}")
        if len(found) > 1 and prefix not in found:
            raise AmbiguousId(f"{prefix} fits several memories: {', '.join(found)}")
        return prefix if prefix in found else found[0]

    def get(self, reference: str) -> Memory:
        """The current version of a memory, or the last one of a forgotten one."""
        return self.store.history(self.resolve(reference))[-1]

    def versions(self, reference: str) -> list[Memory]:
        """Every version of a memory, oldest first."""
        return self.store.history(self.resolve(reference))

    def history(self, reference: str) -> list[JournalEntry]:
        """What happened to a memory, oldest first."""
        return self.store.journal(id=self.resolve(reference))

    def links(self, reference: str) -> list[Link]:
        """The links of a memory, in either direction."""
        return self.store.links([self.resolve(reference)])

    def sent(self, reference: str) -> list[Sent]:
        """The hosted services that received the text of a memory; none unless the settings name one."""
        from triskele.recall.hosted import egress_log

        return egress_log.sent(self.store, self.resolve(reference))

    def superseded(self, ids: Sequence[str]) -> set[str]:
        """Those of these memories that another one replaces."""
        links = [link for link in self.store.links(ids, kind=LinkKind.SUPERSEDES) if link.target in ids]
        standing = self.store.memories({link.source for link in links})
        return {link.target for link in links if link.source in standing}

    def census(self) -> Census:
        """Counts of what is stored."""
        return self.store.census()

    # Upkeep

    @property
    def proposals(self) -> Proposals:
        """The review queue: what curation would change, until the user accepts or rejects it."""
        from triskele.curation.proposals import Proposals

        return Proposals(self)

    @property
    def maintenance(self) -> Maintenance:
        """Care for the store's files; raise if it has none."""
        if self._maintenance is None:
            raise BadInput("the store has no files of its own: use the tools of its database")
        return self._maintenance

    def backup(self, target: validation.FilePath) -> None:
        """Write a verified copy of the live store."""
        self.maintenance.backup(validation.check_path(target))

    def restore_backup(self, source: validation.FilePath) -> Path | None:
        """Replace the store by a verified backup; the backup of what was there, or the folder of its damaged files."""
        kept = self.maintenance.restore(validation.check_path(source))
        # Opened again: the backup may use another model.
        self.runtime.forget()
        self.reindex()
        return kept

    def earlier_copies(self) -> list[Path]:
        """The copies of the store that may still hold an erased text: of restores, and the backups made from here."""
        copies = [] if self._maintenance is None else self._maintenance.earlier_copies()
        return [each for each in copies if each not in self.erased_copies]

    def out_of_reach(self) -> list[str]:
        """Places besides those copies that an erasure cannot reach, in words."""
        return [] if self._maintenance is None else self._maintenance.out_of_reach()

    def reindex(self, progress: Callable[[int], None] | None = None) -> None:
        """Rebuild every derived index."""
        self.lexical.rebuild(progress)
        self.runtime.rebuild()

    def inspect(self, *, deep: bool = False, repair: bool = True) -> Health:
        """Check the database and repair what is derived from it."""
        from triskele.curation import health

        return health.inspect(
            self.store, self._maintenance, self.lexical, self.runtime, deep=deep, repair=repair, vault=self.vault
        )
