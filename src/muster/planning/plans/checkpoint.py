"""`muster plan checkpoint`: how often to save, the goodput and ETTR that are left, the storage that it needs."""

from __future__ import annotations

from typing import Annotated

from muster.catalog.reliability import FAILURE_RATES
from muster.catalog.sources import SOURCES
from muster.errors import InputError
from muster.planning.checkpoints import (
    background_efficiency,
    background_interval_s,
    best_interval_s,
    daly_s,
    efficiency,
    young_s,
)
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.quantities import BYTES, RATE, SHARE, TIME, counts, figure, numbers
from muster.planning.question import Ask, Question, Worked

DAY_S = 86400.0
_RATE = FAILURE_RATES[0]
_BLOOM = "BLOOM: 2.3 TB in 40 s (S. Bekman, Machine Learning Engineering, read 2026-11-30)"
_DOUBT = " That is hardly any: is the unit of --mttf right? A plain number is seconds."
_SIZES = (8, 32, 128, 512, 2048)


class Checkpoint(Question, frozen=True, kw_only=True):
    """A job of some nodes that saves its state; times in seconds."""

    planner = "checkpoint"
    asks = "How often should the job save, and how much of its time becomes work that lasts?"

    nodes: Annotated[int, Ask("N", "nodes of the job", counts("nodes", "128"), least=1, usual="1 to 2,000")] = 128
    rate: Annotated[
        float,
        Ask(
            "r", "failures of each 1,000 nodes in a day", numbers("/1,000 node-days", "6.5"), above=True,
            usual="2 to 15", source=f"{_RATE.cluster} ({SOURCES[_RATE.source]})",
        ),
    ] = _RATE.per_1000_node_days  # fmt: skip
    worse: Annotated[
        float,
        Ask(
            "w", "how many times more often the whole job stops than its nodes fail", numbers("times", "1"), above=True,
            usual="1 to 4; Meta saw 3.6 at 1,024 GPUs", source="nodes alone",
        ),
    ] = 1.0  # fmt: skip
    mttf_s: Annotated[
        float | None,
        Ask("M", "mean time between failures of the job, if it is known", TIME, above=True, usual="15m to 30d"),
    ] = None
    checkpoint_bytes: Annotated[
        float, Ask("S", "size of a checkpoint", BYTES, usual="16GB to 30TB", source=_BLOOM, option="size")
    ] = 2.3e12
    write: Annotated[float, Ask("B", "rate of writing it", RATE, above=True, usual="1GB/s to 2TB/s", source=_BLOOM)] = (
        57.5e9
    )
    save_s: Annotated[
        float | None, Ask("C", "time to save, if it is known", TIME, usual="5s to 10m", above=True)
    ] = None  # fmt: skip
    stall_s: Annotated[
        float | None,
        Ask("s", "time for which work stops while it saves in the background", TIME, usual="0.1s to 30s", above=True),
    ] = None
    restart_s: Annotated[
        float,
        Ask(
            "R",
            "detect, replace, restart and load",
            TIME,
            usual="2m to 20m",
            source="targets of published systems, 2 to 10 min",
        ),
    ] = 300.0
    interval_s: Annotated[
        float | None, Ask("t0", "the interval that is used today", TIME, usual="10m to 4h", above=True)
    ] = None  # fmt: skip

    def work(self) -> Worked:
        """See `muster.planning.checkpoints` for the forms."""
        mttf, save = self._mttf_s(), self._save_s()
        if self.stall_s is not None and self.stall_s > save:
            hint = f"a save takes {TIME.show(save)}; the stall is a part of it"
            raise InputError(f"is {TIME.show(self.stall_s)}", field="--stall", hint=hint)
        best, share = self._best(mttf, save)
        results = [
            Result("save every", best, "s"),
            Result("time that becomes work that lasts (ETTR)", share, "share"),
            Result("GPU-hours of every 100 lost to failures and saving", 100 * (1 - share)),
            Result("bandwidth that saving needs", self.checkpoint_bytes / save, "B/s"),
            Result("state written a day", self.checkpoint_bytes * DAY_S / (best + save), "B"),
        ]
        todo = [
            f"Set the job's checkpoint interval to {TIME.show(best)}; anything from half to double of it costs little.",
            *self._advice(mttf, save, share),
        ]
        if self.interval_s is not None:
            now = self._share(self.interval_s, mttf, save)
            results.append(Result(f"the same with today's {TIME.show(self.interval_s)}", now, "share"))
        return Worked(
            f"Save every {TIME.show(best)}: then {100 * share:.1f} % of the time becomes work that lasts, with a "
            f"failure every {TIME.show(mttf)}.{_DOUBT if share < 0.2 else ''}",
            self._formula(), "Young 1974; Daly 2006; the exact form by Lambert's W; muster.planning.checkpoints",
            tuple(self._steps(mttf, save, best, share)), tuple(results), (self._sizes(save),),
            (self._chart(mttf, save, best),),
            (
                "Failures come in bursts (a bad rack, a bad switch): the real mean is then over few long gaps, and "
                "saving more often buys less than told.",
                "The interval is near M: first order forms are off; the exact one holds while failures are "
                "independent.",
                "A save that is not complete counts as none; a store that slows down when all ranks write makes C grow "
                "with N.",
            ),
            tuple(todo),
        )  # fmt: skip

    def headline(self) -> float:
        """The interval alone."""
        return self._best(self._mttf_s(), self._save_s())[0]

    def _mttf_s(self) -> float:
        if self.mttf_s is not None:
            return self.mttf_s
        return DAY_S * 1000 / (self.nodes * self.rate * self.worse)

    def _save_s(self) -> float:
        return self.checkpoint_bytes / self.write if self.save_s is None else self.save_s

    def _best(self, mttf: float, save: float) -> tuple[float, float]:
        best = best_interval_s(save, mttf) if self.stall_s is None else background_interval_s(self.stall_s, save, mttf)
        return best, self._share(best, mttf, save)

    def _share(self, interval: float, mttf: float, save: float) -> float:
        if self.stall_s is None:
            return efficiency(interval, save, mttf, self.restart_s)
        return background_efficiency(interval, self.stall_s, save, mttf, self.restart_s)

    def _formula(self) -> tuple[str, ...]:
        first = ("M = 86,400 x 1,000 / (N r w)", "C = S / B")
        if self.stall_s is not None:
            return (*first, "t = max(C - s, sqrt(2 s M) - s)", "ETTR = 1 - s/(t + s) - ((t + s)/2 + (C - s) + R)/M")
        return (
            *first, "t = M (1 + W(-e^(-C/M - 1)))        near sqrt(2 C M) where C is far below M",
            "ETTR = t / (M e^(R/M) (e^((t + C)/M) - 1))",
        )  # fmt: skip

    def _steps(self, mttf: float, save: float, best: float, share: float) -> list[Step]:
        steps: list[Step] = []
        if self.mttf_s is None:
            worked = f"86,400 x 1,000 / ({self.nodes:,} x {figure(self.rate)} x {figure(self.worse)})"
            steps.append(Step("mean time between failures of the job, M", worked, mttf, "s"))
        if self.save_s is None:
            worked = f"{BYTES.show(self.checkpoint_bytes)} / {RATE.show(self.write)}"
            steps.append(Step("time to save, C", worked, save, "s"))
        m, c, r, t = (figure(each) for each in (mttf, save, self.restart_s, best))
        if self.stall_s is not None:
            s = figure(self.stall_s)
            return [
                *steps, Step("interval of least waste, t", f"max({c} - {s}, sqrt(2 x {s} x {m}) - {s})", best, "s"),
                Step("ETTR", f"1 - {s}/({t} + {s}) - (({t} + {s})/2 + ({c} - {s}) + {r})/{m}", share, "share"),
            ]  # fmt: skip
        return [
            *steps,
            Step("Young's interval", f"sqrt(2 x {c} x {m})", young_s(save, mttf), "s"),
            Step("Daly's interval", f"Young's x (1 + x/3 + x^2/9) - {c}, x = sqrt({c} / (2 x {m}))",
                 daly_s(save, mttf), "s"),
            Step("exact interval, t", f"{m} x (1 + W(-e^(-{c}/{m} - 1)))", best, "s"),
            Step("ETTR", f"{t} / ({m} x e^({r}/{m}) x (e^(({t} + {c})/{m}) - 1))", share, "share"),
        ]  # fmt: skip

    def _sizes(self, save: float) -> Table:
        rows: list[tuple[float | str, ...]] = []
        for nodes in sorted({*_SIZES, self.nodes}):
            mttf = self._mttf_s() * self.nodes / nodes
            best, share = self._best(mttf, save)
            rows.append((nodes, TIME.show(mttf), TIME.show(best), f"{100 * share:.1f} %"))
        title = "The same checkpoint in jobs of other sizes"
        return Table(title, ("nodes", "fails every", "save every", "ETTR"), tuple(rows))

    def _chart(self, mttf: float, save: float, best: float) -> Chart:
        longest = max(4 * best, 3 * (self.interval_s or 0.0))
        grid = [longest * (at + 1) / 80 for at in range(80)]
        points = tuple((at / 60, 100 * self._share(at, mttf, save)) for at in grid)
        marks = [Line("best", ((best / 60, 100 * self._share(best, mttf, save)),))]
        if self.interval_s is not None:
            marks.append(Line("today", ((self.interval_s / 60, 100 * self._share(self.interval_s, mttf, save)),)))
        return Chart(
            "Time that becomes work that lasts, by the interval between saves", "minutes between saves", "ETTR, %",
            (Line("", points), *marks),
        )  # fmt: skip

    def _advice(self, mttf: float, save: float, share: float) -> list[str]:
        told: list[str] = []
        if self.stall_s is None:
            stall = min(5.0, save)
            other = background_interval_s(stall, save, mttf)
            gain = background_efficiency(other, stall, save, mttf, self.restart_s) - share
            if gain > 0.001:
                told.append(
                    f"Saving in the background with a stall of {TIME.show(stall)} would give {100 * gain:.1f} points "
                    "more: muster plan checkpoint --stall 5s."
                )
        lost = self.restart_s / (mttf + self.restart_s)
        if lost > 0.005:
            told.append(
                f"Restarting alone costs {SHARE.show(lost)} of the time: a warm spare shortens R (muster plan spares)."
            )
        return told
