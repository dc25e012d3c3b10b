"""The templates of a report with autoescape, and the elements of its drawings, which escape plain text too."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from triskele.bench.comparison import Decision, decision
from triskele.bench.report import formatting

_SIGNS = {Decision.BETTER: "▲", Decision.WORSE: "▼", Decision.UNDECIDED: "○"}
# Text that is markup, not to be escaped: templates know it too.
Html = Markup


@cache
def environment() -> Environment:
    """The templates: everything that is not markup of ours is escaped."""
    loader = PackageLoader("triskele.bench.report", "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    written = (formatting.metric_name, formatting.value, formatting.signed, formatting.interval)
    made.filters |= {each.__name__: each for each in (*written, formatting.detectable, formatting.p_value)}
    made.filters |= {"questions": formatting.questions, "count": lambda number: f"{number:,}"}
    made.filters |= {"meaning": formatting.MEANINGS.__getitem__, "decision": decision, "sign": _SIGNS.__getitem__}
    return made


def table(name: str, *values: Any) -> Html:
    """A table, made by the macro of this name."""
    macro = getattr(environment().get_template("tables.html").module, name)
    return Html(macro(*values))


def element(name: str, *children: str, **attributes: object) -> Html:
    """An element with its children; `class_` stands for class, `text_anchor` for text-anchor, None for no attribute."""
    named = Html("").join(
        Html(' {}="{}"').format(key.rstrip("_").replace("_", "-"), str(value))
        for key, value in attributes.items()
        if value is not None
    )
    return Html("<{0}{1}>{2}</{0}>").format(name, named, joined(children))


def joined(children: Iterable[str]) -> Html:
    """Children one after the other; plain text is escaped."""
    return Html("").join(children)
