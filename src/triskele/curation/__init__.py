"""Compares memories, and proposes or applies changes."""
