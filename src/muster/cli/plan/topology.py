"""`muster plan topology`."""

from __future__ import annotations

from muster.cli.plan.from_question import plan_command
from muster.planning.plans.topology import Placement

command = plan_command(
    Placement,
    "A training job's step on whole and split nodes, under one leaf and over the spine; what each kind of parallelism "
    "sends, and what must stand together.",
    (
        "muster plan topology",
        "muster plan topology --gpu H200 --gpus 8 --tensor 8 --pipeline 1 --placement 4+4",
        "muster plan topology --gpus 512 --parameters 405e9 --tensor 8 --pipeline 16 --oversubscription 2",
        "muster plan topology --gpus 64 --tensor 1 --pipeline 1 --expert 8 --expert-layers 32 --top-k 2",
    ),
)
