"""The same answers for programs: metrics and the MCP server."""
