"""Import and export of memories."""

# The kind of the documents of memories in conflict: commands that show memories look there, and load nothing of sync.
CONFLICTS = "sync-conflict"
