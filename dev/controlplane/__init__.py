"""A real Kubernetes control plane on loopback, for tests, benchmarks and development.

`make controlplane` builds the upstream programs from their Go modules (`controlplane.build`); `Cluster` starts them
with certificates, RBAC and fake GPU nodes, and ends them without a trace. `dev/cluster` is the same from a shell.
"""

from controlplane.api import Api, ApiError
from controlplane.cluster import Cluster, Settings
from controlplane.errors import ClusterError
from controlplane.nodes import Shape
from controlplane.starter import Starter

__all__ = ["Api", "ApiError", "Cluster", "ClusterError", "Settings", "Shape", "Starter"]
