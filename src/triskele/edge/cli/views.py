"""The reports for people by name, each loaded when first shown: rich takes longer to import than most commands run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triskele.edge.cli import (
        curation_view,
        eval_view,
        graph_view,
        health_report,
        model_report,
        render,
        reports,
    )

    __all__ = ("curation_view", "eval_view", "graph_view", "health_report", "model_report", "render", "reports")


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return import_module(f"triskele.edge.cli.{name}")
