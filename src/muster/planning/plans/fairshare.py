"""`muster plan fairshare`: shares by hand, pooling against static quotas, and signs of gaming in accounting."""

from __future__ import annotations

import math
from typing import Annotated

from msgspec import Struct

from muster.errors import InputError
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.quantities import NUMBER, PER_HOUR, TIME, figure
from muster.planning.question import Ask, Question, Worked
from muster.planning.queueing import mean_wait, servers_for_wait
from muster.planning.rows import read_row
from muster.planning.shares import Entity, Share, decayed, shares_of

_SLURM = "the example of Slurm's documentation (classic fair share)"
_QUEUE = "NAME:shares=40,parent=A,usage=GPU-HOURS"
_TEAM = "NAME:gpus=8,jobs=3/h,time=2h,quota=64"
PATTERNS = (
    "asks for more than it uses",
    "holds GPUs that do nothing",
    "splits jobs",
    "inflates priority",
    "placeholders",
)
"""The five ways in which quotas are gamed; docs/reference/queues.md says what stops each."""


class Team(Struct, frozen=True):
    """Demand of a team: jobs of some GPUs at a rate, each for a time; and the GPUs that are its own."""

    name: str
    gpus: float
    per_hour: float
    time_s: float
    quota: float

    @property
    def load(self) -> float:
        """GPUs in use in the mean."""
        return self.gpus * self.per_hour * self.time_s / 3600


class Fairshare(Question, frozen=True, kw_only=True):
    """A tree of queues with usage, and teams with demand."""

    planner = "fairshare"
    asks = "Who is next by fair share, what would pooling save, and does anybody game the quota?"

    queue: Annotated[
        tuple[str, ...],
        Ask("", "queues and users", usual="NAME:shares=40[,parent=A][,usage=GPU-HOURS]", source=_SLURM),
    ] = (
        "A:shares=40", "B:parent=A,shares=30", "C:parent=A,shares=10", "D:shares=60", "E:parent=D,shares=25",
        "F:parent=D,shares=35", "u1:parent=B,usage=200", "u2:parent=C,usage=250", "u3:parent=C",
        "u4:parent=E,usage=250",
        "u5:parent=F", "others:shares=0,usage=300",
    )  # fmt: skip
    half_life_s: Annotated[
        float, Ask("T", "half-life of usage", TIME, usual="1d to 30d; 0: it never fades", source="Slurm's default")
    ] = 7 * 86400.0  # fmt: skip
    idle_s: Annotated[float, Ask("t", "time since that usage", TIME, usual="0 to 30d", option="idle")] = 0.0
    team: Annotated[
        tuple[str, ...],
        Ask("", "teams with demand and a static quota", usual="NAME:gpus=8,jobs=3/h,time=2h,quota=64"),
    ] = ("vision:gpus=8,jobs=2.5/h,time=2h,quota=64", "nlp:gpus=8,jobs=2.5/h,time=2h,quota=64",
         "robotics:gpus=8,jobs=2.5/h,time=2h,quota=64")  # fmt: skip
    more: Annotated[
        float, Ask("m", "demand, in times of what the teams say", NUMBER, above=True, usual="0.7 to 1.3", most=100,
                   vary=(0.8, 1.2), source="as they say")
    ] = 1.0  # fmt: skip
    variation: Annotated[
        float, Ask("V", "(Ca^2 + Cs^2) / 2 of the jobs", NUMBER, usual="1 (random) to 30 (heavy tails)", most=1e4,
                   source="random arrivals, exponential times")
    ] = 1.0  # fmt: skip
    sign: Annotated[
        tuple[str, ...], Ask("", "signs of gaming", usual="PATTERN|WHO|EVIDENCE; --from finds them")
    ] = ()  # fmt: skip

    def work(self) -> Worked:
        """See `muster.planning.shares` and `muster.planning.queueing`."""
        shares = shares_of(self._entities())
        users = sorted((each for each in shares if each.leaf and each.norm_shares), key=lambda each: -each.factor)
        teams = self._teams()
        pooled, quota = self._pool(teams), sum(each.quota for each in teams)
        saved = 1 - pooled / quota if quota else 0.0
        first = users[0].entity.name if users else "nobody"
        by_classic = max(users, key=lambda each: each.classic).entity.name if users else "nobody"
        signs = self._signs()
        gaming = f" {len(signs)} signs of gaming." if signs else ""
        example = type(self)()  # the two halves are asked apart: say which of them nobody gave
        tree = " in the example of Slurm's documentation" if self.queue == example.queue else ""
        whose = "with the example's teams " if self.team == example.team else ""
        return Worked(
            f"{first} is next by Fair Tree{tree}; {whose}one pool of {figure(pooled)} GPUs makes nobody wait longer "
            f"than quotas of {figure(quota)} do ({100 * saved:.0f} % less).{gaming}",
            (
                "usage = U 2^(-t / T);  classic F = 2^(-UE / S),  UE = U + (UE(parent) - U) x own shares / siblings'",
                "Fair Tree: among siblings by (own shares / siblings') / (own usage / siblings'), from the root down",
                "wait of a team = C(a, c) S / (c - a) x V,  c = quota / GPUs a job,  a = jobs x time   (Erlang C)",
                "pool: the fewest GPUs whose wait is at most the least of the teams' waits",
            ),
            "Slurm, classic fair share and Fair Tree; Erlang 1917; Allen-Cunneen",
            tuple(self._steps(shares, teams, pooled)),
            (
                Result("pooling saves", saved, "share"),
                Result("GPUs of the pool", pooled, "GPUs"),
                Result("GPUs of the quotas", quota, "GPUs"),
                Result("next by Fair Tree", first),
                Result("next by the classic formula", by_classic),
            ),
            (self._share_table(shares), self._team_table(teams, pooled), *self._sign_table(signs)),
            (self._chart(teams),),
            (
                "Times of jobs are heavy-tailed: waits are then many times longer (--variation 20), for quotas and for "
                "the pool.",
                "Gangs of different sizes are no servers of one kind: a pool needs backfill to fill its gaps; simulate "
                "it (muster simulate).",
                "A pool without fair share lets one team take all: pooling means guaranteed quotas that are lent, and "
                "taken back.",
                "A sign is no proof: a user with many small jobs may have many small jobs.",
            ),
            tuple(self._todo(signs, saved)),
        )  # fmt: skip

    def headline(self) -> float:
        """What pooling saves."""
        teams = self._teams()
        quota = sum(each.quota for each in teams)
        return 1 - self._pool(teams) / quota if quota else 0.0

    def _entities(self) -> list[Entity]:
        found: list[Entity] = []
        for text in self.queue:
            name, values = read_row(text, (), ("shares", "parent", "usage"), "--queue", _QUEUE)
            usage = decayed(_number(values.get("usage", "0"), "--queue"), self.idle_s, self.half_life_s)
            shares = _number(values.get("shares", "1"), "--queue")
            found.append(Entity(name, values.get("parent", ""), shares, usage))
        if not found:
            raise InputError("names no queue", field="--queue", hint="such as A:shares=40")
        return found

    def _teams(self) -> list[Team]:
        found: list[Team] = []
        for text in self.team:
            name, values = read_row(text, (), ("gpus", "jobs", "time", "quota"), "--team", _TEAM)
            missing = [key for key in ("gpus", "jobs", "time", "quota") if key not in values]
            if missing:
                raise InputError(f"{text[:40]!r} lacks {missing[0]}", field="--team", hint=_TEAM)
            team = Team(
                name, _number(values["gpus"], "--team"), self.more * PER_HOUR.read(values["jobs"], "--team"),
                TIME.read(values["time"], "--team"), _number(values["quota"], "--team"),
            )  # fmt: skip
            if team.gpus <= 0 or team.quota < team.gpus:
                raise InputError(
                    f"{name}'s quota holds none of its jobs", field="--team", hint="quota of one job at least"
                )
            if any(each.name == name for each in found):
                raise InputError(f"names {name[:30]!r} twice", field="--team", hint="one each")
            found.append(team)
        return found

    def _wait(self, team: Team) -> float:
        """Mean wait of a team's jobs on its own quota, in seconds."""
        return mean_wait(team.load / team.gpus, int(team.quota // team.gpus), team.time_s, self.variation)

    def _pool(self, teams: list[Team]) -> float:
        """GPUs of one pool whose mean wait is at most the least of the teams' own."""
        if not teams:
            return 0.0
        load = sum(each.load for each in teams)
        rate = sum(each.per_hour for each in teams)
        gpus = load and sum(each.load * each.gpus for each in teams) / load
        time_s = sum(each.per_hour * each.time_s for each in teams) / rate if rate else 0.0
        least = min(self._wait(each) for each in teams)
        if not math.isfinite(least) or not load:
            return sum(each.quota for each in teams)
        count = servers_for_wait(load / gpus, time_s, max(least, 1e-6), self.variation)
        return min(count * gpus, sum(each.quota for each in teams))

    def _steps(self, shares: list[Share], teams: list[Team], pooled: float) -> list[Step]:
        steps: list[Step] = []
        by_name = {each.entity.name: each for each in shares}
        shown = [each for each in shares if each.leaf and each.norm_shares][:3]
        for each in shown:
            parent = by_name.get(each.entity.parent)
            up = (
                f" + ({figure(parent.effective)} - {figure(each.usage)}) x own / siblings'"
                if parent is not None
                else ""
            )
            worked = f"UE = {figure(each.usage)}{up} = {figure(each.effective)}; 2^(-{figure(each.effective)} / "
            steps.append(Step(f"{each.entity.name}: classic", f"{worked}{figure(each.norm_shares)})", each.classic))
        for team in teams[:3]:
            servers = int(team.quota // team.gpus)
            worked = f"a = {figure(team.load / team.gpus)}, c = {servers}: C S / (c - a) x {figure(self.variation)}"
            steps.append(Step(f"{team.name}: wait on its quota", worked, self._wait(team), "s"))
        load = sum(each.load for each in teams)
        steps.append(Step("pool", f"load {figure(load)} GPUs; the fewest for the least of these waits", pooled, "GPUs"))
        return steps

    def _share_table(self, shares: list[Share]) -> Table:
        rows: list[tuple[float | str, ...]] = []
        for each in shares:
            level = "-" if not each.norm_shares else "unused" if math.isinf(each.level) else figure(each.level)
            factor: float | str = each.factor if each.leaf and each.norm_shares else "-"
            rows.append((each.entity.name, each.entity.parent or "-", each.norm_shares, each.usage, each.effective,
                         each.classic, level, factor))  # fmt: skip
        titles = ("", "below", "shares S", "usage U", "UE", "classic F", "level share", "Fair Tree")
        return Table("Shares", titles, tuple(rows))

    def _team_table(self, teams: list[Team], pooled: float) -> Table:
        rows: list[tuple[float | str, ...]] = [
            (each.name, each.quota, each.load, f"{100 * each.load / each.quota:.0f} %", _told(self._wait(each)))
            for each in teams
        ]
        load = sum(each.load for each in teams)
        if pooled:
            least = min((self._wait(each) for each in teams), default=0.0)
            rows.append(("one pool", pooled, load, f"{100 * load / pooled:.0f} %", f"at most {_told(least)}"))
        return Table("Static quotas and one pool", ("", "GPUs", "in use", "utilisation", "mean wait"), tuple(rows))

    def _signs(self) -> list[tuple[str, str, str]]:
        found: list[tuple[str, str, str]] = []
        for text in self.sign:
            parts = text.split("|", 2)
            if len(parts) != 3 or parts[0] not in PATTERNS:
                hint = f"PATTERN|WHO|EVIDENCE, one of: {', '.join(PATTERNS)}"
                raise InputError(f"{text[:40]!r} is not understood", field="--sign", hint=hint)
            found.append((parts[0], parts[1], parts[2]))
        return found

    def _sign_table(self, signs: list[tuple[str, str, str]]) -> tuple[Table, ...]:
        if not signs:
            return ()
        rows = [(pattern, who, evidence, _STOPS[pattern]) for pattern, who, evidence in signs]
        return (Table("Signs of gaming", ("pattern", "who", "seen", "what stops it"), tuple(rows)),)

    def _chart(self, teams: list[Team]) -> Chart:
        """Mean wait of one pool by its size, beside the quotas' sum."""
        load = sum(each.load for each in teams)
        gpus = load and sum(each.load * each.gpus for each in teams) / load
        rate = sum(each.per_hour for each in teams)
        time_s = sum(each.per_hour * each.time_s for each in teams) / rate if rate else 0.0
        points: list[tuple[float, float]] = []
        if load:
            first = math.floor(load / gpus) + 1
            for count in range(first, first + 25):
                wait = mean_wait(load / gpus, count, time_s, self.variation)
                points.append((count * gpus, min(wait / 60, 240.0)))
        own = [(each.quota * len(teams), min(self._wait(each) / 60, 240.0)) for each in teams[:1]]
        return Chart("Mean wait of one pool, by its size", "GPUs", "minutes",
                     (Line("pool", tuple(points)), Line("quotas", tuple(own))))  # fmt: skip

    def _todo(self, signs: list[tuple[str, str, str]], saved: float) -> list[str]:
        told = [f"{who}: {_STOPS[pattern]}." for pattern, who, _ in signs[:3]]
        if saved > 0.05:
            told.append("Put the quotas into one cohort: each keeps its nominal quota, and borrows what others leave.")
        told.append("Try it before: muster simulate RUN.yaml with your own queues and a week of accounting.")
        if not signs:
            told.append("Look for gaming: muster plan fairshare --from sacct.txt.")
        return told


_STOPS = {
    "asks for more than it uses": "count what is held, not what is used; show it to them (muster slurm efficiency)",
    "holds GPUs that do nothing": "idle_after_s: the first to be stopped",
    "splits jobs": "max_running_gpus counts all jobs of a user",
    "inflates priority": "max_priority of the queue",
    "placeholders": "held work grows no older; rank comes before age",
}


def _number(text: str, field: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise InputError(f"{text[:30]!r} is no number", field=field, hint="0 or more")
    return value


def _told(wait_s: float) -> str:
    return "without end" if math.isinf(wait_s) else TIME.show(wait_s)
