"""`muster plan spot`: how often a gang breaks, what that costs, when spot is cheaper, and what must never be on it."""

from __future__ import annotations

import math
from typing import Annotated

from muster.errors import InputError
from muster.planning.checkpoints import best_interval_s, efficiency
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.quantities import PER_HOUR, SHARE, TIME, counts, figure
from muster.planning.question import Ask, Question, Worked
from muster.planning.shocks import Shocks, fitted

_TRACE = "SkyPilot spot trace, 16 x V100, us-east-2b, August 2023"
_NODES = counts("nodes", "16")
_GANGS = (1, 2, 4, 8, 16, 32, 64)


class Spot(Question, frozen=True, kw_only=True):
    """A gang on spot instances; rates an hour, prices as a part of on-demand."""

    planner = "spot"
    asks = "Is the job cheaper on spot, how often does its gang break, and when must it not be there?"

    nodes: Annotated[
        int, Ask("n", "instances of the gang", counts("nodes", "16"), least=1, usual="1 to 64", most=1e5)
    ] = 16
    losses: Annotated[
        float, Ask("l", "losses of one instance", PER_HOUR, above=True, usual="0.05/h to 1.4/h", most=1e4,
                   source=_TRACE)
    ] = 0.384  # fmt: skip
    together: Annotated[
        float, Ask("r", "of one's losses, the part another shares", SHARE, most=1, usual="10% to 90%", source=_TRACE)
    ] = 0.682  # fmt: skip
    seen: Annotated[
        float | None, Ask("B", "breaks of a whole gang that were seen", PER_HOUR, usual="0.1/h to 1/h", most=1e5,
                          source=_TRACE)
    ] = 0.599  # fmt: skip
    seen_nodes: Annotated[
        int, Ask("N", "instances of the gang in which they were seen", _NODES, least=1, usual="2 to 32",
                 most=1e5, source=_TRACE, vary=())
    ] = 16  # fmt: skip
    available: Annotated[
        float, Ask("a", "part of the time in which the gang can be had", SHARE, above=True, most=1, usual="15% to 90%",
                   source=_TRACE)
    ] = 0.457  # fmt: skip
    ratio: Annotated[
        float, Ask("p", "price of spot, of on-demand", SHARE, above=True, most=1.5, usual="30% to 70%",
                   source="skypilot-catalog v8: H100 1.25 of 2.95")
    ] = 0.42  # fmt: skip
    save_s: Annotated[float, Ask("C", "time to save", TIME, above=True, usual="5s to 5m", option="save")] = 60.0
    restart_s: Annotated[
        float, Ask("R", "restart, with the wait for instances", TIME, usual="2m to 30m", option="restart")
    ] = 600.0
    interval_s: Annotated[float | None, Ask("t", "checkpoint interval; the best one otherwise", TIME, above=True,
                                            usual="5m to 2h", option="interval")] = None  # fmt: skip
    steady: Annotated[
        float, Ask("o", "failures of the gang on on-demand", PER_HOUR, above=True, usual="0.001/h to 0.1/h", most=1e3)
    ] = 0.01  # fmt: skip
    work_s: Annotated[
        float, Ask("W", "work of the job, without losses", TIME, above=True, usual="1h to 60d", option="work")
    ] = 48 * 3600.0
    deadline_s: Annotated[
        float, Ask("D", "time until it must be done", TIME, above=True, usual="1 to 4 times W", option="deadline")
    ] = 96 * 3600.0  # fmt: skip

    def work(self) -> Worked:
        """See `muster.planning.shocks` and `muster.planning.checkpoints`."""
        shocks = self._shocks()
        breaks, alone = shocks.breaks(self.nodes), self.nodes * self.losses
        share, steady = self._goodput(breaks), self._goodput(self.steady)
        if not share or not steady:
            raise InputError("leaves no time for work", field="--losses", hint="is the restart right?")
        limit = share / steady
        price = self.ratio / share * steady
        mix = self._mix(share, steady)
        wins = "cheaper" if self.ratio < limit else "dearer"
        return Worked(
            f"The gang breaks every {TIME.show(3600 / breaks)} ({figure(alone / breaks)} times less often than if "
            f"instances were lost alone); {100 * share:.0f} % of its time is work that lasts, so spot is cheaper below "
            f"{figure(round(100 * limit))} % of the on-demand price; it is at "
            f"{figure(round(100 * self.ratio))} %, {wins}.",
            (
                "shocks at rate m take each instance with chance q ~ Beta: l = m E[q], r = E[q^2] / E[q]",
                "breaks B(n) = m (1 - E[(1 - q)^n]);   alone: n l;   one fate: l",
                "g = t / (M e^(R/M) (e^((t + C)/M) - 1)),  M = 1 / B;   loss of a break about t/2 + R",
                "spot wins while p < g(spot) / g(on-demand)",
                "deadline: spot while it is there, on-demand y of the time in its gaps:  a g_s + y g_o >= W / D",
                "          if y > 1 - a, on-demand also in place of spot:  (1 - y) g_s + y g_o >= W / D",
            ),
            "beta-binomial shocks fitted to the trace; Daly 2006; muster.planning.shocks",
            tuple(self._steps(shocks, breaks, alone, share, steady)),
            (
                Result("work that lasts, of the time on spot", share, "share"),
                Result("breaks of the gang", breaks, "/h"),
                Result("the same if lost alone", alone, "/h"),
                Result("price of a useful hour, of on-demand's", price, "share"),
                Result("spot wins below a price of", limit, "share"),
                Result("expected loss of a break", self._interval(breaks) / 2 + self.restart_s, "s"),
                *mix,
            ),
            (self._cadences(breaks, steady), self._gangs(shocks, steady), self._never(shocks, steady)),
            (self._chart(shocks),),
            (
                "Zones and hours differ by five times in availability and fifteen in losses: a trace of one zone tells "
                "nothing of another.",
                "Spot is not memoryless: some clouds take instances soon after their start, others after a day.",
                "Spreading a gang over pools makes it break more often (pools fail apart), not less.",
                "Each switch between spot and on-demand costs a restart: where gaps are not far longer than R, "
                "holding a deadline takes more on-demand than told.",
                "Prices of spot move; this one holds for the day of the price file.",
            ),
            tuple(self._todo(share, limit, breaks)),
        )  # fmt: skip

    def headline(self) -> float:
        """Work that lasts, of the time on spot."""
        return self._goodput(self._shocks().breaks(self.nodes))

    def _shocks(self) -> Shocks:
        if self.seen is None:
            return fitted(self.losses, self.together, self.seen_nodes * self.losses, self.seen_nodes)
        return fitted(self.losses, self.together, self.seen, self.seen_nodes)

    def _interval(self, per_hour: float) -> float:
        return self.interval_s or best_interval_s(self.save_s, 3600 / per_hour)

    def _goodput(self, per_hour: float) -> float:
        return efficiency(self._interval(per_hour), self.save_s, 3600 / per_hour, self.restart_s)

    def _steps(self, shocks: Shocks, breaks: float, alone: float, share: float, steady: float) -> list[Step]:
        mttf, interval = 3600 / breaks, self._interval(breaks)
        return [
            Step("if lost alone", f"{self.nodes} x {figure(self.losses)}", alone, "/h"),
            Step("shocks, m", f"{figure(self.losses)} / {figure(shocks.mean)}", shocks.rate, "/h"),
            Step("breaks of the gang", f"{figure(shocks.rate)} x (1 - E[(1 - q)^{self.nodes}])", breaks, "/h"),
            Step("mean time between them", f"1 / {figure(breaks)}", mttf, "s"),
            Step("interval", "given" if self.interval_s else f"best for C = {TIME.show(self.save_s)}", interval, "s"),
            Step("work that lasts on spot", f"g(t = {TIME.show(interval)}, M = {TIME.show(mttf)}, R = "
                 f"{TIME.show(self.restart_s)})", share, "share"),
            Step("on on-demand", f"g(M = {TIME.show(3600 / self.steady)})", steady, "share"),
            Step("break-even price", f"{figure(share)} / {figure(steady)}", share / steady, "share"),
            Step("a useful hour", f"{figure(self.ratio)} / {figure(share)} x {figure(steady)}",
                 self.ratio / share * steady, "share"),
        ]  # fmt: skip

    def _mix(self, share: float, steady: float) -> tuple[Result, ...]:
        """The least part of the time on on-demand that meets the deadline, and what the whole costs.

        Spot is used while it is there and on-demand in its gaps, as Uniform Progress does (Wu et al., NSDI 2024);
        restarts at the switches between them are not counted.
        """
        needed, name = self.work_s / self.deadline_s, "part of the time on on-demand, for the deadline"
        if needed > steady:
            return (Result(name, "cannot be met"),)
        on_demand, spot = _mixed(needed, self.available, share, steady)
        if self.ratio >= share / steady:
            on_demand, spot = needed / steady, 0.0
        cost = (on_demand + spot * self.ratio) * self.deadline_s
        alone = self.work_s / steady
        last = self.deadline_s - self.work_s / steady - self.restart_s
        return (
            Result(name, on_demand, "share"),
            Result("cost of that, of on-demand alone", cost / alone, "share"),
            Result("switch for good at the latest after, if nothing is done by then", max(0.0, last), "s"),
        )

    def _cadences(self, breaks: float, steady: float) -> Table:
        rows: list[tuple[float | str, ...]] = []
        best = best_interval_s(self.save_s, 3600 / breaks)
        for interval in sorted({300.0, 900.0, 1800.0, 3600.0, best}):
            share = efficiency(interval, self.save_s, 3600 / breaks, self.restart_s)
            limit = share / steady
            name = TIME.show(interval) + (" (best)" if interval == best else "")
            rows.append((name, SHARE.show(share), SHARE.show(limit), "spot" if self.ratio < limit else "on-demand"))
        titles = ("save every", "work that lasts", "spot wins below", f"at {SHARE.show(self.ratio)}")
        return Table("Break-even by cadence", titles, tuple(rows))

    def _gangs(self, shocks: Shocks, steady: float) -> Table:
        rows: list[tuple[float | str, ...]] = []
        for nodes in sorted({*_GANGS, self.nodes}):
            breaks = shocks.breaks(nodes)
            share = self._goodput(breaks)
            alone = nodes * self.losses
            rows.append((nodes, breaks, alone, alone / breaks, SHARE.show(share), SHARE.show(share / steady)))
        titles = ("gang", "breaks an hour", "if lost alone", "too many by", "work that lasts", "spot wins below")
        return Table("Gangs of other sizes, by the same shocks", titles, tuple(rows))

    def _never(self, shocks: Shocks, steady: float) -> Table:
        """Kinds of jobs, and whether they may be on spot at this price."""
        breaks = shocks.breaks(self.nodes)
        mttf = 3600 / breaks
        rows: list[tuple[float | str, ...]] = []
        for name, share, why in (
            ("saves at the best interval", self._goodput(breaks), ""),
            ("saves once an hour", efficiency(3600, self.save_s, mttf, self.restart_s), ""),
            ("saves in 10 min, restarts in 30", efficiency(best_interval_s(600, mttf), 600, mttf, 1800), ""),
            ("no checkpoint, 1 h of work", _unsaved(3600, mttf, self.restart_s), "begins anew at each break"),
            ("no checkpoint, 8 h of work", _unsaved(8 * 3600, mttf, self.restart_s), "begins anew at each break"),
        ):
            limit = share / steady
            verdict = "may be on spot" if self.ratio < limit else "never on spot"
            rows.append((name, SHARE.show(share), SHARE.show(limit), verdict, why))
        short = self.work_s / self.deadline_s > self.available * self._goodput(breaks)
        rows.append(("this job's deadline", "-", "-", "not on spot alone" if short else "may be on spot",
                     "spot alone is too slow" if short else ""))  # fmt: skip
        return Table("What may be on spot", ("job", "work that lasts", "spot wins below", "", "why"), tuple(rows))

    def _chart(self, shocks: Shocks) -> Chart:
        sizes = [float(each) for each in range(1, 2 * max(self.nodes, 16) + 1)]
        fit = tuple((each, shocks.breaks(int(each))) for each in sizes)
        alone = tuple((each, each * self.losses) for each in sizes if each * self.losses <= 3 * fit[-1][1])
        lines = [Line("shared shocks", fit), Line("alone", alone, dashed=True)]
        if self.seen is not None:
            lines.append(Line("seen", ((float(self.seen_nodes), self.seen),)))
        return Chart("Breaks of a gang an hour", "instances of the gang", "breaks an hour", tuple(lines))

    def _todo(self, share: float, limit: float, breaks: float) -> list[str]:
        told: list[str] = []
        if self.ratio < limit:
            every = TIME.show(self._interval(breaks))
            told.append(f"Put it on spot, saving every {every}; catch the notice (2 min on AWS, 30 s on others) and "
                        "save once more.")  # fmt: skip
        else:
            told.append("Keep it on on-demand, or save faster: muster plan checkpoint.")
        told += [
            "Choose the zone by its trace, not by its price: availability differs by five times.",
            "With a deadline hold uniform progress: go to on-demand whenever progress falls behind the straight line.",
            "Record your own: instances held every 5 minutes, and give it with --from.",
        ]
        return told


def _unsaved(work_s: float, mttf_s: float, restart_s: float) -> float:
    """Work over the time that it takes where each break begins it anew: W / ((M + R) (e^(W/M) - 1))."""
    exponent = work_s / mttf_s
    return 0.0 if exponent > 700 else work_s / ((mttf_s + restart_s) * math.expm1(exponent))


def _mixed(needed: float, available: float, share: float, steady: float) -> tuple[float, float]:
    """Parts of the time on on-demand and on spot that do ``needed`` work a second, with the least on on-demand."""
    if needed <= available * share:
        return 0.0, needed / share
    gaps = (needed - available * share) / steady
    if gaps <= 1 - available or steady <= share:
        return gaps, available
    on_demand = min(1.0, (needed - share) / (steady - share))
    return on_demand, 1 - on_demand
