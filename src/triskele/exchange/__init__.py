"""Formats in which memories come and go."""
