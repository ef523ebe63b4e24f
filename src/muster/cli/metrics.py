"""`muster metrics`: figures of fleet and queues for Prometheus."""

from __future__ import annotations

import click

from muster.cli.output import say
from muster.cli.source import address, latest_of, no_listening, source_options, view_of

EPILOG = """\b
Examples:
  muster metrics --from now.snap
  muster metrics --from now.snap --write /var/lib/node_exporter/textfile/muster.prom
  muster metrics --from now.snap --listen 127.0.0.1:9400
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@source_options
@click.option("--write", metavar="FILE", help="Write to a file, whole or not at all, instead of stdout.")
@click.option("--listen", metavar="HOST:PORT", help="Serve them at /metrics; the source is read anew when it changes.")
def command(source: str, at: str | None, settings: tuple[str, ...], write: str | None, listen: str | None) -> None:
    """Print GPUs by state, the shares of queues, what waits and why, in the text format of OpenMetrics."""
    if listen is not None:
        _serve(source, at, settings, listen)
        return
    from muster.service.metrics import metrics_text

    text = metrics_text(view_of(source, at, settings))
    if write is None:
        click.echo(text.decode(), nl=False)
        return
    from muster.model.snapshot import write_atomically
    from muster.traces.files import check_target

    check_target(write, "--write")
    write_atomically(write, text)


def _serve(source: str, at: str | None, settings: tuple[str, ...], listen: str) -> None:
    from prometheus_client import start_http_server

    from muster.service.metrics import registry_of

    host, port = address(listen, "--listen")
    latest = latest_of(source, at, settings)
    try:
        server, thread = start_http_server(port, host, registry_of(latest.view))
    except (OSError, UnicodeError) as error:
        raise no_listening(listen, "--listen", error) from None
    say(f"http://{listen}/metrics; Ctrl-C ends it.")
    try:
        thread.join()
    finally:
        server.shutdown()
