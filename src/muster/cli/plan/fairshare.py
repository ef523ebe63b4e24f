"""`muster plan fairshare`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.fairshare import Fairshare

command = plan_command(
    Fairshare,
    "Shares by hand (classic and Fair Tree), pooling against static quotas, and signs of gaming in accounting.",
    (
        "muster plan fairshare --from sacct.txt --half-life 14d",
        "muster plan fairshare --queue a:shares=2,usage=100 --queue b:shares=1,usage=10",
        "muster plan fairshare --team a:gpus=8,jobs=3/h,time=2h,quota=64 --variation 20",
    ),
    data=(Data("--from", "FILE", "What sacct --parsable2 printed.", "fairshare.read_fairshare"),),
)
