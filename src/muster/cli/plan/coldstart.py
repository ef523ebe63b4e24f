"""`muster plan coldstart`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.coldstart import Coldstart

command = plan_command(
    Coldstart,
    "The chain of a cold start link by link, what removes which link, the warm pool, and how full serving may run.",
    (
        "muster plan coldstart --weights 140GB --link 2GB/s --boot 0",
        "muster plan coldstart --from requests.csv --misses 0.1%",
        "muster plan coldstart --claims 45/s --boot 0 --image 1GB --weights 0GB --compile 0 --graphs 0",
    ),
    data=(
        Data("--from", "FILE", "When claims arrive: CSV or JSON lines with a time each.", "coldstart.read_arrivals"),
    ),
)
