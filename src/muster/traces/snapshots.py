"""Snapshots as documents that people read and edit: ``muster.snapshot/v1``, JSON or YAML.

The fields are those of `muster.model.Snapshot`, with what has its default left out; labels, node selectors and settings
are mappings; GPUs of a node that are all alike are told once (``devices: {count: 8, model: H100}``). What is read back
is the same snapshot. docs/reference/snapshot.md has all fields.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast, get_args, get_type_hints

import msgspec
from msgspec import Struct

from muster.errors import InputError, near
from muster.model import Fleet, Snapshot, load_snapshot
from muster.model.columns import Table
from muster.model.snapshot import Running, save_snapshot, write_atomically
from muster.model.workload import Workload
from muster.traces.checks import check_node, check_pod_set, check_workload
from muster.traces.files import read_bytes, read_head

if TYPE_CHECKING:
    from muster.traces.document import Document

SCHEMA = "muster.snapshot/v1"
_SCHEMA_NAME, _VERSION = SCHEMA.split("/v")
_BINARY = b"MUSTERSNAP"
_MARK = re.compile(
    rb"""^\s*["']?schema["']?\s*:\s*["']?muster\.snapshot/|^\{\s*"schema"\s*:\s*"muster\.snapshot/""", re.M
)
_MAPPINGS = {"labels", "local_queues", "node_selector", "settings"}
"""Fields that hold pairs, which are written as mappings."""


def holds_snapshot(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a snapshot, in either form."""
    return head.startswith(_BINARY) or holds_document(head)


def holds_document(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a snapshot as a document."""
    return _MARK.search(head[:4096]) is not None


def read_snapshot_file(path: str) -> Snapshot:
    """Read a snapshot in either form; raises `InputError`, for a document with the field's path."""
    if not holds_document(read_head(path)):
        return load_snapshot(path)
    document = _parsed(path)
    schema = document.data.pop("schema")
    name, _, version = str(schema).partition("/v")
    if name != _SCHEMA_NAME or version != _VERSION:
        newer = version.isdigit() and int(version) > int(_VERSION)
        hint = "read it with a newer Muster" if newer else None
        raise document.error("schema", f"is {str(schema)[:60]!r}; this Muster reads {SCHEMA}", hint)
    _known_fields(document, Snapshot, document.data, "")
    snapshot = document.convert(Snapshot, _for_model(document, document.data))
    _check(document, snapshot)
    return snapshot


def snapshot_document(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot in plain values, ``schema`` first: what is written as JSON or YAML."""
    return {"schema": SCHEMA, **_plain(snapshot)}


def snapshot_text(snapshot: Snapshot, form: str) -> bytes:
    """A snapshot as a document; ``form`` is ``json`` or ``yaml``."""
    document = snapshot_document(snapshot)
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    from msgspec import yaml

    return yaml.encode(document)


# -- writing ----------------------------------------------------------------------------------------------------------


@cache
def _fields(kind: type[Struct]) -> tuple[tuple[str, object], ...]:
    """The fields of a struct with their defaults; those without one have NODEFAULT."""
    found: list[tuple[str, object]] = []
    for each in msgspec.structs.fields(kind):
        default = each.default
        if each.default_factory is not msgspec.NODEFAULT:
            default = each.default_factory()
        found.append((each.name, default))
    return tuple(found)


def _plain(value: object, name: str = "") -> Any:
    if isinstance(value, Struct):
        found: dict[str, Any] = {}
        for field, default in _fields(type(value)):
            inner = getattr(value, field)
            if inner != default:
                found[field] = _plain(inner, field)
        return found
    if isinstance(value, (tuple, Table)):
        items = cast("tuple[Any, ...]", value)
        if name in _MAPPINGS:
            return {key: _plain(each) for key, each in items}
        if name == "devices" and items and isinstance(items[0], Struct):
            return _devices(items)
        return [_plain(each) for each in items]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    return value


def _devices(devices: tuple[Any, ...]) -> Any:
    """GPUs that are alike are told once."""
    first = devices[0]
    alike = all(each == msgspec.structs.replace(first, index=at) for at, each in enumerate(devices))
    if not alike:
        return [_plain(each) for each in devices]
    told = _plain(first)
    del told["index"]
    return {"count": len(devices), **told}


# -- reading ----------------------------------------------------------------------------------------------------------


def _parsed(path: str) -> Document:
    """The document; of JSON no lines are known, but it is read much faster."""
    from muster.traces.document import Document, read_document

    data = read_bytes(path)
    if not data.lstrip().startswith(b"{"):
        return read_document(path)
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        at = re.search(r"\(byte (\d+)\)", str(error))
        line = data.count(b"\n", 0, int(at[1])) + 1 if at else None
        cut = "truncated" in str(error)
        what = "is cut short" if cut else f"is no JSON: {re.sub(' .byte .*', '', str(error))}"
        raise InputError(what, file=path, line=line, hint="copy it again" if cut else None) from None
    return Document(path, cast("dict[str, Any]", found), {})


@cache
def _hints(kind: type[Struct]) -> Mapping[str, Any]:
    return get_type_hints(kind)


@cache
def _inner(annotation: object) -> type[Struct] | None:
    """The struct that a field holds, or a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return annotation
    return next((found for each in get_args(annotation) if (found := _inner(each)) is not None), None)


def _known_fields(document: Document, kind: type[Struct], data: object, path: str) -> None:
    """Raise `InputError` for a field that there is not: a slip of the pen must not pass for a default."""
    if isinstance(data, list):
        for at, each in enumerate(cast("list[Any]", data)):
            _known_fields(document, kind, each, f"{path}[{at}]")
        return
    if not isinstance(data, dict):
        return
    hints = _hints(kind)
    counted = kind.__name__ == "Device" and path.endswith(".devices")
    for name, value in cast("dict[str, Any]", data).items():
        at = f"{path}.{name}" if path else name
        if name not in hints and not (counted and name == "count"):
            known = ["count", *hints] if counted else list(hints)
            raise document.error(at, "is not known", near(name, known) or f"known: {', '.join(known)}")
        inner = _inner(hints[name]) if name in hints and name not in _MAPPINGS else None
        if inner is not None and isinstance(value, (dict, list)):
            _known_fields(document, inner, cast("object", value), at)


def _for_model(document: Document, data: Any, name: str = "", path: str = "") -> Any:
    """Plain values as the model has them: mappings as pairs, GPUs that are alike one by one, infinite times."""
    if isinstance(data, dict):
        items = cast("dict[str, Any]", data)
        if name in _MAPPINGS:
            return _pairs(document, items, name, path)
        if name == "devices":
            return _each_device(document, items, path)
        return {key: _for_model(document, value, key, f"{path}.{key}" if path else key) for key, value in items.items()}
    if isinstance(data, list):
        return [_for_model(document, value, "", f"{path}[{at}]") for at, value in enumerate(cast("list[Any]", data))]
    if name.endswith("_s") and data in ("inf", "-inf"):
        return float(data)
    return data


def _pairs(document: Document, told: dict[str, Any], name: str, path: str) -> list[list[Any]]:
    for key, value in told.items():
        if isinstance(value, (dict, list)) or value is None:
            raise document.error(f"{path}.{key}", "must be a single value")
        if name != "settings" and not isinstance(value, str):
            raise document.error(f"{path}.{key}", "must be text", "put it in quotes")
    return [[key, told[key]] for key in sorted(told)]


def _each_device(document: Document, told: dict[str, Any], path: str) -> list[dict[str, Any]]:
    count = told.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 1000:
        raise document.error(f"{path}.count", "must be a whole number of GPUs", "0 to 1000")
    if "index" in told:
        raise document.error(f"{path}.index", "is not known beside count", "list the GPUs one by one, or leave it out")
    rest = {key: value for key, value in told.items() if key != "count"}
    return [{"index": index, **rest} for index in range(count)]


# -- checks -----------------------------------------------------------------------------------------------------------


def _check(document: Document, snapshot: Snapshot) -> None:
    """Raise `InputError` at the field where a snapshot contradicts itself; the engine checks the rest of requests."""
    if not math.isfinite(snapshot.taken_s):
        raise document.error("taken_s", f"is {snapshot.taken_s}", "a finite time")
    nodes = _unique(document, ((f"fleet.nodes[{at}]", each.name) for at, each in enumerate(snapshot.fleet.nodes)))
    for at, node in enumerate(snapshot.fleet.nodes):
        _inside(document, f"fleet.nodes[{at}]", lambda node=node: check_node(node, snapshot.fleet, document.file))
    _unique(document, ((f"queues[{at}]", each.name) for at, each in enumerate(snapshot.queues)))
    work: list[tuple[str, Workload]] = [(f"pending[{at}]", each) for at, each in enumerate(snapshot.pending)]
    work += [(f"running[{at}].workload", each.workload) for at, each in enumerate(snapshot.running)]
    _unique(document, ((path, each.name) for path, each in work))
    for path, each in work:
        _check_work(document, path, each)
    free: dict[tuple[str, int], int] = {}
    for at, run in enumerate(snapshot.running):
        _check_running(document, f"running[{at}]", run, snapshot.fleet, nodes, free)
    for at, failure in enumerate(snapshot.failures):
        _node_there(document, f"failures[{at}].node", failure.node, nodes)
    for at, kept in enumerate(snapshot.reservations):
        for number, name in enumerate(kept.nodes):
            _node_there(document, f"reservations[{at}].nodes[{number}]", name, nodes)


def _unique(document: Document, named: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The names with their numbers; raises `InputError` for one that comes twice."""
    seen: dict[str, int] = {}
    for path, name in named:
        if name in seen:
            raise document.error(f"{path}.name", f"{name!r} is there already", "names are unique")
        seen[name] = len(seen)
    return seen


def _inside(document: Document, path: str, check: Callable[[], None]) -> None:
    """Let a check of a single object tell the path in the whole document."""
    try:
        check()
    except InputError as error:
        raise document.error(f"{path}.{error.field}" if error.field else path, error.what, error.hint) from None


def _check_work(document: Document, path: str, work: Workload) -> None:
    _inside(document, path, lambda: check_workload(work, document.file))
    for number, pod_set in enumerate(work.pod_sets):
        try:
            check_pod_set(pod_set, document.file)
        except InputError as error:
            shape = "" if error.field in ("count", "min_count") else ".shape"
            at = f"{path}.pod_sets[{number}]{shape}.{error.field}"
            raise document.error(at, error.what, error.hint) from None


def _check_running(
    document: Document, path: str, run: Running, fleet: Fleet, nodes: Mapping[str, int],
    used: dict[tuple[str, int], int],
) -> None:  # fmt: skip
    sets = run.workload.pod_sets
    if run.counts and (len(run.counts) != len(sets) or any(count < 0 for count in run.counts)):
        raise document.error(f"{path}.counts", f"has {len(run.counts)} numbers for {len(sets)} pod sets")
    counts = run.counts or tuple(each.count for each in sets)
    if any(not 0 <= rank < sum(counts) for rank in run.missing) or len(set(run.missing)) < len(run.missing):
        raise document.error(f"{path}.missing", "holds a rank that there is not", f"each once, 0 to {sum(counts) - 1}")
    if len(run.pods) != sum(counts) - len(run.missing):
        what = f"has {len(run.pods)} places for {sum(counts) - len(run.missing)} pods"
        raise document.error(f"{path}.pods", what, "one a pod, in the order of the pod sets")
    for number, pod in enumerate(run.pods):
        at = f"{path}.pods[{number}]"
        _node_there(document, f"{at}.node", pod.node, nodes)
        gpus = len(fleet.nodes[nodes[pod.node]].devices)
        for index in pod.devices:
            if not 0 <= index < gpus:
                hint = f"0 to {gpus - 1}" if gpus else "it has no GPU"
                raise document.error(f"{at}.devices", f"there is no GPU {index} on {pod.node}", hint)
            taken = used[pod.node, index] = used.get((pod.node, index), 0) + (0 if pod.mig else pod.gpu_milli)
            if taken > 1000:
                raise document.error(f"{at}.devices", f"GPU {index} of {pod.node} is given out more than once")


def _node_there(document: Document, path: str, name: str, nodes: Mapping[str, int]) -> None:
    if name not in nodes:
        raise document.error(path, f"there is no node {name[:80]!r}", near(name, list(nodes)))


def write_snapshot(snapshot: Snapshot, path: str | os.PathLike[str]) -> None:
    """Write a snapshot whole or not at all, in the form that the name of the file asks for: .json, .yaml, or binary."""
    form = str(path).rpartition(".")[2]
    if form in ("json", "yaml", "yml"):
        write_atomically(path, snapshot_text(snapshot, "json" if form == "json" else "yaml"))
    else:
        save_snapshot(snapshot, path)
