"""`muster plan spot`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.spot import Spot

command = plan_command(
    Spot,
    "Gangs on spot: breaks by shared shocks, break-even price, deadlines, and what must never be there.",
    (
        "muster plan spot --from trace.json --prices examples/prices.yaml --sku nebius-h100",
        "muster plan spot --nodes 32 --losses 0.5/h --together 60% --save 30s --restart 5m",
        "muster plan spot --work 3d --deadline 5d --available 70%",
    ),
    data=(
        Data(
            "--from",
            "FILE",
            "A spot trace: SkyPilot's JSON, or milliseconds,add|remove,node as CSV.",
            "spot.read_losses",
        ),
        Data("--prices", "FILE", "A price file; see examples/prices.yaml.", "spot.read_ratio"),
        Data("--sku", "NAME", "Which offer of the price file.", beside="--prices"),
    ),
)
