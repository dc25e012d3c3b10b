"""How people and programs reach the engine: command line, HTTP, MCP, hooks, installers."""
