"""Public sample data sets, each a folder with corpus.jsonl, queries.jsonl, qrels.tsv and a README.md."""
