"""`muster plan multicloud`: one job over several sites, outer steps, or whole jobs with their data moved ahead."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from msgspec.structs import replace

from muster.errors import InputError, near
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.quantities import BYTES, MONEY, RATE, TIME, counts, figure, numbers
from muster.planning.question import Ask, Question, Worked
from muster.planning.rows import read_row
from muster.planning.sites import Job, Shared, Site, costs_of, outer_bandwidth, share_out, synchronous_s

MOST_JOBS, MOST_SITES = 200, 12
_SITES = ("east:gpus=256", "west:gpus=512")
_JOBS = (
    "pretrain:gpus=192,hours=150,data=60TB,home=east",
    "finetune:gpus=64,hours=120,data=4TB,home=east",
    "sweep:gpus=64,hours=150,data=1TB,home=east",
    "eval:gpus=32,hours=100,data=500GB,home=east",
    "distill:gpus=256,hours=100,data=8TB,home=west",
    "serving:gpus=128,hours=168,data=300GB,home=west",
)
_JOB_HINT = "such as sweep:gpus=64,hours=150,data=1TB,home=east"


def read_site(text: str, field: str = "--site") -> tuple[Site, str]:
    """A site written ``east:gpus=256,price=2.95,egress=0.09,sku=NAME``, and its sku; raises `InputError`."""
    hint = "such as east:gpus=256; price= of a GPU-hour, egress= of a GB, or sku= of --prices, if you like"
    name, said = read_row(text, ("gpus",), ("price", "egress", "sku"), field, hint)
    gpus = int(counts("GPUs", "256").read(said["gpus"], field))
    price, egress = (MONEY.read(said.get(key, "0"), field) for key in ("price", "egress"))
    if not (1 <= gpus <= 10**7 and 0 <= price < 1e6 and 0 <= egress < 1e4):
        raise InputError(f"{name[:30]!r} makes no sense", field=field, hint="gpus from 1, price and egress from 0")
    return Site(name, gpus, price, egress), said.get("sku", "")


def read_job(text: str, homes: list[str], field: str = "--job") -> Job:
    """A job written ``sweep:gpus=64,hours=150,data=1TB,home=east``; raises `InputError`."""
    name, said = read_row(text, ("gpus", "hours"), ("data", "home"), field, _JOB_HINT)
    gpus = int(counts("GPUs", "64").read(said["gpus"], field))
    hours = numbers("hours", "150").read(said["hours"], field)
    data = BYTES.read(said.get("data", "0B"), field)
    home = said.get("home", homes[0])
    if home not in homes:
        hint = near(home, homes) or f"one of {', '.join(homes)}"
        raise InputError(f"home of {name[:30]!r} is {home[:30]!r}", field=field, hint=hint)
    if not (1 <= gpus <= 10**6 and 0 < hours <= 1e6 and 0 <= data <= 1e18):
        raise InputError(f"{name[:30]!r} makes no sense", field=field, hint="gpus from 1, hours above 0, data from 0B")
    return Job(name, gpus, hours, data, home)


class Multicloud(Question, frozen=True, kw_only=True, dict=True):
    """Sites, a training job that somebody wants to spread over them, and jobs that could be shared out whole."""

    planner = "multicloud"
    asks = "Should work be spread over several sites: as one job, in outer steps, or as whole jobs?"

    sites: Annotated[
        tuple[str, ...], Ask("S", "sites, each name:gpus=,price=,egress=,sku=", option="site")
    ] = _SITES  # fmt: skip
    jobs: Annotated[
        tuple[str, ...], Ask("J", "jobs, each name:gpus=,hours=,data=,home=", option="job")
    ] = _JOBS  # fmt: skip
    paid: Annotated[
        tuple[str, ...], Ask("Q", "prices of a GPU-hour, each SITE=PRICE", option="price")
    ] = ()  # fmt: skip
    horizon_s: Annotated[
        float, Ask("h", "time within which the jobs should be done", TIME, above=True, usual="1d to 30d")
    ] = 7 * 86400.0  # fmt: skip
    link: Annotated[
        float, Ask("B", "what a site sends to the others", RATE, above=True, usual="1Gb/s to 100Gb/s")
    ] = 1.25e9  # fmt: skip
    rtt_s: Annotated[
        float, Ask("r", "round trip between sites", TIME, usual="2ms (a zone) to 150ms (an ocean)", option="round-trip")
    ] = 0.03  # fmt: skip
    parameters: Annotated[
        float, Ask("P", "parameters of the one job", numbers("parameters", "100e9"), least=1e6, most=1e14,
                   usual="1e9 to 2e12")
    ] = 100e9  # fmt: skip
    step_s: Annotated[float, Ask("t", "its step at one site", TIME, above=True, usual="1s to 60s")] = 10.0
    gradient_bytes: Annotated[
        float, Ask("b", "bytes of a gradient on the wire", numbers("B", "2"), above=True, most=8, usual="1 to 4",
                   option="gradient-bytes")
    ] = 2.0  # fmt: skip
    every: Annotated[
        int, Ask("H", "steps between outer steps", counts("steps", "100"), least=1, usual="30 to 500",
                 source="DiLoCo: 500; Streaming DiLoCo: 100")
    ] = 100  # fmt: skip
    bits: Annotated[
        float, Ask("q", "bits of an outer gradient", numbers("bits", "4"), above=True, most=64, usual="4 to 32",
                   source="Streaming DiLoCo")
    ] = 4.0  # fmt: skip

    @cached_property
    def _sites(self) -> tuple[Site, ...]:
        found = [read_site(text)[0] for text in self.sites]
        names = [site.name for site in found]
        if not 2 <= len(found) <= MOST_SITES or len(set(names)) < len(names):
            what = f"names {len(found)} sites" if len(set(names)) == len(names) else "names a site twice"
            raise InputError(what, field="--site", hint=f"2 to {MOST_SITES}, each with its own name")
        for text in self.paid:
            name, _, price = text.partition("=")
            if name not in names:
                raise InputError(f"is {text[:40]!r}", field="--price", hint="SITE=PRICE, such as east=2.95")
            at = names.index(name)
            value = MONEY.read(price, "--price")
            if not 0 <= value < 1e6:
                raise InputError(f"is {text[:40]!r}", field="--price", hint="a price of one GPU-hour")
            found[at] = replace(found[at], price=value)
        if any(site.price for site in found) and not all(site.price for site in found):
            missing = ", ".join(site.name for site in found if not site.price)
            raise InputError(f"has no price of {missing}", field="--site", hint="prices of all sites, or of none")
        return tuple(found)

    @cached_property
    def _jobs(self) -> tuple[Job, ...]:
        homes = [site.name for site in self._sites]
        found = tuple(read_job(text, homes) for text in self.jobs)
        if not 1 <= len(found) <= MOST_JOBS:
            raise InputError(f"names {len(found)} jobs", field="--job", hint=f"1 to {MOST_JOBS}")
        return found

    @property
    def _priced(self) -> bool:
        return bool(self._sites[0].price)

    def _step(self) -> float:
        return synchronous_s(
            self.parameters, len(self._sites), self.step_s, self.link, self.rtt_s, self.gradient_bytes
        )  # fmt: skip

    def headline(self) -> float:
        """How many times as long a synchronous step takes, alone."""
        return self._step() / self.step_s

    def work(self) -> Worked:
        """See `muster.planning.sites`."""
        shared = share_out(self._jobs, self._sites, self.horizon_s / 3600, priced=self._priced)
        moved = self._moved(shared)
        need = outer_bandwidth(self.parameters, len(self._sites), self.step_s, self.every, self.bits)
        data = sum(job.data_bytes for job, _ in moved)
        out = [job for job, site in zip(self._jobs, shared.sites, strict=True) if site < 0]
        results = [
            Result("step of one job over all sites, against one site", self.headline(), "times"),
            Result("bandwidth that outer steps need", need, "B/s"),
            Result("the same in Gb/s", need * 8 / 1e9, "Gb/s"),
            Result("jobs that move", len(moved), f"of {len(self._jobs)}"),
            Result("data moved ahead", data, "B"),
            Result("time to move it over one link", data / self.link, "s"),
        ]
        if self._priced:
            results.append(Result("cost of GPU-hours and egress", shared.cost))
        if out:
            results.append(Result("GPU-hours that fit nowhere", sum(job.gpu_hours for job in out), "GPU-hours"))
        return Worked(
            self._answer(need, moved, data, out), _FORMULA,
            "Douillard et al., DiLoCo (2023) and Streaming DiLoCo (2025); search: muster.planning.sites",
            tuple(self._steps(need, shared, moved, data)), tuple(results), tuple(self._tables(shared)),
            (self._chart(),), _FAILS, tuple(self._todo(need, moved, out)),
        )  # fmt: skip

    def _moved(self, shared: Shared) -> list[tuple[Job, Site]]:
        pairs = zip(self._jobs, shared.sites, strict=True)
        placed = [(job, self._sites[site]) for job, site in pairs if site >= 0]
        return [(job, site) for job, site in placed if site.name != job.home]

    def _answer(self, need: float, moved: list[tuple[Job, Site]], data: float, out: list[Job]) -> str:
        told = f"Not as one job: a step over {len(self._sites)} sites takes {figure(self.headline())} times as long."
        if self.headline() < 1.05:
            told = f"One job over {len(self._sites)} sites pays {100 * (self.headline() - 1):.1f} % of its step here."
        enough = "there is enough" if need <= self.link else f"there are {figure(self.link * 8 / 1e9)}"
        told += f" In outer steps it needs {figure(need * 8 / 1e9)} Gb/s ({enough})."
        if moved:
            names = ", ".join(f"{job.name} to {site.name}" for job, site in moved[:3])
            more = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
            told += f" Whole jobs: move {names}{more}, with {BYTES.show(data)} ahead in {TIME.show(data / self.link)}."
        else:
            told += " Whole jobs: each stays where its data is."
        if out:
            told += f" {len(out)} fit nowhere within {TIME.show(self.horizon_s)}."
        return told

    def _steps(self, need: float, shared: Shared, moved: list[tuple[Job, Site]], data: float) -> list[Step]:
        w, p = len(self._sites), figure(self.parameters)
        sent = 2 * (w - 1) / w * self.parameters * self.gradient_bytes
        steps = [
            Step("gradients over each link", f"2 x ({w} - 1)/{w} x {p} x {figure(self.gradient_bytes)} B", sent, "B"),
            Step("a synchronous step", f"{TIME.show(self.step_s)} + {BYTES.show(sent)} / {RATE.show(self.link)} + "
                 f"{w - 1} x {TIME.show(self.rtt_s)}", self._step(), "s"),
            Step("bandwidth of outer steps", f"2 x ({w} - 1)/{w} x {p} x {figure(self.bits)} bits / "
                 f"({self.every} x {TIME.show(self.step_s)})", need * 8 / 1e9, "Gb/s"),
            Step("an outer exchange over the link, if it does not hide",
                 f"{figure(need * 8 / 1e9)} Gb/s x {self.every} x {TIME.show(self.step_s)} / "
                 f"{figure(self.link * 8 / 1e9)} Gb/s",
                 need * self.every * self.step_s / self.link, "s"),
        ]  # fmt: skip
        hours = self.horizon_s / 3600
        for at, site in enumerate(self._sites):
            there = [job for job, where in zip(self._jobs, shared.sites, strict=True) if where == at]
            terms = " + ".join(f"{job.gpus} x {figure(job.hours)}" for job in there[:6]) or "0"
            terms += " + ..." if len(there) > 6 else ""
            used = sum(job.gpu_hours for job in there)
            worked = f"{terms}; there are {site.gpus} x {figure(hours)} = {figure(site.gpus * hours)}"
            steps.append(Step(f"GPU-hours at {site.name}", worked, used, "GPU-hours"))
        if moved:
            terms = " + ".join(BYTES.show(job.data_bytes) for job, _ in moved[:8])
            steps.append(Step("data that moves", terms + (" + ..." if len(moved) > 8 else ""), data, "B"))
        if self._priced:
            how = (
                "searched to the end" if shared.exact else f"greedy and search; no less than {figure(shared.at_least)}"
            )
            steps.append(Step("cost of what runs", f"GPU-hours x price + data x egress, {how}", shared.cost))
        return steps

    def _tables(self, shared: Shared) -> list[Table]:
        costs = costs_of(self._jobs, self._sites, priced=self._priced)
        rows: list[tuple[float | str, ...]] = []
        for job, where, row in list(zip(self._jobs, shared.sites, costs, strict=True))[:40]:
            site = self._sites[where].name if where >= 0 else "nowhere"
            moves = job.data_bytes / self.link if where >= 0 and site != job.home else 0.0
            density = job.data_bytes / 1e9 / job.gpu_hours
            cost = figure(row[where]) if self._priced and where >= 0 else ""
            egress = next(each.egress for each in self._sites if each.name == job.home)
            even = f"{egress * density:.3f}" if egress else f"{density:.3g} GB x egress"
            rows.append((job.name, job.gpu_hours, job.home, site, TIME.show(moves) if moves else "", even, cost))
        columns = ("job", "GPU-hours", "data at", "runs at", "data ahead", "pays above", "cost")
        title = "Jobs (a move pays if a GPU-hour is cheaper by more than what 'pays above' says)"
        return [Table(title, columns, tuple(rows))]

    def _chart(self) -> Chart:
        grid = [0.1 * 10 ** (at / 8) for at in range(25)]
        points = tuple((gb, replace(self, link=gb / 8 * 1e9).headline()) for gb in grid if gb >= 1)
        here = Line("this link", ((self.link * 8 / 1e9, self.headline()),))
        title = "A synchronous step over the sites, by the link between them"
        return Chart(title, "Gb/s", "times as long as at one site", (Line("synchronous", points), here))

    def _todo(self, need: float, moved: list[tuple[Job, Site]], out: list[Job]) -> list[str]:
        told: list[str] = []
        for job, site in moved[:5]:
            told.append(
                f"Copy {BYTES.show(job.data_bytes)} of {job.name} from {job.home} to {site.name} now: it takes "
                f"{TIME.show(job.data_bytes / self.link)}; submit it when the copy is whole."
            )
        told.append("Also fit for several sites: sweeps, evaluation, inference, asynchronous rollouts.")
        if need <= self.link:
            told.append(f"One model at all sites: outer steps each {self.every} steps, and look at its loss first.")
        if not self._priced:
            told.append("With --prices FILE and sku= of each site (or price= and egress=) GPU-hours are weighed too.")
        if out:
            told.append(f"Left out: {', '.join(job.name for job in out[:5])}. A longer --horizon, or a block of GPUs.")
        return told


_FORMULA = (
    "synchronous step = t + 2 (W - 1)/W P b / B + (W - 1) r",
    "outer steps need 2 (W - 1)/W P q bits / (H t)",
    "jobs: minimise sum of GPU-hours x price(site) + data x egress(home), within GPUs x h of each site",
)
_FAILS = (
    "The link is shared or fails at times: outer steps then wait, though the mean bandwidth is enough.",
    "One TCP stream does not fill a long link; many streams or another transport are needed to reach B.",
    "Tensor, pipeline or sharded (FSDP) parallel over sites: far more is sent each step than a data parallel gradient.",
    "Outer steps change the training: the same loss is published for H up to 500 and not proven for every model.",
    "Capacity is counted in GPU-hours: large jobs may leave gaps in a site's time (muster simulate).",
)
