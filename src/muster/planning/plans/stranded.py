"""`muster plan stranded`: GPUs of a fleet that a mix of pods cannot use, why, and what would win them back."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from muster.errors import InputError
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.quantities import BYTES, SHARE, counts, figure, numbers
from muster.planning.question import Ask, Question, Worked
from muster.planning.rows import read_row
from muster.planning.stranding import RULES, SHARINGS, Asked, Stranded, stranded, stranded_gpus

if TYPE_CHECKING:
    from muster.model.fleet import Fleet
    from muster.model.snapshot import Snapshot

_FLEET = "uniform:nodes=64,gpus=8,cpu=96,memory_gib=1024,model=H100"
_EXAMPLE = (
    "train:gpus=8,cpu=64,memory=640GB,share=40%",
    "tune:gpus=3,cpu=36,memory=240GB,share=25%",
    "eval:gpus=1,cpu=20,memory=128GB,share=20%",
    "notebook:gpus=1,uses=20%,cpu=8,memory=64GB,share=15%",
)
_HINT = "such as eval:gpus=1,cpu=20,memory=128GB,share=20%; uses=20% and model=H100 if you like"
_MOST_DRAWN = 6
OWN = "what runs and waits there"
"""The workload of a snapshot: its own."""
_FIX = {
    "parts": "give parts of GPUs",
    "counts": "ask for counts that divide a node, such as 2 or 4 instead of 3",
    "models": "name fewer GPU models",
    "CPU": "ask for less CPU a GPU",
    "memory": "ask for less host memory a GPU",
}


def read_pod(text: str, field: str = "--pod") -> Asked:
    """A kind of pod written ``name:gpus=2,cpu=16,memory=64GB,share=20%``; raises `InputError`."""
    from muster.model.workload import PodShape

    name, said = read_row(text, ("gpus", "cpu", "share"), ("memory", "uses", "model"), field, _HINT)
    gpus = int(counts("GPUs", "2").read(said["gpus"], field))
    cpu = numbers("CPUs", "16").read(said["cpu"], field)
    memory = BYTES.read(said.get("memory", "0B"), field)
    share, uses = (SHARE.read(said.get(key, "1"), field) for key in ("share", "uses"))
    if not (1 <= gpus <= 72 and 0 <= cpu <= 1e4 and 0 <= memory <= 1e15 and 0 < share <= 1 and 0.001 <= uses <= 1):
        what = f"{name[:30]!r} makes no sense"
        hint = "gpus 1 to 72, cpu of the whole pod up to 10,000, share and uses above 0 to 1"
        raise InputError(what, field=field, hint=hint)
    models = (said["model"],) if "model" in said else ()
    shape = PodShape(round(cpu * 1000), round(memory), gpus, round(1000 * uses), models)
    return Asked(shape, share / gpus)


class StrandedGpus(Question, frozen=True, kw_only=True, dict=True):
    """A fleet, and pods in their proportions."""

    planner = "stranded"
    asks = "How many GPUs of this fleet can its pods not use, why, and what would win them back?"

    fleet: Annotated[str, Ask("F", "fleet, as muster fleet reads it")] = _FLEET
    pods: Annotated[
        tuple[str, ...],
        Ask("P", "kinds of pods without a workload, name:gpus=,cpu=,memory=,share=,uses=,model=", option="pod"),
    ] = _EXAMPLE  # fmt: skip
    workload: Annotated[str | None, Ask("W", "workload whose pods are meant, as muster trace reads it")] = None
    sharing: Annotated[str, Ask("G", "in what parts the fleet gives its GPUs", choices=SHARINGS)] = SHARINGS[0]
    load: Annotated[
        float,
        Ask("L", "GPUs that the pods use if all run, of those that there are", numbers("of the fleet", "1"), above=True,
            most=10, usual="0.5 to 1.5"),
    ] = 1.0  # fmt: skip
    kept: Annotated[
        float,
        Ask("k", "share of the nodes' CPU and memory that the system and pods without GPUs take", SHARE, most=0.95,
            usual="0.02 to 0.2"),
    ] = 0.05  # fmt: skip
    cpu_scale: Annotated[
        float, Ask("c", "CPU that pods ask for, of what is said", numbers("times", "0.8"), above=True, most=10,
                   usual="0.5 to 1")
    ] = 1.0  # fmt: skip
    memory_scale: Annotated[
        float, Ask("m", "host memory that pods ask for, of what is said", numbers("times", "0.8"), above=True, most=10,
                   usual="0.5 to 1")
    ] = 1.0  # fmt: skip

    @cached_property
    def _snapshot(self) -> Snapshot | None:
        from muster.traces import read_fleet_as_it_is

        return read_fleet_as_it_is(self.fleet)[0] if self.workload == OWN else None

    @cached_property
    def _nodes(self) -> Fleet:
        from muster.traces import read_fleet

        fleet = read_fleet(self.fleet)[0] if self._snapshot is None else self._snapshot.fleet
        left = 1 - self.kept
        nodes = [
            replace(node, cpu_milli=int(node.cpu_milli * left), memory_bytes=int(node.memory_bytes * left))
            for node in fleet
            if node.schedulable and node.healthy_gpus
        ]
        if not nodes:
            field = "--fleet" if self._snapshot is None else "--from"
            raise InputError("has no schedulable node with a healthy GPU", field=field, hint="muster fleet show")
        return replace(fleet, nodes=tuple(nodes))

    @cached_property
    def _asked(self) -> tuple[Asked, ...]:
        """The pods with GPUs, their requests scaled."""
        from muster.model.workload import ShapeMix
        from muster.traces import read_workload

        if self._snapshot is not None:
            work = [*(run.workload for run in self._snapshot.running), *self._snapshot.pending]
        elif self.workload is not None:
            work = read_workload(self.workload, self._nodes).workloads
        else:
            return tuple(self._scaled(read_pod(text)) for text in self.pods)
        mix = ShapeMix.of(work)
        found = [Asked(s, float(n)) for s, n in zip(mix.shapes, mix.counts, strict=True) if s.gpus]
        if not found:
            field = "--workload" if self._snapshot is None else "--from"
            raise InputError("has no pods with GPUs", field=field, hint="say the pods: --pod, or --workload")
        return tuple(self._scaled(each) for each in found)

    def _scaled(self, asked: Asked) -> Asked:
        shape = asked.shape
        cpu, memory = round(shape.cpu_milli * self.cpu_scale), round(shape.memory_bytes * self.memory_scale)
        return replace(asked, shape=replace(shape, cpu_milli=cpu, memory_bytes=memory))

    def _found(self) -> Stranded:
        return stranded(self._nodes, self._asked, self.load, self.sharing)

    def headline(self) -> float:
        """The stranded GPUs alone."""
        return self._lost(self.sharing)

    def _lost(self, sharing: str, *, models: bool = True) -> float:
        return stranded_gpus(self._nodes, self._asked, self.load, sharing, models=models)

    def work(self) -> Worked:
        """See `muster.planning.stranding`."""
        found = self._found()
        causes = sorted(zip(RULES, found.by_rule, strict=True), key=lambda each: -each[1])
        fixes = self._fixes(found)
        results = [
            Result("GPUs that no placement can use, at least", found.stranded, "GPUs"),
            Result("the same, of all", found.stranded / found.gpus, "share"),
            *(Result(f"of them by {rule}", lost, "GPUs") for rule, lost in causes if lost > 1e-6),
            Result("GPUs that the best placement serves, at most", found.served, "GPUs"),
        ]
        tables = [
            Table(
                "What would win back how many",
                ("change", "stranded", "won back"),
                tuple((name, round(other, 1), round(found.stranded - other, 1)) for name, other in fixes),
            )
        ]
        if self._snapshot is not None:
            from muster.planning.plans.stranded_now import free_now

            tables.append(free_now(self._snapshot))
        return Worked(
            self._answer(found, causes, fixes), _FORMULA,
            "Gilmore and Gomory 1961, by HiGHS: muster.planning.bound, muster.planning.stranding; classes of FGD",
            tuple(self._steps(found)), tuple(results), tuple(tables), self._charts(), _FAILS,
            tuple(self._todo(found, causes, fixes)),
        )  # fmt: skip

    def _answer(self, found: Stranded, causes: list[tuple[str, float]], fixes: list[tuple[str, float]]) -> str:
        if found.stranded < 0.5:
            return f"None: as far as the bounds tell, all {figure(found.asked)} GPUs that are asked for can be used."
        why = ", ".join(f"{lost:,.0f} by {rule}" for rule, lost in causes if lost >= 0.5)
        name, other = min(fixes, key=lambda each: each[1])
        won = found.stranded - other
        best = f" {name[:1].upper()}{name[1:]} would win {won:,.0f} back." if won >= 0.5 else ""
        return (
            f"At least {found.stranded:,.0f} of {found.gpus:,} GPUs ({100 * found.stranded / found.gpus:.1f} %) can do "
            f"no work of this mix, however it is placed: {why}.{best}"
        )

    def _fixes(self, found: Stranded) -> list[tuple[str, float]]:
        """What a change would leave stranded; those that cannot matter are left out."""
        rows = [(f"parts by {name}", self._lost(name)) for name in SHARINGS if name != self.sharing]
        lost = dict(zip(RULES, found.by_rule, strict=True))
        if any(each.shape.gpu_models for each in self._asked):
            rows.append(("any GPU model will do (DRA: firstAvailable)", self._lost(self.sharing, models=False)))
        for rule, name in (("CPU", "cpu_scale"), ("memory", "memory_scale")):
            if lost[rule] > 0.5:
                word = "CPU" if rule == "CPU" else "host memory"
                other = replace(self, **{name: getattr(self, name) * 0.75})
                rows.append((f"a quarter less {word} asked for", other.headline()))
        if lost["parts"] > 0.5 and lost["CPU"] > 0.5:
            other = replace(self, cpu_scale=self.cpu_scale * 0.75, sharing=SHARINGS[2])
            rows.append(("parts by fractions and a quarter less CPU", other.headline()))
        if lost["counts"] > 0.5:
            rows.append(("pods of single GPUs instead of counts", self._split()))
        return rows

    def _split(self) -> float:
        """If each pod were as many pods of one GPU."""
        single: list[Asked] = []
        for each in self._asked:
            k, shape = each.shape.gpus, each.shape
            one = replace(shape, gpus=1, cpu_milli=shape.cpu_milli // k, memory_bytes=shape.memory_bytes // k)
            single.append(Asked(one, each.count * k))
        return stranded_gpus(self._nodes, single, self.load, self.sharing)

    def _steps(self, found: Stranded) -> list[Step]:
        useful = sum(each.count * each.shape.gpu_milli_total for each in self._asked) / 1000
        whole = sum(each.count * each.shape.gpus for each in self._asked)
        cpu = sum(each.count * each.shape.cpu_milli for each in self._asked) / 1000
        memory = sum(each.count * each.shape.memory_bytes for each in self._asked)
        has_cpu = sum(node.cpu_milli for node in self._nodes) / 1000
        has_memory = sum(node.memory_bytes for node in self._nodes)
        g = f"{found.gpus:,}"
        steps = [Step("useful GPUs asked for, V0", f"min({figure(self.load)}, 1) x {g}", found.asked, "GPUs")]
        if whole > useful * 1.001 and self.sharing == SHARINGS[0]:
            worked = f"{figure(useful)} / {figure(whole)}: what a GPU that is taken does on average"
            steps.append(Step("use of the GPUs that pods take whole", worked, useful / whole, "share"))
        worked = (
            f"nodes {figure(has_cpu)} / {g} = {figure(has_cpu / found.gpus)}; pods {figure(cpu)} / {figure(useful)}"
        )
        steps.append(Step("CPUs there are, and asked for, a useful GPU", worked, cpu / useful, "CPUs"))
        worked = f"nodes {BYTES.show(has_memory / found.gpus)}; pods {BYTES.show(memory)} / {figure(useful)}"
        steps.append(Step("host memory there is, and asked for, a useful GPU", worked, memory / useful, "B"))
        value = found.asked
        for at, (rule, lost) in enumerate(zip(RULES, found.by_rule, strict=True), 1):
            worked = f"{figure(value)} - {figure(lost)}: the bound with {' and '.join(RULES[:at])}, by linear program"
            value -= lost
            steps.append(Step(f"served at most, with {rule}, V{at}", worked, value, "GPUs"))
        return steps

    def _charts(self) -> tuple[Chart, ...]:
        if len(self._asked) > _MOST_DRAWN:
            return ()
        grid = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
        lines: list[Line] = []
        for sharing in (SHARINGS[0], SHARINGS[2]):
            points = tuple(
                (100 * at, replace(self, cpu_scale=self.cpu_scale * at, sharing=sharing).headline()) for at in grid
            )
            lines.append(Line(sharing, points))
        title = "GPUs stranded, by the CPU that pods ask for"
        return (Chart(title, "CPU asked for, % of today", "GPUs", tuple(lines)),)

    def _todo(self, found: Stranded, causes: list[tuple[str, float]], fixes: list[tuple[str, float]]) -> list[str]:
        told = [f"By {rule}, {lost:,.0f} GPUs: {_FIX[rule]}." for rule, lost in causes if lost >= 0.5]
        alone = [other for name, other in fixes if name == "parts by fractions"]
        if alone and found.by_rule[0] >= 0.5 and found.stranded - alone[0] < 0.5:
            told.append("Parts of GPUs alone win nothing back here: the next rule binds at once. Change both.")
        lost = dict(causes)
        if lost["CPU"] >= 0.5:
            cpu = sum(node.cpu_milli for node in self._nodes) / 1000 / found.gpus
            told.append(
                f"Default and cap the CPU a GPU at {figure(cpu)}: Kubernetes LimitRange or a webhook (muster fit tells "
                f"whether a pod fits); Slurm DefCpuPerGPU={int(cpu)}, MaxCPUsPerNode for jobs without GPUs."
            )
        if lost["parts"] >= 0.5:
            told.append(
                "Which parts are safe for whom: muster plan sharing. On Kubernetes MIG, MPS or DRA; Slurm gres/shard."
            )
        told.append("What is free now and of no use, by cause: muster fleet frag. What moves would win: muster defrag.")
        return told


_FORMULA = (
    "V0 = min(L, 1) G",
    "V1..V5 = most useful GPUs served with 1 parts, 2 counts on a node, 3 models, 4 CPU, 5 memory as well",
    "stranded = V0 - V5, by each rule V(i-1) - Vi",
)
_FAILS = (
    "A bound, not a placement: with more than 6 shapes, nodes of a type pool their CPU and memory, and pods are never "
    "cut to whole numbers; a real fleet strands more.",
    "Work comes and goes: a scheduler that cannot move pods leaves fragments beside this (muster fleet frag).",
    "The rules are counted in the order told; a GPU that two rules strand is put down to the first.",
    "Pods without GPUs count only by the share of CPU and memory that is kept for them.",
)
