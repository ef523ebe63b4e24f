"""`muster plan rollout`: waves of a driver upgrade: canaries, jobs that would break, time, capacity, rollback point."""

from __future__ import annotations

import math
from typing import Annotated

from muster.catalog.cuda import parse_driver, parse_toolkit, runs
from muster.catalog.sources import SOURCES
from muster.errors import InputError
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.quantities import SHARE, TIME, counts, figure
from muster.planning.question import Ask, Question, Worked
from muster.planning.waves import canaries, harmonic, last_end_s, seen_by_then

_NODES = counts("nodes", "250")
_MOST_ROWS = 9


class Rollout(Question, frozen=True, kw_only=True):
    """A change of all nodes, and the work that runs on them."""

    planner = "rollout"
    asks = "In which waves should the driver be upgraded, how long does it take, and what could go wrong?"

    nodes: Annotated[int, Ask("N", "nodes to upgrade", _NODES, least=2, usual="8 to 5,000", most=1e6)] = 250
    gpus: Annotated[int, Ask("G", "GPUs of a node", counts("GPUs", "8"), least=1, usual="1 to 16", most=1024)] = 8
    floor: Annotated[
        float, Ask("F", "share of the nodes that must stay in use", SHARE, most=0.999, usual="75% to 98%")
    ] = 0.9  # fmt: skip
    fault: Annotated[
        float,
        Ask("f", "share of nodes that a bad driver would break", SHARE, above=True, most=0.99, usual="1% to 20%"),
    ] = 0.1
    confidence: Annotated[
        float, Ask("c", "confidence that the canaries show it", SHARE, above=True, most=0.9999, usual="90% to 99%",
                   vary=(), source="the usual 95 %")
    ] = 0.95  # fmt: skip
    drain: Annotated[
        str, Ask("D", "what becomes of the work on a node", choices=("wait", "checkpoint"), usual="wait, checkpoint")
    ] = "wait"
    gang_nodes: Annotated[
        float, Ask("g", "nodes of a gang, in the mean", counts("nodes", "4"), above=True, usual="1 to 64", most=1e6)
    ] = 4
    remaining_s: Annotated[
        float, Ask("T", "time that a gang has left, in the mean", TIME, usual="30m to 3d", most=3e7, option="remaining")
    ] = 4 * 3600.0
    interval_s: Annotated[
        float, Ask("t", "checkpoint interval of the work", TIME, usual="10m to 4h", most=3e6)
    ] = 3600.0  # fmt: skip
    restart_s: Annotated[float, Ask("R", "restart of the work", TIME, usual="2m to 20m", most=3e6)] = 300.0
    change_s: Annotated[
        float, Ask("u", "upgrade of a node, until it is validated", TIME, usual="4m to 25m", most=1e6,
                   source=str(SOURCES["upgrade-docs"]), option="change")
    ] = 600.0  # fmt: skip
    soak_s: Annotated[
        float, Ask("s", "watching after the canaries", TIME, usual="1h to 3d", most=3e7, option="soak")
    ] = 24 * 3600.0  # fmt: skip
    parallel: Annotated[
        int | None, Ask("w", "nodes at once; as many as the floor allows otherwise", _NODES, least=1, usual="1 to 10 %")
    ] = None
    to: Annotated[str, Ask("", "driver to upgrade to", usual="such as 580.95.05")] = ""
    image: Annotated[
        tuple[str, ...],
        Ask("", "images in use, each with its CUDA", usual="NAME:cuda=12.4[,compat][,gpus=N], one each"),
    ] = ()

    def work(self) -> Worked:
        """See `muster.planning.waves` and `muster.catalog.cuda`."""
        first, wave, waves = self._sizes()
        drain, idle = self._drain(wave)
        each_s = drain + self.change_s
        canary_s = self._drain(first)[0] + self.change_s + self.soak_s
        total = canary_s + waves * each_s
        lost = self.nodes * self.gpus * (idle + self.change_s) / 3600 + self._stopped_gpu_hours()
        broken = self._broken()
        breaks = f" {len(broken)} of {len(self.image)} images would not run on it." if broken else ""
        return Worked(
            f"{first} canaries, a soak of {TIME.show(self.soak_s)}, then {waves} waves of {wave} nodes: "
            f"{TIME.show(total)} in all, {figure(lost)} GPU-hours lost.{breaks}",
            (
                "n = ceil(ln(1 - c) / ln(1 - f));  w = floor(N (1 - F));  waves = ceil((N - n) / w)",
                "drain of m = w / g gangs: wait T (1 + 1/2 + ... + 1/m), or checkpoint: none",
                "total = drain(n) + u + s + waves (drain(w) + u)",
                "lost = N G (idle + u), idle = drain(w) - T;  with checkpoint + N G (t / 2 + R)",
            ),
            "order statistics of exponential times; rule of three; muster.planning.waves, muster.catalog.cuda",
            tuple(self._steps(first, wave, waves, drain, idle, total, lost)),
            (
                Result("in all", total, "s"),
                Result("canaries", float(first), "nodes"),
                Result("waves", float(waves)),
                Result("nodes at once", float(wave), "nodes"),
                Result("GPU-hours lost", lost),
                Result("a fault of 1 % of the nodes is still unseen after the canaries, chance",
                       1 - seen_by_then(0.01, first), "share"),
            ),
            (self._wave_table(first, wave, waves, canary_s, each_s), *self._image_table()),
            (self._chart(first, wave, waves),),
            (
                "Times that gangs have left are not exponential: a few that run for weeks hold a wave up; then set a "
                "limit after which they are stopped at a checkpoint.",
                "Gangs cross waves: a gang that stands on nodes of two waves is drained once if waves follow racks or "
                "blocks, twice if not.",
                "Nodes that are cordoned or not ready count against the GPU operator's maxUnavailable: with some "
                "broken ones its roll-out may stand still.",
                "A driver that breaks one job in a thousand is not found by canaries that run no jobs: let them run "
                "your jobs.",
            ),
            tuple(self._todo(first, wave, broken)),
        )  # fmt: skip

    def headline(self) -> float:
        """Time in all."""
        first, wave, waves = self._sizes()
        return self._drain(first)[0] + self.change_s + self.soak_s + waves * (self._drain(wave)[0] + self.change_s)

    def _sizes(self) -> tuple[int, int, int]:
        """Canaries, nodes of a wave, waves."""
        allowed = math.floor(self.nodes * (1 - self.floor) + 1e-9)
        if allowed < 1:
            least = 1 - 1 / self.nodes
            raise InputError(f"lets no node of {self.nodes} go", field="--floor", hint=f"{SHARE.show(least)} at most")
        if self.parallel is not None and self.parallel > allowed:
            hint = f"{allowed} at most, or a lower --floor"
            raise InputError(f"is {self.parallel}, more than the floor allows", field="--parallel", hint=hint)
        wave = self.parallel or allowed
        first = min(canaries(self.fault, self.confidence), self.nodes, allowed)
        return first, wave, math.ceil((self.nodes - first) / wave)

    def _drain(self, nodes: int) -> tuple[float, float]:
        """How long until so many nodes are free, and how long each of them idles meanwhile, in the mean."""
        if self.drain == "checkpoint":
            return 0.0, 0.0
        gangs = max(1.0, nodes / self.gang_nodes)
        drain = last_end_s(gangs, self.remaining_s)
        return drain, drain - self.remaining_s

    def _stopped_gpu_hours(self) -> float:
        if self.drain == "wait":
            return 0.0
        return self.nodes * self.gpus * (self.interval_s / 2 + self.restart_s) / 3600

    def _steps(
        self, first: int, wave: int, waves: int, drain: float, idle: float, total: float, lost: float
    ) -> list[Step]:
        c, f, n = figure(self.confidence), figure(self.fault), figure(self.nodes)
        alone = canaries(self.fault, self.confidence)
        capped = f", at most floor({n} x (1 - {figure(self.floor)}))" if alone > first else ""
        steps: list[Step] = [
            Step("canaries, n", f"ceil(ln(1 - {c}) / ln(1 - {f})){capped}", float(first), "nodes"),
            Step("nodes of a wave, w", f"floor({n} x (1 - {figure(self.floor)}))" if self.parallel is None else "given",
                 float(wave), "nodes"),
            Step("waves", f"ceil(({n} - {first}) / {wave})", float(waves)),
        ]  # fmt: skip
        if self.drain == "wait":
            gangs = max(1.0, wave / self.gang_nodes)
            worked = (
                f"{TIME.show(self.remaining_s)} x (1 + 1/2 + ... + 1/{figure(gangs)}) = x {figure(harmonic(gangs))}"
            )
            steps += [
                Step("drain of a wave", worked, drain, "s"),
                Step("a node idles in it", f"{TIME.show(drain)} - {TIME.show(self.remaining_s)}", idle, "s"),
            ]
        else:
            hours = self._stopped_gpu_hours()
            half = f"{TIME.show(self.interval_s)} / 2 + {TIME.show(self.restart_s)}"
            steps.append(Step("GPU-hours of stopped work", f"{n} x {self.gpus} x ({half})", hours))
        canary = self._drain(first)[0] + self.change_s + self.soak_s
        steps += [
            Step("canaries and soak",
                 f"{TIME.show(self._drain(first)[0])} + {TIME.show(self.change_s)} + {TIME.show(self.soak_s)}",
                 canary, "s"),
            Step("in all", f"{TIME.show(canary)} + {waves} x ({TIME.show(drain)} + {TIME.show(self.change_s)})",
                 total, "s"),
            Step("GPU-hours lost", f"{n} x {self.gpus} x ({TIME.show(idle)} + {TIME.show(self.change_s)})"
                 + (" + stopped work" if self.drain == "checkpoint" else ""), lost),
        ]  # fmt: skip
        return steps

    def _wave_table(self, first: int, wave: int, waves: int, canary_s: float, each_s: float) -> Table:
        """After each wave: how far, how long, and how sure that a rare fault would have shown."""
        rows: list[tuple[float | str, ...]] = []
        shown = range(waves + 1)
        if waves > _MOST_ROWS:
            shown = sorted({round(at * waves / (_MOST_ROWS - 1)) for at in range(_MOST_ROWS)})
        for at in shown:
            done = min(self.nodes, first + at * wave)
            rows.append((
                "canaries" if not at else f"wave {at}", done, TIME.show(canary_s + at * each_s),
                SHARE.show(seen_by_then(0.01, done)), SHARE.show(seen_by_then(0.001, done)),
                done * self.gpus,
            ))  # fmt: skip
        titles = ("after", "nodes done", "time", "a 1 % fault seen", "a 0.1 % fault seen", "GPUs to roll back")
        return Table("Rollback points", titles, tuple(rows))

    def _images(self) -> list[tuple[str, tuple[int, int], bool, float]]:
        """Name, toolkit, whether it has cuda-compat, and GPUs."""
        found: list[tuple[str, tuple[int, int], bool, float]] = []
        for text in self.image:
            name, _, rest = text.partition(":cuda=")
            version, *more = rest.split(",")
            gpus = next((each.removeprefix("gpus=") for each in more if each.startswith("gpus=")), "0")
            if not name or not rest or not gpus.isdigit():
                hint = "NAME:cuda=12.4, with ,compat if it has cuda-compat and ,gpus=N"
                raise InputError(f"{text[:60]!r} is not understood", field="--image", hint=hint)
            found.append((name, parse_toolkit(version, "--image"), "compat" in more, float(gpus)))
        return found

    def _broken(self) -> list[str]:
        if not self.to:
            return []
        driver = parse_driver(self.to, "--to")
        return [name for name, cuda, compat, _ in self._images() if not runs(cuda, driver, compat_package=compat).runs]

    def _image_table(self) -> tuple[Table, ...]:
        images = self._images()
        if not self.to or not images:
            return ()
        driver = parse_driver(self.to, "--to")
        rows: list[tuple[float | str, ...]] = []
        for name, cuda, compat, gpus in images:
            found = runs(cuda, driver, compat_package=compat)
            word = {"native": "runs", "minor": "runs (minor)", "forward": "runs (compat)", "no": "BREAKS"}[found.how]
            rows.append((name, f"{cuda[0]}.{cuda[1]}", gpus or "-", word, found.why))
        return (Table(f"Images on driver {self.to}", ("image", "CUDA", "GPUs", "", "why"), tuple(rows)),)

    def _chart(self, first: int, wave: int, waves: int) -> Chart:
        widths = sorted({max(1, round(self.nodes * share / 100)) for share in (1, 2, 3, 5, 7, 10, 15, 20, 25, 33, 50)})
        points: list[tuple[float, float]] = []
        for width in widths:
            count = math.ceil((self.nodes - first) / width)
            points.append((float(width), (self.soak_s + count * (self._drain(width)[0] + self.change_s)) / 86400))
        now = (self.soak_s + waves * (self._drain(wave)[0] + self.change_s)) / 86400
        return Chart(
            "Time in all, by the nodes of a wave", "nodes at once", "days",
            (Line("", tuple(points)), Line("this plan", ((float(wave), now),))),
        )  # fmt: skip

    def _todo(self, first: int, wave: int, broken: list[str]) -> list[str]:
        told: list[str] = []
        if broken:
            told.append(f"Rebuild or pin {', '.join(broken[:4])} before the first wave; they need an older CUDA.")
        if canaries(self.fault, self.confidence) > first:
            told.append("The floor lets fewer canaries go than the confidence asks for: do them in two turns.")
        told += [
            f"With the GPU operator: maxParallelUpgrades {wave}, maxUnavailable {wave}, waitForCompletion "
            f"{'with a timeout' if self.drain == 'wait' else 'off and drain.enable true'}, so that it ends.",
            "Let the canaries run your own jobs and dcgmi diag -r 2 before the soak ends; choose them over racks, "
            "firmware and GPU models.",
            "Keep the old driver's packages until the last wave has soaked: that is the rollback.",
        ]
        if self.drain == "wait" and self.remaining_s > self.interval_s:
            told.append("Work that can be stopped at a checkpoint would end it sooner: --drain checkpoint.")
        return told
