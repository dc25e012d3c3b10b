"""Search over trees of source, from an index in the data folder."""
