"""`muster plan pool`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.pool import Pool
from muster.planning.question import FromData


def _serving(path: str, given: Mapping[str, Any]) -> FromData:
    from muster.answers.plan_data.pool import read_serving

    return read_serving(path, given)


def _requests(path: str, given: Mapping[str, Any]) -> FromData:
    from muster.answers.plan_data.pool import read_requests

    return read_requests(path, given)


command = plan_command(
    Pool,
    "One pool for training and serving: slack against the ramp, reclaim time, SLO risk, utilisation of each design.",
    (
        "muster plan pool --from serving.csv --step 5m --gpus 512",
        "muster plan pool --requests log.csv --per-gpu 2/s --step 1m --gpus 64",
        "muster plan pool --cold 45s --save 0 --risk 0.1%",
    ),
    data=(
        Data("--from", "FILE", "What serving needs: CSV with a column gpus, one row a step.", _serving),
        Data("--requests", "FILE", "A log of requests instead, with --per-gpu.", _requests),
        Data("--per-gpu", "RATE", "Requests that one GPU serves, such as 2/s.", lambda _, __: FromData({})),
    ),
)
