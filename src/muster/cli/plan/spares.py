"""`muster plan spares`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.spares import Spares

command = plan_command(
    Spares,
    "Warm and cold spares by Poisson and binomial quantiles, by domain, and what each minute of a recovery costs.",
    (
        "muster plan spares --nodes 1250 --rate 6.5 --repair 3d --target 99.9%",
        "muster plan spares --from now.snap --domain 18 --detect 30s",
        "muster plan spares --nodes 128 --worse 3.6 --price 2.5",
    ),
    data=(
        Data("--from", "SOURCE", "A snapshot or a live cluster: its nodes and their failures.", "spares.read_nodes"),
    ),
)
