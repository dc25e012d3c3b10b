"""Derived indexes: cheap to rebuild from the store, stamped with the journal entry they reflect."""
