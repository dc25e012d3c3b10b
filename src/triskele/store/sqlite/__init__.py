"""The store of a personal machine: one SQLite file."""
