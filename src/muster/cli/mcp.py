"""`muster mcp`: the answers for assistants, over the Model Context Protocol."""

from __future__ import annotations

import socket

import click

from muster.cli.source import address, latest_of, no_listening, source_options
from muster.errors import InputError

EPILOG = """\b
Examples:
  muster mcp --from now.snap
  claude mcp add muster -- muster mcp --from /srv/muster/now.snap
  muster mcp --from now.snap --http 127.0.0.1:8811
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@source_options
@click.option("--http", metavar="HOST:PORT", help="Serve streamable HTTP there at /mcp, instead of stdin and stdout.")
def command(source: str, at: str | None, settings: tuple[str, ...], http: str | None) -> None:
    """Serve why, fit, queue, fleet and whatif to MCP clients; read-only.

    The source is read anew when its file changes. It needs the extra `mcp`: pip install 'muster-gpu[mcp]'.
    """
    try:
        import mcp
    except ImportError:
        raise InputError("the package mcp is not installed", hint="pip install 'muster-gpu[mcp]'") from None
    assert mcp
    from muster.service.mcp_server import server_of

    server = server_of(latest_of(source, at, settings).view)
    if http is None:
        server.run("stdio")
        return
    host, port = address(http, "--http")
    try:  # the server would tell it in words of its own, and end with another code
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except (OSError, UnicodeError) as error:
        raise no_listening(http, "--http", error) from None
    server.run("streamable-http", host=host, port=port)
