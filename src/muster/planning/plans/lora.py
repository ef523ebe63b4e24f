"""`muster plan lora`: adapters on shared bases: tenants a GPU, slots and hits, seconds to save, who pays what."""

from __future__ import annotations

import math
from typing import Annotated

from muster.errors import InputError
from muster.planning.adapters import (
    RESUME_BYTES,
    SERVE_BYTES,
    TRAIN_BYTES,
    adapters_on,
    charges,
    hit_share,
    zipf,
)
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.quantities import BYTES, MONEY, NUMBER, PER_HOUR, RATE, SHARE, TIME, counts, figure
from muster.planning.question import Ask, Question, Worked

_LLAMA = "Llama-3.1-8B, all linear layers: 2,621,440 r parameters, 16.1 GB in bf16 (computed)"
_TRACE = "Alibaba GenAI trace 2026: adapter load p50 4.4 s"
_ADAPTERS = counts("adapters", "200")
_SLOTS = counts("slots", "16")


class Lora(Question, frozen=True, kw_only=True):
    """Tenants with an adapter each, on bases that they share."""

    planner = "lora"
    asks = "How many GPUs do the tenants' adapters need, for training and for serving, and who pays what?"

    tenants: Annotated[
        int, Ask("N", "tenants, each with an adapter", _ADAPTERS, least=1, usual="2 to 10,000", most=1e5)
    ] = 200
    memory_bytes: Annotated[
        float, Ask("V", "memory of a GPU", BYTES, above=True, usual="24GB to 288GB", source="H100, 80 GB")
    ] = 80e9
    reserve_bytes: Annotated[
        float, Ask("v", "kept free for the CUDA context and peaks", BYTES, usual="2GB to 8GB", option="reserve")
    ] = 4e9
    base_bytes: Annotated[
        float, Ask("W", "weights of the base", BYTES, above=True, usual="2GB to 1TB", source=_LLAMA)
    ] = 16.1e9
    per_rank: Annotated[
        float, Ask("a", "parameters of an adapter per unit of rank", counts("parameters", "2621440"), above=True,
                   usual="0.5M to 20M", source=_LLAMA)
    ] = 2_621_440  # fmt: skip
    rank: Annotated[
        int, Ask("r", "rank", counts("", "16"), least=1, usual="4 to 256", most=65536, source="an example")
    ] = 16
    tokens: Annotated[
        float, Ask("k", "tokens of one tenant in a training step", counts("tokens", "16k"), usual="2k to 128k")
    ] = 16_384
    activation_bytes: Annotated[
        float, Ask("A", "activations a token, with checkpointing", BYTES, usual="100kB to 5MB", option="activation",
                   source="2 L h bytes: 262 kB for 8B (Korthikanti et al., 2022)")
    ] = 262_144.0  # fmt: skip
    write: Annotated[float, Ask("B", "rate of writing a checkpoint", RATE, above=True, usual="0.5GB/s to 20GB/s")] = 1e9
    max_rank: Annotated[
        int | None, Ask("m", "rank that serving slots are padded to; the rank itself otherwise", counts("", "64"),
                        least=1, usual="16 to 256", most=65536)
    ] = None  # fmt: skip
    slots: Annotated[
        int, Ask("s", "serving slots of a server (max_loras)", _SLOTS, least=1, usual="1 to 256", most=1e5)
    ] = 16
    servers: Annotated[int, Ask("S", "servers that requests are spread over at random", counts("servers", "2"), least=1,
                                usual="1 to 100", most=1e5)] = 2  # fmt: skip
    requests: Annotated[float, Ask("q", "requests to all of them", PER_HOUR, usual="100/h to 50/s", most=1e9)] = 7200.0
    skew: Annotated[
        float, Ask("z", "Zipf exponent of the adapters' popularity", NUMBER, usual="0 (alike) to 1.5", most=4)
    ] = 1.0  # fmt: skip
    popular: Annotated[
        tuple[str, ...], Ask("", "requests of each adapter, instead of Zipf", usual="NAME=COUNT, one each")
    ] = ()
    load_s: Annotated[float, Ask("l", "time to load an adapter", TIME, usual="0.1s to 10s", source=_TRACE)] = 4.4
    bill: Annotated[float | None, Ask("b", "cost of the servers a month, to be shared", MONEY, usual="1,000 to 1M")] = (
        None
    )

    def work(self) -> Worked:
        """See `muster.planning.adapters`."""
        shares = self._popularity()
        parameters = self._parameters()
        each = TRAIN_BYTES * parameters + self.tokens * self.activation_bytes
        fit = adapters_on(self.memory_bytes, self.reserve_bytes, self.base_bytes, each)
        if not fit:
            least = self.base_bytes + self.reserve_bytes + each
            hint = f"{BYTES.show(least)} at least, or a base split over several GPUs"
            raise InputError(f"of {BYTES.show(self.memory_bytes)} holds no adapter", field="--memory", hint=hint)
        gpus = math.ceil(len(shares) / fit)
        hits = hit_share(list(shares.values()), self.slots)
        busy = self._busy(hits)
        enough = self._slots_for(list(shares.values()), 0.99)
        return Worked(
            self._answer(len(shares), fit, gpus, hits, busy),
            (
                "P = a r;  training bytes of a tenant = 16 P + k A;  n = floor((V - v - W) / that);  GPUs = N / n",
                "hits = sum p_i (1 - e^(-p_i x)),  x such that sum (1 - e^(-p_i x)) = s       (Che)",
                "loading = (q / S) (1 - hits) l          share of a server's time; 1 is the cliff",
                "charge = bill x (base / N + slots x own residency + compute x own tokens)",
            ),
            "Hu et al. 2021; Che et al. 2002; muster.planning.adapters",
            tuple(self._steps(shares, parameters, each, fit, gpus, hits, busy)),
            (
                Result("GPUs to train all tenants at once", float(gpus), "GPUs"),
                Result("tenants a GPU", float(fit)),
                Result("GPUs with a base of each tenant's own", float(len(shares)), "GPUs"),
                Result("seconds to save one tenant's state", RESUME_BYTES * parameters / self.write, "s"),
                Result("memory of all slots of a server", self._slot_bytes() * self.slots, "B"),
                Result("requests that find their adapter resident", hits, "share"),
                Result("share of a server's time spent loading", busy),
                Result("slots for 99 % hits", float(enough), "slots"),
            ),
            (self._slot_table(shares), *self._bill_table(shares)),
            (self._chart(shares),),
            (
                "Requests of one adapter come in bursts: then hits are more than told, and the misses come together.",
                "Routing sends a tenant's requests to one server (affinity): then each server sees fewer adapters; "
                "plan it as one server with its share of the tenants.",
                "Adapters share the base's process: one that crashes it takes all others with it; tenants that do not "
                "trust each other need servers of their own (muster plan sharing).",
                "A working set above the slots does not slow things a little: SGLang measured a median time to first "
                "token of 39.65 ms against 6,278 ms with 16 adapters on 8 slots (PR 13349).",
            ),
            tuple(self._todo(hits, busy, enough, fit)),
        )  # fmt: skip

    def headline(self) -> float:
        """GPUs to train."""
        each = TRAIN_BYTES * self._parameters() + self.tokens * self.activation_bytes
        fit = adapters_on(self.memory_bytes, self.reserve_bytes, self.base_bytes, each)
        if not fit:
            raise InputError("holds no adapter", field="--memory")
        return float(math.ceil(len(self._popularity()) / fit))

    def _parameters(self) -> float:
        return self.per_rank * self.rank

    def _slot_bytes(self) -> float:
        """Bytes of a serving slot: padded to the largest rank that is allowed."""
        if self.max_rank is not None and self.max_rank < self.rank:
            raise InputError(f"is {self.max_rank}", field="--max-rank", hint=f"{self.rank} at least, the rank itself")
        return SERVE_BYTES * self.per_rank * (self.max_rank or self.rank)

    def _popularity(self) -> dict[str, float]:
        if not self.popular:
            shares = zipf(self.tenants, self.skew)
            return {f"tenant-{at + 1}": share for at, share in enumerate(shares)}
        counted: dict[str, float] = {}
        for text in self.popular:
            name, equals, number = text.rpartition("=")
            if not equals or not name or not number.replace(".", "", 1).isdigit():
                raise InputError(f"{text[:40]!r} is not NAME=COUNT", field="--popular", hint="such as tenant-a=1200")
            counted[name] = counted.get(name, 0.0) + float(number)
        total = sum(counted.values())
        if not total:
            raise InputError("counts no requests", field="--popular", hint="such as tenant-a=1200")
        return {name: count / total for name, count in counted.items()}

    def _busy(self, hits: float) -> float:
        return self.requests / self.servers / 3600 * (1 - hits) * self.load_s

    def _slots_for(self, shares: list[float], wanted: float) -> int:
        low, high = 0, len(shares)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if hit_share(shares, middle) >= wanted else (middle, high)
        return high

    def _answer(self, tenants: int, fit: int, gpus: int, hits: float, busy: float) -> str:
        cliff = "it cannot keep up" if busy >= 1 else f"{100 * busy:.0f} % of its time goes to loading"
        return (
            f"{tenants} tenants train on {gpus} GPUs that share bases ({fit} each), not on {tenants}; serving with "
            f"{self.slots} slots finds {100 * hits:.0f} % of the adapters resident, and {cliff}."
        )

    def _steps(
        self, shares: dict[str, float], parameters: float, each: float, fit: int, gpus: int, hits: float, busy: float
    ) -> list[Step]:
        v, w, keep = (BYTES.show(value) for value in (self.memory_bytes, self.base_bytes, self.reserve_bytes))
        count = len(shares)
        rate = self.requests / self.servers / 3600
        return [
            Step("parameters of an adapter, P", f"{figure(self.per_rank)} x {self.rank}", parameters),
            Step("training bytes of a tenant",
                 f"16 x {figure(parameters)} + {figure(self.tokens)} x {BYTES.show(self.activation_bytes)}", each, "B"),
            Step("tenants a GPU, n", f"floor(({v} - {keep} - {w}) / {BYTES.show(each)})", float(fit)),
            Step("GPUs", f"ceil({count} / {fit})", float(gpus), "GPUs"),
            Step("bytes of a serving slot", f"2 x {figure(self.per_rank)} x {self.max_rank or self.rank}",
                 self._slot_bytes(), "B"),
            Step("hits", f"Che: {self.slots} slots, {count} adapters, the first has {SHARE.show(max(shares.values()))}",
                 hits, "share"),
            Step("loading", f"{figure(rate)}/s x (1 - {figure(hits)}) x {TIME.show(self.load_s)}", busy),
            Step("to save one tenant", f"14 x {figure(parameters)} / {RATE.show(self.write)}",
                 RESUME_BYTES * parameters / self.write, "s"),
        ]  # fmt: skip

    def _slot_table(self, shares: dict[str, float]) -> Table:
        rows: list[tuple[float | str, ...]] = []
        values = list(shares.values())
        for slots in sorted({1, 4, 8, 16, 32, 64, self.slots, len(values)}):
            if slots > len(values):
                continue
            hits = hit_share(values, slots)
            busy = self._busy(hits)
            rows.append((slots, BYTES.show(slots * self._slot_bytes()), SHARE.show(hits), busy,
                         "cannot keep up" if busy >= 1 else ""))  # fmt: skip
        return Table("Slots", ("slots", "memory", "hits", "time spent loading", ""), tuple(rows))

    def _bill_table(self, shares: dict[str, float]) -> tuple[Table, ...]:
        if self.bill is None:
            return ()
        slots = self.slots * self._slot_bytes()
        base_share, slot_share = (part / self.memory_bytes for part in (self.base_bytes, slots))
        if base_share + slot_share > 1:
            raise InputError("base and slots are larger than the GPU", field="--slots", hint="fewer, or a larger GPU")
        resident = {name: -math.expm1(-share * len(shares)) for name, share in shares.items()}
        paid = charges(self.bill, shares, resident, base_share, slot_share)
        first = sorted(paid.items(), key=lambda each: -each[1])
        rows: list[tuple[float | str, ...]] = [
            (name, SHARE.show(shares[name]), f"{pays:,.2f}") for name, pays in first[:8]
        ]
        if len(first) > 8:
            rest = first[8:]
            rows.append((f"{len(rest)} more", SHARE.show(sum(shares[name] for name, _ in rest)),
                         f"{sum(pays for _, pays in rest):,.2f}"))  # fmt: skip
        rows.append(("all", "100 %", f"{sum(paid.values()):,.2f}"))
        return (Table("Who pays what", ("tenant", "tokens", "pays"), tuple(rows)),)

    def _chart(self, shares: dict[str, float]) -> Chart:
        values = list(shares.values())
        steps = sorted({max(1, round(len(values) * at / 40)) for at in range(1, 41)})
        points = tuple((float(slots), 100 * hit_share(values, slots)) for slots in steps)
        now = (float(self.slots), 100 * hit_share(values, self.slots))
        return Chart("Requests that find their adapter resident, by slots", "slots", "hits, %",
                     (Line("", points), Line("now", (now,))))  # fmt: skip

    def _todo(self, hits: float, busy: float, enough: int, fit: int) -> list[str]:
        told: list[str] = []
        if busy >= 0.2:
            room = enough * self._slot_bytes()
            told.append(f"Raise max_loras to {enough} ({BYTES.show(room)} of each server's KV memory): 99 % hits.")
            told.append("Or route by adapter with a cap on load, so that each server sees fewer of them.")
        if self.max_rank is not None and self.max_rank > self.rank:
            told.append(f"max_lora_rank {self.max_rank} pads every slot: servers by rank would hold "
                        f"{self.max_rank // self.rank} times as many.")  # fmt: skip
        told.append(f"Pack training jobs {fit} to a GPU on one base; save each tenant alone, so that one can leave.")
        if self.bill is None:
            told.append("Say --bill to see what each tenant pays; the charges sum to it to the cent.")
        return told
