"""Loaders for public data sets as people download them, one file per form."""
