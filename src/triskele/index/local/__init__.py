"""The embedded corpus: five indexes in the store's folder, read as one."""
