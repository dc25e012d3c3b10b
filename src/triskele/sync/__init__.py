"""Two stores in step: states and their merge, the loop, conflicts that the user decides."""

# The kind of the documents of memories in conflict: commands that show memories look there, and load nothing of sync.
CONFLICTS = "sync-conflict"
