"""`muster plan pool`: one pool for training and serving: floor and loan, reclaim against ramp, and what it gains."""

from __future__ import annotations

import math
from typing import Annotated

from muster.errors import InputError
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.lending import Lent, growths, lend, slack_for
from muster.planning.quantities import MONEY, SHARE, TIME, counts, figure, numbers
from muster.planning.question import Ask, Question, Worked

_GPUS = numbers("GPUs", "80")


def usual_day() -> tuple[float, ...]:
    """An example in steps of five minutes: a night below half of the peak, a steep morning, small waves."""
    found: list[float] = []
    for at in range(288):
        clock = at / 12
        day = 1 / (1 + math.exp(-(clock - 8) * 2)) - 1 / (1 + math.exp(-(clock - 20) * 1.2))
        wave = 0.04 * math.sin(at * 1.7) + 0.03 * math.sin(at * 0.41)
        found.append(round(80 * (0.4 + 0.6 * day + wave), 1))
    return tuple(found)


class Pool(Question, frozen=True, kw_only=True):
    """Serving whose demand moves, and training that may be stopped, on the same GPUs."""

    planner = "pool"
    asks = "How much may serving lend to training, what does that gain, and what does it risk?"

    gpus: Annotated[
        int, Ask("N", "GPUs of the pool", counts("GPUs", "256"), least=1, usual="16 to 20,000", most=1e7)
    ] = 256
    demand: Annotated[
        tuple[float, ...], Ask("d", "GPUs that serving needs, step by step", _GPUS, usual="a day or more")
    ] = usual_day()
    step_s: Annotated[float, Ask("", "time of a step", TIME, above=True, usual="1m to 10m", option="step", vary=())] = (
        300.0
    )
    floor: Annotated[float, Ask("F", "GPUs that serving always keeps", _GPUS, usual="0 to the night's demand")] = 16.0
    notice_s: Annotated[
        float, Ask("n", "notice, drain or kill of training", TIME, usual="5s to 2m", option="notice")
    ] = 30.0
    save_s: Annotated[float, Ask("c", "checkpoint before it goes", TIME, usual="0 to 5m", option="save")] = 60.0
    node_s: Annotated[float, Ask("o", "node made ready for serving", TIME, usual="0 to 2m", option="node")] = 10.0
    cold_s: Annotated[
        float, Ask("k", "cold start of a replica", TIME, usual="30s to 15m; muster plan coldstart", option="cold")
    ] = 200.0  # fmt: skip
    risk: Annotated[
        float, Ask("e", "share of the time in which serving may be short", SHARE, most=0.5, usual="0.1% to 2%")
    ] = 0.005  # fmt: skip
    interval_s: Annotated[
        float, Ask("t", "training's checkpoint interval", TIME, usual="10m to 2h", option="interval")
    ] = 1800.0  # fmt: skip
    restart_s: Annotated[float, Ask("R", "training's restart", TIME, usual="2m to 10m", option="restart")] = 300.0
    saved: Annotated[
        bool, Ask("", "whether training saves when it is told to go, so that it loses its restart only")
    ] = True  # fmt: skip
    price: Annotated[float | None, Ask("p", "price of a GPU-hour", MONEY, usual="1 to 12", most=1e5, vary=())] = None

    def work(self) -> Worked:
        """See `muster.planning.lending`."""
        steps, slack, found = self._lent()
        peak = max(self.demand)
        mean = sum(self.demand) / len(self.demand)
        lost = self._lost(found)
        gains = self.gpus - found.held - lost - (self.gpus - peak)
        worst = max(growths(self.demand, steps))
        return Worked(
            self._answer(slack, found, gains),
            (
                "reclaim T = n + c + o + k;  held h(t) = max(F, d(t - T) + s);  short = max(0, d(t) - h(t))",
                "slack s = quantile of d(t) - d(t - T) at 1 - e                          (the loan rule)",
                "training = N - mean h - lost;  lost = GPUs taken back an hour x (R, or t/2 + R if it cannot save)",
                "alone: serving owns its peak, training has N - peak",
            ),
            "loan rule: computed on measured growth; muster.planning.lending",
            (
                Step("reclaim, T", " + ".join(TIME.show(each) for each in self._parts()), sum(self._parts()), "s"),
                Step("in steps", f"ceil({TIME.show(sum(self._parts()))} / {TIME.show(self.step_s)})", float(steps)),
                Step("growth within it", f"the most of {len(self.demand) - steps:,} instants", worst, "GPUs"),
                Step("slack, s", f"quantile of growth at {figure(1 - self.risk)}", slack, "GPUs"),
                Step("serving holds", f"mean of max({figure(self.floor)}, d(t - T) + {figure(slack)})", found.held,
                     "GPUs"),
                Step("taken back", "rises of that, an hour", found.risen, "GPUs/h"),
                Step("lost by stopping", f"{figure(found.risen)}/h x {TIME.show(self._each_lost())}", lost, "GPUs"),
                Step("training gains", f"{figure(peak)} - {figure(found.held)} - {figure(lost)}", gains, "GPUs"),
            ),
            (
                Result("training gains", gains, "GPUs"),
                Result("slack", slack, "GPUs"),
                Result("reclaim", sum(self._parts()), "s"),
                Result("time in which serving is short", found.short_share, "share"),
                Result("of the demand, what is not served", found.short / mean if mean else 0.0, "share"),
                Result("utilisation, lent", self._use(found, lost), "share"),
                Result("utilisation, separate", (mean + self.gpus - peak) / self.gpus, "share"),
                *((Result("training gains a month", gains * 730 * self.price),) if self.price is not None else ()),
            ),
            (self._designs(steps, slack, found), self._reclaims()),
            (self._chart(steps, slack),),
            (
                "The next weeks are not like the demand that was given: a launch grows faster than any day before.",
                "Growth is told to the controller without delay: if it acts on queues that have built up, add that "
                "delay to --notice.",
                "A reclaim that is shorter than a step counts as a step: give --demand in finer steps.",
                "Training cannot use single GPUs that come and go: gangs need whole nodes, so lend in nodes.",
                "Replicas share the store and registry when many start at once: the cold start is then longer.",
            ),
            tuple(self._todo(slack, found, gains)),
        )  # fmt: skip

    def _answer(self, slack: float, found: Lent, gains: float) -> str:
        short = f"serving is short in {SHARE.show(found.short_share)} of the time"
        if self._kept():
            return f"Nothing is lent: serving always keeps {figure(self.floor)} GPUs, and needs no more than that."
        if gains <= 0:
            return (
                f"Do not lend: training would have {figure(-gains)} GPUs less than beside a serving fleet of its own."
            )
        return (
            f"Keep a slack of {figure(slack)} GPUs: training gets {figure(gains)} GPUs more than beside a serving "
            f"fleet of its own, and {short}."
        )

    def _kept(self) -> bool:
        """Whether the floor alone covers the peak, so that nothing comes and goes."""
        return self.floor >= max(self.demand)

    def headline(self) -> float:
        """GPUs that training gains."""
        _, _, found = self._lent()
        return max(self.demand) - found.held - self._lost(found)

    def _parts(self) -> tuple[float, float, float, float]:
        return self.notice_s, self.save_s, self.node_s, self.cold_s

    def _lent(self) -> tuple[int, float, Lent]:
        if not self.demand:
            raise InputError("there is no demand", field="--demand", hint="GPUs that serving needs, step by step")
        if max(self.demand) > self.gpus:
            hint = f"serving's peak is {figure(max(self.demand))}"
            raise InputError(f"is {self.gpus:,}", field="--gpus", hint=hint)
        if self.floor > self.gpus:
            raise InputError(f"is {figure(self.floor)} GPUs", field="--floor", hint=f"the pool has {self.gpus:,}")
        steps = max(1, math.ceil(sum(self._parts()) / self.step_s))
        slack = slack_for(self.demand, steps, self.risk)
        return steps, slack, lend(self.demand, steps, slack, self.floor, self.step_s)

    def _each_lost(self) -> float:
        return self.restart_s + (0.0 if self.saved else self.interval_s / 2)

    def _lost(self, found: Lent) -> float:
        """GPUs whose work is lost, in the mean: all that training has, at most."""
        return min(found.risen * self._each_lost() / 3600, max(0.0, self.gpus - found.held))

    def _use(self, found: Lent, lost: float) -> float:
        mean = sum(self.demand) / len(self.demand)
        return (mean - found.short + self.gpus - found.held - lost) / self.gpus

    def _designs(self, steps: int, slack: float, found: Lent) -> Table:
        mean, peak = sum(self.demand) / len(self.demand), max(self.demand)
        none = lend(self.demand, steps, 0.0, self.floor, self.step_s)
        rows: list[tuple[float | str, ...]] = [
            (
                "separate, serving owns its peak",
                peak,
                self.gpus - peak,
                "0 %",
                SHARE.show((mean + self.gpus - peak) / self.gpus),
            )
        ]
        for name, each in ((f"lent, slack {figure(slack)}", found), ("lent, no slack", none)):
            lost = self._lost(each)
            rows.append((name, each.held, self.gpus - each.held - lost, SHARE.show(each.short_share),
                         SHARE.show(self._use(each, lost))))  # fmt: skip
        titles = ("design", "serving holds", "training has", "serving short", "utilisation")
        return Table("Designs", titles, tuple(rows))

    def _reclaims(self) -> Table:
        """What a faster or slower reclaim would mean."""
        now = sum(self._parts())
        rows: list[tuple[float | str, ...]] = []
        for time_s in sorted({60.0, 120.0, 300.0, 600.0, 1200.0, now}):
            steps = max(1, math.ceil(time_s / self.step_s))
            if steps >= len(self.demand):
                continue
            slack = slack_for(self.demand, steps, self.risk)
            found = lend(self.demand, steps, slack, self.floor, self.step_s)
            gains = max(self.demand) - found.held - self._lost(found)
            rows.append((TIME.show(time_s) + (" (now)" if time_s == now else ""), slack, gains,
                         SHARE.show(found.short_share)))  # fmt: skip
        return Table("By the time of reclaim", ("reclaim", "slack", "training gains", "serving short"), tuple(rows))

    def _chart(self, steps: int, slack: float) -> Chart:
        hours = [at * self.step_s / 3600 for at in range(len(self.demand))]
        thin = max(1, len(hours) // 300)
        demand = tuple((hours[at], self.demand[at]) for at in range(0, len(hours), thin))
        held = tuple(
            (hours[at], max(self.floor, self.demand[at - steps] + slack)) for at in range(steps, len(hours), thin)
        )
        peak = ((0.0, max(self.demand)), (hours[-1], max(self.demand)))
        return Chart("What serving needs and holds", "hours", "GPUs",
                     (Line("needs", demand), Line("holds", held), Line("alone", peak, dashed=True)))  # fmt: skip

    def _todo(self, slack: float, found: Lent, gains: float) -> list[str]:
        if self._kept():
            least = min(self.demand)
            return [f"Lower --floor: the least that serving needs is {figure(least)} GPUs." if least < self.floor
                    else "Give training the rest for good: serving's demand does not move."]  # fmt: skip
        if gains <= 0:
            return ["Do not lend: what comes back in time is less than what stopping costs.",
                    "Shorten the reclaim first: muster plan coldstart."]  # fmt: skip
        return [
            f"Scale serving to its demand and {figure(slack)} GPUs of replicas beyond it: that slack must be warm.",
            f"The serving queue's nominal quota: {figure(max(self.demand) + slack)} GPUs, so that it gets back what it "
            "lent when a replica asks. Headroom (reclaim_s, ramp_gpus_per_s) instead of warm replicas keeps GPUs free "
            f"but cold: each rise then waits for {TIME.show(self.cold_s)}.",
            "Lend to work that saves often and restarts fast; muster plan checkpoint.",
            "Shorten the cold start: each minute of reclaim costs slack (see the second table).",
            "Watch the share of time in which serving is short, not the utilisation alone.",
        ]
