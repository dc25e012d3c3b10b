"""The page that shows a benchmark: one file, no network."""
