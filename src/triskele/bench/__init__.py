"""Measure recall on public data sets and on the user's questions."""
