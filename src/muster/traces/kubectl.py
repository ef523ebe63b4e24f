"""A snapshot from ``kubectl get nodes,pods -A -o json``, whole or in part, as `muster.kube.translate` reads a cluster.

More kinds tell more: persistentvolumes and their claims, jobs, pod groups, queues (docs/reference/kubernetes-objects.md
has all). What is not understood, and pods that cannot be kept (on nodes not in the file, beyond what the node has), are
reported. Times are seconds since 1970; the snapshot is taken at the latest time found in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from muster.errors import InputError
from muster.kube.kinds import NODES, PODS, STRUCTS
from muster.kube.notes import Note
from muster.kube.objects import KubeNode, KubePod, parse_time
from muster.kube.translate import Options as Translated
from muster.kube.translate import Translator
from muster.kube.world import Kind, KubeObject, World, key_of
from muster.model import Fleet, Running, Snapshot
from muster.model.workload import PodShape
from muster.traces.files import decode_text, read_bytes
from muster.traces.spec import Options
from muster.traces.tables import refuse_duplicate
from muster.traces.trace import Skipped

OPTIONS = ("pods",)
_KINDS = {(kind.group, kind.kind): kind for kind in STRUCTS}


class Dump(Struct, frozen=True):
    """What a file holds: a snapshot, and what could not be kept."""

    snapshot: Snapshot
    skipped: tuple[Skipped, ...]


class _List(Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    items: list[msgspec.Raw] | None = None


class _Kind(Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""


class _Item(Struct, frozen=True):
    """One object of the list and where it is."""

    index: int
    line: int
    kind: str
    group: str
    raw: bytes


def read_kubectl(path: str) -> Dump:
    """Read a dump; raises `InputError` if it is no list of objects, or has no nodes."""
    skipped: list[Skipped] = []
    world, lines = _world(path, skipped)
    nodes = world.of(NODES, KubeNode)
    if not nodes:
        raise InputError("holds no nodes", file=path, field="items", hint=_HINT)
    options = Translated(name=Path(path).stem, source=f"kubectl:{Path(path).name}")
    found = Translator(world, options=options).translate(_latest(nodes.values(), world.of(PODS, KubePod).values()))
    skipped += [_told(note, path, lines) for note in found.notes]
    return Dump(found.snapshot, tuple(skipped))


def _world(path: str, skipped: list[Skipped]) -> tuple[World, dict[tuple[str, str], _Item]]:
    """All objects of a file, and where each is, by kind and name."""
    world = World()
    lines: dict[tuple[str, str], _Item] = {}
    seen: dict[Kind, dict[str, int]] = {}
    for item in _items(path):
        kind = _KINDS.get((item.group, item.kind))
        if kind is None:
            skipped.append(Skipped(path, item.line, f"items[{item.index}].kind", f"is of kind {item.kind[:40]!r}"))
            continue
        found = _decode(item, kind, path)
        if not found.metadata.name:
            raise InputError("is empty", file=path, line=item.line, field=f"items[{item.index}].metadata.name")
        refuse_duplicate(seen.setdefault(kind, {}), key_of(found), path, item.line, "metadata.name")
        lines[kind.kind, key_of(found)] = item
        world.put(kind, found)
    return world, lines


def _latest(nodes: Iterable[KubeNode], pods: Iterable[KubePod]) -> float:
    """The latest time that is found."""
    texts = [one.last_heartbeat_time for node in nodes for one in node.status.conditions or ()]
    for pod in pods:
        texts += [pod.metadata.creation_timestamp, pod.status.start_time]
    return max((parse_time(text) or 0.0 for text in texts), default=0.0)


def _told(note: Note, path: str, lines: Mapping[tuple[str, str], _Item]) -> Skipped:
    item = lines.get((note.kind, note.name))
    more = f" ({note.count:,} alike)" if note.count > 1 else ""
    why = f"{note.kind.lower()} {note.name} {note.text}{more}"
    if item is None:
        return Skipped(path, 0, note.field, why)
    return Skipped(path, item.line, f"items[{item.index}].{note.field}", why)


def read_kubectl_fleet(path: str, options: Options) -> tuple[Fleet, tuple[Skipped, ...]]:
    """The nodes; with ``pods=subtract`` only what their running pods leave free (used GPUs become unhealthy)."""
    dump = read_kubectl(path)
    if options.text("pods", "keep", ("keep", "subtract")) == "keep":
        return dump.snapshot.fleet, dump.skipped
    free = {node.name: node for node in dump.snapshot.fleet}
    for run in dump.snapshot.running:
        for shape, place in zip(_shapes(run), run.pods, strict=True):
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


def _shapes(run: Running) -> list[PodShape]:
    """The shape of each pod that runs."""
    shapes = [pods.shape for pods in run.workload.pod_sets for _ in range(pods.count)]
    return [shape for rank, shape in enumerate(shapes) if rank not in run.missing]


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
    if document.items is None and any(kind.kind == document.kind for kind in STRUCTS):
        return [_Item(0, 1, document.kind, _group(document.api_version), data)]
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
            head = msgspec.json.decode(raw, type=_Kind)
        except msgspec.ValidationError as error:
            raise _decode_error(error, path, line, index) from None
        kind = head.kind or document.kind.removesuffix("List")
        items.append(_Item(index, line, kind, _group(head.api_version or document.api_version), raw))
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


def _group(api_version: str) -> str:
    """The API group of ``apiVersion``; empty is the core."""
    return api_version.rpartition("/")[0]


def _decode(item: _Item, kind: Kind, path: str) -> KubeObject:
    try:
        return msgspec.json.decode(item.raw, type=STRUCTS[kind])
    except msgspec.ValidationError as error:
        raise _decode_error(error, path, item.line, item.index) from None


def _decode_error(error: msgspec.ValidationError, path: str, line: int, index: int) -> InputError:
    what, _, where = str(error).partition(" - at `$")
    return InputError(what, file=path, line=line, field=f"items[{index}]{where.rstrip('`')}")
