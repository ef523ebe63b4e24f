"""`muster plan spot`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.spot import Spot
from muster.planning.question import FromData


def _losses(path: str, given: Mapping[str, Any]) -> FromData:
    from muster.answers.plan_data.spot import read_losses

    return read_losses(path, given)


def _ratio(path: str, given: Mapping[str, Any]) -> FromData:
    from muster.answers.plan_data.spot import read_ratio

    return read_ratio(path, given)


command = plan_command(
    Spot,
    "Gangs on spot: breaks by shared shocks, break-even price, deadlines, and what must never be there.",
    (
        "muster plan spot --from trace.json --prices examples/prices.yaml --sku nebius-h100",
        "muster plan spot --nodes 32 --losses 0.5/h --together 60% --save 30s --restart 5m",
        "muster plan spot --work 3d --deadline 5d --available 70%",
    ),
    data=(
        Data("--from", "FILE", "A spot trace: SkyPilot's JSON, or milliseconds,add|remove,node as CSV.", _losses),
        Data("--prices", "FILE", "A price file; see examples/prices.yaml.", _ratio),
        Data("--sku", "NAME", "Which offer of the price file.", lambda _, __: FromData({})),
    ),
)
