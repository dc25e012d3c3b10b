"""The `code` commands: index, search, symbol, status, remove."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triskele.config import NO_MODEL
from triskele.edge.cli.invocation import Invocation, common, console, examples, global_options, progress_bar
from triskele.edge.cli.options import OrderedGroup

if TYPE_CHECKING:
    from triskele.code.search import CodeAnswer, CodeSearch, SymbolAnswer, TreeStatus
    from triskele.code.symbols import Located
    from triskele.types import Memory

_MOST_MEMORIES = 5
_SHOWN_LINES = 8
_path = click.option("--path", default=".", metavar="P", help="A folder or file of an indexed tree; here by default.")


@click.group(
    cls=OrderedGroup,
    invoke_without_command=True,
    epilog=examples(
        "triskele code index .",
        'triskele code search "where are retries scheduled"',
        "triskele code symbol Session.get",
    ),
)
@global_options
@click.pass_context
def code(context: click.Context) -> None:
    """Search source code by questions and names, offline.

    The index is in the data folder, never in the tree. A search detects changed files.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@code.command(epilog=examples("triskele code index .", "triskele code index ~/src/shop --rebuild --json"))
@click.argument("path", default=".")
@click.option("--rebuild", is_flag=True, help="Discard the index and read every file again.")
@click.option("--no-embed", is_flag=True, help="Index the words only.")
@common
def index(invocation: Invocation, path: str, rebuild: bool, no_embed: bool) -> None:
    """Index the source files of a folder, or what changed since.

    The words are searchable at once; vectors follow in a background process.
    """
    searcher = _searcher(invocation, path, is_indexed=False)
    with progress_bar("indexing") as advance:
        status = searcher.index(advance, rebuild=rebuild)
    started = not no_embed and status.embedded < 1 and _embed_later(invocation, searcher.root)
    if invocation.as_json:
        return invocation.write_json({**asdict(status), "embedding": started})
    invocation.write(_status_lines(status))
    if started:
        click.echo("Vectors follow in the background; `triskele code status` shows the share done.", err=True)
    return None


@code.command(
    epilog=examples(
        'triskele code search "where are retries scheduled"',
        "triskele code search PaymentService.retry --path ~/src/shop --json",
    ),
)
@click.argument("query")
@_path
@click.option("--limit", type=click.IntRange(1, 50), default=10, show_default=True, help="The maximum number of hits.")
@click.option("--by", type=click.Choice(["file", "function"]), default="file", show_default=True, help="What to rank.")
@click.option("--explain", is_flag=True, help="Show the score of every ranking rule.")
@common
def search(invocation: Invocation, query: str, path: str, limit: int, by: str, explain: bool) -> None:
    """Find the code that answers a question or defines a name.

    Ranked by file, at most two places of a file are shown; by function, every place counts by itself.
    """
    from triskele.code.ranking import CodePlan

    searcher, under = _located(invocation, path)
    found = searcher.search(query, limit=limit, under=under, plan=CodePlan(granularity=by))
    if 0 < found.embedded < 1 or searcher.reads_earlier:
        # Files changed since the last `code index`, or an update brought another model; one process embeds at a time.
        _embed_later(invocation, searcher.root)
    if invocation.as_json:
        return invocation.write_json(answer_shape(found))
    _write_answer(found, explain=explain)
    return _write_reservations(found, has_model=invocation.settings().recall.model != NO_MODEL)


@code.command(epilog=examples("triskele code symbol Session.get", "triskele code symbol parse_header --json"))
@click.argument("name")
@_path
@common
@click.pass_context
def symbol(context: click.Context, invocation: Invocation, name: str, path: str) -> None:
    """Show where a name is defined and used, and the memories that mention it."""
    searcher, under = _located(invocation, path)
    found = searcher.symbol(name, under=under)
    memories = _memories(invocation, name)
    if invocation.as_json:
        known = [{"id": memory.id, "content": memory.content} for memory in memories]
        invocation.write_json({**symbol_shape(found), "memories": known})
    else:
        _write_symbol(found, memories)
    context.exit(0 if found.definitions or found.references else 1)


@code.command(epilog=examples("triskele code status", "triskele code status ~/src/shop --json"))
@click.argument("path", required=False)
@common
def status(invocation: Invocation, path: str | None) -> None:
    """Show what is indexed: one tree, or all of them."""
    from triskele.code import tree_index

    roots = [_located(invocation, path)[0].root] if path else tree_index.indexed_trees(invocation.settings().home)
    found = [_searcher(invocation, root, is_indexed=True).status() for root in roots]
    if invocation.as_json:
        return invocation.write_json({"trees": [asdict(each) for each in found]})
    if not found:
        return click.echo("No tree is indexed: `triskele code index PATH` starts.")
    return invocation.write("\n".join(_status_lines(each) for each in found))


@code.command(epilog=examples("triskele code remove ~/src/shop"))
@click.argument("path", default=".")
@common
def remove(invocation: Invocation, path: str) -> None:
    """Delete the index of a tree; the tree stays as it is."""
    searcher, _ = _located(invocation, path)
    searcher.remove()
    if invocation.as_json:
        return invocation.write_json({"removed": str(searcher.root)})
    return click.echo(f"Removed the index of {searcher.root}.")


@code.command(hidden=True)
@click.argument("path")
@common
def embed(invocation: Invocation, path: str) -> None:
    """Embed what waits; `code index` starts this in the background."""
    searcher, _ = _located(invocation, path)
    with progress_bar("embedding") as advance:
        left = searcher.embed(advance)
    if invocation.as_json:
        invocation.write_json({"waiting": left})


def _searcher(invocation: Invocation, path: str | Path, *, is_indexed: bool) -> CodeSearch:
    from triskele.code import tree_index
    from triskele.code.languages import require
    from triskele.code.search import opened

    if not is_indexed:
        require()
    settings = invocation.settings()
    return opened(settings.home, tree_index.resolve(path), settings.recall.model)


def _located(invocation: Invocation, path: str) -> tuple[CodeSearch, str]:
    from triskele.code.search import locate

    root, under = locate(invocation.settings().home, path)
    return _searcher(invocation, root, is_indexed=True), under


def _embed_later(invocation: Invocation, root: Path) -> bool:
    """Start a process that embeds and outlives this one; not where processes in the background are switched off."""
    import subprocess

    settings = invocation.settings()
    if not settings.agents.background or settings.recall.model == NO_MODEL:
        return False
    # Without -P the tree's own files would be imported in place of Python's.
    command = [sys.executable, "-P", "-m", "triskele", "code", "embed", os.fspath(root)]
    try:
        subprocess.Popen(
            command,
            env=invocation.environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    return True


def _memories(invocation: Invocation, name: str) -> list[Memory]:
    """The memories of all projects that name a symbol."""
    from triskele.code.symbols import names

    if not invocation.exists():
        return []
    with invocation.open_existing() as engine:
        hits = engine.recall(name, all_projects=True, limit=50, logged=False).hits
    return [hit.memory for hit in hits if names(hit.memory.content, name)][:_MOST_MEMORIES]


def named_code(invocation: Invocation, memory: Memory) -> list[dict[str, Any]]:
    """The definitions in the indexed tree around this folder that a memory names; none if there is no such tree."""
    from triskele.errors import TriskeleError
    from triskele.types import is_secret

    if is_secret(memory) or not (invocation.settings().home / "code").is_dir():
        return []
    try:
        searcher, _ = _located(invocation, ".")
        return [definition_shape(each) for each in searcher.mentioned(memory.content)]
    except TriskeleError:
        return []


def answer_shape(found: CodeAnswer) -> dict[str, Any]:
    """An answer as JSON."""
    return {
        "root": found.root,
        "hits": [{**asdict(hit), "evidence": dict(hit.evidence)} for hit in found.hits],
        "files": found.files,
        "waiting": found.waiting,
        "partial": found.is_partial,
        "embedded": round(found.embedded, 3),
    }


def symbol_shape(found: SymbolAnswer) -> dict[str, Any]:
    """A symbol's places as JSON."""
    return {
        "root": found.root,
        "definitions": [definition_shape(each) for each in found.definitions],
        "references": [asdict(each) for each in found.references],
    }


def definition_shape(each: Located) -> dict[str, Any]:
    """A definition as JSON."""
    return {
        "path": each.path,
        "start_line": each.definition.start_line,
        "end_line": each.definition.end_line,
        "symbol": each.definition.qualified,
        "kind": each.definition.kind,
        "signature": each.definition.signature,
    }


def _write_answer(found: CodeAnswer, *, explain: bool) -> None:
    from rich.text import Text

    from triskele.edge.cli.render import ID, MATCH, QUIET, visible

    screen = console()
    for hit in found.hits:
        lines = visible(hit.snippet).split("\n")
        begin = min(hit.line - hit.start_line, len(lines) - 1)
        shown = lines if explain else lines[begin : begin + _SHOWN_LINES]
        place = f"{visible(hit.path)}:{hit.start_line}-{hit.end_line}"
        # Lines of code are not broken: they are copied, and read by programs.
        screen.print(Text.assemble((place, ID), "  ", (visible(hit.symbol), MATCH)), soft_wrap=True)
        screen.print(Text(f"  {hit.reason}", style=QUIET))
        screen.print(Text("\n".join(f"  {line}" for line in shown)), soft_wrap=True)
    if not found.hits:
        click.echo("Nothing found.")


def _write_reservations(found: CodeAnswer, *, has_model: bool) -> None:
    """What was not searched."""
    if has_model and found.embedded < 1:
        share = f"{found.embedded:.0%} of the vectors are ready" if found.embedded else "no vectors yet"
        what = "Searched by meaning in part" if found.embedded else "Searched by words only"
        click.echo(f"{what}: {share} (`triskele code status` shows the progress).", err=True)
    if found.is_partial:
        click.echo(
            f"The index is incomplete: {found.waiting:,} files wait; run `triskele code index {found.root}`.", err=True
        )


def _write_symbol(found: SymbolAnswer, memories: list[Memory]) -> None:
    from triskele.edge.cli.render import visible

    for each in found.definitions:
        definition = each.definition
        click.echo(f"{visible(each.path)}:{definition.start_line}-{definition.end_line}  {definition.kind}")
        click.echo(f"  {visible(definition.signature)}")
    if found.references:
        click.echo(f"{len(found.references):,} uses")
    for use in found.references:
        click.echo(f"  {visible(use.path)}:{use.line}  {visible(use.text)}")
    for memory in memories:
        click.echo(f"memory {memory.id[:8]}  {visible(memory.content)}")
    if not found.definitions and not found.references:
        click.echo("No such symbol.")


def _status_lines(status: TreeStatus) -> str:
    languages = ", ".join(f"{name} {count:,}" for name, count in list(status.languages.items())[:6])
    skipped = ", ".join(f"{count:,} {reason}" for reason, count in status.skipped.items())
    is_gone = not Path(status.root).is_dir()
    earlier = f" (until then answers use those from before an update: {status.by_earlier:.0%})" * bool(
        status.by_earlier
    )
    return "\n".join(
        [
            f"{status.root}" + (" (folder missing; `triskele code remove` deletes its index)" if is_gone else ""),
            f"  {status.files:,} files, {status.lines:,} lines, {status.chunks:,} chunks,"
            f" {status.definitions:,} definitions ({languages or 'no source'})",
            f"  vectors: {status.embedded:.0%}{earlier}; waiting: {status.waiting:,} files;"
            f" left out: {skipped or 'nothing'}; {status.bytes_on_disk / 1e6:.1f} MB on disk",
        ]
    )
