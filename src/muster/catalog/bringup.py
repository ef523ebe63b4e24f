"""The components between a bare GPU node and a pod that can use its GPUs, in the GPU Operator's order."""

from __future__ import annotations

from msgspec import Struct


class Component(Struct, frozen=True):
    """One link of the chain.

    Attributes:
        name: short.
        after: what must be ready before it starts.
        shows: the file or label that shows that it is ready.
        pods: how its pods' names begin; empty: it has none of its own.
        time_s: about what it takes once it may start, images being there; no distribution is published, so these are
            chosen such that a node with its images has its GPUs after 3 to 5 minutes, as is reported.
    """

    name: str
    after: tuple[str, ...]
    shows: str
    pods: str
    time_s: float


COMPONENTS: tuple[Component, ...] = (
    Component("labels", (), "feature.node.kubernetes.io/pci-10de.present=true", "", 30),
    Component("driver", ("labels",), "/run/nvidia/validations/driver-ready", "nvidia-driver-daemonset", 150),
    Component("toolkit", ("driver",), "toolkit-ready", "nvidia-container-toolkit-daemonset", 20),
    Component("cuda-check", ("toolkit",), "cuda-ready", "", 15),
    Component("plugin", ("toolkit",), "allocatable nvidia.com/gpu above 0", "nvidia-device-plugin-daemonset", 15),
    Component("validation", ("cuda-check", "plugin"), "plugin-ready", "nvidia-operator-validator", 20),
    Component("features", ("toolkit",), "label nvidia.com/gpu.product", "gpu-feature-discovery", 15),
    Component("dcgm-exporter", ("toolkit",), "port 9400 answers", "nvidia-dcgm-exporter", 30),
    Component("mig-manager", ("toolkit",), "nvidia.com/mig.config.state=success", "nvidia-mig-manager", 20),
)
"""In an order in which each stands after what it waits for. Source `SOURCE`."""

POLL_S = 5.0
"""How often a component looks whether the one before is ready."""

PROBE_S = 60.0 + 120 * 10.0
"""After so long the driver's container is started anew: its start-up probe gives up."""

LARGE_NODES = 300
"""From about so many nodes on the operator ran out of its default memory, by its documentation."""

SOURCE = "operator-chain"
"""Key in `muster.catalog.sources.SOURCES`."""
