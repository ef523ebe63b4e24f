"""The work: what a pod asks for, pod sets, and workloads (gangs of pod sets)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import InputError
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.parallelism import Parallelism


class Toleration(Struct, frozen=True, order=True):
    """What taints a pod bears; ``operator`` is ``Equal`` or ``Exists``; empty ``key`` with ``Exists`` bears all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


PASSING = "muster.dev/now-"
"""What the keys of labels begin with that stand for a condition which nodes meet or not as pods come and go."""

SHARING_MODES = ("mps", "time-slicing", "soft")
"""Ways in which pods share a GPU without a wall between them. ``soft``: a share that only the scheduler counts."""


class PodShape(Struct, frozen=True, order=True):
    """What one pod asks for. Pods that ask for the same are of one shape and are decided once.

    Attributes:
        cpu_milli: CPU, in thousandths of a core.
        memory_bytes: host memory.
        gpus: number of GPUs on one node; 0 is a CPU pod.
        gpu_milli: share of each of these GPUs; 1000 is a whole GPU. Only meaningful with ``gpus`` above 0.
        gpu_models: models that are allowed; empty is any.
        node_selector: sorted ``(key, value)`` labels that a node must have.
        tolerations: sorted tolerations.
        mig_profile: a MIG instance of this profile, such as ``1g.10gb``; ``gpus`` is then 1 and ``gpu_milli`` its share
            of the GPU's memory slices.
        sharing: how a GPU of which it takes a part is shared: one of SHARING_MODES; empty: however.
        tenant: with whom it shares a GPU of which it takes a part: only with pods that say the same. A MIG instance is
            a wall, and may stand beside anybody's.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    gpu_milli: int = WHOLE_GPU_MILLI
    gpu_models: tuple[str, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    mig_profile: str = ""
    sharing: str = ""
    tenant: str = ""

    @property
    def lasting(self) -> PodShape:
        """The shape without what nodes meet or not as pods come and go; itself where it asks for no such thing."""
        kept = tuple(pair for pair in self.node_selector if not pair[0].startswith(PASSING))
        return self if len(kept) == len(self.node_selector) else replace(self, node_selector=kept)

    @property
    def shares_gpu(self) -> bool:
        """Whether it takes a part of a GPU with no wall around it."""
        return self.gpus > 0 and self.gpu_milli < WHOLE_GPU_MILLI and not self.mig_profile

    @property
    def gpu_milli_total(self) -> int:
        """GPU that the pod takes, in thousandths."""
        return self.gpus * self.gpu_milli

    def describe(self) -> str:
        """Short text such as ``2 GPUs, 16 CPU, 64 GiB`` or ``0.46 GPU, 6 CPU, 12 GiB``."""
        parts: list[str] = []
        if self.gpus and self.mig_profile:
            parts.append(f"MIG {self.mig_profile}")
        elif self.gpus and self.gpu_milli < WHOLE_GPU_MILLI:
            share = f"{self.gpu_milli / WHOLE_GPU_MILLI:g} GPU{f' by {self.sharing}' if self.sharing else ''}"
            parts.append(share if self.gpus == 1 else f"{self.gpus} x {share}")
        elif self.gpus:
            parts.append(f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}")
        if self.gpu_models:
            parts[-1:] = [f"{parts[-1] if parts else ''} ({' or '.join(self.gpu_models)})".strip()]
        parts.append(f"{self.cpu_milli / 1000:g} CPU")
        if self.memory_bytes:
            parts.append(f"{self.memory_bytes / 2**30:.3g} GiB")
        return ", ".join(parts)


def checked_shape(shape: PodShape, *, file: str | None = None, line: int | None = None) -> PodShape:
    """Return ``shape`` if its numbers make sense, else raise `InputError` naming the field."""

    def refuse(name: str, what: str, hint: str | None = None) -> None:
        raise InputError(what, file=file, line=line, field=name, hint=hint)

    if shape.cpu_milli < 0:
        refuse("cpu_milli", f"is negative ({shape.cpu_milli})")
    if shape.memory_bytes < 0:
        refuse("memory_bytes", f"is negative ({shape.memory_bytes})")
    if shape.gpus < 0:
        refuse("gpus", f"is negative ({shape.gpus})")
    if shape.gpus and not 0 < shape.gpu_milli <= WHOLE_GPU_MILLI:
        refuse("gpu_milli", f"is {shape.gpu_milli}", "1 to 1000, where 1000 is one whole GPU")
    if shape.sharing and shape.sharing not in SHARING_MODES:
        refuse("sharing", f"there is no sharing mode {shape.sharing[:40]!r}", f"one of {', '.join(SHARING_MODES)}")
    if shape.sharing and not shape.shares_gpu:
        refuse("sharing", f"is {shape.sharing}, but the pod takes no part of a GPU", "give a share below 1 GPU")
    if shape.mig_profile and shape.gpus != 1:
        refuse("mig_profile", f"with {shape.gpus} GPUs", "a pod takes one MIG instance")
    if max(shape.cpu_milli, shape.memory_bytes) >= 2**53:
        refuse("cpu_milli" if shape.cpu_milli >= 2**53 else "memory_bytes", "is absurdly large")
    return shape


class TopologyRequest(Struct, frozen=True):
    """Where the pods of a workload must or should stand.

    Levels are names of the fleet's topology, or ``host``, the node itself.

    Attributes:
        required: all pods (or each segment) stand in one domain of this level; empty is anywhere.
        preferred: in one domain of this level if possible, else in as few as possible.
        segment: pods a segment; with it, each run of so many pods in order stays in one ``required`` domain, and
            segments may stand in different ones. 0: the whole workload is one segment.
        spread: a level of failure domains over which the pods are dealt out evenly.
        at_most: with ``spread``: most pods in one of its domains; 0: no limit.
    """

    required: str = ""
    preferred: str = ""
    segment: int = 0
    spread: str = ""
    at_most: int = 0


class Checkpointing(Struct, frozen=True):
    """How a workload saves its work: every ``interval_s``; a restart takes ``restart_s`` before work goes on."""

    interval_s: float
    restart_s: float = 0.0


class PodSet(Struct, frozen=True):
    """``count`` pods of one shape and role; at least ``min_count`` of them must run together."""

    shape: PodShape
    count: int = 1
    min_count: int | None = None
    role: str = "main"

    @property
    def required(self) -> int:
        """The least number of pods with which the set may run."""
        return self.count if self.min_count is None else self.min_count


class Workload(Struct, frozen=True):
    """A gang: all its pod sets start together, or none.

    Times are seconds since the trace's or cluster's epoch.

    Attributes:
        name: unique in its trace or cluster.
        pod_sets: one a role.
        submitted_s: when it was submitted.
        duration_s: how long it runs once started; None where it is not known (it then stays).
        time_limit_s: the limit that its owner stated.
        recorded_wait_s: how long it waited where it was recorded.
        queue, user, namespace, priority: whose it is.
        quality: the source's quality-of-service class, such as ``LS``, ``BE`` or ``spot``.
        flavors: the flavors that it may use, tried in this order; empty is any.
        topology: where its pods must or should stand.
        parallelism: how a training job is split over its GPUs; None where nobody said.
        checkpointing: None where it saves nothing: if it is stopped, all its work is lost.
        preemptible: False protects it from being stopped for others.
        depends_on: workloads that must have finished first.
        start_deadline_s: if it has not started by then, it is given up.
        not_before_s: it is held until then (a hold, or back-off after a failure).
        attempts: how often it was started before.
        failures: how often it failed by itself before.
        title: what its owner calls it, where ``name`` is a number.
        told: why it waits, in the words of the scheduler that it was read from, such as Slurm's ``Resources``.
    """

    name: str
    pod_sets: tuple[PodSet, ...]
    submitted_s: float = 0.0
    duration_s: float | None = None
    time_limit_s: float | None = None
    recorded_wait_s: float | None = None
    queue: str = ""
    user: str = ""
    namespace: str = ""
    priority: int = 0
    quality: str = ""
    flavors: tuple[str, ...] = ()
    topology: TopologyRequest | None = None
    checkpointing: Checkpointing | None = None
    preemptible: bool = True
    depends_on: tuple[str, ...] = ()
    start_deadline_s: float | None = None
    not_before_s: float = 0.0
    attempts: int = 0
    failures: int = 0
    parallelism: Parallelism | None = None
    title: str = ""
    told: str = ""

    @property
    def pods(self) -> int:
        """Number of pods at full size."""
        return sum(pod_set.count for pod_set in self.pod_sets)

    @property
    def elastic(self) -> bool:
        """Whether it may run with fewer pods than at full size."""
        return any(each.required < each.count for each in self.pod_sets)

    @property
    def gpu_milli(self) -> int:
        """GPU at full size, in thousandths."""
        return sum(pod_set.count * pod_set.shape.gpu_milli_total for pod_set in self.pod_sets)

    @property
    def cpu_milli(self) -> int:
        """CPU at full size, in thousandths of a core."""
        return sum(pod_set.count * pod_set.shape.cpu_milli for pod_set in self.pod_sets)


def single_pod(name: str, shape: PodShape, submitted_s: float = 0.0, duration_s: float | None = None) -> Workload:
    """A workload of one pod."""
    return Workload(name, (PodSet(shape),), submitted_s=submitted_s, duration_s=duration_s)


class ShapeMix(Struct, frozen=True):
    """How often each pod shape occurs: all that a policy may know of the work to come.

    Attributes:
        shapes: distinct shapes, the most frequent first; ties in the order of the shapes themselves.
        counts: how often each was seen.
    """

    shapes: tuple[PodShape, ...]
    counts: tuple[int, ...]

    @staticmethod
    def of(workloads: Sequence[Workload]) -> ShapeMix:
        """Count the shapes of all pods of ``workloads``."""
        counted: dict[PodShape, int] = {}
        for workload in workloads:
            for pod_set in workload.pod_sets:
                counted[pod_set.shape] = counted.get(pod_set.shape, 0) + pod_set.count
        ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        return ShapeMix(tuple(shape for shape, _ in ordered), tuple(count for _, count in ordered))

    @property
    def pods(self) -> int:
        """Number of pods counted."""
        return sum(self.counts)
