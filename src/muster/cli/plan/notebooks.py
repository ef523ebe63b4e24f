"""`muster plan notebooks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.notebooks import Notebooks
from muster.planning.question import FromData


def _sessions(path: str, given: Mapping[str, Any]) -> FromData:
    from muster.answers.plan_data.notebooks import read_sessions

    return read_sessions(path, given)


def _cells(path: str, given: Mapping[str, Any]) -> FromData:
    from muster.answers.plan_data.notebooks import read_cells

    return read_cells(path, given)


command = plan_command(
    Notebooks,
    "GPUs for N users of notebooks: how many are open at a time, how they share, when an idle GPU is taken away and "
    "how often that is wrong.",
    (
        "muster plan notebooks --users 60 --memory 10GB --gpu A100-80GB",
        "muster plan notebooks --from sessions.csv --cells cells.csv --idle 2h",
        "muster plan notebooks --users 30 --trusted --memory 6GB --gpu L40S",
    ),
    data=(
        Data("--from", "FILE", "Sessions: CSV with user, start, end, and last_active if known.", _sessions),
        Data("--cells", "FILE", "Cells that ran: CSV with user, start, end.", _cells),
    ),
)
