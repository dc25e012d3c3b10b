"""Long-term memory for AI agents: words, meaning and connections."""

from __future__ import annotations

__all__ = ["Engine", "__version__", "connect", "open"]
__version__ = "0.1.0"

# `triskele --version` must not pay for the engine; `__init__.pyi` has the types.
_HOMES = {
    "Engine": "triskele.engine.protocol",
    "open": "triskele.engine.opening",
    "connect": "triskele.edge.http.client",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'triskele' has no attribute {name!r}")
    # Imported here: a command that the background process answers needs no importer.
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
