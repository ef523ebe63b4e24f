"""One document that describes a simulation: fleet, queues, work and settings; everything is checked before it runs.

The fields are explained in docs/reference/run-file.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from muster.engine.config import Config
from muster.engine.quota import quota_warnings
from muster.errors import InputError, near
from muster.model.fleet import WHOLE_GPU_MILLI, Fleet
from muster.model.parallelism import Parallelism
from muster.model.queue import Queue, Quota
from muster.model.snapshot import Snapshot
from muster.model.workload import Checkpointing, Workload
from muster.planning.placed import Network
from muster.policy.ordering.registry import find_ordering
from muster.policy.registry import find_policy
from muster.sim.cluster_run import ClusterRun
from muster.sim.failures import FailureModel
from muster.sim.presets import PRESETS
from muster.sim.run_devices import SharingMode, with_shares
from muster.sim.run_inputs import RunOptions
from muster.sim.run_pods import BundleItem, BusyItem, RayItem, RoleItem, Strategy, TopologyItem, busy_of, pods_of
from muster.sim.service_items import ServiceItem, service_notes, services_of
from muster.traces import read_fleet, read_workload
from muster.traces.document import Document, read_document

MOST_JOBS = 5_000_000

Seconds = Annotated[float, Meta(ge=0, le=1e12)]
Gpus = Annotated[float, Meta(ge=0, le=1e9)]


class QuotaItem(Struct, frozen=True, forbid_unknown_fields=True):
    """A quota of one flavor, in GPUs; ``nominal_milli`` says the same in thousandths. Limits left out are none."""

    flavor: str
    nominal_gpus: Gpus | None = None
    nominal_milli: Annotated[int, Meta(ge=0, le=10**12)] | None = None
    borrowing_limit: Gpus | None = None
    lending_limit: Gpus | None = None


class QueueItem(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue; ``parent`` is left out at the root."""

    name: str
    parent: str = ""
    weight: float = 1.0
    quotas: list[QuotaItem] = field(default_factory=list[QuotaItem])
    min_runtime_s: Seconds = 0.0
    max_running_gpus: Gpus | None = None
    max_priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] | None = None
    reclaim_s: Seconds = 0.0
    ramp_gpus_per_s: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    when_can_borrow: Literal["borrow", "try-next-flavor"] = "borrow"
    when_can_preempt: Literal["preempt", "try-next-flavor"] = "try-next-flavor"
    tenant: str = ""


class CheckpointingItem(Struct, frozen=True, forbid_unknown_fields=True):
    """Work is saved each ``interval_s``; a restart takes ``restart_s``."""

    interval_s: Annotated[float, Meta(gt=0, le=1e12)]
    restart_s: Seconds = 0.0


class ParallelismItem(Struct, frozen=True, forbid_unknown_fields=True):
    """How a training job is split over its GPUs, and what a step sends; 0 is filled in."""

    tensor: Annotated[int, Meta(ge=1, le=10**6)] = 1
    pipeline: Annotated[int, Meta(ge=1, le=10**6)] = 1
    data: Annotated[int, Meta(ge=0, le=10**6)] = 0
    expert: Annotated[int, Meta(ge=1, le=10**6)] = 1
    parameters: Annotated[float, Meta(ge=0, le=1e15)] = 0.0
    layers: Annotated[int, Meta(ge=0, le=10**6)] = 0
    hidden: Annotated[int, Meta(ge=0, le=10**9)] = 0
    sequence: Annotated[int, Meta(ge=1, le=10**9)] = 8192
    micro_batch: Annotated[int, Meta(ge=1, le=10**6)] = 1
    microbatches: Annotated[int, Meta(ge=0, le=10**6)] = 0
    expert_layers: Annotated[int, Meta(ge=0, le=10**6)] = 0
    top_k: Annotated[int, Meta(ge=1, le=10**6)] = 1
    element_bytes: Annotated[int, Meta(ge=1, le=16)] = 2
    recompute: bool = False
    interleave: Annotated[int, Meta(ge=1, le=10**6)] = 1
    zero3: bool = False
    overlap: Annotated[float, Meta(ge=0, le=1)] = 1.0
    achieved_tflops: Annotated[float, Meta(ge=0, le=1e6)] = 0.0


class CommunicationItem(Struct, frozen=True, forbid_unknown_fields=True):
    """The network that slow-downs are told from; ``stretch``: run times are longer by them."""

    stretch: bool = True
    nic: str = "ConnectX-7"
    nics_per_gpu: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    leaf: str = ""
    oversubscription: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    inside_gb_per_s: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    outside_gb_per_s: Annotated[float, Meta(gt=0, le=1e6)] | None = None


class JobItem(Struct, frozen=True, forbid_unknown_fields=True):
    """A job of ``pods`` pods that are alike, or a series of ``count`` such jobs, one each ``every_s``.

    With ``min_pods`` it is elastic: it runs with at least so many of them. Instead of pods that are alike it may have
    ``roles``, be a placement group (``bundles`` and ``strategy``), or a whole cluster (``ray``).
    ``gpus``, ``cpu`` (cores) and ``memory`` (bytes) are a pod's; these two may be written as Kubernetes quantities.
    ``gpus`` below 1 is a share of one GPU, ``mig`` a MIG profile of which each pod gets an instance. The jobs of a
    series are called NAME-1, NAME-2, and so on.
    """

    name: Annotated[str, Meta(min_length=1, max_length=253)]
    pods: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    min_pods: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    gpus: Annotated[float, Meta(ge=0, le=1024)] = 1.0
    cpu: str | float = 0.0
    memory: str | float = 0.0
    gpu_models: list[str] = field(default_factory=list[str])
    roles: list[RoleItem] | None = None
    bundles: list[BundleItem] | None = None
    strategy: Strategy | None = None
    ray: RayItem | None = None
    busy: list[BusyItem] = field(default_factory=list[BusyItem])
    mig: str = ""
    sharing: SharingMode = ""
    tenant: str = ""
    submitted_s: Seconds = 0.0
    duration_s: Seconds | None = None
    time_limit_s: Seconds | None = None
    queue: str = ""
    user: str = ""
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] = 0
    quality: str = ""
    preemptible: bool = True
    flavors: list[str] = field(default_factory=list[str])
    topology: TopologyItem | None = None
    parallelism: ParallelismItem | None = None
    checkpointing: CheckpointingItem | None = None
    depends_on: list[str] = field(default_factory=list[str])
    start_deadline_s: Seconds | None = None
    not_before_s: Seconds = 0.0
    count: Annotated[int, Meta(ge=1, le=MOST_JOBS)] = 1
    every_s: Seconds = 0.0
    arrivals: Literal["regular", "poisson"] = "regular"


class RunDocument(Struct, frozen=True, forbid_unknown_fields=True):
    """A run file.

    ``fleet`` and ``workload`` are SPECs as on the command line; ``workload`` may be a list of jobs instead.
    ``config`` holds settings of the scheduler and ``preset``. ``default_queue`` takes work whose queue is not in the
    list. ``until_s`` ends the run; without it, it ends when nothing more happens. ``seed`` decides generated work, and
    what breaks when. ``services`` have replicas that come and go. ``spares`` are nodes (names, or patterns such as
    ``gpu-1*``) that only replacements of lost pods may use, ``spot`` those that are bought as spot.
    """

    fleet: str
    workload: str | list[JobItem]
    queues: list[QueueItem] = field(default_factory=list[QueueItem])
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    default_queue: str | None = None
    until_s: Seconds | None = None
    seed: Annotated[int, Meta(ge=0, le=2**62)] = 0
    spares: list[str] = field(default_factory=list[str])
    spot: list[str] = field(default_factory=list[str])
    services: list[ServiceItem] = field(default_factory=list[ServiceItem])
    failures: FailureModel = FailureModel()
    ready_timeout_s: Annotated[float, Meta(gt=0, le=1e12)] | None = None
    at_limit: Literal["kill", "run-on"] = "kill"
    pod_every_s: Annotated[float, Meta(ge=0, le=86400)] = 0.05
    check_every: Annotated[int, Meta(ge=0, le=10**9)] = 0
    gantt: bool = False
    communication: bool | CommunicationItem = False


class PreparedRun(Struct):
    """A run that can start: all is read and checked. ``notes`` are what its owner should know, a line each."""

    document: RunDocument
    run: ClusterRun
    preset: str
    config: Config
    notes: tuple[str, ...]


def prepare_run(path: str, settings: Mapping[str, Any] | None = None) -> PreparedRun:
    """Read and check a run file, and all that it names; ``settings`` go before those of its ``config``.

    Raises:
        InputError: something is wrong: with the file, the line and the field's path, such as ``queues[1].weight``.
    """
    document = read_document(path)
    asked = document.convert(RunDocument)
    preset, config = _config(document, settings or {})
    fleet = _fleet(document, asked)
    queues = _queues(document, asked)
    workloads, origins, skipped = _workloads(document, asked, fleet)
    workloads = _with_queues(document, asked, workloads, origins)
    services = services_of(
        document, asked.services, {queue.name: None for queue in queues}, {job.name for job in workloads}, asked.until_s
    )
    options = RunOptions(
        asked.at_limit, asked.pod_every_s, asked.check_every, keep_places=asked.gantt, failures=asked.failures,
        seed=asked.seed, services=services, services_until_s=asked.until_s or 0.0,
        ready_timeout_s=asked.ready_timeout_s, **_communication(document, asked, fleet),
    )  # fmt: skip
    if isinstance(asked.workload, list):
        steps = [busy_of(document, f"workload[{number}]", item) for number, item in enumerate(asked.workload)]
        busy = {job.name: steps[origin] for job, origin in zip(workloads, origins, strict=True) if steps[origin]}
        options = replace(options, busy=busy)
    if asked.failures.endless and asked.until_s is None:
        raise document.error("failures", "go on for ever, and so would the run", "say with until_s when it ends")
    try:
        run = ClusterRun(Snapshot(fleet, queues), workloads, config, options)
    except InputError as error:
        raise _placed(document, error, origins) from None
    notes = [each.text for each in quota_warnings(queues, fleet.capacity_milli)] if queues else []
    notes += service_notes(services, queues, config.stop_s)
    if skipped:
        notes.append(f"{asked.workload}: {skipped:,} rows skipped; `muster trace info {asked.workload}` tells why.")
    return PreparedRun(asked, run, preset, config, tuple(notes))


def run_file_schema() -> dict[str, Any]:
    """The JSON schema of a run file, for editors."""
    schema = msgspec.json.schema(RunDocument)
    config = msgspec.json.schema(Config)
    parts: dict[str, Any] = {**schema["$defs"], **config["$defs"]}
    settings = parts["Config"]["properties"]
    settings["preset"] = {"enum": sorted(PRESETS), "description": "The settings that are not given are those of it."}
    parts["RunDocument"]["properties"]["config"] = {"$ref": "#/$defs/Config"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "$defs": parts}


# -- the parts --------------------------------------------------------------------------------------------------------


def _config(document: Document, settings: Mapping[str, Any]) -> tuple[str, Config]:
    given: dict[str, Any] = {**(document.data.get("config") or {}), **settings}
    preset = given.pop("preset", "muster")
    if not isinstance(preset, str) or preset not in PRESETS:
        shown = str(preset)[:40]
        hint = near(shown, list(PRESETS)) or f"one of {', '.join(PRESETS)}"
        raise document.error("config.preset", f"there is no preset {shown!r}", hint)
    config = document.convert(Config, {**PRESETS[preset](), **given}, "config")
    for key, find in (("placement", find_policy), ("ordering", find_ordering)):
        try:
            find(getattr(config, key))
        except InputError as error:
            raise document.error(f"config.{key}", error.what, error.hint) from None
    return preset, config


def _fleet(document: Document, asked: RunDocument) -> Fleet:
    try:
        fleet, _ = read_fleet(asked.fleet)
    except InputError as error:
        raise _of_spec(document, "fleet", error) from None
    if not fleet.nodes:
        raise document.error("fleet", "has no nodes")
    if not asked.spares and not asked.spot:
        return fleet
    spares, spot = _named(document, "spares", asked.spares, fleet), _named(document, "spot", asked.spot, fleet)
    nodes = (
        replace(node, spare=node.name in spares, purchase="spot" if node.name in spot else node.purchase)
        for node in fleet
    )
    return replace(fleet, nodes=tuple(nodes))


def _named(document: Document, key: str, patterns: Sequence[str], fleet: Fleet) -> set[str]:
    """The nodes that a list of names and patterns such as ``gpu-1*`` names."""
    names = [node.name for node in fleet]
    found: set[str] = set()
    for at, pattern in enumerate(patterns):
        matched = [name for name in names if fnmatchcase(name, pattern)]
        if not matched:
            hint = near(pattern, names) or f"they are called {names[0]} to {names[-1]}"
            raise document.error(f"{key}[{at}]", f"there is no node {pattern!r}", hint)
        found.update(matched)
    return found


def _communication(document: Document, asked: RunDocument, fleet: Fleet) -> dict[str, Any]:
    """The network and whether run times are stretched, as options of the run."""
    item = asked.communication
    if isinstance(item, bool):
        return {"stretch": item}
    network = Network(
        item.nic, item.nics_per_gpu, item.leaf, item.oversubscription, item.inside_gb_per_s, item.outside_gb_per_s
    )
    for key, check in (("nic", network.check_nic), ("leaf", lambda: network.leaf_of(fleet))):
        try:
            check()
        except InputError as error:
            raise document.error(f"communication.{key}", error.what, error.hint) from None
    return {"network": network, "stretch": item.stretch}


def _of_spec(document: Document, key: str, error: InputError) -> InputError:
    """An error in what a SPEC names keeps its own file; an error in the SPEC itself is at its line."""
    if error.file is not None and error.line is not None:
        return error
    where = f"{error.file}: " if error.file else f"{error.field}: " if error.field else ""
    return document.error(key, f"{where}{error.what}", error.hint)


def _queues(document: Document, asked: RunDocument) -> tuple[Queue, ...]:
    queues: list[Queue] = []
    for number, item in enumerate(asked.queues):
        quotas: list[Quota] = []
        for position, quota in enumerate(item.quotas):
            where = f"queues[{number}].quotas[{position}]"
            if (quota.nominal_gpus is None) == (quota.nominal_milli is None):
                what = "give either nominal_gpus or nominal_milli" + (
                    "" if quota.nominal_gpus is None else ", not both"
                )
                raise document.error(where, what)
            nominal = quota.nominal_milli if quota.nominal_gpus is None else _milli(quota.nominal_gpus)
            limits = (_milli(quota.borrowing_limit), _milli(quota.lending_limit))
            quotas.append(Quota(quota.flavor, nominal or 0, *limits))
        queues.append(
            Queue(
                item.name, item.parent, item.weight, tuple(quotas), item.min_runtime_s, _milli(item.max_running_gpus),
                item.max_priority, item.reclaim_s, item.ramp_gpus_per_s * WHOLE_GPU_MILLI,
                item.when_can_borrow, item.when_can_preempt, item.tenant,
            )
        )  # fmt: skip
    if asked.default_queue is not None and asked.default_queue not in {queue.name for queue in queues}:
        hint = near(asked.default_queue, [queue.name for queue in queues])
        raise document.error("default_queue", f"there is no queue {asked.default_queue!r}", hint)
    return tuple(queues)


def _milli(gpus: float | None) -> int | None:
    return None if gpus is None else round(gpus * WHOLE_GPU_MILLI)


def _workloads(document: Document, asked: RunDocument, fleet: Fleet) -> tuple[list[Workload], list[int], int]:
    """The work, for each the job of the list that it is from (nothing for a SPEC), and how many rows were skipped."""
    if isinstance(asked.workload, str):
        spec = asked.workload
        if spec.startswith("generate") and "seed=" not in spec:
            spec += ("," if ":" in spec else ":") + f"seed={asked.seed}"
        try:
            trace = read_workload(spec, fleet)
        except InputError as error:
            raise _of_spec(document, "workload", error) from None
        return list(trace.workloads), [], len(trace.skipped)
    total = sum(item.count for item in asked.workload)
    if total > MOST_JOBS:
        raise document.error("workload", f"is {total:,} jobs", f"at most {MOST_JOBS:,}")
    workloads: list[Workload] = []
    origins: list[int] = []
    seen: set[str] = set()
    models = tuple(fleet.gpus_by_model)
    for number, item in enumerate(asked.workload):
        series = _series(document, asked, number, item, models)
        for workload in series:
            if workload.name in seen:
                raise document.error(f"workload[{number}].name", f"there is a job {workload.name!r} before")
            seen.add(workload.name)
        workloads += series
        origins += [number] * len(series)
    for number, item in enumerate(asked.workload):
        for at, name in enumerate(item.depends_on):
            if name not in seen:
                names = [each.name for each in asked.workload]
                hint = near(name, names)
                if name in names:
                    first = workloads[origins.index(names.index(name))].name
                    hint = f"{name} is a series: name its jobs, such as {first}"
                raise document.error(f"workload[{number}].depends_on[{at}]", f"there is no job {name!r}", hint)
    return workloads, origins, 0


def _series(
    document: Document, asked: RunDocument, number: int, item: JobItem, models: Sequence[str]
) -> list[Workload]:
    where = f"workload[{number}]"
    pod_sets, topology = pods_of(document, where, item)
    pod_sets = with_shares(document, where, item, pod_sets, models)
    saved = item.checkpointing
    job = Workload(
        item.name,
        pod_sets,
        submitted_s=item.submitted_s,
        duration_s=item.duration_s,
        time_limit_s=item.time_limit_s,
        queue=item.queue,
        user=item.user,
        priority=item.priority,
        quality=item.quality,
        flavors=tuple(item.flavors),
        topology=topology,
        parallelism=item.parallelism and Parallelism(**msgspec.structs.asdict(item.parallelism)),
        checkpointing=saved and Checkpointing(saved.interval_s, saved.restart_s),
        preemptible=item.preemptible,
        depends_on=tuple(item.depends_on),
        start_deadline_s=item.start_deadline_s,
        not_before_s=item.not_before_s,
    )
    if item.count == 1:
        return [job]
    width = len(str(item.count))
    times = [item.submitted_s + at * item.every_s for at in range(item.count)]
    if item.arrivals == "poisson":
        import numpy as np

        rng = np.random.Generator(np.random.PCG64([asked.seed, number]))
        gaps: list[float] = np.cumsum(rng.exponential(item.every_s, item.count)).tolist()
        times = [item.submitted_s + gap - gaps[0] for gap in gaps]
    return [replace(job, name=f"{item.name}-{at + 1:0{width}d}", submitted_s=time) for at, time in enumerate(times)]


def _with_queues(
    document: Document, asked: RunDocument, workloads: list[Workload], origins: Sequence[int]
) -> list[Workload]:
    """The work with ``default_queue`` where its own is not in the list; refused where there is no such default."""
    known = {queue.name for queue in asked.queues}
    if not known:
        return workloads
    placed: list[Workload] = []
    for index, workload in enumerate(workloads):
        if workload.queue in known:
            placed.append(workload)
            continue
        if asked.default_queue is None:
            path = f"workload[{origins[index]}].queue" if origins else "workload"
            whose = "has no queue" if not workload.queue else f"is of queue {workload.queue!r}, which is not listed"
            hint = near(workload.queue, list(known)) or "name one of the list, or set default_queue"
            raise document.error(path, f"{workload.name} {whose}", hint)
        placed.append(replace(workload, queue=asked.default_queue))
    return placed


def _placed(document: Document, error: InputError, origins: Sequence[int]) -> InputError:
    """An error of the engine at its place in the document."""
    if error.file is not None:
        return error
    path = error.field or ""
    if path.startswith("workloads[") and origins:
        number, _, rest = path.removeprefix("workloads[").partition("]")
        # replicas of services come after the jobs
        path = f"workload[{origins[int(number)]}]{rest}" if int(number) < len(origins) else "services"
    elif path.startswith("workloads["):
        path = "workload"
    return document.error(
        path.replace("_limit_milli", "_limit").replace("ramp_milli", "ramp_gpus"), error.what, error.hint
    )
