"""What a text says: its words, terms, names and times; ids, timestamps, files and folders."""
