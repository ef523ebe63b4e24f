"""`muster plan stranded`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.stranded import StrandedGpus

command = plan_command(
    StrandedGpus,
    "GPUs of a fleet that its pods cannot use, however they are placed: by parts, counts, models, CPU and memory, and "
    "what would win them back.",
    (
        "muster plan stranded",
        "muster plan stranded --fleet uniform:nodes=20,gpus=8 --pod a:gpus=3,cpu=24,share=100%",
        "muster plan stranded --fleet openb:nodes.csv --workload openb:pods.csv --sharing fractions",
        "muster plan stranded --from now.snap --load 1.3",
    ),
    data=(Data("--from", "SPEC", "A snapshot or kubectl dump: its fleet, what runs and waits.", "stranded.read_own"),),
    notes="A pod is name:gpus=1,cpu=20,memory=128GB,share=20%,uses=20%,model=H100: cpu and memory of\n"
    "the whole pod, share of the GPUs that pods ask for, uses of each of its GPUs.",
)
