"""`muster plan sandboxes`: hosts for concurrent walled-in sessions: memory, CPU, start rate, pod and API limits."""

from __future__ import annotations

import math
from typing import Annotated

from muster.catalog.sandboxes import API_SEATS, POD_LIMIT, RUNTIMES, SEATS_A_CLAIM, Runtime, runtime
from muster.catalog.sources import SOURCES
from muster.errors import InputError, near
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.quantities import BYTES, PER_HOUR, SHARE, TIME, counts, figure, numbers
from muster.planning.question import Ask, Question, Worked

_SOURCE = str(SOURCES["sandbox-runtimes"])
_HOST = "agent-sandbox benchmark host"
_SESSIONS = counts("sessions", "50k")
_CORES = numbers("cores", "32")


class Sandboxes(Question, frozen=True, kw_only=True):
    """Sessions that run untrusted code, each in a sandbox."""

    planner = "sandboxes"
    asks = "How many hosts do the sandboxes need, and which limit binds first?"

    sessions: Annotated[
        int, Ask("N", "sessions at the peak, at once", _SESSIONS, least=1, usual="100 to 100k", most=1e8)
    ] = 50_000  # fmt: skip
    mix: Annotated[
        tuple[str, ...],
        Ask("", "runtimes and their shares", usual="RUNTIME=SHARE, or NAME=SHARE:512MB with its overhead",
            source="an example"),
    ] = ("gvisor=1",)  # fmt: skip
    memory_bytes: Annotated[
        float, Ask("M", "memory of a host", BYTES, above=True, usual="32GB to 2TB", source=_HOST)
    ] = 30e9  # fmt: skip
    cores: Annotated[float, Ask("C", "cores of a host", _CORES, above=True, usual="8 to 256", most=4096,
                                source=_HOST)] = 8.0  # fmt: skip
    reserve_bytes: Annotated[
        float, Ask("R", "memory for the host itself", BYTES, usual="2GB to 16GB", option="reserve")
    ] = 3e9
    working_bytes: Annotated[
        float, Ask("w", "memory that a session touches", BYTES, above=True, usual="50MB to 4GB", option="working",
                   source="a headless browser, 270 MB (agent-sandbox benchmarks)")
    ] = 270e6  # fmt: skip
    cpu: Annotated[float, Ask("c", "cores that a session uses in the mean", numbers("cores", "0.1"), above=True,
                              usual="0.01 to 1", most=1024)] = 0.04  # fmt: skip
    busy: Annotated[
        float, Ask("u", "share of the cores that may be used", SHARE, above=True, most=1, usual="50% to 80%")
    ] = 0.7
    headroom: Annotated[
        float, Ask("h", "more sessions than the peak to be ready for", SHARE, usual="10% to 30%", most=10)
    ] = 0.0
    length_s: Annotated[
        float, Ask("L", "length of a session", TIME, above=True, usual="1m to 8h", option="length")
    ] = 1800.0  # fmt: skip
    pods: Annotated[
        int,
        Ask("P", "pods that a host may have", counts("pods", "110"), least=1, usual="110 to 500", most=1e5,
            source="the kubelet's default"),
    ] = POD_LIMIT  # fmt: skip
    burst: Annotated[
        int, Ask("b", "sessions that are asked for at the same moment", _SESSIONS, usual="1 to 1,000", most=1e7)
    ] = 300  # fmt: skip
    starts: Annotated[
        float | None, Ask("q", "starts an hour, N / L otherwise", PER_HOUR, above=True, usual="1/min to 99/s", most=1e9)
    ] = None  # fmt: skip

    def work(self) -> Worked:
        """Each runtime has hosts of its own; a host holds what the tightest of four limits allows."""
        mix = self._mix()
        wanted = self.sessions * (1 + self.headroom)
        rows: list[tuple[float | str, ...]] = []
        hosts = 0
        steps = [Step("sessions to be ready for", f"{self.sessions:,} x (1 + {figure(self.headroom)})", wanted)]
        binding: list[str] = []
        for kind, share in mix:
            limits = self._limits(kind)
            holds, name = min((value, name) for name, value in limits.items())
            if holds < 1:
                hint = f"{name} lets no sandbox of {kind.name} onto a host"
                raise InputError("a host is too small", field="--memory", hint=hint)
            need = math.ceil(wanted * share / math.floor(holds))
            hosts += need
            binding.append(name)
            rows.append((kind.name, SHARE.show(share), *(math.floor(each) for each in limits.values()), name,
                         math.floor(holds), need))  # fmt: skip
            steps += self._steps(kind, share, limits, holds, need, wanted)
        seats = self.burst * SEATS_A_CLAIM
        steps.append(Step("seats of the API server in a burst", f"{self.burst:,} x {figure(SEATS_A_CLAIM)}", seats))
        titles = ("runtime", "share", "memory", "CPU", "pods", "starts", "binds", "a host", "hosts")
        return Worked(
            self._answer(hosts, mix, binding, seats),
            (
                "a host holds min of",
                "  memory   (M - R) / (w + overhead)",
                "  CPU      C u / (c + CPU of the wall)",
                "  pods     P",
                "  starts   C u L / CPU of a start      (a session starts once in L)",
                "hosts = sum over runtimes of ceil(N (1 + h) share / that)",
            ),
            f"overheads: {_SOURCE}",
            tuple(steps),
            (
                Result("hosts", float(hosts), "hosts"),
                Result("sessions a host", wanted / hosts),
                Result("starts an hour", self._starts(), "/h"),
                Result("API seats that a burst takes, of 600 by default", seats),
                Result("memory that walls take, of all that sessions touch", self._overhead(mix), "share"),
            ),
            (Table("By runtime", titles, tuple(rows)), self._runtime_table(), *self._measured_table(mix)),
            (self._chart(),),
            (
                "Sessions touch their memory at different times: with swap on NVMe hosts held 1.25 to 2 times as many "
                "in the same benchmark, and started three to five times as slowly.",
                "Boots at once starve each other: six at a time on two cores made five fail; the limit of starts takes "
                "them as spread, and CPU and starts each have all the cores: where both are near, add the CPU of a "
                "start / L to --cpu.",
                "The RuntimeClasses of Kata reserve 0.25 CPU a pod: where requests count, 8 cores hold 32 at most.",
                "Above 110 pods a host raise maxPods, the pod network's range, ARP tables (gc_thresh), disks (150 GB "
                "and more): failures were measured there first, not at memory.",
                "A claim that injects environment or volumes never gets a warm sandbox.",
            ),
            tuple(self._todo(mix, binding, seats)),
        )  # fmt: skip

    def headline(self) -> float:
        """Hosts."""
        wanted = self.sessions * (1 + self.headroom)
        total = 0
        for kind, share in self._mix():
            holds = min(self._limits(kind).values())
            if holds < 1:
                raise InputError("a host is too small", field="--memory")
            total += math.ceil(wanted * share / math.floor(holds))
        return float(total)

    def _mix(self) -> list[tuple[Runtime, float]]:
        found: list[tuple[Runtime, float]] = []
        for text in self.mix:
            name, _, rest = text.partition("=")
            share, _, overhead = rest.partition(":")
            kind = runtime(name)
            if kind is None and overhead:
                kind = Runtime(name, BYTES.read(overhead, "--mix"), 0.0, 10.0, 11.0, "its own", "its own")
            if kind is None:
                known = [each.name for each in RUNTIMES]
                hint = near(name, known) or f"one of {', '.join(known)}, or NAME=SHARE:512MB"
                raise InputError(f"{name[:30]!r} is no runtime", field="--mix", hint=hint)
            found.append((kind, SHARE.read(share or "1", "--mix")))
        total = sum(share for _, share in found)
        if not found or abs(total - 1) > 0.005:
            raise InputError(
                f"the shares sum to {total:g}", field="--mix", hint="to 1, such as gvisor=0.9 kata-qemu=0.1"
            )
        return found

    def _starts(self) -> float:
        return self.starts if self.starts is not None else self.sessions / self.length_s * 3600

    def _limits(self, kind: Runtime) -> dict[str, float]:
        """Sandboxes of a host by each limit."""
        cores = self.cores * self.busy
        each = self.cpu + kind.overhead_cpu
        a_session = self._starts() * self.length_s / 3600 / self.sessions
        return {
            "memory": (self.memory_bytes - self.reserve_bytes) / (self.working_bytes + kind.overhead_bytes),
            "CPU": cores / each,
            "pods": float(self.pods),
            "starts": cores * self.length_s / (kind.start_cpu_s * a_session),
        }

    def _steps(
        self, kind: Runtime, share: float, limits: dict[str, float], holds: float, need: int, wanted: float
    ) -> list[Step]:
        m, r, w = (BYTES.show(value) for value in (self.memory_bytes, self.reserve_bytes, self.working_bytes))
        name = kind.name
        return [
            Step(f"{name}: by memory", f"({m} - {r}) / ({w} + {BYTES.show(kind.overhead_bytes)})", limits["memory"]),
            Step(f"{name}: by CPU",
                 f"{figure(self.cores)} x {figure(self.busy)} / ({figure(self.cpu)} + {figure(kind.overhead_cpu)})",
                 limits["CPU"]),
            Step(f"{name}: by starts", f"{figure(self.cores)} x {figure(self.busy)} x {TIME.show(self.length_s)} / "
                 f"{figure(kind.start_cpu_s)} core-s", limits["starts"]),
            Step(f"{name}: hosts", f"ceil({figure(wanted)} x {figure(share)} / {math.floor(holds)})", float(need),
                 "hosts"),
        ]  # fmt: skip

    def _overhead(self, mix: list[tuple[Runtime, float]]) -> float:
        return sum(share * kind.overhead_bytes for kind, share in mix) / self.working_bytes

    def _answer(self, hosts: int, mix: list[tuple[Runtime, float]], binding: list[str], seats: float) -> str:
        first = max(zip(mix, binding, strict=True), key=lambda each: each[0][1])
        seated = f"; a burst of {self.burst:,} takes most seats of the API server" if seats > API_SEATS / 2 else ""
        bound = f"{first[1]} binds first on hosts of {first[0][0].name}"
        return f"{hosts:,} hosts for {self.sessions:,} sessions; {bound}{seated}."

    def _runtime_table(self) -> Table:
        """Every runtime for all sessions, so that walls can be compared."""
        wanted = self.sessions * (1 + self.headroom)
        rows: list[tuple[float | str, ...]] = []
        for kind in RUNTIMES:
            holds = min(self._limits(kind).values())
            hosts: float | str = math.ceil(wanted / math.floor(holds)) if holds >= 1 else "none fits"
            rows.append(
                (kind.name, kind.wall, BYTES.show(kind.overhead_bytes), TIME.show(kind.start_s), kind.gpu, hosts)
            )
        return Table(
            "If all sessions had one runtime", ("runtime", "wall", "memory", "starts in", "GPU", "hosts"), tuple(rows)
        )

    def _measured_table(self, mix: list[tuple[Runtime, float]]) -> tuple[Table, ...]:
        """Beside what was measured on the benchmark's host, where this is that host."""
        if (self.memory_bytes, self.cores) != (30e9, 8.0):
            return ()
        wanted = self.sessions * (1 + self.headroom)
        rows: list[tuple[float | str, ...]] = []
        for kind in RUNTIMES:
            if kind.measured:
                holds = min(self._limits(kind).values())
                rows.append((kind.name, kind.measured, math.ceil(wanted / kind.measured), math.floor(holds)))
        titles = ("runtime", "held steadily", "hosts by that", "held by this arithmetic")
        return (Table("Measured with a browser on this host (8 cores, 30 GB)", titles, tuple(rows)),)

    def _chart(self) -> Chart:
        from msgspec.structs import replace

        lines: list[Line] = []
        for kind in RUNTIMES:
            points: list[tuple[float, float]] = []
            for at in range(1, 31):
                working = self.working_bytes * at / 10
                holds = min(replace(self, working_bytes=working)._limits(kind).values())
                if holds >= 1:
                    points.append((working / 1e6, self.sessions * (1 + self.headroom) / math.floor(holds)))
            if kind.name in ("runc", "gvisor", "firecracker", "kata-clh", "kata-qemu"):
                lines.append(Line(kind.name, tuple(points)))
        return Chart("Hosts, by what a session touches", "MB a session", "hosts", tuple(lines))

    def _todo(self, mix: list[tuple[Runtime, float]], binding: list[str], seats: float) -> list[str]:
        told: list[str] = []
        if "pods" in binding:
            told.append("Raise maxPods: the pod limit binds before memory and CPU do.")
        if "starts" in binding or "CPU" in binding:
            told.append("Starts cost CPU: keep a warm pool (muster plan coldstart sizes it), or restore snapshots.")
        if seats > API_SEATS / 2:
            told.append(f"Raise the API server's seats to {math.ceil(2 * seats):,} (twice the burst's demand), or "
                        "claim in smaller bursts.")  # fmt: skip
        told.append("GPUs: gVisor has no MIG and listed drivers only; Kata gets whole GPUs; Firecracker none.")
        told.append(
            "Set the warm pool's refill rate: a delay that each claim begins anew drains it under steady claims."
        )
        return told
