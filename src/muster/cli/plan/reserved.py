"""`muster plan reserved`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.reserved import Reserved
from muster.planning.question import FromData


def _demand(path: str, given: Mapping[str, Any]) -> FromData:
    from muster.answers.plan_data.reserved import read_demand

    return read_demand(path, given)


def _terms(path: str, given: Mapping[str, Any]) -> FromData:
    from muster.answers.plan_data.reserved import read_terms

    return read_terms(path, given)


command = plan_command(
    Reserved,
    "How much capacity to commit to, for how long, and what to buy above it: on-demand, blocks or spot.",
    (
        "muster plan reserved --from hours.csv --prices examples/prices.yaml --sku aws-p5",
        "muster plan reserved --from philly:jobs.csv --short 60% --long 40% --sigma 0.4",
        "muster plan reserved --short 0.6 --block 0.5 --spot 0.45 --flexible 30%",
    ),
    data=(
        Data("--from", "FILE", "Demand: CSV with a column gpus, one row an hour; or a trace of jobs.", _demand),
        Data("--prices", "FILE", "A price file; see examples/prices.yaml.", _terms),
        Data("--sku", "NAME", "Which offer of the price file.", lambda _, __: FromData({})),
    ),
)
