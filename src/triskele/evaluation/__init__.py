"""Measuring recall: data sets, arms, metrics, comparisons."""
