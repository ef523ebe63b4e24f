"""`muster plan bringup`: from bare GPU nodes to pods that use their GPUs, by operator and by hand."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated

from msgspec.structs import replace

from muster.catalog import bringup as facts
from muster.catalog.sources import SOURCES
from muster.errors import InputError
from muster.planning.chain import Link, Ready, failing, last_of, late, ready
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.quantities import BYTES, RATE, SHARE, TIME, counts, figure, numbers
from muster.planning.question import Ask, Question, Worked
from muster.planning.rows import read_row

MOST_LINKS = 60
_WORKDAY_S = 8 * 3600.0
_SOURCE = str(SOURCES[facts.SOURCE])
_BY_HAND = {
    "labels": ("2m", "0.5%"), "driver": ("15m", "3%"), "toolkit": ("8m", "1%"), "cuda-check": ("3m", "1%"),
    "plugin": ("5m", "1%"), "validation": ("3m", "0.5%"), "features": ("2m", "0.5%"), "dcgm-exporter": ("5m", "0.5%"),
    "mig-manager": ("5m", "0.5%"),
}  # fmt: skip
_OPTIONAL = ("features", "dcgm-exporter", "mig-manager")
_HINT = "such as driver:time=3m,after=labels,hands=15m,fails=3%; after=a+b for two, needed=no if you like"


def default_links(times: dict[str, float] | None = None) -> tuple[str, ...]:
    """The operator's chain as rows; ``times`` replaces seconds by component."""
    rows: list[str] = []
    for each in facts.COMPONENTS:
        hands, fails = _BY_HAND[each.name]
        time_s = (times or {}).get(each.name, each.time_s)
        after = f",after={'+'.join(each.after)}" if each.after else ""
        needed = ",needed=no" if each.name in _OPTIONAL else ""
        rows.append(f"{each.name}:time={time_s:g}s{after},hands={hands},fails={fails}{needed}")
    return tuple(rows)


def read_link(text: str, field: str = "--link") -> Link:
    """A link written ``driver:time=3m,after=labels,hands=15m,fails=3%``; raises `InputError`."""
    name, said = read_row(text, ("time",), ("after", "hands", "fails", "needed"), field, _HINT)
    spent, hands = (TIME.read(said.get(key, "0s"), field) for key in ("time", "hands"))
    fails = SHARE.read(said.get("fails", "0"), field)
    needed = said.get("needed", "yes")
    if not (0 <= spent <= 1e7 and 0 <= hands <= 1e7 and 0 <= fails < 1 and needed in ("yes", "no")):
        raise InputError(f"{name[:30]!r} makes no sense", field=field, hint="times from 0s, fails from 0 to 1")
    after = tuple(each for each in said.get("after", "").split("+") if each)
    return Link(name, after, spent, hands, fails, needed == "yes")


class Bringup(Question, frozen=True, kw_only=True, dict=True):
    """Nodes, and the chain of components that each goes through."""

    planner = "bringup"
    asks = "How long until pods can use the GPUs of new nodes, and what does it cost people, by operator and by hand?"

    nodes: Annotated[int, Ask("N", "nodes", counts("nodes", "64"), least=1, most=1e6, usual="1 to 2,000")] = 64
    links: Annotated[
        tuple[str, ...],
        Ask("C", "components, each name:time=,after=,hands=,fails=,needed=", option="link", source=_SOURCE),
    ] = default_links()  # fmt: skip
    poll_s: Annotated[
        float, Ask("q", "how often a component looks for the one before", TIME, most=3600, usual="1s to 30s",
                   source=_SOURCE)
    ] = facts.POLL_S  # fmt: skip
    spread: Annotated[
        float, Ask("v", "deviation of a component's time, of that time", numbers("of it", "0.3"), most=3,
                   usual="0.1 to 0.5")
    ] = 0.3  # fmt: skip
    images_bytes: Annotated[
        float, Ask("I", "images that each node pulls first", BYTES, usual="0B (on the disk image) to 10GB",
                   option="images")
    ] = 6e9  # fmt: skip
    pull: Annotated[
        float, Ask("p", "rate at which one node pulls and unpacks", RATE, above=True, usual="20MB/s to 200MB/s")
    ] = 30e6  # fmt: skip
    registry: Annotated[
        float, Ask("R", "what the registry sends to all nodes together", RATE, above=True, usual="10Gb/s to 400Gb/s")
    ] = 5e9  # fmt: skip
    setup_s: Annotated[
        float, Ask("u", "time of people to set the operator up and try it", TIME, usual="4h to 40h", option="set-up")
    ] = 16 * 3600.0  # fmt: skip
    fix_s: Annotated[
        float, Ask("x", "time of people for a node on which something fails", TIME, usual="10m to 2h", option="fix")
    ] = 45 * 60.0  # fmt: skip
    mistakes: Annotated[
        float, Ask("m", "how many times more often a component fails by hand", numbers("times", "2"), least=1, most=50,
                   usual="1 to 5")
    ] = 2.0  # fmt: skip
    scripted: Annotated[
        float, Ask("s", "share of the work by hand that scripts save", SHARE, most=1, usual="0 to 0.8")
    ] = 0.3  # fmt: skip
    people: Annotated[int, Ask("w", "people who do it", counts("people", "1"), least=1, usual="1 to 5")] = 1

    @cached_property
    def _links(self) -> tuple[Link, ...]:
        found = tuple(read_link(text) for text in self.links)
        names = {link.name for link in found}
        if not 1 <= len(found) <= MOST_LINKS or len(names) < len(found) or not any(link.needed for link in found):
            what = "names a component twice" if len(names) < len(found) else f"names {len(found)} components"
            raise InputError(what, field="--link", hint=f"1 to {MOST_LINKS}, each once, at least one that is needed")
        return found

    @cached_property
    def _ready(self) -> Ready:
        return ready(self._links, self.poll_s, self.spread)

    def _pull_s(self) -> float:
        return max(self.images_bytes / self.pull, self.nodes * self.images_bytes / self.registry)

    def headline(self) -> float:
        """When the last node is ready, by operator, alone."""
        return self._pull_s() + last_of(self.nodes, self._ready)

    def _by_operator(self) -> float:
        """Time of people."""
        return self.setup_s + self.nodes * failing(self._links) * self.fix_s

    def _by_hand(self) -> float:
        """Time of people."""
        hands = sum(link.hands_s for link in self._links) * (1 - self.scripted)
        return self.nodes * (hands + failing(self._links, self.mistakes) * self.fix_s)

    def _even(self) -> float:
        """Nodes from which the operator costs people less; infinite: never."""
        saved = self._by_hand() / self.nodes - failing(self._links) * self.fix_s
        return self.setup_s / saved if saved > 0 else math.inf

    def work(self) -> Worked:
        """See `muster.planning.chain`."""
        last, operator, hand, even = self.headline(), self._by_operator(), self._by_hand(), self._even()
        bad = self.nodes * failing(self._links)
        results = [
            Result("last node ready, by operator, once it is set up", last, "s"),
            Result("a node with its images there", self._ready.node_s, "s"),
            Result("time of people by operator", operator / 3600, "hours"),
            Result("time of people by hand", hand / 3600, "hours"),
            Result("working days by hand", hand / self.people / _WORKDAY_S, "days"),
            Result("nodes from which the operator costs people less", math.ceil(even) if even < 1e9 else "none"),
            Result("nodes on which something fails", bad, "nodes"),
        ]
        less = f"From {math.ceil(even):,} nodes on the operator costs people less." if even < 1e9 else (
            "The operator never costs people less here."
        )  # fmt: skip
        answer = (
            f"By operator the last of {self.nodes:,} nodes has its GPUs after {TIME.show(last)}, for "
            f"{figure(operator / 3600)} hours of people with its set-up; by hand it takes {figure(hand / 3600)} hours, "
            f"{figure(hand / self.people / _WORKDAY_S)} working days. {less}"
        )
        return Worked(
            answer, _FORMULA, f"{_SOURCE}; muster.planning.chain", tuple(self._steps(last, operator, hand, even)),
            tuple(results), (self._chain(), self._sizes()), (self._chart(),), _FAILS, tuple(self._todo(bad)),
        )  # fmt: skip

    def _steps(self, last: float, operator: float, hand: float, even: float) -> list[Step]:
        by_name = {link.name: link for link in self._links}
        path = self._ready.path
        spent = " + ".join(figure(by_name[name].time_s) for name in path)
        polls = f"{len(path) - 1} x {figure(self.poll_s)}/2"
        images = BYTES.show(self.images_bytes)
        squares = " + ".join(f"{figure(by_name[name].time_s)}^2" for name in path)
        cubes = " + ".join(f"{figure(by_name[name].time_s)}^3" for name in path)
        bad, worse = failing(self._links), failing(self._links, self.mistakes)
        hands = sum(link.hands_s for link in self._links)
        slower = f"{images} / {RATE.show(self.pull)}, {self.nodes:,} x {images} / {RATE.show(self.registry)}"
        steps = [
            Step("pull of the images", f"max({slower})", self._pull_s(), "s"),
            Step(f"a node: {' > '.join(path)}", f"{spent} + {polls}", self._ready.node_s, "s"),
            Step("its deviation", f"{figure(self.spread)} x sqrt({squares})", self._ready.deviation_s, "s"),
            Step("its skewness, g", f"2 x {figure(self.spread)}^4 x ({cubes}) / {figure(self._ready.deviation_s)}^3",
                 self._ready.skewness),
            Step(f"the last of {self.nodes:,}: deviations after the mean",
                 f"z + (z^2 - 1) x {figure(self._ready.skewness)}/6, z at ({self.nodes:,} - 0.375)/"
                 f"({self.nodes:,} + 0.25)",
                 late(self.nodes, self._ready.skewness)),
            Step(f"the last of {self.nodes:,}", f"{TIME.show(self._pull_s())} + {TIME.show(self._ready.node_s)} + "
                 f"{figure(late(self.nodes, self._ready.skewness))} x {figure(self._ready.deviation_s)} s", last, "s"),
            Step("share of nodes on which something fails",
                 f"1 - product of (1 - f) over {len(self._links)} components", bad, "share"),
            Step("people, by operator",
                 f"{TIME.show(self.setup_s)} + {self.nodes:,} x {figure(bad)} x {TIME.show(self.fix_s)}",
                 operator / 3600, "hours"),
            Step("people, by hand",
                 f"{self.nodes:,} x ({TIME.show(hands)} x (1 - {figure(self.scripted)}) + {figure(worse)} x "
                 f"{TIME.show(self.fix_s)})", hand / 3600, "hours"),
        ]  # fmt: skip
        if even < 1e9:
            worked = f"{TIME.show(self.setup_s)} / (what a node costs by hand - by operator)"
            steps.append(Step("nodes from which the operator costs less", worked, even, "nodes"))
        return steps

    def _chain(self) -> Table:
        shows = {each.name: each.shows for each in facts.COMPONENTS}
        rows = tuple(
            (link.name, " + ".join(link.after), TIME.show(link.time_s), TIME.show(at), TIME.show(link.hands_s),
             shows.get(link.name, ""))
            for link, at in zip(self._links, self._ready.at_s, strict=True)
        )  # fmt: skip
        title = "The chain of one node, its images there"
        return Table(title, ("component", "after", "takes", "ready at", "by hand", "what shows it"), rows)

    def _sizes(self) -> Table:
        rows: list[tuple[float | str, ...]] = []
        for nodes in sorted({1, 8, 64, 256, 1024, self.nodes}):
            other = replace(self, nodes=nodes)
            people = (figure(other._by_operator() / 3600), figure(other._by_hand() / 3600))
            rows.append((nodes, TIME.show(other.headline()), *people))
        columns = ("nodes", "last node ready", "people by operator, h", "people by hand, h")
        return Table("The same for other numbers of nodes", columns, tuple(rows))

    def _chart(self) -> Chart:
        even = self._even()
        most = max(2 * self.nodes, 2 * (even if even < 1e5 else 0), 4)
        grid = sorted({max(1, round(most * at / 24)) for at in range(25)})
        lines = (
            Line("by operator", tuple((n, replace(self, nodes=n)._by_operator() / 3600) for n in grid)),
            Line("by hand", tuple((n, replace(self, nodes=n)._by_hand() / 3600) for n in grid)),
        )
        return Chart("Time of people to bring up GPU nodes", "nodes", "hours", lines)

    def _todo(self, bad: float) -> list[str]:
        told: list[str] = []
        driver = next((link for link in self._links if link.name == "driver"), None)
        if driver is not None and driver.time_s >= 60:
            told.append(
                "Precompiled driver images (driver.usePrecompiled=true), or the driver in the node's disk image "
                f"(driver.enabled=false): up to {TIME.show(driver.time_s)} less on each node."
            )
        if self._pull_s() > self._ready.node_s:
            told.append("The images take longer than the chain: put them on the disk image or a mirror (plan image).")
        if self.nodes >= facts.LARGE_NODES:
            told.append(
                f"From about {facts.LARGE_NODES} nodes on raise the operator's memory limit first: it runs out."
            )
        told.append(
            f"Expect {figure(bad)} nodes that need a person: kubectl get pods -n gpu-operator -o wide, then "
            "muster doctor --from on what it prints."
        )
        told.append("Keep work off what is not ready: taint new nodes until their GPUs are allocatable.")
        told.append("On Slurm slurmd must start after the driver, or it reports 0 GPUs until it is restarted.")
        return told


_FORMULA = (
    "ready(i) = max over those before it of ready(j) + q/2 + t_i;  d = v sqrt(sum of t_i^2 on the path)",
    "last of N = max(I/p, N I/R) + a node + d (z + (z^2 - 1) g/6),  z: normal quantile at (N - 0.375)/(N + 0.25)",
    "g = 2 v^4 (sum of t_i^3 on the path) / d^3",
    "people by operator = u + N f x,  f = 1 - product of (1 - f_i)",
    "people by hand = N (sum of h_i (1 - s) + f' x),  f' = 1 - product of (1 - m f_i)",
)
_FAILS = (
    "Times of components are no published distribution: take your own from the operator's pods (--from).",
    f"The driver's start-up probe ends after {TIME.show(facts.PROBE_S)}: a slower build starts anew, and never ends.",
    "Tails: one node in many that takes ten times as long makes the last node later than told.",
    "Nodes that boot one after another, or wait for addresses, firmware or cabling: that comes before this chain.",
)
