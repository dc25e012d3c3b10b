"""The concept graph for people: one concept, the path between two, counts, merging and splitting."""
