"""Objects of Kubernetes as JSON or YAML: nodes, pods, DaemonSets, events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from muster.doctor.evidence import Evidence, Fact, Piece, Quote
from muster.doctor.lines import LineReader
from muster.doctor.secrets import redact
from muster.doctor.shapes.plain import mapping, sequence, whole

GPU = "nvidia.com/gpu"
Object = Mapping[str, Any]


def read(evidence: Evidence, file: str, text: str) -> bool:
    """A file that is a JSON or YAML document of Kubernetes objects; False if it is none."""
    objects = objects_of(text)
    if objects is None:
        return False
    _all(evidence, file, objects, 1)
    return True


def read_block(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """A YAML document within a text: up to a line that is no YAML of it."""
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][:1] in " -" or _is_key(lines[end])):
        if lines[end].startswith(("apiVersion: ", "---")):
            break
        end += 1
    objects = objects_of("\n".join(lines[at:end]))
    if objects is not None:
        _all(evidence, file, objects, at + 1)
    return end - at


def _is_key(line: str) -> bool:
    name, colon, _ = line.partition(":")
    return bool(colon) and name.isalnum()


def objects_of(text: str) -> list[Object] | None:
    """The Kubernetes objects of a text; None if it holds none."""
    start = text.lstrip()[:1]
    found: Any = None
    try:
        if start in "{[" and start:
            found = msgspec.json.decode(text)
        elif text.lstrip().startswith(("apiVersion:", "kind:", "---", "items:")):
            found = list(_documents(text))
        else:
            return None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return _unfolded(sequence(found) if isinstance(found, list) else [found]) or None


def _documents(text: str) -> Iterator[Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from yaml.load_all(text, loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _unfolded(found: Sequence[Any]) -> list[Object]:
    """The objects of documents, those of lists in their place; each list once."""
    entered: set[int] = set()
    objects: list[Object] = []
    left = list(reversed(found))
    while left:
        thing = mapping(left.pop())
        items = thing.get("items")
        if isinstance(items, list):
            if id(cast("object", items)) not in entered:
                entered.add(id(cast("object", items)))
                left.extend(reversed(sequence(items)))
        elif isinstance(thing.get("metadata"), dict):
            objects.append(thing)
    return objects


def _all(evidence: Evidence, file: str, objects: Sequence[Object], line: int) -> None:
    reader = LineReader(evidence, file)
    for each in objects:
        kind = str(each.get("kind") or _guessed(each))
        if kind == "Node":
            read_node(evidence, file, each, line)
        elif kind == "Pod":
            from muster.doctor.shapes.pods import read_pod

            read_pod(evidence, file, each, line)
        elif kind == "ResourceSlice":
            _slice(evidence, file, each, line)
        elif kind == "Event":
            evidence.pieces.append(Piece("events", file, line))
        for text in _messages(each):
            for part in text.split("\n"):
                reader.take(part, line)


def _slice(evidence: Evidence, file: str, each: Object, line: int) -> None:
    """A slice of dynamic resource allocation: how many GPUs it publishes."""
    spec = mapping(each.get("spec"))
    if spec.get("driver") != "gpu.nvidia.com":
        return
    count, node = len(sequence(spec.get("devices"))), str(spec.get("nodeName") or "")
    evidence.pieces.append(Piece("resourceslices", file, line, node))
    evidence.add(Fact("dra.gpus", count, Quote(file, line, f"ResourceSlice of gpu.nvidia.com: {count} devices"), node))


def _guessed(each: Object) -> str:
    status = mapping(each.get("status"))
    if "allocatable" in status or "nodeInfo" in status:
        return "Node"
    return "Pod" if "containers" in mapping(each.get("spec")) else ""


def _messages(value: Any) -> Iterator[str]:
    """All texts under keys that people write messages into, in their order.

    Each part is entered once: aliases of YAML may name one part a billion times. No recursion: depth is no limit.
    """
    entered: set[int] = set()
    left: list[Any] = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, (dict, list)) and id(cast("object", one)) not in entered:
            entered.add(id(cast("object", one)))
            inner = sequence(one) or [
                each for key, each in mapping(one).items()
                if isinstance(each, (dict, list)) or (key in _MESSAGES and isinstance(each, str))
            ]  # fmt: skip
            left.extend(each for each in reversed(inner) if isinstance(one, dict) or not isinstance(each, str))


_MESSAGES = ("message", "reason", "note")


def read_node(evidence: Evidence, file: str, node: Object, line: int) -> None:
    """A node's counts, labels, taints and conditions."""
    meta, spec, status = (mapping(node.get(key)) for key in ("metadata", "spec", "status"))
    name = str(meta.get("name") or "")
    evidence.pieces.append(Piece("kubectl-node", file, line, name))

    def note(key: str, value: Any, told: str) -> None:
        evidence.add(Fact(key, value, Quote(file, line, redact(f"{name}: {told}")), name))

    note_amounts(note, mapping(status.get("capacity")), mapping(status.get("allocatable")))
    note("node.unschedulable", bool(spec.get("unschedulable")), f"unschedulable: {bool(spec.get('unschedulable'))}")
    for each in map(mapping, sequence(status.get("conditions"))):
        kind, state = str(each.get("type")), str(each.get("status"))
        if kind == "Ready":
            note("node.ready", state == "True", f"Ready: {state} ({each.get('message', '')})")
        else:
            note(f"condition:{kind}", state == "True", f"{kind}: {state} ({each.get('message', '')})")
    note_labels(note, mapping(meta.get("labels")))
    given = map(mapping, sequence(spec.get("taints")))
    taints = [f"{each.get('key')}={each.get('value', '')}:{each.get('effect')}" for each in given]
    note("node.taints", taints, f"taints: {', '.join(taints) or 'none'}")


def note_amounts(note: Any, capacity: Mapping[str, Any], allocatable: Mapping[str, Any]) -> None:
    """GPUs that a node has and offers; MIG resources apart. A resource that is not there is told as absent."""
    for word, amounts in (("capacity", capacity), ("allocatable", allocatable)):
        if not amounts:
            continue
        shown = GPU in amounts or f"{GPU}.shared" in amounts
        if shown and not str(amounts.get(GPU, amounts.get(f"{GPU}.shared"))).isdecimal():
            continue  # it is no count: nothing is known
        note(f"gpus.{word}_shown", shown, f"{word}: {GPU} {'is' if shown else 'is not'} there")
        if shown:
            count = whole(amounts.get(GPU, amounts.get(f"{GPU}.shared")))
            note(f"gpus.{word}", count, f"{word}: {GPU}: {count}")
        slices = {key: whole(value) for key, value in amounts.items() if key.startswith("nvidia.com/mig-")}
        note(f"mig.{word}", sum(slices.values()), f"{word}: MIG {slices or 'none'}")


def note_labels(note: Any, labels: Mapping[str, Any]) -> None:
    """The labels that GPU discovery, the operator and sharing set."""
    note("node.labels_known", True, "labels")
    for key, value in labels.items():
        if key.startswith(("nvidia.com/", "feature.node.kubernetes.io/pci-")):
            note(f"label:{key}", str(value), f"label {key}={value}")
    nfd = any(key.startswith("feature.node.kubernetes.io/pci-") and "10de" in key for key in labels)
    note("label.nfd_pci", nfd, f"NFD's label of NVIDIA's PCI devices {'is' if nfd else 'is not'} there")
    deploy = str(labels.get("nvidia.com/gpu.deploy.device-plugin", ""))
    note("label.deploy_plugin", deploy, f"label nvidia.com/gpu.deploy.device-plugin={deploy or '(not there)'}")
    note("label.deploy_operands", str(labels.get("nvidia.com/gpu.deploy.operands", "")), "label gpu.deploy.operands")
    state = str(labels.get("nvidia.com/gpu-driver-upgrade-state", ""))
    note("label.upgrade_state", state, f"label gpu-driver-upgrade-state={state or '(not there)'}")
    count = str(labels.get("nvidia.com/gpu.count", ""))
    if count.isdigit():
        note("label.gpu_count", whole(count), f"label nvidia.com/gpu.count={count}")
    replicas = str(labels.get("nvidia.com/gpu.replicas", ""))
    note("label.replicas", whole(replicas) or 1, f"label nvidia.com/gpu.replicas={replicas or '-'}")
    strategy = str(labels.get("nvidia.com/mig.strategy", ""))
    note("label.mig_strategy", strategy, f"label nvidia.com/mig.strategy={strategy or '(not there)'}")
