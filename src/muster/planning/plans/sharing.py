"""`muster plan sharing`: MIG, MPS or time-slicing for workloads that need a part of a GPU."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import product
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from muster.catalog.gpu import Gpu
from muster.catalog.mig import MigTable, mig_table
from muster.catalog.names import find_gpu
from muster.errors import InputError
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.packing import Packing
from muster.planning.plans.sharing_told import fails_when, mode_rows, sharing_todo
from muster.planning.quantities import BYTES, SHARE, counts, figure, numbers
from muster.planning.question import Ask, Question, Worked
from muster.planning.rows import read_row
from muster.planning.sharing import (
    MigPacking,
    Shared,
    over_asked,
    pack_mig,
    pack_shared,
    profile_bytes,
    smallest_profile,
)

MOST_JOBS, MOST_TENANTS = 12, 5
_EXAMPLE = (
    "chat:memory=30GB,compute=0.4,busy=60%,count=4,tenant=serving",
    "embed:memory=6GB,compute=0.1,busy=70%,count=12,tenant=serving",
    "notebook:memory=14GB,compute=0.25,busy=10%,count=10,tenant=research",
)
MODES = ("MIG", "MPS", "time-slicing")


def read_job(text: str, field: str = "--job") -> Shared:
    """A workload written ``name:memory=10GB,compute=0.2,busy=50%,count=7,tenant=a``; raises `InputError`."""
    hint = "such as chat:memory=10GB,compute=0.2,count=7; busy=50% and tenant=NAME if you like"
    name, said = read_row(text, ("memory", "compute"), ("busy", "count", "tenant"), field, hint)
    memory = BYTES.read(said["memory"], field)
    compute, busy = (SHARE.read(said.get(key, "1"), field) for key in ("compute", "busy"))
    count = int(counts("", "7").read(said.get("count", "1"), field))
    for key, value in (("compute", compute), ("busy", busy)):
        if not 0 < value <= 1:
            what = f"{key} of {name[:30]!r} is {value:g}"
            raise InputError(what, field=field, hint="a share of one GPU, above 0 to 1; larger work shares no GPU")
    if memory <= 0 or not 1 <= count <= 10_000:
        what = f"memory or count of {name[:30]!r} makes no sense"
        raise InputError(what, field=field, hint="memory above 0, count from 1 to 10,000")
    return Shared(name, memory, compute, busy, count, said.get("tenant", ""))


class Choice(Struct, frozen=True):
    """What was found for one way of sharing; ``gpus`` of NaN: it cannot be."""

    gpus: float
    modes: tuple[tuple[str, str], ...] = ()
    mig: MigPacking | None = None
    shared: tuple[tuple[str, str, tuple[Shared, ...], Packing], ...] = ()

    @property
    def exact(self) -> bool:
        """Whether no fewer GPUs would do."""
        return (self.mig is None or self.mig.packing.exact) and all(each[3].exact for each in self.shared)


class Sharing(Question, frozen=True, kw_only=True, dict=True):
    """Workloads that each need a part of a GPU."""

    planner = "sharing"
    asks = "How should these workloads share GPUs: by MIG, by MPS or by time-slicing?"

    gpu: Annotated[str, Ask("G", "GPU model")] = "H100"
    jobs: Annotated[
        tuple[str, ...],
        Ask("J", "workloads, each name:memory=,compute=,busy=,count=,tenant=", option="job"),
    ] = _EXAMPLE  # fmt: skip
    isolate: Annotated[
        str, Ask("I", "what must be kept apart in hardware", choices=("tenants", "nothing", "everything"))
    ] = "tenants"
    target: Annotated[
        float,
        Ask("T", "average use of a GPU's compute up to which MPS and time-slicing fill it", SHARE, least=0.05, most=1,
            usual="0.5 to 0.9"),
    ] = 0.8  # fmt: skip
    kept: Annotated[
        float,
        Ask("k", "share of the GPU's memory that the driver keeps", SHARE, most=0.5, usual="0.01 to 0.06",
            source="drivers report up to 2 % less than the board has (muster catalog gpus)"),
    ] = 0.02  # fmt: skip
    times: Annotated[
        float, Ask("x", "how many times as many of each", numbers("times", "2"), above=True, most=1000, usual="1 to 10")
    ] = 1.0

    @cached_property
    def _model(self) -> Gpu:
        try:
            return find_gpu(self.gpu)
        except InputError as error:
            raise InputError(error.what, field="--gpu", hint=error.hint) from None

    @cached_property
    def _table(self) -> MigTable | None:
        try:
            return mig_table(self._model)
        except InputError:
            return None

    @cached_property
    def _memory(self) -> float:
        if not self._model.memory_bytes:
            raise InputError(f"no memory is known of {self._model.name}", field="--gpu", hint="muster catalog gpus")
        return self._model.memory_bytes * (1 - self.kept)

    @cached_property
    def _jobs(self) -> tuple[Shared, ...]:
        """The workloads, checked against the GPU."""
        found = [read_job(text) for text in self.jobs]
        names = [each.name for each in found]
        if not found or len(found) > MOST_JOBS or len(set(names)) < len(names):
            what = f"names {len(found)} workloads" if len(set(names)) == len(names) else "names a workload twice"
            raise InputError(what, field="--job", hint=f"1 to {MOST_JOBS}, each with its own name")
        if len({each.tenant for each in found}) > MOST_TENANTS:
            raise InputError("names too many tenants", field="--job", hint=f"at most {MOST_TENANTS}")
        for each in found:
            if each.memory_bytes > self._memory:
                has = f"a {self._model.name} has {BYTES.show(self._memory)}"
                what = f"{each.name} needs {BYTES.show(each.memory_bytes)}; {has}"
                raise InputError(what, field="--job", hint="a larger --gpu, or fewer bytes a process")
        return tuple(replace(each, count=math.ceil(each.count * self.times)) for each in found)

    def _cannot(self) -> str:
        """Why MIG cannot be used for all; empty if it can."""
        if self._table is None:
            return f"{self._model.name} cannot be split by MIG"
        for job in self._jobs:
            if smallest_profile(self._table, job) is None:
                return f"{job.name} fits no MIG instance"
        return ""

    def _groups(self) -> tuple[tuple[str, tuple[Shared, ...]], ...]:
        """Those that may share a GPU without MIG: a tenant's, or all."""
        if self.isolate == "nothing":
            return (("all", self._jobs),)
        tenants = dict.fromkeys(job.tenant for job in self._jobs)
        return tuple((name or "all", tuple(job for job in self._jobs if job.tenant == name)) for name in tenants)

    def _choice(self, modes: tuple[str, ...]) -> Choice:
        """GPUs if each group is shared in its mode."""
        named = tuple((name, mode) for (name, _), mode in zip(self._groups(), modes, strict=True))
        split = [job for (_, jobs), mode in zip(self._groups(), modes, strict=True) if mode == "MIG" for job in jobs]
        mig = None
        if split:
            if self._cannot() or self._table is None:
                return Choice(float("nan"), named)
            mig = pack_mig(self._model.name, self._table, tuple(split))
        shared = tuple(
            (name, mode, jobs, pack_shared(jobs, self._memory, self.target, mps=mode == "MPS"))
            for (name, jobs), mode in zip(self._groups(), modes, strict=True)
            if mode != "MIG"
        )
        gpus = (mig.packing.bins if mig else 0) + sum(packing.bins for *_, packing in shared)
        return Choice(float(gpus), named, mig, shared)

    def _pure(self, mode: str) -> Choice:
        return self._choice((mode,) * len(self._groups()))

    def _best(self) -> Choice:
        """The fewest GPUs that the rule allows; MIG before MPS before time-slicing where they are equal."""
        if self.isolate == "everything":
            if why := self._cannot():
                what = f"{why}, and everything must be kept apart"
                raise InputError(what, field="--isolate", hint="--isolate tenants, or another --gpu")
            return self._pure("MIG")
        choices = [self._choice(modes) for modes in product(MODES, repeat=len(self._groups()))]
        return min((each for each in choices if each.gpus == each.gpus), key=lambda each: each.gpus)

    def headline(self) -> float:
        """The GPUs alone."""
        return self._best().gpus

    def work(self) -> Worked:
        """See `muster.planning.sharing` for the forms and `muster.planning.packing` for the search."""
        best = self._best()
        pure = {mode: self._pure(mode) for mode in MODES}
        whole = sum(job.count for job in self._jobs)
        results = [
            Result("GPUs", best.gpus, "GPUs"),
            Result("one whole GPU each", whole, "GPUs"),
            *(_alone(mode, each) for mode, each in pure.items()),
            Result("memory of the GPUs that is asked for", self._asked() / (best.gpus * self._memory), "share"),
        ]  # fmt: skip
        return Worked(
            self._answer(best, pure, whole), self._formula(),
            "NVIDIA MIG User Guide and MPS guide; exact search: muster.planning.packing; muster.planning.sharing",
            tuple(self._steps(pure)), tuple(results), tuple(self._tables(best, pure, whole)), (self._chart(whole),),
            fails_when(self._model, self._table), sharing_todo(best, self._model.name, self.isolate),
        )  # fmt: skip

    def _asked(self) -> float:
        return sum(job.memory_bytes * job.count for job in self._jobs)

    def _answer(self, best: Choice, pure: dict[str, Choice], whole: int) -> str:
        by_mode = dict.fromkeys(mode for _, mode in best.modes)
        if len(by_mode) == 1:
            how = f"by {next(iter(by_mode))}"
        else:
            how = ", ".join(f"{name} by {mode}" for name, mode in best.modes)
        others = [f"{mode} alone takes {each.gpus:.0f}" for mode, each in pure.items() if each.gpus > best.gpus]
        told = f" {'; '.join(others)}." if others else ""
        fewest = "" if best.exact else " (the search ended early: fewer may do)"
        return (
            f"{best.gpus:.0f} {self._model.name}, shared {how}{fewest}, instead of {whole:,} whole ones.{told}"
        )  # fmt: skip

    def _formula(self) -> tuple[str, ...]:
        return (
            "MIG: the smallest profile with memory >= m and compute slices >= c K; fewest legal layouts that hold all",
            "MPS: sum m <= M (1 - k), sum c u <= T, at most 48 processes a GPU; tenants apart",
            "time-slicing: sum m <= M (1 - k), sum u <= T; tenants apart",
            "slow-down: MPS E max(1, c + others at work); time-slicing 1 + sum of the others' u",
        )

    def _steps(self, pure: dict[str, Choice]) -> list[Step]:
        steps: list[Step] = []
        if self._table is not None and not self._cannot():
            steps += self._mig_steps(self._table, pure["MIG"])
        for mode in MODES[1:]:
            for name, _, jobs, packing in pure[mode].shared:
                mps = mode == "MPS"
                memory = sum(job.memory_bytes * job.count for job in jobs) / self._memory
                use = sum(job.busy * (job.compute if mps else 1) * job.count for job in jobs) / self.target
                parts = [f"{job.count} x {figure(job.compute)} x " if mps else f"{job.count} x " for job in jobs]
                terms = " + ".join(f"{part}{figure(job.busy)}" for part, job in zip(parts, jobs, strict=True))
                held = " + ".join(f"{job.count} x {BYTES.show(job.memory_bytes)}" for job in jobs)
                worked = (
                    f"memory ({held}) / {BYTES.show(self._memory)} = {figure(memory)}; compute ({terms}) / "
                    f"{figure(self.target)} = {figure(use)}; searched: {packing}"
                )
                text = f"{mode}, {name}: no fewer than the larger of two sums"
                steps.append(Step(text, worked, packing.bins, "GPUs"))
        return steps

    def _mig_steps(self, table: MigTable, choice: Choice) -> list[Step]:
        steps: list[Step] = []
        slices = 0
        for job in self._jobs:
            profile = smallest_profile(table, job)
            assert profile is not None
            slices += job.count * profile.memory_slices
            worked = (
                f"{profile.name}: {BYTES.show(profile_bytes(profile))} >= {BYTES.show(job.memory_bytes)}, "
                f"{profile.compute_slices}/{table.compute_slices} >= {figure(job.compute)}"
            )
            steps.append(Step(f"smallest MIG profile of {job.name}", worked, job.count, "instances"))
        assert choice.mig is not None
        least = figure(slices / table.memory_slices)
        worked = f"{slices} memory slices / {table.memory_slices} = {least}; searched: {choice.mig.packing}"
        steps.append(Step("MIG: fewest GPUs over legal layouts", worked, choice.gpus, "GPUs"))
        return steps

    def _tables(self, best: Choice, pure: dict[str, Choice], whole: int) -> list[Table]:
        tables = [
            Table(
                "What each takes and gives up",
                ("way", "GPUs", "memory used", "work is slowed", "a fault hits", "tenants"),
                tuple(mode_rows(pure, whole, self._asked() / self._memory)),
            )
        ]
        rows: list[tuple[float | str, ...]] = []
        if best.mig is not None:
            for layout, times in best.mig.layouts(self._model.name):
                rows.append((times, "MIG", "  ".join(f"{name}@{start}" for name, start in layout), ""))
        for name, mode, jobs, packing in best.shared:
            for fill, times in packing.fills:
                held = ", ".join(f"{count} {job.name}" for job, count in zip(jobs, fill, strict=True) if count)
                over = SHARE.show(over_asked(jobs, fill)) if mode == "MPS" else ""
                rows.append((times, f"{mode}, {name}", held, over))
        title = "The GPUs (profile@first memory slice; the last column: time in which more than the GPU is wanted)"
        tables.append(Table(title, ("GPUs", "way", "each holds", "over-asked"), tuple(rows)))
        return tables

    def _chart(self, whole: int) -> Chart:
        lines: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
        for factor in (1, 2, 3, 4):
            more = replace(self, times=self.times * factor)
            for mode in MODES:
                gpus = more._pure(mode).gpus
                if gpus == gpus:
                    lines[mode].append((factor, gpus))
        shown = [Line(mode, tuple(points)) for mode, points in lines.items() if points]
        shown.append(Line("whole GPUs", tuple((factor, float(whole * factor)) for factor in (1, 2, 3, 4)), dashed=True))
        return Chart("GPUs by the way in which they are shared", "times as many of each workload", "GPUs", tuple(shown))


def _alone(mode: str, choice: Choice) -> Result:
    if choice.gpus != choice.gpus:
        return Result(f"{mode} alone", "cannot be")
    return Result(f"{mode} alone", choice.gpus, "GPUs")
