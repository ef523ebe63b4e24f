"""`muster doctor script`: what gathers evidence on a node that has no Muster."""

from __future__ import annotations

import click

EPILOG = """\b
Examples:
  muster doctor script > gather.sh
  ssh gpu-7 sudo sh -s < gather.sh | muster doctor --from -

\b
Exit code 0. The script only reads; each of its commands has 20 seconds (MUSTER_LIMIT_S).
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Print a shell script that prints, on a node, all that the doctor reads there.

    It is plain sh without dependencies, changes nothing, and hides passwords and tokens.
    """
    from importlib.resources import files

    click.echo(files("muster.doctor").joinpath("gather.sh").read_text(encoding="utf-8"), nl=False)
