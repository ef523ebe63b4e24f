"""`muster plan checkpoint`."""

from __future__ import annotations

from muster.cli.plan.from_question import plan_command
from muster.planning.plans.checkpoint import Checkpoint

command = plan_command(
    Checkpoint,
    "How often a job should save, how much of its time becomes work that lasts, and the bandwidth that saving needs.",
    (
        "muster plan checkpoint --nodes 256 --save 60s",
        "muster plan checkpoint --nodes 2048 --rate 3.79 --size 30TB --write 500GB/s --restart 10m",
        "muster plan checkpoint --mttf 7.9h --save 5m --interval 30m",
        "muster plan checkpoint --nodes 512 --save 2m --stall 5s --report checkpoint.html",
    ),
)
