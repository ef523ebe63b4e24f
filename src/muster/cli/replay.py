"""`muster simulate --arrivals replay`: recorded submissions, first come first served, and how it is printed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from muster.cli.output import Column, emit, say, thousands
from muster.errors import InputError

if TYPE_CHECKING:
    from muster.engine.placement import Placer
    from muster.engine.state import FleetState

SCHEMA = "muster.simulate/v1"
FIGURES = (
    "arrived", "started", "finished", "wait_mean_s", "wait_p50_s", "wait_p90_s", "wait_p99_s", "wait_max_s",
    "makespan_s", "gpu_utilisation", "cpu_utilisation",
)  # fmt: skip


def replay_all(fleet_spec: str, specs: tuple[str, ...], names: list[str], output: str, *, timings: bool) -> None:
    """Replay each workload under each policy and print the figures."""
    from muster.engine.placement import Placer
    from muster.policy.registry import find_policy
    from muster.sim.replay import Replay
    from muster.traces import read_fleet, read_workload

    fleet, _ = read_fleet(fleet_spec)
    records: list[dict[str, Any]] = []
    for spec in specs:
        trace = read_workload(spec, fleet)
        for name in names:
            policy = find_policy(name)
            if policy.needs_tuning or policy.needs_typical:
                raise InputError(
                    f"replay does not run under {name} yet",
                    field="--policy",
                    hint="take best-fit, dot-product, gpu-packing, gpu-clustering or random",
                )
            score = policy.load_score()

            def placer(state: FleetState, score: Any = score, selection: int = policy.selection) -> Placer:
                return Placer(state, score, selection=selection)

            started = time.perf_counter()
            result = Replay(fleet, trace.workloads, placer).run()
            record: dict[str, Any] = {"workload": trace.name, "policy": name, "rejected": len(result.rejected)}
            record.update({figure: getattr(result, figure) for figure in FIGURES})
            if timings:
                record["wall_s"] = round(time.perf_counter() - started, 3)
            records.append(record)
            for job, why in result.rejected[:3]:
                say(f"{trace.name}: job {job} {why}.")
    columns = [
        Column("workload", "workload"),
        Column("policy", "policy"),
        Column("arrived", "jobs", right=True, show=thousands),
        Column("rejected", "rejected", right=True, show=thousands),
        Column("wait_mean_s", "mean wait s", right=True, show=_whole),
        Column("wait_p50_s", "p50", right=True, show=_whole),
        Column("wait_p90_s", "p90", right=True, show=_whole),
        Column("wait_max_s", "max", right=True, show=_whole),
        Column("gpu_utilisation", "GPU used", right=True, show=_share),
        Column("cpu_utilisation", "CPU used", right=True, show=_share),
        Column("started", "started", right=True, show=thousands, wide=True),
        Column("finished", "finished", right=True, show=thousands, wide=True),
        Column("wait_p99_s", "p99", right=True, show=_whole, wide=True),
        Column("makespan_s", "makespan s", right=True, show=_whole, wide=True),
        *([Column("wall_s", "wall s", right=True, wide=True)] if timings else []),
    ]
    emit(records, columns, output=output, schema=SCHEMA, list_key="runs")


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"
