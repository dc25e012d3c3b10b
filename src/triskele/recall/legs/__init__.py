"""The legs that recall stands on: each turns a question and a reader into a ranking."""
