"""`muster plan utilization`: from capacity to work that is done, what each gap costs, and what closes it."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from muster.errors import InputError
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.quantities import MONEY, SHARE, counts, figure
from muster.planning.question import Ask, Question, Worked
from muster.planning.utilization import POLICIES, Funnel, Use, by_class, funnel, parse_use

HOURS_A_MONTH = 730.0
_ACME = "Acme Seren: GPU_UTIL 66.2, SM_ACTIVE 41.6 % in the mean, 31 % of samples idle (AcmeTrace, 2024)"
_FORM = "TENANT:gpus=N,util=S,sm=S,tensor=S,dram=S,network=S,memory=S, one a tenant"
_MOST_TENANTS = 12


class Utilization(Question, frozen=True, kw_only=True):
    """A fleet and how it is used."""

    planner = "utilization"
    asks = "How much of the fleet does work, where is the rest, and what closes each gap?"

    capacity: Annotated[
        int, Ask("C", "GPUs of the fleet", counts("GPUs", "1000"), least=1, usual="8 to 100,000", most=1e7)
    ] = 1000
    healthy: Annotated[
        float, Ask("h", "share of them that is healthy", SHARE, most=1, usual="95% to 99.9%", source="an example")
    ] = 0.98  # fmt: skip
    allocated: Annotated[
        float,
        Ask(
            "a", "share of the healthy ones that is allocated", SHARE, most=1, usual="50% to 95%",
            source="Meta RSC-1: 83 % (Kokolis et al., 2025-03)",
        ),
    ] = 0.83  # fmt: skip
    running: Annotated[
        float,
        Ask("r", "share of the allocated ones whose pods run already", SHARE, most=1, usual="90% to 100%"),
    ] = 0.97
    use: Annotated[
        tuple[str, ...],
        Ask("U", "how tenants use them", usual=_FORM, source=_ACME),
    ] = ("idle:gpus=24.5,util=0,sm=0,memory=0.4", "rest:gpus=54.4,util=0.96,sm=0.603,memory=0.6")
    price: Annotated[
        float | None, Ask("p", "price of a GPU-hour", MONEY, usual="1 to 12", most=1e5, vary=())
    ] = None  # fmt: skip

    def uses(self) -> list[Use]:
        """What is used, scaled to the GPUs that run: shares of tenants are kept."""
        parsed = [parse_use(text) for text in self.use]
        total = sum(each.gpus for each in parsed)
        if not total:
            raise InputError("says of no GPU how it is used", field="--use", hint="gpus above 0")
        scale = self._running() / total
        from msgspec.structs import replace

        return [replace(each, gpus=each.gpus * scale) for each in parsed]

    def headline(self) -> float:
        """Share of the capacity that does work."""
        found = funnel(self.uses())
        works = found.sm if found.sm is not None else found.util
        return works / self.capacity

    def work(self) -> Worked:
        """See `muster.planning.utilization`."""
        uses = self.uses()
        found = funnel(uses)
        stages = self._stages(found)
        works_name = "SM_ACTIVE" if found.sm is not None else "GPU_UTIL"
        share = self.headline()
        gaps = self._gaps(stages)
        worst = max(gaps, key=lambda each: each[1])
        classes = by_class(uses)
        return Worked(
            f"{100 * share:.0f} % of the fleet's GPU time does work (by {works_name}); the largest gap is {worst[0]}: "
            f"{figure(worst[1])} GPUs.",
            (
                "healthy = C h;  allocated = C h a;  running = C h a r",
                "by GPU_UTIL = sum of gpus x util;  by SM_ACTIVE = sum of gpus x sm;  by tensor = sum of gpus x tensor",
                "gap = a stage less the next;  cost a month = gap x 730 h x p",
            ),
            "NVIDIA DCGM fields 203, 1002, 1004; classes: muster.planning.utilization",
            tuple(self._steps(uses, stages)),
            (
                Result("share of the fleet that does work", share, "share"),
                *(Result(f"gap: {name}", lost, "GPUs") for name, lost, _ in gaps),
                *((Result("all gaps a month", sum(lost for _, lost, _ in gaps) * HOURS_A_MONTH * self.price),)
                  if self.price is not None else ()),
            ),
            (self._gap_table(gaps), self._class_table(classes), self._tenant_table(uses)),
            (Chart("From capacity to work", _axis(stages), "GPUs",
                   (Line("GPUs", tuple((float(at), gpus) for at, (_, gpus) in enumerate(stages))),)),),
            (
                "GPU_UTIL says only that a kernel ran: it is near 100 % of a GPU whose multiprocessors mostly wait. "
                "Where SM_ACTIVE was not measured (dcgm-exporter has it switched off by default) the funnel ends too "
                "high.",
                "One scrape is an instant; take means of 10 to 30 minutes, over days with their nights.",
                "SM_ACTIVE is no goal in itself: a good kernel may be bound by memory.",
            ),
            tuple(self._todo(gaps, classes)),
        )  # fmt: skip

    def _running(self) -> float:
        return self.capacity * self.healthy * self.allocated * self.running

    def _stages(self, found: Funnel) -> list[tuple[str, float]]:
        healthy = self.capacity * self.healthy
        stages = [
            ("capacity", float(self.capacity)), ("healthy", healthy), ("allocated", healthy * self.allocated),
            ("running", self._running()), ("GPU_UTIL", found.util),
        ]  # fmt: skip
        if found.sm is not None:
            stages.append(("SM_ACTIVE", found.sm))
        if found.tensor is not None:
            stages.append(("tensor active", found.tensor))
        return stages

    def _gaps(self, stages: list[tuple[str, float]]) -> list[tuple[str, float, str]]:
        """Name, GPUs and what closes it; what tensor cores do not do is no waste by itself and is left out."""
        told = {
            "healthy": ("ill", "muster doctor, spares and faster repair (muster plan spares)"),
            "allocated": ("free", "fragments and quotas: muster fleet frag, muster why; lend what is idle"),
            "running": ("starting", "faster cold starts: muster plan coldstart, muster plan image"),
            "GPU_UTIL": ("held without a kernel", "by class, below"),
            "SM_ACTIVE": ("a kernel runs and multiprocessors wait", "by class, below"),
        }
        return [
            (told[name][0], before - after, told[name][1])
            for (_, before), (name, after) in pairwise(stages)
            if name in told
        ]

    def _steps(self, uses: list[Use], stages: list[tuple[str, float]]) -> list[Step]:
        by = dict(stages)
        steps = [
            Step("healthy", f"{self.capacity:,} x {figure(self.healthy)}", by["healthy"], "GPUs"),
            Step("allocated", f"{figure(by['healthy'])} x {figure(self.allocated)}", by["allocated"], "GPUs"),
            Step("running", f"{figure(by['allocated'])} x {figure(self.running)}", by["running"], "GPUs"),
            Step("by GPU_UTIL", _sum(uses, "gpu_util"), by["GPU_UTIL"], "GPUs"),
        ]
        for name, field in (("SM_ACTIVE", "sm_active"), ("tensor active", "tensor_active")):
            if name in by:
                steps.append(Step(f"by {name}", _sum(uses, field), by[name], "GPUs"))
        return steps

    def _gap_table(self, gaps: list[tuple[str, float, str]]) -> Table:
        rows = [(name, lost, self._cost(lost), close) for name, lost, close in gaps]
        return Table("Gaps", ("gap", "GPUs", "cost a month", "what closes it"), tuple(rows))

    def _cost(self, gpus: float) -> float | str:
        return "-" if self.price is None else gpus * HOURS_A_MONTH * self.price

    def _class_table(self, classes: dict[str, tuple[float, float]]) -> Table:
        rows = [
            (name, gpus, idle, self._cost(idle), POLICIES[name])
            for name, (gpus, idle) in sorted(classes.items(), key=lambda each: -each[1][1])
        ]
        return Table(
            "What is held, by class", ("class", "GPUs", "of them do nothing", "cost a month", "what closes it"),
            tuple(rows),
        )  # fmt: skip

    def _tenant_table(self, uses: list[Use]) -> Table:
        rows: list[tuple[float | str, ...]] = []
        for tenant in dict.fromkeys(each.tenant for each in uses):
            own = [each for each in uses if each.tenant == tenant]
            found = funnel(own)
            works = found.sm if found.sm is not None else found.util
            worst = max(by_class(own).items(), key=lambda each: each[1][1])[0]
            rows.append((tenant, found.held, works / found.held if found.held else 0.0, self._cost(found.held - works),
                         worst))  # fmt: skip
        rows.sort(key=lambda row: -float(row[1]) * (1 - float(row[2])))
        rows = [(row[0], row[1], SHARE.show(float(row[2])), *row[3:]) for row in rows]
        more = f", the {_MOST_TENANTS} with the most waste of {len(rows)}" if len(rows) > _MOST_TENANTS else ""
        titles = ("tenant", "GPUs", "does work", "waste a month", "mostly")
        return Table(f"By tenant{more}", titles, tuple(rows[:_MOST_TENANTS]))

    def _todo(self, gaps: list[tuple[str, float, str]], classes: dict[str, tuple[float, float]]) -> list[str]:
        largest = sorted(gaps, key=lambda each: -each[1])
        told = [f"{name} ({figure(lost)} GPUs): {close}." for name, lost, close in largest[:2] if "class" not in close]
        by_waste = sorted(((idle, name) for name, (_, idle) in classes.items() if name != "good"), reverse=True)
        told += [f"{name} ({figure(idle)} GPUs do nothing): {POLICIES[name]}." for idle, name in by_waste[:2]]
        if all(each.sm_active is None for each in self.uses()):
            told.append("Measure SM_ACTIVE: add DCGM_FI_PROF_SM_ACTIVE to dcgm-exporter's list of counters.")
        return told


def _axis(stages: list[tuple[str, float]]) -> str:
    """The stages by their numbers: a chart has no names on its x axis, and may be seen without its page."""
    return "stage: " + ", ".join(f"{at} {name}" for at, (name, _) in enumerate(stages))


def _sum(uses: list[Use], field: str) -> str:
    known = [(each.gpus, value) for each in uses if (value := getattr(each, field)) is not None]
    parts = [f"{figure(gpus)} x {figure(value)}" for gpus, value in known[:4]]
    return " + ".join(parts) + (f" + {len(known) - 4} more" if len(known) > 4 else "")
