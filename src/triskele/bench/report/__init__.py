"""The HTML page of a benchmark."""
