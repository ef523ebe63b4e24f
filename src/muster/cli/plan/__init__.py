"""`muster plan`: numbers about a fleet, each derived: formula, inputs, steps, sensitivity, limits."""

from __future__ import annotations

import click

from muster.cli.lazy import LazyGroup

COMMANDS = {
    "bringup": ("muster.cli.plan.bringup", "From bare GPU nodes to usable GPUs: the chain, by operator and by hand."),
    "checkpoint": ("muster.cli.plan.checkpoint", "How often to save, goodput and ETTR, the storage that it needs."),
    "coldstart": ("muster.cli.plan.coldstart", "A cold start link by link, what removes each, the warm pool."),
    "fairshare": ("muster.cli.plan.fairshare", "Shares by hand, pooling against quotas, signs of gaming."),
    "hybrid": ("muster.cli.plan.hybrid", "A fleet on Slurm, Kubernetes or both: the best split, and what it costs."),
    "image": ("muster.cli.plan.image", "How long an image takes to arrive, layer by layer, on one node or a fleet."),
    "lora": ("muster.cli.plan.lora", "LoRA tenants on shared bases: packing, slots, seconds to save, charges."),
    "multicloud": ("muster.cli.plan.multicloud", "One job over several sites, outer steps, or whole jobs with data."),
    "notebooks": ("muster.cli.plan.notebooks", "GPUs for notebook users: sharing, idle ones taken, false stops."),
    "pool": ("muster.cli.plan.pool", "Training and serving in one pool: slack, reclaim, SLO risk, gain."),
    "reserved": ("muster.cli.plan.reserved", "Commitments from the demand duration curve, and the rest above."),
    "rollout": ("muster.cli.plan.rollout", "Waves of a driver upgrade: canaries, drains, images, rollback points."),
    "sandboxes": ("muster.cli.plan.sandboxes", "Hosts for walled-in sessions: which limit binds, by trust."),
    "sharing": ("muster.cli.plan.sharing", "MIG, MPS or time-slicing: GPUs for workloads that need a part of one."),
    "spares": ("muster.cli.plan.spares", "Warm and cold spares, by domain, and what a minute of recovery costs."),
    "spot": ("muster.cli.plan.spot", "Gangs on spot: breaks, break-even, deadlines, what must never be there."),
    "stranded": ("muster.cli.plan.stranded", "GPUs that no placement can use, why, and what wins them back."),
    "topology": ("muster.cli.plan.topology", "A training step on whole or split nodes, and what must stand together."),
    "utilization": ("muster.cli.plan.utilization", "From capacity to work: each gap, its cost, what closes it."),
}
"""Name of a planner to the module that defines ``command`` and its one-line help."""


@click.group(
    cls=LazyGroup,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  muster plan checkpoint --nodes 256 --save 60s\n"
    "  muster plan hybrid --nodes 64 --load 0.85 -o json",
)
def command() -> None:
    """Plan a fleet: each number with the formula, the inputs, the steps, what it is sensitive to and when it fails."""
