"""The concept graph: names in texts, canonical forms, edges and walks; pure functions."""
