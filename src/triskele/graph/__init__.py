"""The concept graph: what a memory is about, which names are the same, and the walk from one memory to the next."""
