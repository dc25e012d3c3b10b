"""Looking for words in the bytes of a store's files."""

from __future__ import annotations

from file_traces import new_word, traces

__all__ = ["new_word", "traces"]
