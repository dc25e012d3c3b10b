"""Proposing changes to memories; the engine carries them out."""
