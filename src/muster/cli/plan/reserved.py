"""`muster plan reserved`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.reserved import Reserved

command = plan_command(
    Reserved,
    "How much capacity to commit to, for how long, and what to buy above it: on-demand, blocks or spot.",
    (
        "muster plan reserved --from hours.csv --prices examples/prices.yaml --sku aws-p5",
        "muster plan reserved --from philly:jobs.csv --short 60% --long 40% --sigma 0.4",
        "muster plan reserved --short 0.6 --block 0.5 --spot 0.45 --flexible 30%",
    ),
    data=(
        Data(
            "--from",
            "FILE",
            "Demand: CSV with a column gpus, one row an hour; or a trace of jobs.",
            "reserved.read_demand",
        ),
        Data("--prices", "FILE", "A price file; see examples/prices.yaml.", "reserved.read_terms"),
        Data("--sku", "NAME", "Which offer of the price file.", beside="--prices"),
    ),
)
