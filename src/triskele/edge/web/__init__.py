"""The web pages of the resident process: search with reasons, browse and edit, graph, code, quality and health."""
