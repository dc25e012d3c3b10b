"""Storage of memories: the only room that uses SQL."""
