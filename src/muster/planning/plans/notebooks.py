"""`muster plan notebooks`: GPUs for N users of notebooks, how they share them, when idle ones are taken away."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated

from msgspec import Struct

from muster.catalog.gpu import Gpu
from muster.catalog.mig import MigTable, mig_table
from muster.catalog.mig_layouts import room_for
from muster.catalog.names import find_gpu
from muster.catalog.notebooks import HUB_EVERY_S, HUB_IDLE_S, KUBEFLOW_IDLE_MIN, SOURCE
from muster.catalog.sources import SOURCES
from muster.errors import InputError
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.notebooks import Pauses, Policy, places, policy, weights_of
from muster.planning.quantities import BYTES, SHARE, TIME, counts, figure, numbers
from muster.planning.question import Ask, Question, Worked
from muster.planning.sharing import Shared, smallest_profile

TIMES = (600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0)
"""Idle times that are compared, in seconds."""
MOST_USERS = 100_000
_KEPT = 0.02


class Way(Struct, frozen=True):
    """A way in which notebooks have GPUs: how many of one GPU, and what chance an open one has to hold a place."""

    name: str
    per_gpu: int
    chance: float
    safe: str
    told: str


class Notebooks(Question, frozen=True, kw_only=True, dict=True):
    """Users of notebooks, their sessions, and one policy for all."""

    planner = "notebooks"
    asks = "How many GPUs do these notebook users need, how may they share them, and when is an idle one taken away?"

    users: Annotated[int, Ask("U", "users", counts("users", "100"), least=1, most=MOST_USERS, usual="10 to 5,000")] = (
        100
    )
    open: Annotated[float, Ask("o", "share of them with a notebook open at the busiest time", SHARE, above=True, most=1,
                               usual="20% to 80%")] = 0.5  # fmt: skip
    seen: Annotated[tuple[float, ...], Ask("N", "notebooks open, as seen at equal steps of time", counts("", "31"),
                                           most=MOST_USERS, usual="--from fills it")] = ()  # fmt: skip
    work_s: Annotated[
        float, Ask("w", "from a session's first cell to its last", TIME, above=True, usual="30m to 8h", option="worked")
    ] = 10_800.0
    tail_s: Annotated[
        float, Ask("t", "for which it then stays open, in the mean", TIME, usual="0 to 3d", option="tail")
    ] = 14_400.0
    active: Annotated[
        float, Ask("a", "share of the work in which a cell runs", SHARE, above=True, most=0.999, usual="5% to 60%")
    ] = 0.2
    pause_s: Annotated[
        float, Ask("g", "median pause between cells", TIME, above=True, usual="30s to 10m", option="pause")
    ] = 120.0
    spread: Annotated[
        float,
        Ask("s", "shape of the pauses (standard deviation of their logarithm)", numbers("", "1.2"), least=0.1, most=4,
            usual="0.8 to 2"),
    ] = 1.2  # fmt: skip
    pauses: Annotated[tuple[float, ...], Ask("P", "pauses as measured", TIME, usual="--cells fills it")] = ()
    idle_s: Annotated[
        float,
        Ask("T", "idle time after which the GPU is taken", TIME, above=True, usual="20m to 8h", option="idle",
            source=str(SOURCES[SOURCE])),
    ] = HUB_IDLE_S  # fmt: skip
    never: Annotated[bool, Ask("", "take no idle GPU away")] = False
    stop_cost: Annotated[
        float, Ask("c", "what a false stop costs", numbers("GPU-hours", "2"), usual="0.5 to 10")
    ] = 2.0  # fmt: skip
    gpu: Annotated[str, Ask("G", "GPU model")] = "H100"
    memory_bytes: Annotated[
        float, Ask("m", "GPU memory of a notebook", BYTES, above=True, usual="4GB to 80GB", option="memory")
    ] = 16e9
    trusted: Annotated[bool, Ask("", "users trust each other: no wall between their memory is needed")] = False
    missed: Annotated[
        float, Ask("e", "share of the busy time in which someone may find none", SHARE, least=1e-6, most=0.5,
                   usual="0.1% to 5%")
    ] = 0.01  # fmt: skip

    def headline(self) -> float:
        """GPUs, shared in the best way that is safe."""
        return float(self._gpus(self._best))

    def work(self) -> Worked:
        """See `muster.planning.notebooks`."""
        best, now, weights = self._best, self._policy, self._weights
        gpus, whole = self._gpus(best), self._places(1.0)
        held = self._mean_open * now.held
        after = "no idle one is taken" if self.never else f"idle ones are taken after {TIME.show(self.idle_s)}"
        stops = f"{SHARE.show(now.met)} of sessions lose their GPU while their user comes back"
        cheapest = self._cheapest()
        return Worked(
            f"{self.users:,} users need {gpus:,} GPU{'s' if gpus != 1 else ''} ({best.name}, {best.per_gpu} a GPU) if "
            f"{after}; {stops}. A whole GPU for each open notebook would take {whole:,}.",
            (
                "n = w (1 - a) / E P;  false stops k = n P(P > T);  sessions that meet one 1 - e^-k",
                "held f = (w - n E(P - T)+ + t (1 - e^(-T/t))) / (w + t);  works r = a w / (w + t)",
                "places: least k with P(Binomial(U, o f) > k) <= e;  GPUs = places / places of a GPU",
                "seen: the mean over N, each weighted by N, of P(Binomial(N, f) > k) in its place",
            ),
            "binomial overlap; lognormal partial expectation; muster.planning.notebooks",
            tuple(self._steps(best, now)),
            (
                Result("GPUs", float(gpus), "GPUs"),
                Result("users a GPU", self.users / gpus),
                Result("sessions that meet a false stop", now.met, "share"),
                Result("GPU time held idle, of a session", now.idle_s, "s"),
                Result("cheapest idle time", cheapest, "s"),
                Result("places in use in the mean of that time", held),
                Result("GPUs that may be lent in that mean", max(0.0, gpus - math.ceil(held / best.per_gpu))),
                *((Result("most open that were seen", max(self.seen)),) if self.seen else ()),
            ),
            (self._way_table(), self._idle_table(cheapest), *self._overlap_table(best)),
            (self._chart(best),),
            (
                "Users come together (nine o'clock, a course, a deadline): --open must be of the busiest hour, not of "
                "the day; --from takes what was seen, with its peaks.",
                "Idle is judged by HTTP activity or kernel state alone: an open tab is never idle, a busy "
                "kernel may be culled. Ask kernel state, GPU activity (DCGM_FI_PROF_GR_ENGINE_ACTIVE) and its memory.",
                "A long cell that waits for data counts as work here; it holds a GPU that does nothing "
                "(muster plan utilization).",
                "f is the mean over a session. In the morning more of those that are open are at work, and hold "
                "more; at night more are tails.",
                "People stop by the clock: a long pause at the end then ends the session, and nobody comes back; "
                "false stops are then fewer than told, about half as many at an hour in the example.",
                "Pauses are taken as alike for all users; few heavy ones may meet most of the false stops.",
                "Time-slicing walls nothing off: one notebook's memory error or leak stops the others.",
            ),
            tuple(self._todo(best, now, cheapest, weights)),
        )  # fmt: skip

    @cached_property
    def _model(self) -> Gpu:
        try:
            found = find_gpu(self.gpu)
        except InputError as error:
            raise InputError(error.what, field="--gpu", hint=error.hint) from None
        if not found.memory_bytes:
            raise InputError(f"no memory is known of {found.name}", field="--gpu", hint="muster catalog gpus")
        if self.memory_bytes > found.memory_bytes:
            what = f"is {BYTES.show(self.memory_bytes)}; a {found.name} has {BYTES.show(found.memory_bytes)}"
            raise InputError(what, field="--memory", hint="a larger --gpu; notebooks on several GPUs are gangs")
        return found

    @cached_property
    def _table(self) -> MigTable | None:
        try:
            return mig_table(self._model)
        except InputError:
            return None

    @cached_property
    def _pauses(self) -> Pauses:
        return Pauses(self.pause_s, self.spread, tuple(sorted(self.pauses)))

    def _after(self, idle_s: float | None) -> Policy:
        return policy(self.work_s, self.active, self.tail_s, self._pauses, idle_s)

    @cached_property
    def _policy(self) -> Policy:
        return self._after(None if self.never else self.idle_s)

    @cached_property
    def _works(self) -> float:
        """Share of its open time in which a session's cell runs."""
        return self.active * self.work_s / (self.work_s + self.tail_s)

    @cached_property
    def _weights(self) -> dict[int, float]:
        """Numbers open and their weights, where they were seen; else all users, each open with chance o."""
        return weights_of(self.seen) if self.seen else {self.users: 1.0}

    @property
    def _mean_open(self) -> float:
        return math.fsum(self.seen) / len(self.seen) if self.seen else self.users * self.open

    def _places(self, chance: float) -> int:
        """Places for open notebooks that each hold one with a chance; at least one."""
        return max(1, places(self._weights, chance if self.seen else chance * self.open, self.missed))

    @cached_property
    def _ways(self) -> tuple[Way, ...]:
        """All ways, from the most to the least that a notebook holds."""
        f = self._policy.held
        found = [Way("whole GPU, never taken", 1, 1.0, "yes", ""), Way("whole GPU", 1, f, "yes", "")]
        table = self._table
        profile = smallest_profile(table, Shared("notebook", self.memory_bytes, 0.0)) if table else None
        if table and profile:
            room = room_for(self._model, (), profile.name)
            told = f"{profile.compute_slices}/{table.compute_slices} of the compute"
            found.append(Way(f"MIG {profile.name}", room, f, "yes", told))
        fits = math.floor((self._model.memory_bytes or 0) * (1 - _KEPT) / self.memory_bytes)
        if fits > 1:
            slower = 1 + (fits - 1) * min(1.0, self._works / f) if f else 1.0
            found.append(Way("time-slicing", fits, f, "no", f"cells run {figure(slower)} times as long"))
        found.append(Way("while a cell runs", 1, self._works, "yes", "state moves for each cell"))
        return tuple(found)

    def _gpus(self, way: Way) -> int:
        return math.ceil(self._places(way.chance) / way.per_gpu)

    @cached_property
    def _best(self) -> Way:
        """The fewest GPUs of what is safe and needs no other notebook server."""
        allowed = [each for each in self._ways[1:-1] if each.safe == "yes" or self.trusted]
        return min(allowed, key=self._gpus)

    def _cost(self, found: Policy) -> float:
        """GPU-hours of a session: held idle, and for false stops."""
        return found.idle_s / 3600 / self._best.per_gpu + self.stop_cost * found.stops

    def _cheapest(self) -> float:
        return min(TIMES, key=lambda each: self._cost(self._after(each)))

    def _steps(self, best: Way, now: Policy) -> list[Step]:
        pauses, work, tail, after = self._pauses, self.work_s, self.tail_s, self.idle_s
        count = work * (1 - self.active) / pauses.mean_s if pauses.mean_s else 0.0
        number = f"{TIME.show(work)} x {figure(1 - self.active)} / {TIME.show(pauses.mean_s)}"
        said = (
            "the mean of those measured"
            if pauses.seen
            else f"{TIME.show(self.pause_s)} x e^({figure(self.spread)}^2/2)"
        )
        steps = [
            Step("mean pause, E P", said, pauses.mean_s, "s"),
            Step("pauses of a session, n", number, count),
        ]  # fmt: skip
        if not self.never:
            longer, beyond = pauses.longer(after), pauses.beyond_s(after)
            z = (
                "counted"
                if pauses.seen
                else f"F(-ln({figure(after)} / {figure(self.pause_s)}) / {figure(self.spread)})"
            )
            kept = tail * -math.expm1(-after / tail) if tail else 0.0
            steps += [
                Step("pauses longer than T", z, longer, "share"),
                Step("false stops of a session, k", f"{figure(count)} x {figure(longer)}", now.stops),
                Step("tail with its GPU", f"{TIME.show(tail)} x (1 - e^(-{figure(after)}/{figure(tail)}))", kept, "s"),
                Step("pauses without it", f"{figure(count)} x {TIME.show(beyond)}", count * beyond, "s"),
            ]
        steps.append(
            Step("held of its open time, f", "(work - pauses without + tail with) / (work + tail)", now.held, "share")
        )
        chance = now.held if self.seen else now.held * self.open
        told = f"Binomial(N, {figure(chance)})" if self.seen else f"Binomial({self.users:,}, {figure(chance)})"
        need = self._places(best.chance)
        steps += [
            Step("places", f"least k with P({told} > k) <= {figure(self.missed)}", float(need), "places"),
            Step("GPUs", f"{need:,} / {best.per_gpu}, rounded up", float(self._gpus(best)), "GPUs"),
        ]
        return steps

    def _way_table(self) -> Table:
        rows: list[tuple[float | str, ...]] = []
        for way in self._ways:
            gpus = self._gpus(way)
            rows.append((way.name, SHARE.show(way.chance), self._places(way.chance), way.per_gpu, gpus,
                         self.users / gpus, way.safe, way.told))  # fmt: skip
        titles = ("a notebook has", "of open time", "places", "a GPU", "GPUs", "users a GPU", "walled", "its cells")
        return Table("Ways to share", titles, tuple(rows))

    def _idle_table(self, cheapest: float) -> Table:
        rows: list[tuple[float | str, ...]] = []
        for after in (*TIMES, None):
            found = self._after(after)
            mark = "cheapest" if after == cheapest else ""
            rows.append((
                TIME.show(after) if after else "never", SHARE.show(found.met), TIME.show(found.idle_s),
                math.ceil(self._places(found.held) / self._best.per_gpu), self._cost(found), mark,
            ))  # fmt: skip
        titles = ("taken after idle", "sessions stopped falsely", "held idle", "GPUs", "GPU-hours a session", "")
        return Table("When an idle GPU is taken", titles, tuple(rows))

    def _overlap_table(self, best: Way) -> tuple[Table, ...]:
        """With what was seen: how far the binomial is from it."""
        if not self.seen:
            return ()
        mean = min(1.0, self._mean_open / self.users)
        rows = [
            ("as seen", places(self._weights, 1.0, self.missed), self._gpus(best)),
            *((name, places({self.users: 1.0}, chance, self.missed),
               math.ceil(max(1, places({self.users: 1.0}, chance * best.chance, self.missed)) / best.per_gpu))
              for name, chance in (("binomial of the busiest hour", self.open), ("binomial of the mean", mean))),
            ("all at once", self.users, math.ceil(self.users / best.per_gpu)),
        ]  # fmt: skip
        return (Table("How users overlap", ("counted", "open", "GPUs"), tuple(rows)),)

    def _chart(self, best: Way) -> Chart:
        """GPUs by the number of users, which makes the gain of a larger pool visible."""
        grid = sorted({max(1, round(self.users * at / 8)) for at in range(1, 17)})
        lines: list[Line] = []
        for way in self._ways:
            points = [
                (
                    float(each),
                    float(math.ceil(max(1, places({each: 1.0}, way.chance * self.open, self.missed)) / way.per_gpu)),
                )
                for each in grid
            ]
            lines.append(Line(way.name, tuple(points), dashed=way.name != best.name))
        return Chart("GPUs by users", "users", "GPUs", tuple(lines))

    def _todo(self, best: Way, now: Policy, cheapest: float, weights: dict[int, float]) -> list[str]:
        told: list[str] = []
        if self.never or not math.isclose(cheapest, self.idle_s):
            price = f"{figure(self.stop_cost)} GPU-hours a false stop"
            told.append(f"Take idle GPUs after {TIME.show(cheapest)}: that costs least at {price}.")
        hub = f"cull.timeout {cheapest:.0f}, cull.every {HUB_EVERY_S:.0f}"
        kubeflow = f"ENABLE_CULLING true, CULL_IDLE_TIME {cheapest / 60:.0f}"
        off = f"(minutes; it is {KUBEFLOW_IDLE_MIN}, and off, by default)"
        told.append(f"zero-to-jupyterhub: {hub}; Kubeflow: {kubeflow} {off}.")
        if best.name.startswith("MIG"):
            resource = f"nvidia.com/{best.name.lower().replace(' ', '-')}"
            told.append(
                f"A user's limit: one {resource}. The queue's nominal quota: {self._places(best.chance):,} of them, "
                "lent to batch work that saves its state."
            )
        else:
            count = self._gpus(best)
            quota = f"{count:,} GPU{'s' if count != 1 else ''}"
            told.append(f"A user's limit: one GPU. The queue's nominal quota: {quota}, lent to batch work.")
        spare = places(weights, best.chance if self.seen else best.chance * self.open, max(1e-6, self.missed / 10))
        more = math.ceil(spare / best.per_gpu) - self._gpus(best)
        if more > 0:
            what = f"{more} more GPU{'s make' if more > 1 else ' makes'} it {SHARE.show(self.missed / 10)}"
            told.append(f"{what} of the time in which someone finds none: let the queue borrow them.")
        return told
