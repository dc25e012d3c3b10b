"""The concept graph for people: lookup, paths, merging and splitting."""
