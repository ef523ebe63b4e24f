"""`muster plan sharing`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.sharing import Sharing

command = plan_command(
    Sharing,
    "MIG, MPS or time-slicing for workloads that need a part of a GPU: the GPUs each takes, legal layouts, and what "
    "each gives up.",
    (
        "muster plan sharing",
        "muster plan sharing --gpu A100 --job llm:memory=35GB,compute=0.4,count=3",
        "muster plan sharing --gpu L40S --job web:memory=9GB,compute=30%,busy=20%,count=20",
        "muster plan sharing --from workloads.csv",
        "muster plan sharing --isolate everything --times 2",
    ),
    data=(
        Data(
            "--from",
            "FILE",
            "A CSV file of workloads: name, memory, compute, and busy, count, tenant.",
            "sharing.workloads_of",
        ),
    ),
    notes="A job is name:memory=10GB,compute=0.2,busy=50%,count=7,tenant=NAME. compute: share of a GPU\n"
    "when it works (SM_ACTIVE); busy: share of the time in which it works (GPU_UTIL); left out: always.",
)
