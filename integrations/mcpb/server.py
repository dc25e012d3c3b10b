"""Start the MCP server; uv has installed what pyproject.toml names."""

import sys

from triskele.__main__ import main

sys.argv[1:] = ["mcp"]
main()
