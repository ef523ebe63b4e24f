"""`muster plan reserved`: how much to commit to, for how long, and what is cheapest above it."""

from __future__ import annotations

import math
from typing import Annotated

from muster.errors import InputError
from muster.planning.demand import best_commitment, block_cost, hourly_cost, long_commitment, quantile, used_share
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.quantities import MONEY, NUMBER, SHARE, counts, figure, numbers
from muster.planning.question import Ask, Question, Worked

_GPUS = numbers("GPUs", "400")
_RATIO = "published discounts: 1 year 35 to 40 %, 3 years 35 to 72 % (2026)"
USABLE = 47 / 48
"""Part of a day's capacity block that can be used: its instances are taken 30 minutes before its end."""


def usual_week() -> tuple[float, ...]:
    """An example: 300 GPUs always, up to 400 more by day on weekdays, 100 at weekends."""
    found: list[float] = []
    for hour in range(168):
        day, clock = divmod(hour, 24)
        wave = max(0.0, math.sin(math.pi * (clock - 7) / 14)) if 7 <= clock <= 21 else 0.0
        found.append(round(300 + (400 if day < 5 else 100) * wave))
    return tuple(found)


class Reserved(Question, frozen=True, kw_only=True):
    """Demand hour by hour, and prices as parts of the on-demand price."""

    planner = "reserved"
    asks = "How many GPUs should be committed to, for how long, and how should the rest be bought?"

    demand: Annotated[
        tuple[float, ...], Ask("D", "GPUs in use, hour by hour", _GPUS, usual="a week of hours or more")
    ] = usual_week()  # fmt: skip
    short: Annotated[
        float, Ask("c1", "price of a 1-year commitment, of on-demand", SHARE, above=True, most=1, usual="60% to 80%",
                   source=_RATIO)
    ] = 0.625  # fmt: skip
    long: Annotated[
        float | None, Ask("c3", "price of the long commitment, of on-demand", SHARE, above=True, most=1,
                          usual="28% to 65%", source=_RATIO)
    ] = 0.44  # fmt: skip
    years: Annotated[int, Ask("Y", "years of the long commitment", counts("years", "3"), least=2, most=10, usual="3",
                              vary=())] = 3  # fmt: skip
    growth: Annotated[
        float, Ask("g", "growth of demand a year, median", NUMBER, least=-0.9, most=10, usual="-0.2 to 1", vary=())
    ] = 0.0  # fmt: skip
    sigma: Annotated[
        float, Ask("v", "uncertainty of a year, of its logarithm", NUMBER, usual="0.1 to 0.6", most=3)
    ] = 0.3  # fmt: skip
    block: Annotated[
        float | None, Ask("cb", "price of blocks, of on-demand", SHARE, above=True, most=1, usual="40% to 75%",
                          source="AWS p5 block of January 2025 against on-demand of June")
    ] = 0.72  # fmt: skip
    spot: Annotated[
        float | None, Ask("cs", "price of spot, of on-demand, by useful hour", SHARE, above=True, most=1.5,
                          usual="30% to 70%; muster plan spot tells yours")
    ] = None  # fmt: skip
    flexible: Annotated[
        float, Ask("f", "share above that may move to spot", SHARE, most=1, usual="0% to 60%", vary=())
    ] = 0.0  # fmt: skip
    price: Annotated[
        float | None, Ask("p", "on-demand price of a GPU-hour", MONEY, usual="1 to 12", most=1e5, vary=())
    ] = None

    def work(self) -> Worked:
        """See `muster.planning.demand`."""
        demand = sorted(self.demand)
        low, high = self._commitments(demand)
        base = sum(demand) / len(demand)
        cost = self._cost(demand, low, high)
        if not base:
            raise InputError("is 0 in every hour", field="--demand", hint="GPUs in use, hour by hour")
        median = hourly_cost(demand, quantile(demand, 0.5), self.short, 1.0)
        saved = 1 - cost / base
        terms = (
            f"{figure(low)} for {self.years} years and {figure(high - low)} for one"
            if low
            else f"{figure(high)} for a year"
        )
        return Worked(
            f"Commit to {terms}, of a mean of {figure(base)} and a peak of {figure(demand[-1])} GPUs: "
            f"{100 * saved:.0f} % less than on-demand alone.",
            (
                "R1 = F^-1(1 - c1)                               F: share of hours with demand at most so high",
                "R3: the highest x with Y c3 < sum over years y of E[min(c1, 1 - F(x / s))]",
                "    s = (1 + g)^y e^(v sqrt(y) Z), how demand has moved by then",
                "cost = c3 R3 + c1 (R1 - R3) + cheapest of on-demand, blocks and spot above R1",
            ),
            "newsvendor (Arrow, Harris, Marschak 1951); muster.planning.demand",
            tuple(self._steps(demand, low, high, base, cost)),
            (
                Result("commit to, in all", high, "GPUs"),
                Result(f"of them for {self.years} years", low, "GPUs"),
                Result("saved against on-demand alone", saved, "share"),
                Result("the median rule (commit to the median for a year) costs more by", median / cost - 1, "share"),
                Result("hours in which all that is committed is used", used_share(demand, high - 1e-9), "share"),
                *self._money(base, cost),
            ),
            (self._above_table(demand, low, high), self._regret_table(demand, low, high)),
            (self._chart(demand, low, high),),
            (
                "Demand is what was used: where a queue was long, what was wanted is higher (muster queue).",
                "Idle committed GPUs cost nothing more: if preemptible work fills them, commit to more.",
                "On-demand and spot may not be there when they are wanted; commitments are also a claim to capacity.",
                "Prices fall: a long commitment at today's price is dear when the next model comes.",
                "Blocks are chosen here with the next day known; the real gain is smaller.",
            ),
            tuple(self._todo(demand, low, high)),
        )  # fmt: skip

    def headline(self) -> float:
        """GPUs to commit to."""
        return self._commitments(sorted(self.demand))[1]

    def _commitments(self, demand: list[float]) -> tuple[float, float]:
        """GPUs for years, and all that are committed."""
        if not demand:
            raise InputError("there is no demand", field="--demand", hint="GPUs in use, hour by hour")
        one = best_commitment(demand, self.short, 1.0)
        if self.long is None:
            return 0.0, one
        low = long_commitment(demand, self.long, self.years, self.short, 1.0, self.growth, self.sigma)
        return low, max(low, one)

    def _above(self, demand: list[float], high: float) -> dict[str, float]:
        """Mean cost an hour of what is above the commitments, by how it is bought; in on-demand GPU-hours."""
        rest = hourly_cost(demand, high, 0.0, 1.0)
        found = {"on-demand": rest}
        if self.block is not None and len(self.demand) >= 24:
            found["blocks by the day, on-demand above"] = block_cost(self.demand, high, self.block, USABLE, 1.0)
        if self.spot is not None and self.flexible:
            found[f"spot for {SHARE.show(self.flexible)}, on-demand"] = rest * (
                self.flexible * self.spot + 1 - self.flexible
            )
        return found

    def _cost(self, demand: list[float], low: float, high: float) -> float:
        return (self.long or 0.0) * low + self.short * (high - low) + min(self._above(demand, high).values())

    def _money(self, base: float, cost: float) -> tuple[Result, ...]:
        if self.price is None:
            return ()
        year = 8766 * self.price
        return (Result("a year, on-demand alone", base * year), Result("a year, so committed", cost * year))

    def _steps(self, demand: list[float], low: float, high: float, base: float, cost: float) -> list[Step]:
        one = best_commitment(demand, self.short, 1.0)
        rest = hourly_cost(demand, high, 0.0, 1.0)
        steps = [
            Step("mean demand", f"of {len(demand):,} hours", base, "GPUs"),
            Step(
                "one year: quantile", f"1 - {figure(self.short)} = {figure(1 - self.short)} of the hours", one, "GPUs"
            ),
        ]
        if self.long is not None:
            margin = f"{self.years} x {figure(self.long)} = {figure(self.years * self.long)}"
            steps.append(
                Step(f"{self.years} years: highest slice worth it", f"{margin} < what waiting costs", low, "GPUs")
            )
        steps += [
            Step("above all commitments", f"mean of (demand - {figure(high)}), where positive", rest, "GPUs"),
            Step("cost an hour",
                 f"{figure(self.long or 0)} x {figure(low)} + {figure(self.short)} x {figure(high - low)} + "
                 f"{figure(min(self._above(demand, high).values()))}", cost, "on-demand GPU-hours"),
        ]  # fmt: skip
        return steps

    def _above_table(self, demand: list[float], low: float, high: float) -> Table:
        first = hourly_cost(demand, high, 0.0, 1.0)
        rows = [
            (name, cost, SHARE.show(cost / first) if first else "-") for name, cost in self._above(demand, high).items()
        ]
        titles = ("bought as", "on-demand GPU-hours an hour", "of on-demand")
        return Table("Above the commitments", titles, tuple(rows))

    def _regret_table(self, demand: list[float], low: float, high: float) -> Table:
        """What this plan costs, and what the best one would have, if demand moves right after."""
        rows: list[tuple[float | str, ...]] = []
        for factor in (0.5, 0.7, 0.85, 1.0, 1.15, 1.3, 1.6):
            moved = [each * factor for each in demand]
            keeps = (self.long or 0.0) * low + self.short * (high - low) + hourly_cost(moved, high, 0.0, 1.0)
            least = min(self.short, self.long or 1.0)
            best = hourly_cost(moved, best_commitment(moved, least, 1.0), least, 1.0)
            rows.append((f"x {factor:g}", keeps, best, SHARE.show(keeps / best - 1) if best else "-"))
        titles = ("demand moves", "this plan an hour", "best in hindsight", "regret")
        return Table("If demand moves after the signature", titles, tuple(rows))

    def _chart(self, demand: list[float], low: float, high: float) -> Chart:
        hours = len(demand)
        falling = demand[::-1]
        step = max(1, hours // 200)
        points = tuple((100 * at / hours, falling[at]) for at in range(0, hours, step))
        lines = [Line("demand", points), Line("committed", ((0.0, high), (100.0, high)), dashed=True)]
        if low:
            lines.append(Line(f"{self.years} years", ((0.0, low), (100.0, low)), dashed=True))
        return Chart("Demand duration curve", "share of the hours, %", "GPUs", tuple(lines))

    def _todo(self, demand: list[float], low: float, high: float) -> list[str]:
        told = [
            f"Run preemptible work on what is committed and idle: {figure(self._idle(demand, high))} GPUs in the mean."
        ]
        above = self._above(demand, high)
        cheapest = min(above, key=above.__getitem__)
        if cheapest != "on-demand":
            told.append(f"Above the commitments: {cheapest}.")
        if self.sigma >= 0.2 and self.long is not None:
            told.append(
                "Commit to the long term in steps, a third a year: what it is worth falls fast with uncertainty."
            )
        if len(demand) < 24 * 28:
            told.append("Take the demand of months, not of a week: --from a trace or accounting.")
        return told

    def _idle(self, demand: list[float], high: float) -> float:
        return sum(max(0.0, high - each) for each in demand) / len(demand)
