"""`muster plan`: numbers about a fleet, each derived: formula, inputs, steps, sensitivity, limits."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "hybrid": ("muster.cli.plan_hybrid", "A fleet on Slurm, Kubernetes or both: the best split, and what it costs."),
}
"""Name of a planner to the module that defines ``command`` and its one-line help."""


class PlanGroup(click.Group):
    """A group that imports a planner's module only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all planners, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a planner; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        found = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the planners without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=PlanGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  muster plan hybrid\n  muster plan hybrid --nodes 64 --load 0.85 -o json",
)
def command() -> None:
    """Plan a fleet: each number with the formula, the inputs, the steps, what it is sensitive to and when it fails."""
