"""`muster top`: fleet, queues, what waits and what runs, on the terminal."""

from __future__ import annotations

import sys

import click

from muster.cli.source import latest_of, source_options
from muster.errors import InputError

EPILOG = """\b
Examples:
  muster top --from now.snap
  muster top --from run.yaml --at 3h

\b
Keys: 1 to 4 or arrows for the tables, Enter on a job for its why, / filters, r reads anew, q ends it.
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@source_options
def command(source: str, at: str | None, settings: tuple[str, ...]) -> None:
    """Watch fleet, queues and the waiting list with reasons; Enter on a job tells its why.

    The source is read anew when its file changes. It needs the extra `tui`: pip install 'muster-gpu[tui]'.
    """
    try:
        import textual
    except ImportError:
        raise InputError("the package textual is not installed", hint="pip install 'muster-gpu[tui]'") from None
    assert textual
    latest = latest_of(source, at, settings)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("this is no terminal", hint="use `muster queue --watch`, or -o json of `muster queue`")
    from muster.cli.top_app import TopApp

    TopApp(latest.view).run()
