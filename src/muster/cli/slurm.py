"""`muster slurm`: questions about a Slurm cluster, its scripts and its configuration."""

from __future__ import annotations

import click

from muster.cli.lazy import LazyGroup

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


@click.group(
    cls=LazyGroup,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  muster slurm lint job.sh\n  muster slurm lint job.sh --config /etc/slurm -- --nodes 2\n"
    "  muster slurm config check /etc/slurm",
)
def command() -> None:
    """A Slurm cluster: what scripts get, and what is wrong with them and with its configuration."""
