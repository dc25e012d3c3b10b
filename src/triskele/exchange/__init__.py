"""Import and export of memories."""
