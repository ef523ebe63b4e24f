"""The report of a simulation with arrivals only: from the outcomes of a sweep to a page, and its chart for papers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from muster.policy.fragmentation import CAUSES
from muster.report.causes import CAUSE_WORDS
from muster.report.fleet_map import FleetNode, fleet_map
from muster.report.page import Cell, Commands, Figure, Pictures, Report, Section, Table
from muster.report.palette import CAUSE_COLOURS, policy_colour
from muster.report.published import Published
from muster.report.scale import outward
from muster.report.svg import Area, Curve, Picture, grid, line_chart, stacked_area_chart

if TYPE_CHECKING:
    from muster.sim.details import NodeUse, RunDetails
    from muster.sim.sweep import Outcome

TABLE_MARKS = ("90", "95", "100", "110", "130")
MOST_MAP_NODES = 6000
"""Most nodes of all maps of a page together; one map is always drawn."""

X_LABEL = "GPUs asked for by the pods that have arrived, % of the fleet"
Y_LABEL = "GPUs allocated, % of the fleet"
CAUSES_CAPTION = (
    "Free GPU that is of no use to a typical pod of this workload, by what stands in the way. No GPU asked: the pod is "
    "a CPU pod; closed nodes: model, selector or taint keep it out; lack of GPU, CPU or memory on the node; wrong "
    "shape: enough is free, but not on single devices; leftover: it fits, and this lies on devices too full for it. "
    "The first seed."
)


class Setup(Struct, frozen=True):
    """What was run, in words: the command, Muster's version, fleet, workloads, and specs for the next commands."""

    command: str
    version: str
    fleet: str
    workloads: tuple[str, ...]
    fleet_spec: str = ""
    workload_spec: str = ""
    published: tuple[Published, ...] = ()
    published_source: str = ""


class Group(Struct, frozen=True):
    """The runs of one workload under one policy, one a seed."""

    workload: str
    policy: str
    outcomes: tuple[Outcome, ...]

    @property
    def gpus(self) -> int:
        """GPUs of the fleet."""
        return self.outcomes[0].run.gpus

    def allocated(self, mark: str) -> float | None:
        """Mean over the seeds of GPUs allocated at an arrived percent, in % of the fleet; None if not reached."""
        values = [one.run.allocated_percent[mark] for one in self.outcomes if mark in one.run.allocated_percent]
        return sum(values) / len(values) if values else None


def grouped(outcomes: Sequence[Outcome]) -> dict[str, list[Group]]:
    """Workload to its groups, all in the order of the outcomes."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault((outcome.workload, outcome.policy), []).append(outcome)
    groups: dict[str, list[Group]] = {}
    for (workload, policy), members in found.items():
        groups.setdefault(workload, []).append(Group(workload, policy, tuple(members)))
    return groups


def allocation_chart(
    workload: str, groups: Sequence[Group], published: Sequence[Published] = (), *, named: bool = True
) -> Picture:
    """Allocation against arrivals, from where policies begin to differ; a band goes from the least seed to the most."""
    curves = [_published_curve(one) for one in published if one.workload == workload]
    best = max(groups, key=lambda group: _last(group))
    known = {one.policy: one.points[-1][1] for one in published if one.workload == workload and one.points}
    curves += [_curve(group, known.get(group.policy), strong=group is best and len(groups) > 1) for group in groups]
    x_range, y_range = _window(curves)
    title = f"Workload {workload}: GPUs allocated as pods arrive" if named else "GPUs allocated as pods arrive"
    return line_chart(
        title, curves, x_label=X_LABEL, y_label=f"{Y_LABEL} (dashed: published)" if known else Y_LABEL,
        x_range=x_range, y_range=y_range, diagonal="all that arrived is placed",
    )  # fmt: skip


def allocation_plot(outcomes: Sequence[Outcome], published: Sequence[Published] = ()) -> Picture:
    """The charts of all workloads in one picture, two in a row."""
    charts = [allocation_chart(workload, groups, published) for workload, groups in grouped(outcomes).items()]
    return charts[0] if len(charts) == 1 else grid(charts, 2, "GPUs allocated as pods arrive")


def simulation_report(outcomes: Sequence[Outcome], setup: Setup, *, timings: bool = True) -> Report:
    """The whole page; outcomes must have their details."""
    groups = grouped(outcomes)
    seeds = list(dict.fromkeys(outcome.seed for outcome in outcomes))
    facts = [
        ("Command", setup.command),
        ("Muster", setup.version),
        ("Fleet", setup.fleet),
        *[("Workload", text) for text in setup.workloads],
        ("Seeds", f"{', '.join(map(str, seeds[:12]))}{' ...' if len(seeds) > 12 else ''} ({len(seeds)})"),
    ]
    sections = [Section("GPUs allocated", blocks=(_results(groups, timings=timings),))]
    for workload, members in groups.items():
        sections.append(_workload_section(workload, members, setup))
    sections += [_refused(groups), _maps(next(iter(groups.values()))), _next_commands(setup, len(seeds))]
    return Report(
        title="Placement of pods on a simulated fleet",
        lead=tuple(_finding(workload, members) for workload, members in groups.items()),
        facts=tuple(facts),
        sections=tuple(section for section in sections if section.blocks),
        footer="Made by muster simulate. One file, nothing is loaded from elsewhere.",
    )


def _details(group: Group) -> list[RunDetails]:
    """The details of the runs in which anything arrived."""
    kept = [outcome.details for outcome in group.outcomes if outcome.details is not None]
    return [details for details in kept if details.arrived_percent]


def _last(group: Group) -> float:
    """Mean allocation at the end of the runs, in % of the fleet."""
    ends = [details.allocated_percent[-1] for details in _details(group)]
    return sum(ends) / len(ends) if ends else 0.0


def _curve(group: Group, published: float | None, *, strong: bool) -> Curve:
    """The mean over the seeds; where a seed has no arrival in a percent, between its neighbours."""
    details = _details(group)
    if not details:
        return Curve(group.policy, (), policy_colour(group.policy))
    marks = sorted({mark for one in details for mark in one.arrived_percent})
    table = np.array([np.interp(marks, one.arrived_percent, one.allocated_percent) for one in details])
    means, low, high = table.mean(axis=0).tolist(), table.min(axis=0).tolist(), table.max(axis=0).tolist()
    band = tuple(zip(map(float, marks), low, high, strict=True)) if len(details) > 1 else ()
    points = tuple(zip(map(float, marks), means, strict=True))
    label = None if published is None else f"{group.policy} {means[-1]:.1f} (published {published:.1f})"
    return Curve(group.policy, points, policy_colour(group.policy), band, strong=strong, label=label)


def _published_curve(one: Published) -> Curve:
    return Curve(f"{one.policy}, published", one.points, policy_colour(one.policy), dashed=True, label="")


def _window(curves: Sequence[Curve]) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """What to show: from a little before the first curve leaves the diagonal to the end."""
    ends = [curve.points[-1][0] for curve in curves if curve.points]
    leaving = [x for curve in curves for x, y in curve.points if x - y > 1.5]
    if not ends or not leaving:
        return None, None
    start = max(0.0, 10.0 * ((min(leaving) - 5) // 10))
    if max(ends) - start < 10:
        return None, None
    inside = [y for curve in curves for x, y in curve.points if x >= start]
    low, high = 5.0 * ((min(inside) + 0.5) // 5), 5.0 * -(-max(inside) // 5)
    return (start, max(ends)), (low, max(high, low + 5))


def _finding(workload: str, groups: Sequence[Group]) -> str:
    mark = next((mark for mark in ("100", *TABLE_MARKS[::-1]) if groups[0].allocated(mark) is not None), None)
    if mark is None:
        return f"Workload {workload}: {len(groups)} policies were run."
    ranked = sorted(groups, key=lambda group: -(group.allocated(mark) or 0.0))

    def told(group: Group) -> str:
        share = group.allocated(mark) or 0.0
        return f"{share:.2f} % ({_idle(group, mark):,.0f} of {group.gpus:,} GPUs idle)"

    text = f"Workload {workload}: when pods asking for {mark} % of the fleet have arrived, "
    text += f"policy {ranked[0].policy} has allocated {told(ranked[0])}"
    return f"{text}; policy {ranked[-1].policy} {told(ranked[-1])}." if len(ranked) > 1 else f"{text}."


def _idle(group: Group, mark: str) -> float:
    return group.gpus * (1 - (group.allocated(mark) or 0.0) / 100)


def _results(groups: dict[str, list[Group]], *, timings: bool) -> Table:
    members = [group for several in groups.values() for group in several]
    marks = [mark for mark in TABLE_MARKS if any(group.allocated(mark) is not None for group in members)]
    headings = ["workload", "policy", "runs", *(f"at {mark} %" for mark in marks)]
    headings += ["idle GPUs", "refused"] if "100" in marks else ["refused"]
    rows: list[tuple[str | Cell, ...]] = []
    for several in groups.values():
        shown = {mark: [f"{group.allocated(mark) or 0.0:.2f}" for group in several] for mark in marks}
        for group in several:
            row: list[str | Cell] = [group.workload, group.policy, str(len(group.outcomes))]
            for mark in marks:
                value = group.allocated(mark)
                text = "" if value is None else f"{value:.2f}"
                stands_out = text == max(shown[mark], key=float) and len(set(shown[mark])) > 1
                row.append(Cell(text) if stands_out else text)
            if "100" in marks:
                row.append("" if group.allocated("100") is None else f"{_idle(group, '100'):,.0f}")
            refused = sum(one.run.rejected / max(1, one.run.arrived) for one in group.outcomes) / len(group.outcomes)
            row.append(f"{100 * refused:.2f} %")
            if timings:
                speeds = [one.run.arrived / one.wall_s for one in group.outcomes if one.wall_s > 0]
                row.append(f"{sum(speeds) / len(speeds):,.0f}" if speeds else "")
            rows.append(tuple(row))
    caption = "GPUs allocated in % of the fleet, when pods asking for 90 %, 95 % ... of it have arrived"
    caption += "; idle GPUs at 100 %." if "100" in marks else "; none of its pods brought the demand to 100 %."
    return Table(tuple([*headings, "pods/s"] if timings else headings), tuple(rows), 2, caption)


def _workload_section(workload: str, groups: Sequence[Group], setup: Setup) -> Section:
    known = [one for one in setup.published if one.workload == workload]
    caption = "Lines are means over the seeds, bands go from the least to the most of them." if any(
        len(group.outcomes) > 1 for group in groups
    ) else "One run a policy."  # fmt: skip
    if known:
        caption += f" Dashed: published results, the mean of {known[0].runs} runs in {setup.published_source}."
    charts = tuple(_causes_chart(group, _most_fragmented(groups)) for group in groups if _details(group))
    return Section(
        f"Workload {workload}",
        blocks=(
            Figure(allocation_chart(workload, groups, known, named=False), caption),
            Pictures(charts, CAUSES_CAPTION),
        ),
    )


def _most_fragmented(groups: Sequence[Group]) -> float:
    """The largest fragment of any group's first seed, in % of the fleet."""
    sums = [
        sum(values)
        for group in groups
        for details in _details(group)[:1]
        for values in zip(*details.fragmented_percent.values(), strict=True)
    ]
    return max(sums, default=0.0)


def _causes_chart(group: Group, most: float) -> Picture:
    details = _details(group)[0]
    areas = [
        Area(CAUSE_WORDS[cause].name, details.fragmented_percent[cause], CAUSE_COLOURS[cause])
        for cause in reversed(CAUSES)
        if cause in details.fragmented_percent
    ]
    return stacked_area_chart(
        f"{group.policy}: fragments by cause", [float(mark) for mark in details.arrived_percent], areas,
        x_label="GPUs asked for, % of the fleet", y_label="free GPU of no use, % of the fleet",
        y_range=outward(0.0, max(most, 1e-6), 5),
    )  # fmt: skip


def _refused(groups: dict[str, list[Group]]) -> Section:
    members = [group for several in groups.values() for group in several]
    present = {name for group in members for one in group.outcomes for name in one.run.arrived_by_size}
    classes = [name for name in ("cpu", "1", "2-4", "5-8", "9+") if name in present]
    rows: list[tuple[str, ...]] = []
    for group in members:
        cells: list[str] = []
        for name in classes:
            arrived = sum(one.run.arrived_by_size.get(name, 0) for one in group.outcomes)
            refused = sum(one.run.rejected_by_size.get(name, 0) for one in group.outcomes)
            cells.append(f"{100 * refused / arrived:.1f} %" if arrived else "")
        rows.append((group.workload, group.policy, *cells))
    headings = ["no GPU" if name == "cpu" else "up to 1 GPU" if name == "1" else f"{name} GPUs" for name in classes]
    caption = "Pods refused until the end, in % of those of their size that arrived; all seeds together."
    return Section("Who was refused", blocks=(Table(("workload", "policy", *headings), tuple(rows), 2, caption),))


def _maps(groups: Sequence[Group]) -> Section:
    """A map a policy for the first workload and seed, the best first, as long as the page stays small."""
    blocks: list[Figure] = []
    drawn = 0
    for group in sorted(groups, key=lambda group: -_last(group)):
        nodes = next((one.nodes for one in _details(group) if one.nodes), ())
        if not nodes or (blocks and drawn + len(nodes) > MOST_MAP_NODES):
            continue
        drawn += len(nodes)
        picture = fleet_map(f"The fleet at the end under {group.policy}", [_fleet_node(node) for node in nodes])
        blocks.append(Figure(picture, "Point at a node for its figures.", folded=bool(blocks)))
    where = f"Workload {groups[0].workload}, seed {groups[0].outcomes[0].seed}, after the last arrival."
    return Section("The fleet", (where,), tuple(blocks))


def _fleet_node(node: NodeUse) -> FleetNode:
    models = sorted(set(node.gpu_models))
    gpus = f"{len(node.gpu_models)} x {' or '.join(models)}" if models else "no GPU"
    kind = f"{gpus}, {node.cpu_milli / 1000:g} CPU, {node.memory_bytes / 2**30:.4g} GiB"
    return FleetNode(
        node.name, kind, node.gpu_free_milli, node.cpu_milli, node.cpu_free_milli, node.memory_bytes,
        node.memory_free_bytes,
    )  # fmt: skip


def _next_commands(setup: Setup, seeds: int) -> Section:
    from shlex import quote

    fleet, work = quote(setup.fleet_spec), quote(setup.workload_spec)
    commands = (
        ("every run with all its figures", f"{setup.command} -o csv"),
        ("the first chart for a paper", f"{setup.command} --plot allocation.svg"),
        *(() if seeds >= 10 else (
            ("ten seeds instead of few", f"muster simulate --fleet {fleet} --workload {work} --policy fgd,default "
             "--seeds 42..51 --report report.html"),
        )),
        ("how the default policy is fitted to this fleet and mix", f"muster tune --fleet {fleet} --workload {work}"),
        ("what is free on a fleet, and why it is of no use", f"muster fleet frag {fleet}"),
    )  # fmt: skip
    return Section("And now what?", blocks=(Commands(commands),))
