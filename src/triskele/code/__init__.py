"""Search over trees of source code: the right function for a question, from an index in the data folder."""
