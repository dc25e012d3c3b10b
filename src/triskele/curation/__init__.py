"""Comparing, proposing and applying what keeps a store clean, capture, undo, secrecy, usage, and health."""
