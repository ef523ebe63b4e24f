"""What each kind of parallelism sends in a step, and what it costs if its groups leave their NVLink domain or leaf.

For a kind whose messages take T seconds a step where its groups stand at best and T' elsewhere:

    tensor, expert    step grows by (T' - T) (1 + bubble)                 they stand in the path of every layer
    pipeline, data    step grows by what no longer hides under overlap x compute

Rules by the growth: above 10 % required, above 1 % preferred, else anywhere. The limits are ours; the volumes are those
of `muster.planning.communication`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.planning.communication import (
    Fabric,
    TrainingJob,
    all_to_all_s,
    hierarchical_all_reduce_s,
    step_time,
    wire_bytes,
)
from muster.planning.placed import best_spots

GB = 1e9
REQUIRED, PREFERRED = 0.10, 0.01


class Sent(Struct, frozen=True):
    """What one kind of parallelism sends.

    Attributes:
        kind: tensor, expert, pipeline or data.
        size_bytes: of one message: what one collective is over, or one transfer.
        wire_bytes: that each GPU sends for it.
        messages: a step and GPU.
        inside_s, outside_s, over_spine_s: all messages of a step if its groups stand within one NVLink domain, on as
            many nodes as they have GPUs under one leaf, or the same over leaves.
        leaves_node, leaves_leaf: by what share the step grows if its groups leave the domain; and if they leave the
            leaf as well.
        fits: whether a group fits an NVLink domain at all.
    """

    kind: str
    size_bytes: float
    wire_bytes: float
    messages: float
    inside_s: float
    outside_s: float
    over_spine_s: float
    leaves_node: float
    leaves_leaf: float
    fits: bool

    @property
    def rule(self) -> str:
        """Where its groups must or should stand."""
        if self.fits and self.leaves_node > REQUIRED:
            return "one NVLink domain: required"
        if self.fits and self.leaves_node > PREFERRED:
            return "one NVLink domain: preferred"
        if self.leaves_leaf > REQUIRED:
            return "one leaf: required"
        if self.leaves_leaf > PREFERRED:
            return "one leaf: preferred"
        return "anywhere"


def kinds_sent(job: TrainingJob, per_domain: int, fabric: Fabric) -> tuple[Sent, ...]:
    """Every kind that the job uses, those in the path of every layer first."""
    return tuple(_kinds(job, per_domain, fabric))


def _kinds(job: TrainingJob, per_domain: int, fabric: Fabric) -> Iterator[Sent]:
    layers, m = job.layers / job.pipeline, job.microbatches
    size = float(job.activation_bytes)
    if job.tensor > 1:
        spread = _all_reduces(size, job.tensor, fabric)
        yield _sent(job, "tensor", size, wire_bytes(size, job.tensor), 4 * layers * m, spread, per_domain, fabric)
    if job.expert > 1 and job.expert_layers:
        routed = size * job.top_k
        e, slow = job.expert, replace(fabric, oversubscription=1.0)
        spread = (
            all_to_all_s(routed, [e], fabric),
            all_to_all_s(routed, [1] * e, slow),
            all_to_all_s(routed, [1] * e, fabric, crosses=True),
        )
        messages = 4 * job.expert_layers / job.pipeline * m
        yield _sent(job, "expert", routed, routed * (e - 1) / e, messages, spread, per_domain, fabric)
    if job.pipeline > 1:
        inside, outside = fabric.inside_gb_per_s * GB, fabric.outside_gb_per_s * GB
        spread = (
            fabric.inside_latency_s + size / inside,
            fabric.outside_latency_s + size / outside,
            fabric.outside_latency_s + size * fabric.oversubscription / outside,
        )
        yield _sent(job, "pipeline", size, size, 2 * m, spread, per_domain, fabric)
    if job.data > 1:
        gradients = job.parameters / (job.tensor * job.pipeline) * job.element_bytes
        spread = _all_reduces(gradients, job.data, fabric)
        times = 1.5 if job.zero3 else 1.0
        yield _sent(job, "data", gradients, wire_bytes(gradients, job.data), times, spread, per_domain, fabric)


def _all_reduces(size: float, gpus: int, fabric: Fabric) -> tuple[float, float, float]:
    return (
        hierarchical_all_reduce_s(size, [gpus], fabric),
        hierarchical_all_reduce_s(size, [1] * gpus, fabric),
        hierarchical_all_reduce_s(size, [1] * gpus, fabric, crosses=True),
    )


def _sent(
    job: TrainingJob, kind: str, size: float, wire: float, messages: float, spread: Sequence[float], per_domain: int,
    fabric: Fabric,
) -> Sent:  # fmt: skip
    inside, outside, over = (messages * each for each in spread)
    best = step_time(job, best_spots(job, per_domain, fabric), fabric)
    members = {"tensor": job.tensor, "pipeline": 2 * job.tensor, "expert": job.expert * job.tensor * job.pipeline}
    fits = members.get(kind, job.gpus) <= per_domain

    def grown(there: float) -> float:
        base = inside if fits else outside
        if kind in ("tensor", "expert"):
            return (there - base) * (1 + best.bubble) / best.total_s
        beside = best.data_s if kind == "pipeline" else best.pipeline_s
        hidden = job.overlap * best.compute_s
        return (max(0.0, there + beside - hidden) - max(0.0, base + beside - hidden)) / best.total_s

    return Sent(kind, size, wire, messages, inside, outside, over, grown(outside), grown(over), fits)
