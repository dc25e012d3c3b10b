"""Agents that triskele can be installed into: which files, which entries, and how both are put in and taken out."""
