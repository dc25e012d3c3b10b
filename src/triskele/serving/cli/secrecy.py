"""Commands about secrets: reveal, list, seal, rotate."""

from __future__ import annotations

import click

from triskele.config import KEY_SOURCES
from triskele.serving import shapes
from triskele.serving.cli.invocation import Invocation, common, examples, global_options
from triskele.serving.cli.options import MAX_LISTED, id_argument
from triskele.types import is_secret


@click.group(
    invoke_without_command=True,
    epilog=examples("triskele secrets list", "triskele secrets reveal 1kpn46", "triskele secrets rotate --renew"),
)
@global_options
@click.pass_context
def secrets(context: click.Context) -> None:
    """Show, seal and re-key what is kept in the vault."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@secrets.command(epilog=examples("triskele secrets reveal 1kpn46", "triskele secrets reveal 1kpn46 --json"))
@id_argument()
@common
def reveal(invocation: Invocation, id: str) -> None:
    """Show the text of a secret; the journal notes it."""
    with invocation.open_existing() as engine:
        memory = engine.get(id)
        text = engine.reveal(memory.id)
        if invocation.as_json:
            return invocation.write_json(
                {"id": memory.id, "title": memory.content, "text": text, "project": memory.project}
            )
        return click.echo(text)


@secrets.command("list", epilog=examples("triskele secrets list", "triskele secrets list --json"))
@common
def list_secrets(invocation: Invocation) -> None:
    """List the secrets of every project by their titles."""
    with invocation.open_existing() as engine:
        ids = list(dict.fromkeys(row.id for row in engine.store.sealed()))
        found = [each for each in engine.store.memories(ids).values() if is_secret(each)][:MAX_LISTED]
        if invocation.as_json:
            return invocation.write_json({"memories": [shapes.memory(each) for each in found], "project": None})
        from triskele.serving.cli import render

        short = engine.store.shorten(each.id for each in found)
        return invocation.write(render.listing(found, short, set(), None, offset=0, limit=MAX_LISTED))


@secrets.command(
    epilog=examples("triskele secrets seal 1kpn46", "triskele secrets seal 1kpn46 --title 'Key of the build box'")
)
@id_argument()
@click.option("--title", metavar="WORDS", help="What it goes by; made by a safe rule where left out.")
@common
def seal(invocation: Invocation, id: str, title: str | None) -> None:
    """Make a memory secret in all its versions, and erase what was derived from its text."""
    with invocation.open_existing() as engine:
        sent = engine.sent(id)
        outcome = engine.seal(id, title=title)
        copies = engine.earlier_copies()
        if invocation.as_json:
            told = {"kept_copies": shapes.plain(copies), "sent": shapes.plain(sent), "project": engine.project}
            return invocation.write_json({**shapes.outcome(outcome), **told})
        from triskele.serving.cli import reports

        short = engine.store.shorten([outcome.id])
        return invocation.write(reports.changes([outcome], {}, short, copies=copies, sent=sent))


@secrets.command(epilog=examples("triskele secrets rotate --renew", "triskele secrets rotate --to passphrase"))
@click.option("--to", type=click.Choice(KEY_SOURCES[1:]), help="Lock the vault by another key source.")
@click.option("--renew", is_flag=True, help="Take a new data key too and seal everything anew.")
@common
def rotate(invocation: Invocation, to: str | None, renew: bool) -> None:
    """Change the key of the vault; cut short, nothing is lost."""
    if to is None and not renew:
        raise click.UsageError("nothing to change: give --to, --renew or both")
    with invocation.open_existing() as engine:
        done = engine.safe.rotate(to, renew=renew)
        if invocation.as_json:
            return invocation.write_json({**shapes.plain(done), "project": engine.project})
        from triskele.serving.cli import render

        anew = f"; {done.resealed:,} sealed texts were sealed anew" if done.renewed else ""
        return invocation.write(render.note(f"The vault is locked by a {done.source} now{anew}."))
