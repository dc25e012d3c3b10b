"""Measuring recall on public data sets and on the user's own questions: data sets, harness, metrics, comparisons."""
