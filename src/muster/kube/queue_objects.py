"""The parts of queue objects that matter."""

from __future__ import annotations

from msgspec import Struct, field

from muster.kube.objects import Meta, Quantity


class QuotaSpec(Struct, rename="camel"):
    """A quota of a Queue of muster.dev, in GPUs."""

    flavor: str
    nominal: Quantity = 0
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class QueueSpec(Struct, rename="camel"):
    """The spec of a Queue of muster.dev."""

    parent: str = ""
    weight: Quantity = 1
    tenant: str = ""
    quotas: list[QuotaSpec] | None = None
    min_runtime: str = ""
    max_running_per_user: Quantity | None = None


class KubeQueue(Struct):
    """A Queue of muster.dev."""

    metadata: Meta
    spec: QueueSpec = field(default_factory=QueueSpec)
