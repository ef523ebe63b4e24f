"""`muster slurm`: questions about a Slurm cluster, its scripts and its configuration."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "lint": (
        "muster.cli.slurm_lint",
        "What an sbatch script will get, what is wrong with it, and the corrected script.",
    ),
    "config": ("muster.cli.slurm_config", "A configuration: what is wrong with slurm.conf and the files beside it."),
    "efficiency": (
        "muster.cli.slurm_efficiency",
        "What jobs asked for and used, as seff and jobstats tell it, with GPUs; what to ask for instead.",
    ),
    "reasons": (
        "muster.cli.slurm_reasons",
        "Every reason code of Slurm in plain words, with what is to be done about it.",
    ),
    "schedule": (
        "muster.cli.slurm_schedule",
        "Steer a real Slurm by Muster's plan: order, places, promised starts, preemption, spares.",
    ),
    "release": ("muster.cli.slurm_release", "Put back all that `schedule` changed."),
    "status": ("muster.cli.slurm_status", "What is steered at present, what it was before, and by whom."),
}
"""Name of a subcommand to the module that defines ``command`` and its one-line help."""


class SlurmGroup(click.Group):
    """A group that imports a subcommand's module only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        found = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=SlurmGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  muster slurm lint job.sh\n  muster slurm lint job.sh --config /etc/slurm -- --nodes 2\n"
    "  muster slurm config check /etc/slurm",
)
def command() -> None:
    """A Slurm cluster: what scripts get, and what is wrong with them and with its configuration."""
