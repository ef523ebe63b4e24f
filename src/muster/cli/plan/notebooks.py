"""`muster plan notebooks`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.notebooks import Notebooks

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
        Data(
            "--from",
            "FILE",
            "Sessions: CSV with user, start, end, and last_active if known.",
            "notebooks.read_sessions",
        ),
        Data("--cells", "FILE", "Cells that ran: CSV with user, start, end.", "notebooks.read_cells"),
    ),
)
