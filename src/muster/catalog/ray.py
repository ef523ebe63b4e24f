"""What KubeRay adds to the pods of a Ray cluster that their templates do not show.

Source of all: ray-project/kuberay, ray-operator v1.4 to v1.7 (API reference; ``common/job.go``, ``utils/util.go``).
"""

from __future__ import annotations

AUTOSCALER_CPU_MILLI = 500
AUTOSCALER_MEMORY_BYTES = 512 * 2**20
"""Default requests of the autoscaler's sidecar, a container of the head pod."""

SUBMITTER_CPU_MILLI = 500
SUBMITTER_MEMORY_BYTES = 200 * 2**20
"""Default requests of the pod (or, in SidecarMode, the container) that submits a RayJob."""

IDLE_TIMEOUT_S = 60.0
"""After how long the autoscaler removes a worker that does nothing: ``idleTimeoutSeconds``."""

OPERATOR = "ray.io/kuberay-operator"
"""``spec.managedBy`` of what KubeRay itself manages."""
