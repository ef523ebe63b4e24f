"""`muster plan spares`: warm and cold spares, by domain, and what each minute of a recovery costs."""

from __future__ import annotations

import math
from typing import Annotated

from muster.catalog.reliability import FAILURE_RATES
from muster.catalog.sources import SOURCES
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.quantities import MONEY, NUMBER, SHARE, TIME, counts, figure, numbers
from muster.planning.question import Ask, Question, Worked
from muster.planning.spares import spares_by_availability, spares_by_poisson, spares_needed

DAY_S = 86400.0
_NODES = counts("nodes", "128")
_RATE = FAILURE_RATES[0]


class Spares(Question, frozen=True, kw_only=True):
    """Nodes that must be up, how they fail, and what happens then."""

    planner = "spares"
    asks = "How many spare nodes are enough, warm and cold, and what does each minute of a recovery cost?"

    nodes: Annotated[int, Ask("N", "nodes that must be up", _NODES, least=1, usual="8 to 5,000", most=1e6)] = 128
    gpus: Annotated[int, Ask("G", "GPUs of a node", counts("GPUs", "8"), least=1, usual="1 to 16", most=1024)] = 8
    rate: Annotated[
        float, Ask("r", "failures of each 1,000 nodes in a day", numbers("/1,000 node-days", "6.5"), above=True,
                   usual="2 to 15", most=1e5, source=f"{_RATE.cluster} ({SOURCES[_RATE.source]})")
    ] = _RATE.per_1000_node_days  # fmt: skip
    repair_s: Annotated[float, Ask("T", "time until a failed node is back", TIME, above=True, usual="4h to 14d",
                                   most=10 * 365.25 * DAY_S, option="repair")] = 3 * DAY_S  # fmt: skip
    target: Annotated[float, Ask("q", "part of the time in which all are replaced", SHARE, above=True, most=0.99999,
                                 usual="95% to 99.9%", vary=())] = 0.99  # fmt: skip
    domain: Annotated[
        int | None, Ask("d", "nodes of a domain that spares stay in (a rack, an NVLink domain)", _NODES, least=1,
                        usual="8 to 72", most=1e6)
    ] = None  # fmt: skip
    worse: Annotated[
        float, Ask("w", "how many times more often the job stops than its nodes fail", NUMBER, above=True, most=1e4,
                   usual="1 to 4; Meta saw 3.6 at 1,024 GPUs", source="nodes alone")
    ] = 1.0  # fmt: skip
    detect_s: Annotated[float, Ask("t1", "detect", TIME, usual="30s to 30m", option="detect",
                                   source="NCCL's default time-out is 10 min")] = 600.0  # fmt: skip
    decide_s: Annotated[float, Ask("t2", "decide and cordon", TIME, usual="1s to 10m", option="decide")] = 10.0
    warm_s: Annotated[float, Ask("t3", "replace by a warm spare", TIME, usual="10s to 5m", option="warm")] = 60.0
    cold_s: Annotated[float, Ask("t4", "replace by a cold spare (boot, driver, tests)", TIME, usual="10m to 2h",
                                 option="cold")] = 1800.0  # fmt: skip
    restart_s: Annotated[float, Ask("t5", "restart and load", TIME, usual="2m to 10m", option="restart")] = 300.0
    interval_s: Annotated[float, Ask("t6", "checkpoint interval", TIME, usual="10m to 2h", option="interval")] = 1800.0
    reshard_s: Annotated[
        float, Ask("e", "to go on with one data-parallel replica less", TIME, usual="1m to 10m", option="reshard")
    ] = 300.0  # fmt: skip
    replicas: Annotated[int, Ask("p", "data-parallel replicas", counts("", "16"), least=2, usual="2 to 128", most=1e5,
                                 vary=())] = 16  # fmt: skip
    price: Annotated[float | None, Ask("c", "price of a GPU-hour", MONEY, usual="1 to 12", most=1e5, vary=())] = None

    def work(self) -> Worked:
        """See `muster.planning.spares`."""
        need = spares_needed(self.nodes, self.rate / 1000, self.repair_s / DAY_S, self.target)
        warm = self._warm()
        per_domain, domains = self._by_domain()
        stops = self.nodes * self.rate / 1000 * self.worse
        budget = self._budget(self.warm_s)
        minute = stops * 60 * self.nodes * self.gpus / 3600
        return Worked(
            f"{need.spares} spares for {self.nodes:,} nodes, {warm} of them warm: all are replaced in "
            f"{SHARE.show(self.target)} of the time. Each minute of a recovery costs {figure(minute)} GPU-hours a day.",
            (
                "q1 = rT / (1 + rT), part of the time in which one node is away",
                "spares: least s with P(Bin(N + s, q1) <= s) >= q;   by Poisson: quantile of N r T",
                "warm: quantile of the failures while a cold spare is made ready (t4)",
                "recovery = t1 + t2 + t3 + t5, and t6/2 of work lost;  a minute costs N r w x N G / 60 GPU-hours a day",
                "go on smaller while the wait is above 2 e p / (p - 1)",
            ),
            "Poisson and binomial quantiles; muster.planning.spares",
            tuple(self._steps(need.away, need.spares, need.by_poisson, warm, stops, budget, minute)),
            (
                Result("spares", float(need.spares), "nodes"),
                Result("of them warm", float(warm), "nodes"),
                Result("by Poisson's rule", float(need.by_poisson), "nodes"),
                Result("spares if each domain keeps its own", float(per_domain * domains), "nodes"),
                Result("of the fleet", need.spares / self.nodes, "share"),
                Result("stops of the job", stops, "a day"),
                Result("one recovery, with a warm spare", budget, "s"),
                Result("lost to recoveries, of the time", min(1.0, stops * budget / DAY_S), "share"),
                Result("a minute of recovery costs", minute, "GPU-hours a day"),
                *((Result("a minute of recovery costs a month", minute * 30.4 * self.price),) if self.price else ()),
            ),
            (self._budget_table(stops), self._choices(stops), self._rates()),
            (self._chart(),),
            (
                "Failures come together: a rack's power or a switch takes many nodes at once, and spares of one domain "
                "with them; then plan the largest domain as one failure.",
                "New fleets fail more often: up to a tenth of the GPUs in the first weeks.",
                "The same few nodes fail again and again: quarantine them after k failures in some days, and the rate "
                "falls (Meta: failures of large jobs from 14 to 4 %).",
                "A spare that is never tested is none: run preemptible work or pre-flight tests on it.",
            ),
            tuple(self._todo(need.spares, warm, stops)),
        )  # fmt: skip

    def headline(self) -> float:
        """Spares."""
        return float(spares_needed(self.nodes, self.rate / 1000, self.repair_s / DAY_S, self.target).spares)

    def _warm(self) -> int:
        """Spares that must be ready at once: failures while a cold one is made ready."""
        return spares_by_poisson(self.nodes * self.rate / 1000 * self.cold_s / DAY_S, self.target)

    def _by_domain(self) -> tuple[int, int]:
        """Spares of one domain, so that all domains together meet the target; and how many domains."""
        if self.domain is None or self.domain >= self.nodes:
            return int(self.headline()), 1
        count = math.ceil(self.nodes / self.domain)
        load = self.rate / 1000 * self.repair_s / DAY_S
        return spares_by_availability(self.domain, 1 / (1 + load), self.target ** (1 / count)), count

    def _budget(self, replace_s: float) -> float:
        return self.detect_s + self.decide_s + replace_s + self.restart_s + self.interval_s / 2

    def _steps(
        self, away: float, spares: int, poisson: int, warm: int, stops: float, budget: float, minute: float
    ) -> list[Step]:
        days, r = figure(self.repair_s / DAY_S), figure(self.rate / 1000)
        load = self.rate / 1000 * self.repair_s / DAY_S
        steps = [
            Step("one node is away, q1", f"{r} x {days} / (1 + {r} x {days})", away, "share"),
            Step("away in the mean", f"{self.nodes:,} x {figure(away)}", self.nodes * away, "nodes"),
            Step("spares, s", f"least s: P(Bin({self.nodes:,} + s, {figure(away)}) <= s) >= {figure(self.target)}",
                 float(spares), "nodes"),
            Step("by Poisson",
                 f"quantile {figure(self.target)} of {self.nodes:,} x {r} x {days} = {figure(self.nodes * load)}",
                 float(poisson), "nodes"),
            Step("of them warm", f"quantile of {self.nodes:,} x {r} x {TIME.show(self.cold_s)}", float(warm), "nodes"),
        ]  # fmt: skip
        if self.domain is not None:
            each, count = self._by_domain()
            steps.append(Step("each domain its own", f"{count} domains x {each}", float(each * count), "nodes"))
        parts = (self.detect_s, self.decide_s, self.warm_s, self.restart_s)
        shown = " + ".join(TIME.show(each) for each in parts)
        return [
            *steps,
            Step("stops of the job", f"{self.nodes:,} x {r} x {figure(self.worse)}", stops, "a day"),
            Step("one recovery", f"{shown} + {TIME.show(self.interval_s)} / 2", budget, "s"),
            Step("a minute of it", f"{figure(stops)} x {self.nodes:,} x {self.gpus} / 60", minute, "GPU-hours a day"),
        ]

    def _budget_table(self, stops: float) -> Table:
        rows: list[tuple[float | str, ...]] = []
        size = self.nodes * self.gpus
        for name, time_s, better in (
            ("detect", self.detect_s, "a watchdog: 30 s instead of NCCL's time-out"),
            ("decide, cordon", self.decide_s, "a rule, not a person"),
            ("replace, warm", self.warm_s, "spares in the gang's domain"),
            ("restart, load", self.restart_s, "checkpoint in memory of a peer"),
            ("work lost", self.interval_s / 2, "save more often: muster plan checkpoint"),
        ):
            rows.append((name, TIME.show(time_s), stops * time_s / 3600 * size, better))
        return Table("A recovery, part by part", ("part", "time", "GPU-hours a day", "shorter by"), tuple(rows))

    def _choices(self, stops: float) -> Table:
        """Warm spare, cold spare, waiting for the repair, or going on smaller."""
        size = self.nodes * self.gpus
        rows: list[tuple[float | str, ...]] = []
        for name, replace_s in (
            ("warm spare", self.warm_s),
            ("cold spare", self.cold_s),
            ("wait for the repair", self.repair_s),
        ):
            down = self._budget(replace_s)
            elastic = replace_s > 2 * self.reshard_s * self.replicas / (self.replicas - 1)
            share = min(1.0, stops * down / DAY_S)
            rows.append((name, TIME.show(down), share * size * 24, "go on smaller" if elastic else "wait for it"))
        least = 2 * self.reshard_s * self.replicas / (self.replicas - 1)
        title = (
            f"Replace or shrink: with {self.replicas} replicas go on smaller if the wait is above {TIME.show(least)}"
        )
        return Table(title, ("replaced by", "down for", "GPU-hours a day", "meanwhile"), tuple(rows))

    def _rates(self) -> Table:
        rows: list[tuple[float | str, ...]] = []
        for each in FAILURE_RATES:
            need = spares_needed(self.nodes, each.per_1000_node_days / 1000, self.repair_s / DAY_S, self.target)
            rows.append((each.cluster, each.per_1000_node_days, need.spares, need.spares / self.nodes * 100))
        return Table("At published rates", ("cluster", "of 1,000 in a day", "spares", "% of the fleet"), tuple(rows))

    def _chart(self) -> Chart:
        sizes = sorted({8, 16, 32, 64, 128, 256, 512, 1024, 2048, self.nodes})
        points = tuple(
            (float(size), 100 * spares_needed(size, self.rate / 1000, self.repair_s / DAY_S, self.target).spares / size)
            for size in sizes
        )
        now = (float(self.nodes), 100 * self.headline() / self.nodes)
        return Chart("Spares a fleet needs, by its size", "nodes", "% of the fleet",
                     (Line("", points), Line("now", (now,))))  # fmt: skip

    def _todo(self, spares: int, warm: int, stops: float) -> list[str]:
        parts = (("detection", self.detect_s), ("the restart", self.restart_s), ("work lost", self.interval_s / 2))
        longest = max(parts, key=lambda each: each[1])
        told = [
            f"Keep {warm} spares warm (booted, tested, in the gang's domain), {max(0, spares - warm)} may be cold.",
            f"Shorten {longest[0]} first: {TIME.show(longest[1])} at each of {figure(stops)} stops a day.",
            "muster spares --from now.snap counts the failures and spares of your own cluster.",
        ]
        if self.worse == 1 and self.nodes * self.gpus >= 512:
            told.append("Jobs of this size stop more often than their nodes fail: try --worse 3.")
        return told
