"""The `code` commands: index, search, symbol, status, remove."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triskele.code import languages, tree_index
from triskele.code.ranking import CodePlan
from triskele.code.search import CodeAnswer, CodeSearch, SymbolAnswer, TreeStatus, locate, opened
from triskele.code.symbols import Located, names
from triskele.config import NO_MODEL
from triskele.edge.cli.commands import command_group
from triskele.edge.cli.documents import Document, picked
from triskele.edge.cli.invocation import Invocation, progress_bar, show_parts
from triskele.edge.cli.options import EVERY
from triskele.edge.cli.view import ID, MATCH, QUIET, note
from triskele.edge.wording import visible
from triskele.errors import TriskeleError

if TYPE_CHECKING:
    from triskele.edge.cli.view import Renderable
    from triskele.types import Memory

_MOST_MEMORIES = 5
_SHOWN_LINES = 8
_path = click.option("--path", default=".", metavar="P", help="A folder or file of an indexed tree; here by default.")


@command_group(
    "triskele code index .", 'triskele code search "where are retries scheduled"', "triskele code symbol Session.get"
)
def code() -> None:
    """Search source code by questions and names, offline.

    The index is in the data folder, never in the tree. A search detects changed files.
    """


@code.subcommand("triskele code index .", "triskele code index ~/src/shop --rebuild --json")
@click.argument("path", default=".")
@click.option("--rebuild", is_flag=True, help="Discard the index and read every file again.")
@click.option("--no-embed", is_flag=True, help="Index the words only.")
def index(invocation: Invocation, path: str, rebuild: bool, no_embed: bool) -> None:
    """Index the source files of a folder, or what changed since.

    The words are searchable at once; vectors follow in a background process.
    """
    languages.require()
    searcher = _searcher(invocation, path)
    with progress_bar("indexing") as advance:
        status = searcher.index(advance, rebuild=rebuild)
    is_embedding = not no_embed and status.embedded < 1 and _embed_later(invocation, searcher.root)
    invocation.emit(status, lambda: _status_view(status), embedding=is_embedding)
    if is_embedding and not invocation.as_json:
        click.echo("Vectors follow in the background; `triskele code status` shows the share done.", err=True)


@code.subcommand(
    'triskele code search "where are retries scheduled"',
    "triskele code search PaymentService.retry --path ~/src/shop --json",
)
@click.argument("query")
@_path
@click.option("--limit", type=click.IntRange(1, 50), default=10, show_default=True, help="The maximum number of hits.")
@click.option("--by", type=click.Choice(["file", "function"]), default="file", show_default=True, help="What to rank.")
@click.option("--explain", is_flag=True, help="Show the score of every ranking rule.")
def search(invocation: Invocation, query: str, path: str, limit: int, by: str, explain: bool) -> None:
    """Find the code that answers a question or defines a name.

    Ranked by file, at most two places of a file are shown; by function, every place counts by itself.
    """
    searcher, under = _located(invocation, path)
    answer = searcher.search(query, limit=limit, under=under, plan=CodePlan(granularity=by))
    if 0 < answer.embedded < 1 or searcher.reads_earlier:
        # Files changed since the last `code index`, or an update brought another model; one process embeds at a time.
        _embed_later(invocation, searcher.root)
    if invocation.as_json:
        document = {**picked(answer, "root hits files waiting"), "partial": answer.is_partial}
        return invocation.write_json({**document, "embedded": round(answer.embedded, 3)})
    # Lines of code are not broken: they are copied, and read by programs.
    show_parts(_answer_view(answer, explain=explain), width=EVERY)
    if invocation.stores.settings().recall.model != NO_MODEL and answer.embedded < 1:
        share = f"{answer.embedded:.0%} of the vectors are ready" if answer.embedded else "no vectors yet"
        what = "Searched by meaning in part" if answer.embedded else "Searched by words only"
        click.echo(f"{what}: {share} (`triskele code status` shows the progress).", err=True)
    if answer.is_partial:
        command = f"triskele code index {answer.root}"
        click.echo(f"The index is incomplete: {answer.waiting:,} files wait; run `{command}`.", err=True)
    return None


@code.subcommand("triskele code symbol Session.get", "triskele code symbol parse_header --json")
@click.argument("name")
@_path
def symbol(invocation: Invocation, name: str, path: str) -> int:
    """Show where a name is defined and used, and the memories that mention it."""
    searcher, under = _located(invocation, path)
    answer = searcher.symbol(name, under=under)
    memories: list[Memory] = []
    if invocation.stores.exists():
        with invocation.open() as engine:
            hits = engine.recall(name, all_projects=True, limit=50, logged=False).hits
        memories = [hit.memory for hit in hits if names(hit.memory.content, name)][:_MOST_MEMORIES]
    document = {
        "root": answer.root,
        "definitions": list(map(_definition_document, answer.definitions)),
        "references": answer.references,
        "memories": [picked(memory, "id content") for memory in memories],
    }
    invocation.emit(document, lambda: _symbol_view(answer, memories))
    return 0 if answer.definitions or answer.references else 1


@code.subcommand("triskele code status", "triskele code status ~/src/shop --json")
@click.argument("path", required=False)
def status(invocation: Invocation, path: str | None) -> None:
    """Show what is indexed: one tree, or all of them."""
    roots = (
        [_located(invocation, path)[0].root] if path else tree_index.indexed_trees(invocation.stores.settings().home)
    )
    trees = [_searcher(invocation, root).status() for root in roots]
    invocation.emit(
        {"trees": trees},
        lambda: "\n".join(map(_status_view, trees)) or "No tree is indexed: `triskele code index PATH` starts.",
    )


@code.subcommand("triskele code remove ~/src/shop")
@click.argument("path", default=".")
def remove(invocation: Invocation, path: str) -> None:
    """Delete the index of a tree; the tree stays as it is."""
    searcher, _ = _located(invocation, path)
    searcher.remove()
    invocation.emit({"removed": searcher.root}, lambda: f"Removed the index of {searcher.root}.")


@code.subcommand("triskele code embed ~/src/shop", hidden=True)
@click.argument("path")
def embed(invocation: Invocation, path: str) -> None:
    """Embed what waits; `code index` starts this in the background."""
    searcher, _ = _located(invocation, path)
    with progress_bar("embedding") as advance:
        waiting = searcher.embed(advance)
    if invocation.as_json:
        invocation.write_json({"waiting": waiting})


def _searcher(invocation: Invocation, path: str | Path) -> CodeSearch:
    settings = invocation.stores.settings()
    return opened(settings.home, tree_index.resolve(path), settings.recall.model)


def _located(invocation: Invocation, path: str) -> tuple[CodeSearch, str]:
    root, under = locate(invocation.stores.settings().home, path)
    return _searcher(invocation, root), under


def _embed_later(invocation: Invocation, root: Path) -> bool:
    """Start a process that embeds in the background, if allowed."""
    settings = invocation.stores.settings()
    if not settings.agents.background or settings.recall.model == NO_MODEL:
        return False
    # Without -P the tree's own files would be imported in place of Python's.
    command = [sys.executable, "-P", "-m", "triskele", "code", "embed", os.fspath(root)]
    silent: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    try:
        subprocess.Popen(command, env=invocation.environ(), start_new_session=True, **silent)
    except OSError:
        return False
    return True


def named_code(invocation: Invocation, memory: Memory) -> list[Document]:
    """Definitions that a memory names, in the indexed tree around this folder."""
    with suppress(TriskeleError):
        return list(map(_definition_document, _located(invocation, ".")[0].mentioned(memory.content)))
    return []


def _definition_document(located: Located) -> Document:
    lines, text = picked(located.definition, "start_line end_line"), picked(located.definition, "kind signature")
    return {"path": located.path, **lines, "symbol": located.definition.qualified, **text}


def _answer_view(answer: CodeAnswer, *, explain: bool) -> Iterator[Renderable]:
    """The hits with their lines of code."""
    for hit in answer.hits:
        lines = visible(hit.snippet).split("\n")
        begin = min(hit.line - hit.start_line, len(lines) - 1)
        excerpt = lines if explain else lines[begin : begin + _SHOWN_LINES]
        location = note(f"{hit.path}:{hit.start_line}-{hit.end_line}", ID)
        yield location + note("  ") + note(hit.symbol, MATCH)
        yield note(f"  {hit.reason}", QUIET)
        yield note("\n".join(f"  {line}" for line in excerpt))
    if not answer.hits:
        yield note("Nothing found.")


def _symbol_view(answer: SymbolAnswer, memories: Sequence[Memory]) -> str:
    """Definitions and uses of a symbol, and the memories that mention it."""
    lines: list[str] = []
    for located in answer.definitions:
        definition = located.definition
        lines.append(f"{located.path}:{definition.start_line}-{definition.end_line}  {definition.kind}")
        lines.append(f"  {definition.signature}")
    if answer.references:
        lines.append(f"{len(answer.references):,} uses")
    lines += [f"  {use.path}:{use.line}  {use.text}" for use in answer.references]
    lines += [f"memory {memory.id[:8]}  {memory.content}" for memory in memories]
    if not answer.definitions and not answer.references:
        lines.append("No such symbol.")
    return visible("\n".join(lines))


def _status_view(status: TreeStatus) -> str:
    """The size of a tree's index and its embedded share."""
    languages = ", ".join(f"{name} {count:,}" for name, count in list(status.languages.items())[:6])
    skipped = ", ".join(f"{count:,} {reason}" for reason, count in status.skipped.items())
    is_gone = not Path(status.root).is_dir()
    missing = " (folder missing; `triskele code remove` deletes its index)" if is_gone else ""
    earlier = f" (until then answers use those from before an update: {status.by_earlier:.0%})"
    embedded = f"{status.embedded:.0%}{earlier if status.by_earlier else ''}"
    size = f"{status.files:,} files, {status.lines:,} lines, {status.chunks:,} chunks"
    return (
        f"{status.root}{missing}\n"
        f"  {size}, {status.definitions:,} definitions ({languages or 'no source'})\n"
        f"  vectors: {embedded}; waiting: {status.waiting:,} files; left out: {skipped or 'nothing'};"
        f" {status.bytes_on_disk / 1e6:.1f} MB on disk"
    )
