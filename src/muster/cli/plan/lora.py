"""`muster plan lora`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.lora import Lora

command = plan_command(
    Lora,
    "LoRA adapters on shared bases: tenants a GPU, slots and hits, seconds to save, and who pays what.",
    (
        "muster plan lora --tenants 500 --rank 64 --slots 32",
        "muster plan lora --base 141GB --memory 288GB --per-rank 12943360 --activation 1.31MB",
        "muster plan lora --from requests.csv --bill 20000 --report lora.html",
    ),
    data=(Data("--from", "FILE", "A log of requests: CSV with a column adapter.", "lora.read_lora"),),
)
