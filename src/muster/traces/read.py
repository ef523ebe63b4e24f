"""One door for all sources: a spec in, workloads or a fleet out."""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster.errors import InputError, near
from muster.model import Fleet, Snapshot
from muster.traces.files import check_link, dump_files, is_there, neighbours, read_bytes, read_head
from muster.traces.snapshots import holds_snapshot, read_snapshot_file
from muster.traces.spec import Spec, parse_spec
from muster.traces.trace import Skipped, Trace

WORKLOAD_KINDS: Mapping[str, str] = {
    "openb": "openb:PODS.csv: Alibaba 2023 pods",
    "philly": "philly:JOBS.csv: Microsoft Philly's jobs, as Sia's authors published them",
    "swf": "swf:JOBS.swf[.gz]: Standard Workload Format",
    "ray": "ray:FILE.yaml: RayCluster, RayJob and RayService, KubeRay's objects, each as a gang",
    "muster": "muster:FILE[.gz]: Muster's own format",
    "generate": "generate:mix=NAME[,pods=N][,seed=S]: synthetic, from a named mix",
}
"""Kind of workload source to how it is written and what it is."""

FLEET_KINDS: Mapping[str, str] = {
    "openb": "openb:NODES.csv: Alibaba 2023 nodes",
    "uniform": "uniform:nodes=312,gpus=8,model=P100[,cpu=96][,memory_gib=512][,rack=8]: nodes that are alike",
    "kubectl": "kubectl:DUMP.json: kubectl get nodes,pods -A -o json; several files with commas, or a folder of them",
    "muster": "muster:FILE[.gz]: Muster's own format, or a snapshot",
    "alibaba2026": "alibaba2026:NODES.csv: Alibaba 2026 nodes",
    "slurm-conf": "slurm-conf:DIR: the nodes of a slurm.conf, with gres.conf and topology.conf beside it",
    "example": "example: a bundled synthetic fleet of 150 nodes",
}
"""Kind of fleet source to how it is written and what it is."""

SNAPSHOT_KINDS: Mapping[str, str] = {
    "kubectl": "kubectl:DUMP.json: kubectl get nodes,pods -A -o json; several files with commas, or a folder of them",
    "slurm-conf": "slurm-conf:DIR: the nodes of a slurm.conf, on which nothing runs",
    "muster": "muster:FILE: a snapshot that Muster wrote, or one as JSON or YAML",
}
"""Kind of snapshot source to how it is written and what it is."""


def read_workload(spec: str, fleet: Fleet | None = None) -> Trace:
    """Read or generate workloads.

    Args:
        spec: ``KIND:PATH``, ``KIND:key=value,...`` or ``KIND:PATH,key=value``, or a path whose contents tell its kind.
        fleet: on which they will run; the generator takes its size and GPU models from it.

    Raises:
        InputError: the spec or the file is wrong.
    """
    parsed = _resolved(parse_spec(spec), WORKLOAD_KINDS, "workload")
    match parsed.kind:
        case "openb":
            from muster.traces.openb import read_openb_pods

            parsed.checked((), path=True)
            return read_openb_pods(parsed.path, spec)
        case "philly":
            from muster.traces import philly

            return philly.read_philly(parsed.path, spec, parsed.checked(philly.OPTIONS, path=True))
        case "swf":
            from muster.traces import swf

            return swf.read_swf(parsed.path, spec, parsed.checked(swf.OPTIONS, path=True))
        case "ray":
            from muster.traces.ray import read_ray

            parsed.checked((), path=True)
            return read_ray(parsed.path, spec)
        case "muster":
            from muster.traces.store import read_trace

            parsed.checked((), path=True)
            return read_trace(parsed.path)
        case "generate":
            from muster.traces import generate

            return generate.generate(spec, parsed.checked(generate.OPTIONS, path=False), fleet)
        case _:
            raise AssertionError(parsed.kind)


def workload_kind(spec: str) -> str:
    """The kind of a workload, one of WORKLOAD_KINDS: the spec's own word, or what the head of its file tells.

    For a file that Muster wrote it is the kind of the source that it was converted from, where that is known. Raises
    `InputError` as `read_workload` does, but reads no rows.
    """
    parsed = _resolved(parse_spec(spec), WORKLOAD_KINDS, "workload")
    if parsed.kind == "muster" and parsed.path:
        converted = re.search(rb'"source":"([a-z]+):', read_head(parsed.path))
        if converted and converted[1].decode() in WORKLOAD_KINDS:
            return converted[1].decode()
    return parsed.kind


def read_fleet(spec: str) -> tuple[Fleet, tuple[Skipped, ...]]:
    """Read or make a fleet; returns it with what was left out. Raises `InputError` as `read_workload` does."""
    parsed = _resolved(parse_spec(spec), FLEET_KINDS, "fleet")
    match parsed.kind:
        case "example":
            from muster.traces.fleets import example_fleet

            parsed.checked((), path=False)
            return example_fleet(), ()
        case "uniform":
            from muster.traces.fleets import UNIFORM_OPTIONS, uniform_fleet

            return uniform_fleet(parsed.checked(UNIFORM_OPTIONS, path=False)), ()
        case "openb":
            from muster.traces.openb import read_openb_nodes

            parsed.checked((), path=True)
            return read_openb_nodes(parsed.path), ()
        case "alibaba2026":
            from muster.traces.fleets import ALIBABA2026_OPTIONS, read_alibaba2026

            return read_alibaba2026(parsed.path, parsed.checked(ALIBABA2026_OPTIONS, path=True)), ()
        case "slurm-conf":
            from muster.slurm.config.fleet import fleet_of
            from muster.traces.slurm_conf import load_config

            parsed.checked((), path=True)
            return fleet_of(load_config([parsed.path])), ()
        case "kubectl":
            from muster.traces import kubectl

            return kubectl.read_kubectl_fleet(parsed.path, parsed.checked(kubectl.OPTIONS, path=True))
        case "muster":
            from muster.traces.store import read_stored_fleet

            parsed.checked((), path=True)
            if holds_snapshot(read_head(parsed.path)):
                return read_snapshot_file(parsed.path).fleet, ()
            return read_stored_fleet(parsed.path), ()
        case _:
            raise AssertionError(parsed.kind)


def read_snapshot(spec: str) -> Snapshot:
    """Read fleet and pods from a kubectl dump, or a snapshot file. Raises `InputError` as `read_workload` does."""
    return read_snapshot_and_skipped(spec)[0]


def read_snapshot_and_skipped(spec: str) -> tuple[Snapshot, tuple[Skipped, ...]]:
    """As `read_snapshot`, with what was left out."""
    parsed = _resolved(parse_spec(spec), SNAPSHOT_KINDS, "snapshot")
    parsed.checked((), path=True)
    if parsed.kind == "muster":
        return read_snapshot_file(parsed.path), ()
    if parsed.kind == "slurm-conf":
        fleet, skipped = read_fleet(spec)
        return Snapshot(fleet, source=spec), skipped
    from muster.traces.kubectl import read_kubectl

    dump = read_kubectl(parsed.path)
    return dump.snapshot, dump.skipped


def read_fleet_as_it_is(spec: str) -> tuple[Snapshot, tuple[Skipped, ...]]:
    """A fleet of any kind with what runs on it, where its source tells; else nothing runs, and nothing waits.

    Pods are in kubectl dumps (without options) and in snapshots. Raises `InputError` as `read_workload` does.
    """
    parsed = _resolved(parse_spec(spec), FLEET_KINDS, "fleet")
    snapshot = parsed.kind == "muster" and parsed.path and holds_snapshot(read_head(parsed.path))
    if snapshot or (parsed.kind == "kubectl" and not parsed.options):
        return read_snapshot_and_skipped(spec)
    fleet, skipped = read_fleet(spec)
    return Snapshot(fleet), skipped


def _resolved(spec: Spec, kinds: Mapping[str, str], what: str) -> Spec:
    """The spec with a known kind: the one given, or that of the file's contents."""
    if spec.kind in kinds:
        return spec
    if spec.kind:
        hint = near(spec.kind, list(kinds)) or f"known: {', '.join(kinds)}"
        raise InputError(f"'{spec.text}': '{spec.kind}' is no kind of {what}", hint=hint)
    if spec.path in kinds:
        return Spec(spec.text, spec.path, "", spec.options)
    if "kubectl" in kinds and _holds_dumps(spec.path):
        return Spec(spec.text, "kubectl", spec.path, spec.options)
    if not is_there(spec.path):
        check_link(spec.path)
        hint = neighbours(spec.path) or near(spec.path, list(kinds)) or f"write KIND:PATH; kinds are {', '.join(kinds)}"
        raise InputError(f"is neither a file nor a kind of {what}", file=spec.path or None, hint=hint)
    read_bytes(spec.path)  # a directory, an empty or a damaged file is told as such, not as an unknown kind
    head = read_head(spec.path)
    found = _recognise(head, spec.path, what)
    if found in kinds:
        return Spec(spec.text, found, spec.path, spec.options)
    for other in ("workload", "fleet", "snapshot"):
        if other != what and _recognise(head, spec.path, other):
            raise InputError(f"holds a {other}, not a {what}", file=spec.path)
    raise InputError(
        f"its contents do not tell which kind of {what} it is",
        file=spec.path,
        hint=f"write KIND:PATH; kinds are {', '.join(kinds)}",
    )


def _holds_dumps(path: str) -> bool:
    """Whether a path names several files, or a folder of them, and the first is a dump of kubectl."""
    files = dump_files(path)
    return bool(files) and files != [path] and _recognise(read_head(files[0]), files[0], "snapshot") == "kubectl"


def _recognise(head: bytes, path: str, what: str) -> str:
    """The kind of source that a file's first bytes show; empty if they show none of a ``what``."""
    if holds_snapshot(head):
        return "muster" if what != "workload" else ""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().decode("utf-8", "replace")
    first = text.split("\n", 1)[0]
    if first.startswith("{"):
        if '"muster.trace/' in first or '"muster.fleet/' in first:
            return "muster" if f'"muster.{"trace" if what == "workload" else what}/' in first else ""
        return "kubectl" if '"items"' in text or '"kind"' in text or '"apiVersion"' in text else ""
    columns = {column.strip().strip('"') for column in first.split(",")}
    for kind, needed, holds in _HEADERS:
        if needed <= columns and holds == what:
            return kind
    if what == "workload" and (path.removesuffix(".gz").endswith(".swf") or first.startswith(";")):
        return "swf"
    return ""


_HEADERS = (
    ("openb", {"name", "cpu_milli", "num_gpu"}, "workload"),
    ("philly", {"timestamp", "duration", "num_gpus"}, "workload"),
    ("openb", {"sn", "cpu_milli", "gpu"}, "fleet"),
    ("alibaba2026", {"gpu_model", "gpu_capacity_num"}, "fleet"),
)
"""Kind, columns that show it, and what such a file holds."""
