"""Markup: plain text is escaped wherever it meets an element."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: object) -> Html:
    """An element with its children; `class_` stands for class, `text_anchor` for text-anchor, None for no attribute."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{named}>{joined(children)}</{name}>")


def joined(children: Iterable[str]) -> Html:
    """Children side by side; what is not markup is escaped."""
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


def scrolling(table: Html, about: str) -> Html:
    """A table that scrolls sideways by itself where the page is narrow."""
    return element("div", table, class_="wide", role="region", tabindex="0", aria_label=about)
