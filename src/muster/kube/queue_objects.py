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


class QueueUsage(Struct, rename="camel"):
    """An entry of status.usage: GPU-seconds that a user of the queue has used, decayed to ``asOf``."""

    user: str = ""
    gpu_seconds: float = 0.0


class QueueStatus(Struct, rename="camel"):
    """The status of Muster's own Queue."""

    usage: list[QueueUsage] | None = None
    as_of: str | None = None


class KubeQueue(Struct):
    """A Queue of muster.dev."""

    metadata: Meta
    spec: QueueSpec = field(default_factory=QueueSpec)
    status: QueueStatus = field(default_factory=QueueStatus)
