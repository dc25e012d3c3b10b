"""Tools, resources and prompts of the Model Context Protocol."""
