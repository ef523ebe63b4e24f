"""`muster mcp`: the answers for assistants, over the Model Context Protocol."""

from __future__ import annotations

import socket

import click

from muster.cli.source import at_of, settings_given, source_options
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
    from muster.service.latest import Latest
    from muster.service.mcp_server import server_of

    latest = Latest(source, at_of(source, at), settings_given(settings))
    latest.view()  # what is wrong with the source is told now
    server = server_of(latest.view)
    if http is None:
        server.run("stdio")
        return
    host, _, port = http.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and len(port) < 6) or not 0 < int(port) < 65536:
        raise InputError(f"{http!r} is not HOST:PORT", field="--http", hint="such as 127.0.0.1:8811")
    try:
        socket.create_server(
            (host.strip("[]"), int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        ).close()
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {http[:80]!r} ({why})", field="--http") from None
    server.run("streamable-http", host=host.strip("[]"), port=int(port))
