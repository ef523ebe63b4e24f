"""`muster completion`: what a shell, or kubectl, needs to complete commands, options and their values."""

from __future__ import annotations

import sys

import click

from muster.cli.output import PLUGIN_NAME
from muster.errors import InputError

VARIABLE = "_MUSTER_COMPLETE"
"""By this variable the shell's script asks for completions, whatever the command is called."""

FILES, NO_FILES = 0, 4
"""What kubectl is told (cobra's ShellCompDirective): to complete names of files, or not to."""

EPILOG = """\b
Examples:
  muster completion bash >> ~/.bashrc
  muster completion zsh > ~/.zfunc/_muster        # a folder in fpath
  muster completion fish > ~/.config/fish/completions/muster.fish

\b
`kubectl muster` is completed by kubectl itself, which finds kubectl_complete-muster beside it on PATH.
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def command(shell: str) -> None:
    """Print the script by which a shell completes `muster`."""
    from click.shell_completion import get_completion_class

    from muster.cli.main import main

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "muster", VARIABLE).source())


def complete_for_kubectl(args: list[str] | None = None) -> None:
    """Entry point ``kubectl_complete-muster``: the words so far, of which the last is to be completed.

    Prints each completion, with its help behind a tab, and at the end a colon and what else the shell may do.
    """
    from click.shell_completion import ShellComplete

    from muster.cli.main import main

    *words, begun = (sys.argv[1:] if args is None else args) or [""]
    try:
        found = ShellComplete(main, {}, PLUGIN_NAME, VARIABLE).get_completions(words, begun)
    except (click.ClickException, InputError):
        found = []
    for each in found:
        if each.type == "plain":
            click.echo(f"{each.value}\t{each.help}" if each.help else each.value)
    files = any(each.type in ("file", "dir") for each in found)
    click.echo(f":{FILES if files else NO_FILES}")
