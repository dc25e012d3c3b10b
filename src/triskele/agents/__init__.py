"""Memories that agents get without asking, fenced as data."""
