"""`muster plan pool`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.pool import Pool

command = plan_command(
    Pool,
    "One pool for training and serving: slack against the ramp, reclaim time, SLO risk, utilisation of each design.",
    (
        "muster plan pool --from serving.csv --step 5m --gpus 512",
        "muster plan pool --requests log.csv --per-gpu 2/s --step 1m --gpus 64",
        "muster plan pool --cold 45s --save 0 --risk 0.1%",
    ),
    data=(
        Data("--from", "FILE", "What serving needs: CSV with a column gpus, one row a step.", "pool.read_serving"),
        Data("--requests", "FILE", "A log of requests instead, with --per-gpu.", "pool.read_requests"),
        Data("--per-gpu", "RATE", "Requests that one GPU serves, such as 2/s.", beside="--requests"),
    ),
)
