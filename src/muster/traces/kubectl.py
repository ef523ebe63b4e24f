"""A fleet and its pods from ``kubectl get nodes,pods -A -o json``, whole or in part.

- A node's size is its allocatable (its capacity where allocatable is absent). GPUs that are in the capacity but not in
  the allocatable are kept as unhealthy devices: the device plugin has withdrawn them.
- The API does not say which GPUs of a node a pod has: running pods get the lowest free indexes, in the file's order.
- Where the list holds persistentvolumes and persistentvolumeclaims, too, a pod whose volume only some nodes can reach
  asks for their labels.
- A pod that was told to stop holds its room until its grace period ends, for the pod that is nominated to its node.
- Each pod is a workload of its own, named NAMESPACE/NAME; finished pods are left out silently, pods that cannot be kept
  (on nodes not in the file, beyond what the node has) are left out and reported.
- Times are seconds since 1970; the snapshot is taken at the latest time found in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from muster.errors import InputError
from muster.kube.objects import (
    GPU_RESOURCES,
    QUEUE_LABEL,
    KubeClaim,
    KubeNode,
    KubePod,
    KubeVolume,
    Quantity,
    parse_quantity,
    parse_time,
    pod_shape,
    volume_labels,
)
from muster.model import (
    Device,
    Fleet,
    Node,
    PodPlacement,
    PodSet,
    PodShape,
    Running,
    Snapshot,
    Taint,
    Topology,
    Workload,
)
from muster.traces.checks import MAX_PODS, check_node, check_pod_set, check_workload
from muster.traces.files import decode_text, read_bytes
from muster.traces.spec import Options
from muster.traces.tables import MAX_GPUS, refuse_duplicate
from muster.traces.trace import Skipped

OPTIONS = ("pods",)
MODEL_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
MEMORY_LABELS = ("nvidia.com/gpu.memory",)
LEVEL_LABELS = (
    ("region", ("topology.kubernetes.io/region",)),
    ("zone", ("topology.kubernetes.io/zone",)),
    ("block", ("cloud.provider.com/topology-block", "cloud.google.com/gce-topology-block")),
    ("rack", ("cloud.provider.com/topology-rack", "cloud.google.com/gce-topology-subblock")),
    ("nvlink_domain", ("nvidia.com/gpu.clique",)),
)
_T = TypeVar("_T")


class Dump(Struct, frozen=True):
    """What a file holds: a snapshot, and what could not be kept."""

    snapshot: Snapshot
    skipped: tuple[Skipped, ...]


class _List(Struct):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _Kind(Struct):
    kind: str = ""


class _Item(Struct, frozen=True):
    """One object of the list and where it is."""

    index: int
    line: int
    kind: str
    raw: bytes


def read_kubectl(path: str) -> Dump:
    """Read a dump; raises `InputError` if it is no list of nodes and pods, or a node makes no sense."""
    items = _items(path)
    latest: list[float] = [0.0]
    seen: dict[str, int] = {}
    skipped: list[Skipped] = []
    objects = [(item, _decode(item, KubeNode, path)) for item in items if item.kind == "Node"]
    if not objects:
        hint = "kubectl get nodes,pods -A -o json"
        raise InputError("holds no nodes", file=path, field="items", hint=hint)
    levels = _levels([node for _, node in objects])
    empty = Fleet(topology=Topology(tuple(name for name, _ in levels)))
    nodes: list[Node] = []
    for item, found in objects:
        node = _node(found, levels, item, path, skipped)
        refuse_duplicate(seen, node.name, path, item.line, "metadata.name")
        check_node(node, empty, path, item.line)
        nodes.append(node)
        latest += [parse_time(one.last_heartbeat_time) or 0.0 for one in found.status.conditions or ()]
    fleet = Fleet(tuple(nodes), empty.topology, Path(path).stem)
    found_pods = [(item, _decode(item, KubePod, path)) for item in items if item.kind == "Pod"]
    nominated = {
        pod.status.nominated_node_name: f"{pod.metadata.namespace}/{pod.metadata.name}"
        for _, pod in found_pods
        if pod.status.nominated_node_name and not pod.spec.node_name
    }
    pods = _Pods(path, fleet, skipped, _Volumes(path, items), nominated)
    for item, pod in found_pods:
        latest += pods.add(item, pod)
    for item in items:
        if item.kind not in ("Node", "Pod", "PersistentVolume", "PersistentVolumeClaim"):
            skipped.append(Skipped(path, item.line, f"items[{item.index}].kind", f"is of kind {item.kind[:40]!r}"))
    snapshot = Snapshot(
        fleet,
        pending=tuple(pods.pending),
        running=tuple(pods.running),
        taken_s=max(latest),
        source=f"kubectl:{Path(path).name}",
    )
    return Dump(snapshot, tuple(skipped))


def read_kubectl_fleet(path: str, options: Options) -> tuple[Fleet, tuple[Skipped, ...]]:
    """The nodes; with ``pods=subtract`` only what their running pods leave free (used GPUs become unhealthy)."""
    dump = read_kubectl(path)
    if options.text("pods", "keep", ("keep", "subtract")) == "keep":
        return dump.snapshot.fleet, dump.skipped
    free = {node.name: node for node in dump.snapshot.fleet}
    for run in dump.snapshot.running:
        shape, place = run.workload.pod_sets[0].shape, run.pods[0]
        node = free[place.node]
        devices = tuple(
            msgspec.structs.replace(device, healthy=False) if device.index in place.devices else device
            for device in node.devices
        )
        free[place.node] = msgspec.structs.replace(
            node,
            cpu_milli=node.cpu_milli - shape.cpu_milli,
            memory_bytes=node.memory_bytes - shape.memory_bytes,
            devices=devices,
        )
    return msgspec.structs.replace(dump.snapshot.fleet, nodes=tuple(free.values())), dump.skipped


def _items(path: str) -> list[_Item]:
    data = read_bytes(path)
    decode_text(data, path)
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        document = msgspec.json.decode(data, type=_List)
    except msgspec.ValidationError as error:
        raise InputError(f"is JSON but no Kubernetes list ({error})", file=path, hint=_HINT) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"is not valid JSON ({error})", file=path, line=_json_line(data), hint=_HINT) from None
    if document.kind in ("Node", "Pod"):
        return [_Item(0, 1, document.kind, data)]
    if document.items is None or not document.kind.endswith("List"):
        what = f"is of kind {document.kind[:40]!r}, not a List" if document.kind else "is not a Kubernetes list"
        raise InputError(what, file=path, field="kind", hint=_HINT)
    items: list[_Item] = []
    counted, position, line = 0, 0, 1
    for index, raw in enumerate(map(bytes, document.items)):
        start = data.find(raw, position)
        line += data.count(b"\n", counted, start)
        counted, position = start, start + len(raw)
        try:
            kind = msgspec.json.decode(raw, type=_Kind).kind or document.kind.removesuffix("List")
        except msgspec.ValidationError as error:
            raise _decode_error(error, path, line, index) from None
        items.append(_Item(index, line, kind, raw))
    return items


_HINT = "write the file with: kubectl get nodes,pods -A -o json"


def _json_line(data: bytes) -> int | None:
    import json

    try:
        json.loads(data)
    except json.JSONDecodeError as error:
        return error.lineno
    except (ValueError, RecursionError):
        return None
    return None


def _decode(item: _Item, kind: type[_T], path: str) -> _T:
    try:
        return msgspec.json.decode(item.raw, type=kind)
    except msgspec.ValidationError as error:
        raise _decode_error(error, path, item.line, item.index) from None


def _decode_error(error: msgspec.ValidationError, path: str, line: int, index: int) -> InputError:
    what, _, where = str(error).partition(" - at `$")
    return InputError(what, file=path, line=line, field=f"items[{index}]{where.rstrip('`')}")


def _levels(nodes: Sequence[KubeNode]) -> list[tuple[str, tuple[str, ...]]]:
    """The topology levels that every node with GPUs has a label for (every node, where there are no GPUs)."""
    with_gpus = [node for node in nodes if any(name in (node.status.capacity or {}) for name in GPU_RESOURCES)]
    return [
        (level, labels)
        for level, labels in LEVEL_LABELS
        if all(_first(node.metadata.labels or {}, labels) for node in with_gpus or nodes)
    ]


def _first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _amount(
    resources: Mapping[str, Quantity], name: str, scale: int, item: _Item, path: str, where: str, limit: int = 2**53
) -> int:
    try:
        amount = parse_quantity(resources.get(name, 0), scale)
    except ValueError:
        what = f"{str(resources[name])[:40]!r} is not a Kubernetes quantity"
    else:
        if 0 <= amount < limit:
            return amount
        what = f"{str(resources[name])[:40]!r} is {'negative' if amount < 0 else 'absurdly large'}"
    raise InputError(what, file=path, line=item.line, field=f"items[{item.index}].{where}['{name}']")


def _node(
    found: KubeNode, levels: list[tuple[str, tuple[str, ...]]], item: _Item, path: str, skipped: list[Skipped]
) -> Node:
    meta, spec, status = found.metadata, found.spec, found.status
    where = "status.allocatable" if status.allocatable else "status.capacity"
    sizes = status.allocatable or status.capacity or {}
    if "cpu" not in sizes or "memory" not in sizes:
        what = f"node {meta.name[:40]!r} states no {'cpu' if 'cpu' not in sizes else 'memory'}"
        raise InputError(what, file=path, line=item.line, field=f"items[{item.index}].{where}", hint=_HINT)
    labels = meta.labels or {}
    capacity = status.capacity or sizes
    devices: list[Device] = []
    memory = _first(labels, MEMORY_LABELS)
    for name in GPU_RESOURCES:
        healthy = _amount(sizes, name, 1, item, path, where, MAX_GPUS)
        total = max(healthy, _amount(capacity, name, 1, item, path, "status.capacity", MAX_GPUS))
        model = _first(labels, MODEL_LABELS) or name.partition(".")[0]
        device_bytes = int(memory) * 2**20 if memory.isascii() and memory.isdigit() and len(memory) < 9 else 0
        for index in range(total):
            devices.append(Device(len(devices), model, device_bytes, healthy=index < healthy))
    for name in sizes:
        if name.startswith("nvidia.com/") and name not in GPU_RESOURCES and str(sizes[name]) != "0":
            why = f"{sizes[name]} x {name} of node {meta.name} are not modelled: GPU slices are left out"
            skipped.append(Skipped(path, item.line, f"items[{item.index}].{where}", why))
    ready = next((one for one in status.conditions or () if one.type == "Ready"), None)
    reason = "cordoned" if spec.unschedulable else ""
    if ready is not None and ready.status != "True":
        reason = f"not ready ({ready.reason or ready.status})"
    taints = sorted({Taint(one.key, one.value or "", one.effect) for one in spec.taints or ()})
    return Node(
        meta.name,
        _amount(sizes, "cpu", 1000, item, path, where),
        _amount(sizes, "memory", 1, item, path, where),
        tuple(devices),
        labels=tuple(sorted(labels.items())),
        taints=tuple(taints),
        topology=tuple(_first(labels, names) for _, names in levels),
        schedulable=not reason,
        reason=reason,
        max_pods=_amount(sizes, "pods", 1, item, path, where, MAX_PODS),
    )


class _Pods:
    """Takes the pods of a dump; keeps account of what each node has left."""

    def __init__(
        self, path: str, fleet: Fleet, skipped: list[Skipped], volumes: _Volumes, nominated: Mapping[str, str]
    ) -> None:
        self._path = path
        self._skipped = skipped
        self._volumes = volumes
        self._nominated = nominated
        self._cpu = {node.name: node.cpu_milli for node in fleet}
        self._memory = {node.name: node.memory_bytes for node in fleet}
        self._pods = {node.name: node.max_pods or MAX_PODS for node in fleet}
        self._gpus = {node.name: [device.index for device in node.devices if device.healthy] for node in fleet}
        self._seen: dict[str, int] = {}
        self._shapes: dict[PodShape, tuple[PodSet, ...]] = {}
        self.pending: list[Workload] = []
        self.running: list[Running] = []

    def add(self, item: _Item, pod: KubePod) -> list[float]:
        """Keep one pod as running or pending work; returns the times found in it."""
        created = parse_time(pod.metadata.creation_timestamp) or 0.0
        started = parse_time(pod.status.start_time) or created
        if pod.status.phase in ("Succeeded", "Failed"):
            return [created, started]
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if not pod.metadata.name:
            raise InputError("is empty", file=self._path, line=item.line, field=f"items[{item.index}].metadata.name")
        refuse_duplicate(self._seen, name, self._path, item.line, "metadata.name")
        leaving_s = parse_time(pod.metadata.deletion_timestamp)
        if leaving_s is not None and not pod.spec.node_name:
            return [created, started]
        shape = self._shape(item, pod)
        if shape not in self._shapes:
            self._shapes[shape] = (PodSet(shape),)
            check_pod_set(self._shapes[shape][0], self._path, item.line)
        workload = Workload(
            name,
            self._shapes[shape],
            submitted_s=created,
            queue=(pod.metadata.labels or {}).get(QUEUE_LABEL, ""),
            namespace=pod.metadata.namespace,
            priority=pod.spec.priority or 0,
            quality=pod.status.qos_class or "",
        )
        check_workload(workload, self._path, item.line)
        if pod.spec.node_name:
            self._place(item, workload, pod.spec.node_name, started, leaving_s)
        else:
            self.pending.append(workload)
        return [created, started]

    def _place(self, item: _Item, workload: Workload, node: str, started: float, leaving_s: float | None) -> None:
        shape = workload.pod_sets[0].shape
        why = ""
        if node not in self._cpu:
            why = f"runs on node {node}, which is not in the file"
        elif len(self._gpus[node]) < shape.gpus:
            why = f"asks for {shape.gpus} GPUs of node {node}, of which {len(self._gpus[node])} are left"
        elif self._cpu[node] < shape.cpu_milli or self._memory[node] < shape.memory_bytes:
            why = f"asks for more CPU or memory than node {node} has left"
        elif not self._pods[node]:
            why = f"is one more than the pods that node {node} may have"
        if why:
            where = f"items[{item.index}].spec.nodeName"
            self._skipped.append(Skipped(self._path, item.line, where, f"pod {workload.name} {why}"))
            return
        taken = tuple(self._gpus[node][: shape.gpus])
        del self._gpus[node][: shape.gpus]
        self._cpu[node] -= shape.cpu_milli
        self._pods[node] -= 1
        self._memory[node] -= shape.memory_bytes
        placement = PodPlacement(node, taken, shape.gpu_milli if taken else 0)
        leaving_for = self._nominated.get(node, "") if leaving_s is not None else ""
        run = Running(workload, started, (placement,), leaving_s=leaving_s, leaving_for=leaving_for)
        self.running.append(run)

    def _shape(self, item: _Item, pod: KubePod) -> PodShape:
        def amount(resources: Mapping[str, Quantity], name: str, scale: int, where: str) -> int:
            return _amount(resources, name, scale, item, self._path, f"spec.{where}")

        shape = pod_shape(pod.spec, amount)
        labels = dict(shape.node_selector)
        for claim in (one.persistent_volume_claim for one in pod.spec.volumes or ()):
            wanted = self._volumes.labels(pod.metadata.namespace, claim.claim_name) if claim else ()
            if wanted is None or any(labels.get(key, value) != value for key, value in wanted):
                why = "can be reached from nodes that no node selector tells: where its pod may run is told too widely"
                where = f"items[{item.index}].spec.volumes"
                what = f"volume {claim.claim_name if claim else ''} {why}"
                self._skipped.append(Skipped(self._path, item.line, where, what))
                continue
            labels.update(wanted)
        return msgspec.structs.replace(shape, node_selector=tuple(sorted(labels.items())))


class _Volumes:
    """Which labels a node must have for the volume that a claim is bound to."""

    def __init__(self, path: str, items: Sequence[_Item]) -> None:
        claims = [_decode(item, KubeClaim, path) for item in items if item.kind == "PersistentVolumeClaim"]
        volumes = [_decode(item, KubeVolume, path) for item in items if item.kind == "PersistentVolume"]
        self._bound = {(one.metadata.namespace, one.metadata.name): one.spec.volume_name for one in claims}
        self._labels = {one.metadata.name: volume_labels(one.spec) for one in volumes}

    def labels(self, namespace: str, claim: str) -> tuple[tuple[str, str], ...] | None:
        """Those of a claim's volume, none where it is not bound or not in the list; None: no selector tells them."""
        return self._labels.get(self._bound.get((namespace, claim)) or "", ())
