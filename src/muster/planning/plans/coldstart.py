"""`muster plan coldstart`: the chain of a cold start link by link, what removes which, and the warm pool."""

from __future__ import annotations

import math
from typing import Annotated

from msgspec import Struct

from muster.catalog import cold_starts as facts
from muster.catalog.sources import SOURCES
from muster.errors import InputError
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.quantities import BYTES, MONEY, NUMBER, PER_HOUR, RATE, SHARE, TIME, figure
from muster.planning.question import Ask, Question, Worked
from muster.planning.warm_pool import safe_utilisation, slots_by_price, slots_for_misses

_BOOT = f"80 to 120 s: {SOURCES['gpu-boot']}"
_VLLM = str(SOURCES[facts.START_SOURCE])


class Link(Struct, frozen=True):
    """A link of the chain: its name, the arithmetic, and seconds."""

    name: str
    worked: str
    time_s: float


class Remedy(Struct, frozen=True):
    """What shortens a start: new times of links by name, and what it costs or needs."""

    name: str
    times: dict[str, float]
    needs: str


class Coldstart(Question, frozen=True, kw_only=True):
    """A replica of a model server, from nothing to its first answer."""

    planner = "coldstart"
    asks = "Where does a cold start spend its time, what removes it, and how many warm ones are enough?"

    boot_s: Annotated[float, Ask("n", "boot of a node, if none is free", TIME, usual="0 to 5m", source=_BOOT,
                                 option="boot")] = facts.NODE_BOOT_S  # fmt: skip
    schedule_s: Annotated[float, Ask("q", "scheduling and binding", TIME, usual="0.1s to 10s", option="schedule")] = 1.0
    image_bytes: Annotated[float, Ask("I", "image, compressed", BYTES, usual="3GB to 20GB", option="image",
                                      source="vllm-openai: about 12 GB")] = 12e9  # fmt: skip
    pull: Annotated[float, Ask("p", "rate of pulling", RATE, above=True, usual="30MB/s to 1GB/s",
                               source=str(SOURCES["image-minutes"]))] = facts.PULL_BYTES_PER_S  # fmt: skip
    unpacked_bytes: Annotated[float, Ask("U", "image, unpacked", BYTES, usual="6GB to 40GB", option="unpacked",
                                         source="vllm-openai 0.16: 26.3 GB")] = 26.3e9  # fmt: skip
    unpack: Annotated[float, Ask("k", "rate of unpacking", RATE, above=True, usual="100MB/s to 1GB/s",
                                 source="one thread of gzip, 100 to 300 MB/s")] = 200e6  # fmt: skip
    container_s: Annotated[float, Ask("o", "start of the container", TIME, usual="0.5s to 5s", option="container")] = (
        2.0
    )
    imports_s: Annotated[float, Ask("i", "import of the process, and checks of peers", TIME, usual="10s to 90s",
                                    option="imports", source=f"{_VLLM}: peers 60 s")] = facts.IMPORTS_S  # fmt: skip
    weight_bytes: Annotated[float, Ask("W", "weights that are read", BYTES, usual="2GB to 1.5TB", option="weights",
                                       source="70B in FP8")] = 70e9  # fmt: skip
    link: Annotated[float, Ask("l", "rate of reading them", RATE, above=True, usual="0.3GB/s to 30GB/s",
                               source="an example: object store, 1 GB/s")] = 1e9  # fmt: skip
    compile_s: Annotated[float, Ask("c", "compilation", TIME, usual="0 to 3m", option="compile",
                                    source=f"{_VLLM}: dynamo 15 s, compile 70 s")] = facts.COMPILE_S  # fmt: skip
    graphs_s: Annotated[
        float, Ask("g", "capture of CUDA graphs", TIME, usual="0 to 90s", option="graphs", source=_VLLM)
    ] = facts.GRAPHS_S
    warmup_s: Annotated[float, Ask("w", "first requests, until it is fast", TIME, usual="5s to 60s", option="warmup",
                                   source=f"{_VLLM}: 30 to 60 s")] = facts.WARM_UP_S  # fmt: skip
    ready_s: Annotated[
        float, Ask("y", "until the readiness probe sees it", TIME, usual="1s to 30s", option="ready")
    ] = 5.0
    claims: Annotated[float, Ask("C", "claims of a fresh replica", PER_HOUR, usual="1/h to 100/s", most=1e7)] = 20.0
    dispersion: Annotated[float, Ask("d", "variance over mean of claims in a minute", NUMBER, usual="1 (random) to 200",
                                     most=1e5, source="random")] = 1.0  # fmt: skip
    misses: Annotated[float, Ask("m", "share of claims that may find none warm", SHARE, above=True, most=0.99,
                                 usual="0.1% to 5%")] = 0.01  # fmt: skip
    burst: Annotated[
        float, Ask("b", "growth of demand within a cold start", NUMBER, least=1, usual="1.1 to 3", most=1e4)
    ] = 1.5
    wait_s: Annotated[float, Ask("v", "wait that users bear in it", TIME, usual="0 to 30s", option="wait")] = 10.0
    miss_cost: Annotated[float | None, Ask("cu", "what a miss costs", MONEY, usual="yours to say")] = None
    idle_cost: Annotated[float | None, Ask("co", "what a warm replica costs an hour", MONEY, usual="GPUs x price")] = (
        None
    )

    def work(self) -> Worked:
        """See `muster.planning.warm_pool` for the pool."""
        links = self._links()
        cold = sum(each.time_s for each in links)
        if not cold:
            raise InputError("every link takes no time", field="--boot", hint="say at least one")
        longest = max(links, key=lambda each: each.time_s)
        remedies = self._remedies()
        best = self._after(links, remedies)
        load = self.claims / 3600 * cold
        slots = slots_for_misses(load, self.misses, self.dispersion)
        fast = slots_for_misses(self.claims / 3600 * best, self.misses, self.dispersion)
        full = safe_utilisation(cold, self.wait_s, self.burst)
        return Worked(
            f"A cold start takes {TIME.show(cold)}, most of it {longest.name} ({TIME.show(longest.time_s)}); all "
            f"remedies together leave {TIME.show(best)}. {slots:,} warm replicas keep misses below "
            f"{SHARE.show(self.misses)}.",
            (
                "T = n + q + I/p + U/k + o + i + W/l + c + g + w + y",
                "slots: least N with ErlangB(C T, N) <= m;  bursts: + z(1 - m) sqrt(C T) (sqrt(d) - 1)",
                "by price: least N with Poisson(C T) <= N in cu / (cu + co T) of the time",
                "how full serving may be run: u = (1 + v / T) / b",
            ),
            "chain: vLLM, BentoML and ModelExpress reports; Erlang 1917; muster.planning.warm_pool",
            (
                *(Step(each.name, each.worked, each.time_s, "s") for each in links if each.time_s),
                Step("cold start, T", "the sum", cold, "s"),
                Step("refills at a time", f"{figure(self.claims)}/h x {TIME.show(cold)}", load),
                Step("warm slots", f"ErlangB({figure(load)}, N) <= {figure(self.misses)}", float(slots), "slots"),
                Step("how full", f"(1 + {TIME.show(self.wait_s)} / {TIME.show(cold)}) / {figure(self.burst)}", full,
                     "share"),
            ),
            (
                Result("cold start", cold, "s"),
                Result("with all remedies", best, "s"),
                Result("warm slots", float(slots), "slots"),
                Result("warm slots with all remedies", float(fast), "slots"),
                Result("serving may be run at", full, "share"),
                Result("GPUs for 100 of base load", 100 / full),
                *self._priced(load, cold),
            ),
            (self._remedy_table(links, remedies), self._pool_table(links, remedies)),
            (self._chart(cold, best),),
            (
                "Claims come in bursts: then the pool empties at once. Give --dispersion, or a trace with --from.",
                "Several replicas start at once: they share the registry, the store and the node's disk, and each link "
                "takes longer (muster plan image).",
                "Lazy loading is no gain where most of the image is read at start: one 13 GB image became 66 % slower.",
                "After readiness a server is slow for 30 to 60 s more (20 times in one report); a probe that passes "
                "too early sends users there.",
                "A startup probe of 60 x 10 s kills what takes more than ten minutes.",
            ),
            tuple(self._todo(links, remedies, cold)),
        )  # fmt: skip

    def headline(self) -> float:
        """Seconds of a cold start."""
        return sum(each.time_s for each in self._links())

    def _links(self) -> list[Link]:
        show, rate = BYTES.show, RATE.show
        return [
            Link("node boot", "given", self.boot_s),
            Link("schedule", "given", self.schedule_s),
            Link("pull", f"{show(self.image_bytes)} / {rate(self.pull)}", self.image_bytes / self.pull),
            Link("unpack", f"{show(self.unpacked_bytes)} / {rate(self.unpack)}", self.unpacked_bytes / self.unpack),
            Link("container", "given", self.container_s),
            Link("imports", "given", self.imports_s),
            Link("weights", f"{show(self.weight_bytes)} / {rate(self.link)}", self.weight_bytes / self.link),
            Link("compile", "given", self.compile_s),
            Link("graphs", "given", self.graphs_s),
            Link("warm up", "given", self.warmup_s),
            Link("readiness", "given", self.ready_s),
        ]

    def _remedies(self) -> list[Remedy]:
        """In the order in which they are usually taken; times as published, never longer than now."""
        restore = self.weight_bytes / facts.LOCAL_DISK_BYTES_PER_S
        peer, lazy = self.weight_bytes / facts.PEER_BYTES_PER_S, self.image_bytes / self.pull / facts.LAZY_GAIN
        wake = self.weight_bytes / facts.WAKE_BYTES_PER_S
        return [
            Remedy("a node kept free", {"node boot": 0.0}, "one idle node"),
            Remedy("image on the node", {"pull": 0.0, "unpack": 0.0}, "disk; a pre-pull, or a boot disk with it"),
            Remedy("image lazily loaded", {"pull": lazy, "unpack": 0.0},
                   "SOCI, stargz, nydus; 1.5 to 3 times, or slower"),
            Remedy("no check of peers", {"imports": facts.IMPORTS_UNCHECKED_S}, "VLLM_SKIP_P2P_CHECK=1"),
            Remedy("weights on local disk", {"weights": restore}, "NVMe at 5 GB/s, filled before"),
            Remedy("weights from a peer", {"weights": peer}, "a running replica, RDMA"),
            Remedy("compile cache kept", {"compile": facts.COMPILE_CACHED_S}, "the cache on a volume, same versions"),
            Remedy("no CUDA graphs", {"graphs": 0.0}, "slower decoding"),
            Remedy("snapshot restored", {"imports": facts.RESTORED_S, "weights": restore, "compile": 0.0,
                                          "graphs": 0.0},
                   "driver 570, same GPU and spec; as much RAM"),
            Remedy("asleep in RAM", {"node boot": 0.0, "schedule": 0.0, "pull": 0.0, "unpack": 0.0, "container": 0.0,
                                     "imports": 0.0, "weights": wake, "compile": 0.0, "graphs": 0.0, "warm up": 1.0},
                   "host RAM of the weights; another model may have the GPU"),
        ]  # fmt: skip

    def _alone(self, links: list[Link], remedy: Remedy) -> float:
        return sum(min(each.time_s, remedy.times.get(each.name, each.time_s)) for each in links)

    def _after(self, links: list[Link], remedies: list[Remedy]) -> float:
        """All remedies but those that give something up: no graphs, and sleeping, which needs a replica first."""
        taken = [each for each in remedies if each.name not in ("no CUDA graphs", "asleep in RAM")]
        return sum(min([each.time_s, *(one.times.get(each.name, each.time_s) for one in taken)]) for each in links)

    def _remedy_table(self, links: list[Link], remedies: list[Remedy]) -> Table:
        cold = sum(each.time_s for each in links)
        rows = [
            (each.name, TIME.show(cold - self._alone(links, each)), TIME.show(self._alone(links, each)), each.needs)
            for each in remedies
        ]
        rows.sort(key=lambda row: TIME.read(str(row[2])))
        return Table("Remedies, each alone", ("remedy", "saves", "leaves", "needs"), tuple(rows))

    def _pool_table(self, links: list[Link], remedies: list[Remedy]) -> Table:
        cold = sum(each.time_s for each in links)
        times = sorted(
            {cold, self._after(links, remedies), *(self._alone(links, each) for each in remedies)}, reverse=True
        )
        rows: list[tuple[float | str, ...]] = []
        for time_s in times[:1] + times[-4:]:
            load = self.claims / 3600 * time_s
            full = safe_utilisation(time_s, self.wait_s, self.burst) if time_s else 1.0
            rows.append((TIME.show(time_s), *(slots_for_misses(load, misses, self.dispersion)
                         for misses in (0.05, 0.01, 0.001)), SHARE.show(full)))  # fmt: skip
        titles = ("a start of", "slots for 5 % misses", "1 %", "0.1 %", "serving at")
        return Table("Warm slots and utilisation by the time of a start", titles, tuple(rows))

    def _priced(self, load: float, cold: float) -> tuple[Result, ...]:
        if self.miss_cost is None or self.idle_cost is None:
            return ()
        slots = slots_by_price(load, self.miss_cost, self.idle_cost * cold / 3600, self.dispersion)
        return (Result("warm slots by price", float(slots), "slots"),)

    def _chart(self, cold: float, best: float) -> Chart:
        grid = [cold * at / 40 for at in range(1, 41)]
        points = tuple((each, 100 * safe_utilisation(each, self.wait_s, self.burst)) for each in grid)
        marks = [Line(name, ((at, 100 * safe_utilisation(at, self.wait_s, self.burst)),)) for name, at in
                 (("now", cold), ("with all remedies", best)) if at]  # fmt: skip
        return Chart("How full serving may be run, by the time of a cold start", "seconds", "utilisation, %",
                     (Line("", points), *marks))  # fmt: skip

    def _todo(self, links: list[Link], remedies: list[Remedy], cold: float) -> list[str]:
        order = sorted(remedies[:8], key=lambda each: self._alone(links, each))
        told = [
            f"{each.name}: saves {TIME.show(cold - self._alone(links, each))} ({each.needs})."
            for each in order[:2]
            if self._alone(links, each) < cold
        ]
        if cold > 600:
            told.append(
                f"Raise the startup probe above {math.ceil(cold / 10)} x 10 s, or it is killed while it starts."
            )
        told.append("Scale on demand a cold start ahead, counting pending replicas, never waiting for one at a time.")
        return told
