"""`muster plan rollout`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.rollout import Rollout

command = plan_command(
    Rollout,
    "Waves for a driver upgrade: canaries, which images would break, nodes at once, drain of gangs, rollback points.",
    (
        "muster plan rollout --nodes 250 --floor 90%",
        "muster plan rollout --from now.snap --to 580.95.05 --image trainer:cuda=12.4,compat",
        "muster plan rollout --nodes 1000 --drain checkpoint --interval 30m --fault 2%",
    ),
    data=(
        Data(
            "--from",
            "SOURCE",
            "A snapshot or a live cluster: its nodes, and what runs on them.",
            "rollout.read_rollout",
        ),
    ),
)
