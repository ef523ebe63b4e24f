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
from muster.kube.objects import KubeNode, KubePod, parse_time
from muster.kube.translate import Options as Translated
from muster.kube.translate import Translator
from muster.kube.world import Kind, KubeObject, World, key_of
from muster.model import Fleet, Running, Snapshot
from muster.model.notes import Note
from muster.model.workload import PodShape
from muster.traces.files import decode_text, dump_files, read_bytes
from muster.traces.spec import Options
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
    """One object of a list and where it is."""

    path: str
    index: int
    line: int
    kind: str
    group: str
    raw: bytes


def read_kubectl(path: str) -> Dump:
    """Read a dump: a file, several with commas between them, or all ``.json`` files of a folder.

    Raises:
        InputError: it is no list of objects, or has no nodes.
    """
    skipped: list[Skipped] = []
    world, places = _world(path, skipped)
    nodes = world.of(NODES, KubeNode)
    if not nodes:
        raise InputError("holds no nodes", file=path, field="items", hint=_HINT)
    if not world.of(PODS, KubePod):
        skipped.append(Skipped(path, 0, "items", f"holds no pods: every node counts as free ({_HINT})"))
    options = Translated(name=Path(path).stem, source=f"kubectl:{Path(path).name}")
    found = Translator(world, options=options).translate(_latest(nodes.values(), world.of(PODS, KubePod).values()))
    skipped += [_told(note, path, places) for note in found.notes]
    return Dump(found.snapshot, tuple(skipped))


def read_objects(path: str) -> tuple[World, tuple[Skipped, ...]]:
    """All objects of a file, and those of kinds that are not read; raises `InputError` as `read_kubectl` does."""
    skipped: list[Skipped] = []
    world, _ = _world(path, skipped)
    return world, tuple(skipped)


def _world(path: str, skipped: list[Skipped]) -> tuple[World, dict[tuple[str, str], _Item]]:
    """All objects of a dump, and where each is, by kind and name."""
    world = World()
    places: dict[tuple[str, str], _Item] = {}
    others: dict[str, list[_Item]] = {}
    files = dump_files(path)
    if not files:
        raise InputError("holds no .json file", file=path, hint=_HINT)
    for item in (item for file in files for item in _items(file)):
        kind = _KINDS.get((item.group, item.kind))
        if kind is None:
            others.setdefault(f"{item.kind}.{item.group}" if item.group else item.kind, []).append(item)
            continue
        found = _decode(item, kind)
        if not found.metadata.name:
            where = f"items[{item.index}].metadata.name"
            raise InputError("is empty", file=item.path, line=item.line, field=where)
        key = kind.name, key_of(found)
        if key in places:
            first = places[key]
            where = f"line {first.line}" if first.path == item.path else f"{first.path}:{first.line}"
            what = f"{kind.kind} {key[1]!r} is already on {where}"
            raise InputError(what, file=item.path, line=item.line, field="metadata.name", hint="names are unique")
        places[key] = item
        world.put(kind, found)
    for name, items in others.items():
        more = f" ({len(items):,} of them)" if len(items) > 1 else ""
        why = f"is of kind {name[:60]}, which is not read{more}"
        skipped.append(Skipped(items[0].path, items[0].line, f"items[{items[0].index}].kind", why))
    return world, {
        (kind.kind, name): item for kind in STRUCTS for (of, name), item in places.items() if of == kind.name
    }


def _latest(nodes: Iterable[KubeNode], pods: Iterable[KubePod]) -> float:
    """The latest time that is found."""
    texts = [one.last_heartbeat_time for node in nodes for one in node.status.conditions or ()]
    for pod in pods:
        texts += [pod.metadata.creation_timestamp, pod.status.start_time]
    return max((parse_time(text) or 0.0 for text in texts), default=0.0)


def _told(note: Note, path: str, places: Mapping[tuple[str, str], _Item]) -> Skipped:
    item = places.get((note.kind, note.name))
    more = f" ({note.count:,} alike)" if note.count > 1 else ""
    why = f"{note.kind} {note.name} {note.text}{more}"
    if item is None:
        return Skipped(path, 0, note.field, why)
    return Skipped(item.path, item.line, f"items[{item.index}].{note.field}", why)


def read_kubectl_fleet(path: str, options: Options) -> tuple[Fleet, tuple[Skipped, ...]]:
    """The nodes; with ``pods=subtract`` only what their running pods leave free (used GPUs become unhealthy)."""
    dump = read_kubectl(path)
    dump = msgspec.structs.replace(dump, skipped=tuple(each for each in dump.skipped if each.field != "items"))
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
        return [_Item(path, 0, 1, document.kind, _group(document.api_version), data)]
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
        items.append(_Item(path, index, line, kind, _group(head.api_version or document.api_version), raw))
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


def _decode(item: _Item, kind: Kind) -> KubeObject:
    try:
        return msgspec.json.decode(item.raw, type=STRUCTS[kind])
    except msgspec.ValidationError as error:
        raise _decode_error(error, item.path, item.line, item.index) from None


def _decode_error(error: msgspec.ValidationError, path: str, line: int, index: int) -> InputError:
    what, _, where = str(error).partition(" - at `$")
    return InputError(what, file=path, line=line, field=f"items[{index}]{where.rstrip('`')}")
