"""What `muster plan sharing` tells beside its numbers: what each way gives up, its limits, the settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from muster.catalog.gpu import Gpu
from muster.catalog.mig import MigTable
from muster.catalog.mps import MOST_MPS_CLIENTS
from muster.planning.quantities import figure
from muster.planning.sharing import slow_down

if TYPE_CHECKING:
    from muster.planning.plans.sharing import Choice


def mean_slow_down(choice: Choice) -> float:
    """Over all processes that share without MIG, weighted by the time in which they work; NaN without any."""
    total = weight = 0.0
    for _, mode, jobs, packing in choice.shared:
        for fill, times in packing.fills:
            slowed = slow_down(jobs, fill, mps=mode == "MPS")
            for job, count, factor in zip(jobs, fill, slowed, strict=True):
                if count:
                    total += times * count * job.busy * factor
                    weight += times * count * job.busy
    return total / weight if weight else float("nan")


def mode_rows(pure: Mapping[str, Choice], whole: int, gpus_of_memory: float) -> Iterator[tuple[float | str, ...]]:
    """A row for each way: GPUs, memory, slow-down, fault domain, tenants."""
    hits = {"MIG": "one instance", "MPS": "all of the server", "time-slicing": "all, if the GPU's"}
    tenants = {"MIG": "may mix", "MPS": "one a GPU", "time-slicing": "one a GPU"}
    yield ("whole GPUs", whole, f"{100 * gpus_of_memory / whole:.0f} %", "not", "one", "apart")
    for mode, choice in pure.items():
        if choice.gpus != choice.gpus:
            yield (mode, "cannot be", "", "", "", "")
            continue
        slowed = "not" if mode == "MIG" else f"x {figure(mean_slow_down(choice))} on average"
        yield (mode, choice.gpus, f"{100 * gpus_of_memory / choice.gpus:.0f} %", slowed, hits[mode], tenants[mode])


def fails_when(model: Gpu, table: MigTable | None) -> tuple[str, ...]:
    """When the numbers do not hold."""
    told = [
        "Workloads burst together (a shared traffic peak, a course that begins at ten): the slow-down is told for "
        "work that comes independently, and is larger then.",
        "Work that waits for memory bandwidth: MPS and time-slicing share it, and compute alone does not tell it.",
        "Memory that grows: nothing but MIG holds a process back, unless MPS is told a limit; one process can then end "
        "all with out of memory.",
    ]
    if table is not None:
        sm = table.sm_per_slice
        part = f" ({sm} SMs each on {model.name})" if sm else ""
        told.append(
            f"A MIG compute slice is taken as 1/{table.compute_slices} of the GPU{part}; boards have SMs beside the "
            "slices, so an instance has up to a sixth less than that share of the whole board."
        )
        if table.note:
            told.append(f"Of the MIG table: {table.note}")
    return tuple(told)


def sharing_todo(best: Choice, gpu: str, isolate: str) -> tuple[str, ...]:
    """The settings that carry it out."""
    told: list[str] = []
    if best.mig is not None:
        layout, times = best.mig.layouts(gpu)[0]
        devices = ", ".join(f'"{name}": {count}' for name, count in Counter(name for name, _ in layout).items())
        told.append(f"mig-parted on {times} GPUs: mig-devices: {{{devices}}}; label nvidia.com/mig.config names it.")
        name = layout[0][0]
        told.append(f"Pods ask for nvidia.com/mig-{name}: 1; Slurm jobs for --gres=gpu:{name}:1.")
        told.append(
            "The layout is gone after a reboot; mig-manager makes it again, and drains the GPU when it changes."
        )
    modes = {mode for _, mode in best.modes}
    if "MPS" in modes:
        fills = [fill for _, mode, _, packing in best.shared if mode == "MPS" for fill, _ in packing.fills]
        most = max(map(sum, fills))
        told.append(
            f"Device plugin: sharing.mps, resource nvidia.com/gpu, replicas: {most} (it accepts up to "
            f"{MOST_MPS_CLIENTS}); each replica has 1/{most} of memory and threads, and a client can only lower that."
        )
        if any(sum(count > 0 for count in fill) > 1 or sum(fill) < most for fill in fills):
            told.append(
                "Unlike processes on one GPU need parts of unlike size: an MPS daemon of your own with "
                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT and CUDA_MPS_ACTIVE_THREAD_PERCENTAGE for each, or Slurm's "
                "GresTypes=gpu,mps and --gres=mps:N in hundredths."
            )
    if "time-slicing" in modes:
        told.append(
            "Device plugin: sharing.timeSlicing, failRequestsGreaterThanOne: true (two replicas are not twice the "
            "compute); Slurm: gres/shard."
        )
    if isolate == "nothing":
        told.append("Tenants who do not trust each other must not share by MPS or time-slicing: --isolate tenants.")
    elif len(modes - {"MIG"}):
        told.append("Keep tenants on nodes of their own where they share without MIG: a taint a tenant.")
    return tuple(told)
