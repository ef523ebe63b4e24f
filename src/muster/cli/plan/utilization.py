"""`muster plan utilization`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.utilization import Utilization

command = plan_command(
    Utilization,
    "The funnel from a fleet's capacity to the work that it does: what each gap costs, its class, what closes it.",
    (
        "muster plan utilization --from metrics.txt --price 2.5",
        "muster plan utilization --prometheus http://localhost:9090 --price 2.5",
        "muster plan utilization --capacity 512 --use vision:gpus=200,util=0.9,sm=0.35",
    ),
    data=(
        Data("--from", "FILE", "dcgm-exporter's text, Prometheus' JSON, or CSV.", "utilization.read_utilization"),
        Data(
            "--prometheus",
            "URL",
            "The last 24 hours of dcgm-exporter's metrics, from Prometheus.",
            "utilization.read_prometheus",
        ),
    ),
    notes="Classes: idle-held, starved, launch-bound, comm-bound, memory-bound, partial, mixed, good.",
)
