"""`muster plan multicloud`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.multicloud import Multicloud

command = plan_command(
    Multicloud,
    "Several sites: what one synchronous job over them pays, what outer steps need, and which whole jobs should run "
    "where, with their data moved ahead.",
    (
        "muster plan multicloud",
        "muster plan multicloud --parameters 8e9 --step 2s --link 100Gb/s --round-trip 2ms",
        "muster plan multicloud --site a:gpus=64,price=2.95,egress=0.09 --site b:gpus=64,price=2.2",
        "muster plan multicloud --site a:gpus=64,sku=aws-p5 --site b:gpus=64,sku=nebius-h100 \\",
        "    --prices examples/prices.yaml --from trace.jsonl",
    ),
    data=(
        Data("--from", "SPEC", "Jobs: a trace or workload, as muster trace reads it.", "multicloud.jobs_of"),
        Data(
            "--prices",
            "FILE",
            "A price file, for sites that name a sku; see examples/prices.yaml.",
            "multicloud.site_prices",
        ),
    ),
    notes="A site is name:gpus=256,price=2.95,egress=0.09,sku=NAME: price of a GPU-hour, egress of a GB that\n"
    "leaves. A job is name:gpus=64,hours=150,data=1TB,home=SITE.",
)
