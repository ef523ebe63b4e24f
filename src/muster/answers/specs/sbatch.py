"""An sbatch script as a gang: a pod is what the job has of one node, or a part of that where Slurm may scatter it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC
from pathlib import PurePath
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from muster.answers.specs.base import Note, Specs
from muster.answers.specs.features import feature_mark
from muster.answers.specs.places import Places
from muster.errors import InputError
from muster.model.fleet import HOST
from muster.model.snapshot import Snapshot
from muster.model.workload import PodSet, TopologyRequest, Workload
from muster.slurm.hostlist import expand
from muster.slurm.places import PARTITION
from muster.slurm.pods import Asked, Nodes, pods_of
from muster.slurm.sbatch_lines import (
    REFUSED,
    Option,
    Script,
    array_tasks,
    gpus_of,
    mebibytes,
    minutes_up,
    node_counts,
    read_script,
)
from muster.traces.checks import check_pod_set, check_workload

_T = TypeVar("_T")
LEAF_LEVELS = ("rack", "block")
"""Levels that stand for a leaf switch, the first that the fleet has."""
SEGMENT_LEVEL = "block"
MOST_TASKS = 10_000
NOTES = {
    "hold": "the answer is as if it were released",
    "reservation": "counts where the snapshot's reservation names the job or its queue",
    "licenses": "licenses are not in a snapshot and are not counted",
    "tmp": "local disk is not in a snapshot and is not counted",
    "clusters": "the snapshot is of one cluster; it is asked there",
    "prefer": "is left out: it does not decide whether it fits",
    "contiguous": "is left out: nodes have no order in a snapshot",
    "spread-job": "is left out: it does not decide whether it fits",
    "nice": "Slurm's own priority is not known here: it is asked with priority 0, or that of --priority",
    "priority": "Slurm's own priority is not known here: it is asked with priority 0, or that of --priority",
    "deadline": "is left out: the answer tells when it starts",
    "time-min": "is left out; Slurm may shorten the time to it so that the job fits in a gap",
    "threads-per-core": "CPUs are counted as the snapshot counts them, threads or cores",
    "hint": "CPUs are counted as the snapshot counts them, threads or cores",
    "core-spec": "is left out: nodes count with all CPUs that the snapshot gives them",
}
_PER_NODE_GRES = ("shard", "mps")


class Component(Struct, frozen=True):
    """One component of a job: what its options ask for, and the pods that this is."""

    asked: Asked
    pod_sets: tuple[PodSet, ...]


class Batch(Struct, frozen=True):
    """A batch script as it was read: its options by component, and the pods of each."""

    script: Script
    components: tuple[Component, ...]
    specs: Specs


def read_batch(text: str, path: str, snapshot: Snapshot) -> Specs:
    """The gang of a batch script; of a job array the tasks that may run at a time.

    Raises:
        InputError: an option that Slurm does not have or that contradicts another, or one that is not read and would
            change the answer; with its line.
    """
    return read_components(text, path, snapshot).specs


def read_components(text: str, path: str, snapshot: Snapshot) -> Batch:
    """As `read_batch`, with what each component asks for."""
    script = read_script(text, path)
    reader = _Reader(path, Places(snapshot.fleet))
    for line in script.ignored[:1]:
        more = f" and {len(script.ignored) - 1} more" if len(script.ignored) > 1 else ""
        reader.notes.append(Note("#SBATCH", f"is ignored by Slurm{more}: it stands after the first command", line))
    components = tuple(reader.component(script, number) for number in range(len(script.components)))
    sets = [each for component in components for each in component.pod_sets]
    for each in sets:
        check_pod_set(each, path)
    first = {option.name: option for option in script.components[0]}
    workload = _Job(reader, first, snapshot).workload(tuple(sets))
    check_workload(workload, path)
    tasks = reader.value(first, "array", array_tasks, "such as 0-31%4")
    workloads = (workload,)
    if tasks is not None:
        total, at_once = tasks
        if at_once > MOST_TASKS:
            raise reader.error(first["array"], f"is {at_once:,} tasks at a time", f"at most {MOST_TASKS:,}")
        reader.note(
            first["array"], f"{at_once:,} of its {total:,} tasks may run at a time, each a job: these are asked for"
        )
        workloads = tuple(replace(workload, name=f"{workload.name}_{number}") for number in range(at_once))
    specs = Specs(path, "sbatch", workloads, reader.places.fleet, tuple(reader.notes), reader.places.words)
    return Batch(script, components, specs)


class _Reader:
    """Reads values of options; errors name the line."""

    def __init__(self, path: str, places: Places) -> None:
        self.path = path
        self.places = places
        self.notes: list[Note] = []

    def error(self, option: Option, what: str, hint: str | None = None) -> InputError:
        return InputError(what, file=self.path, line=option.line, field=option.written, hint=hint)

    def note(self, option: Option, text: str, unless: str = "") -> None:
        note = Note(option.written, text, option.line, unless)
        if note not in self.notes:
            self.notes.append(note)

    def value(self, options: dict[str, Option], name: str, parse: Callable[[str], _T], hint: str) -> _T | None:
        option = options.get(name)
        if option is None:
            return None
        try:
            return parse(option.value)
        except (ValueError, OverflowError):
            raise self.error(option, f"is {option.value[:40]!r}" if option.value else "is empty", hint) from None

    def number(self, options: dict[str, Option], name: str, least: int = 1) -> int | None:
        def parse(text: str) -> int:
            if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least):
                raise ValueError(text)
            return int(text)

        return self.value(options, name, parse, f"a whole number, {least} or more")

    def component(self, script: Script, number: int) -> Component:
        """The pods of one component of the job."""
        options = {option.name: option for option in script.components[number]}
        for name, option in options.items():
            if name in REFUSED:
                raise self.error(option, "is not read, and would change the answer", REFUSED[name])
            if name in NOTES:
                self.note(option, NOTES[name], "priority" if name in ("nice", "priority") else "")
        asked = self._asked(options)
        selector = self._nodes(options)
        candidates = [
            node
            for node in self.places.fleet.nodes
            if node.schedulable
            and (not asked.models or any(model in asked.models for model in node.gpu_models))
            and selector.items() <= dict(node.labels).items()
        ]
        nodes = Nodes.of(candidates, needs_gpus=bool(asked.per_node or asked.per_task or asked.total))
        role = f"het{number}" if len(script.components) > 1 else "main"
        told: list[tuple[str, str]] = []
        try:
            sets = pods_of(asked, nodes, tuple(sorted(selector.items())), role, told)
        except InputError as error:
            option = options.get((error.field or "").removeprefix("--"))
            raise (
                self.error(option, error.what, error.hint)
                if option
                else InputError(error.what, file=self.path, field=error.field, hint=error.hint)
            ) from None
        for name, text in told:
            option = options.get(name)
            self.notes.append(Note(f"--{name}", text, option.line if option else None))
        return Component(asked, tuple(sets))

    def _asked(self, options: dict[str, Option]) -> Asked:
        models: dict[str, None] = {}
        counts: dict[str, int] = {}
        for name in ("gpus", "gpus-per-node", "gpus-per-task"):
            found = self.value(options, name, gpus_of, "such as 8 or h100:8")
            if found is not None:
                counts[name] = found[1]
                models.update(dict.fromkeys(self._models(options[name], found[0])))
        share = 0
        if "gres" in options:
            count, share, found_models = self._gres(options["gres"])
            models.update(dict.fromkeys(found_models))
            if count and counts.get("gpus-per-node", count) != count:
                what = f"{count} GPUs a node, and --gpus-per-node={counts['gpus-per-node']}"
                raise self.error(options["gres"], what, "one of them")
            if count:
                counts["gpus-per-node"] = count
        memory = {
            name: self.value(options, name, mebibytes, "megabytes, or with K, M, G or T, such as 64G")
            for name in ("mem", "mem-per-cpu", "mem-per-gpu")
        }
        given = [name for name, value in memory.items() if value is not None]
        if len(given) > 1:
            raise self.error(
                options[given[1]],
                f"is given beside --{given[0]}",
                "Slurm takes one of --mem, --mem-per-cpu, --mem-per-gpu",
            )
        if not given:
            self.notes.append(
                Note("--mem", "is not given: the site's default is not known here, and no memory is counted")
            )
        exclusive = options.get("exclusive")
        if exclusive is not None and exclusive.value not in ("", "exclusive", "user", "mcs", "topo"):
            raise self.error(exclusive, f"is {exclusive.value[:20]!r}", "alone, or user, mcs or topo")
        if exclusive is not None and exclusive.value in ("user", "mcs", "topo"):
            self.note(exclusive, "is left out: who shares a node or block with whom is not counted")
        return Asked(
            nodes=self.value(options, "nodes", node_counts, "such as 4 or 2-4"),
            tasks=self.number(options, "ntasks"),
            tasks_per_node=self.number(options, "ntasks-per-node"),
            tasks_per_gpu=self.number(options, "ntasks-per-gpu"),
            cpus_per_task=self.number(options, "cpus-per-task") or 1,
            cpus_per_gpu=self.number(options, "cpus-per-gpu") or 0,
            least_cpus=self.number(options, "mincpus") or 0,
            overcommit="overcommit" in options,
            total=counts.get("gpus", 0),
            per_node=counts.get("gpus-per-node", 0),
            per_task=counts.get("gpus-per-task", 0),
            share_milli=share,
            models=tuple(models),
            memory=memory["mem"],
            memory_per_cpu=memory["mem-per-cpu"],
            memory_per_gpu=memory["mem-per-gpu"],
            exclusive=exclusive is not None and exclusive.value in ("", "exclusive"),
            hosts=self._listed(options),
        )

    def _models(self, option: Option, kind: str) -> tuple[str, ...]:
        if not kind:
            return ()
        found = self.places.models_like(kind)
        if not found:
            has = f"it has {', '.join(self.places.models)}" if self.places.models else "it has none"
            raise self.error(option, f"no GPU of the fleet is a {kind[:40]}", has)
        return found

    def _gres(self, option: Option) -> tuple[int, int, tuple[str, ...]]:
        """GPUs a node, the share of one in thousandths (MPS), and the models."""
        count, share, models = 0, 0, dict[str, None]()
        for part in re.sub(r"\([^)]*\)", "", option.value).split(","):
            name, _, rest = part.strip().removeprefix("gres/").removeprefix("gres:").partition(":")
            name, rest = (name.partition("=")[0], name.partition("=")[2]) if "=" in name else (name, rest)
            if name == "none":
                continue
            try:
                kind, number = gpus_of(rest or "1")
            except ValueError:
                raise self.error(option, f"{part[:40]!r} is no resource", "such as gpu:4 or gpu:h100:4") from None
            if name == "gpu":
                count += number
                models.update(dict.fromkeys(self._models(option, kind)))
            elif name == "mps" and 0 < number < 100:
                self.note(option, f"mps:{number} counts as {number} % of a GPU, as sites have 100 a GPU")
                share = number * 10
            elif name in _PER_NODE_GRES:
                raise self.error(
                    option, f"{part[:40]!r} is a share of a GPU that the snapshot does not tell", "ask for gpu:1"
                )
            else:
                self.note(option, f"{name} is not counted: nodes without it would not do")
        return count, share, tuple(models)

    def _listed(self, options: dict[str, Option]) -> int:
        return len(self._hosts(options["nodelist"])) if "nodelist" in options else 0

    def _hosts(self, option: Option) -> tuple[str, ...]:
        try:
            names = expand(option.value)
        except InputError as error:
            raise self.error(option, error.what, error.hint) from None
        known = {node.name for node in self.places.nodes}
        unknown = next((name for name in names if name not in known), None)
        if unknown is not None:
            from muster.errors import near

            raise self.error(option, f"the fleet has no node {unknown[:60]!r}", near(unknown, sorted(known)))
        return names

    def _nodes(self, options: dict[str, Option]) -> dict[str, str]:
        """Labels that the nodes bear which the job may use."""
        found: dict[str, str] = {}
        if "exclude" in options:
            out = frozenset(self._hosts(options["exclude"]))
            found.update(self.places.mark(f"--exclude={options['exclude'].value}", lambda node: node.name not in out))
        if "nodelist" in options:
            only = frozenset(self._hosts(options["nodelist"]))
            found.update(self.places.mark(f"--nodelist={options['nodelist'].value}", lambda node: node.name in only))
        found.update(self._partitions(options))
        if "constraint" in options:
            option = options["constraint"]
            try:
                found.update(feature_mark(self.places, option.value))
            except InputError as error:
                raise self.error(option, error.what, error.hint) from None
        return found

    def _partitions(self, options: dict[str, Option]) -> dict[str, str]:
        """The label of the nodes of its partitions, where the snapshot is of a Slurm."""
        option = options.get("partition")
        known = {key for node in self.places.nodes for key, _ in node.labels if key.startswith(PARTITION)}
        if option is None or not known:
            return {}
        keys = [f"{PARTITION}{name.strip()}" for name in option.value.split(",") if name.strip()]
        unknown = next((key.removeprefix(PARTITION) for key in keys if key not in known), None)
        if unknown is not None:
            from muster.errors import near

            names = sorted(key.removeprefix(PARTITION) for key in known)
            hint = near(unknown, names) or f"there are {', '.join(names)}"
            raise self.error(option, f"there is no partition {unknown[:60]!r} with nodes", hint)
        if len(keys) == 1:
            return {keys[0]: "yes"}
        return self.places.mark(f"--partition={option.value}", lambda node: any(key in keys for key, _ in node.labels))


class _Job:
    """What holds for the job as a whole: queue, time, topology, dependencies."""

    def __init__(self, reader: _Reader, options: dict[str, Option], snapshot: Snapshot) -> None:
        self.reader, self.options, self.snapshot = reader, options, snapshot

    def workload(self, sets: tuple[PodSet, ...]) -> Workload:
        """The job as a gang."""
        options, reader = self.options, self.reader
        name = options["job-name"].value if "job-name" in options else PurePath(reader.path).stem
        limit_s: float | None = None
        if "time" in options:
            limit_s = reader.value(options, "time", minutes_up, "M, M:S, H:M:S, D-H, D-H:M or D-H:M:S")
            if limit_s is None:
                reader.note(options["time"], "asks for no limit, unless the partition has one")
        else:
            text = "is not given: the partition's default is not known here, and it counts as without limit"
            reader.notes.append(Note("--time", text, unless="time_limit_s"))
        quality = options["qos"].value if "qos" in options else ""
        if quality:
            reader.note(
                options["qos"],
                "its priority is not in a snapshot; say one by --priority",
                "priority",
            )
        return Workload(
            name or "job",
            sets,
            time_limit_s=limit_s,
            queue=self._queue(),
            quality=quality,
            topology=self._topology(sets),
            depends_on=self._depends_on(),
            not_before_s=self._begins(),
        )

    def _queue(self) -> str:
        """The account or partition that is a queue of the snapshot; else the one that was named."""
        known = {queue.name for queue in self.snapshot.queues}
        account = self.options["account"].value if "account" in self.options else ""
        partition = self.options.get("partition")
        partitions = [each.strip() for each in partition.value.split(",") if each.strip()] if partition else []
        named = [*([account] if account else []), *partitions]
        queue = next((each for each in named if each in known), named[0] if named else "")
        of_slurm = any(key.startswith(PARTITION) for node in self.reader.places.nodes for key, _ in node.labels)
        if partition and queue not in partitions and not of_slurm:
            self.reader.note(partition, "which nodes it has is not in the snapshot: all of the fleet are looked at")
        elif len(partitions) > 1 and partition:
            self.reader.note(partition, f"is asked in {queue} only")
        return queue

    def _topology(self, sets: Sequence[PodSet]) -> TopologyRequest | None:
        reader, options = self.reader, self.options
        levels = reader.places.fleet.topology.levels
        pods = sum(each.count for each in sets)
        scattered = TopologyRequest(preferred="host") if any(each.role.endswith("parts") for each in sets) else None
        if "segment" in options:
            size = reader.number(options, "segment") or 1
            if SEGMENT_LEVEL not in levels:
                raise reader.error(
                    options["segment"], "the fleet has no blocks", f"it has {', '.join(levels) or 'no levels'}"
                )
            if scattered:
                raise reader.error(options["segment"], "needs a number of nodes", "give --nodes")
            if pods % size:
                raise reader.error(options["segment"], f"{size} does not divide the {pods} nodes")
            return TopologyRequest(SEGMENT_LEVEL, segment=0 if size == pods else size)
        near = self._near(scattered)
        if scattered or not self._apart(sets):
            return near
        # nodes of a job are different ones; that is asked for only where two of its pods could stand on one
        return replace(near or TopologyRequest(), spread=HOST, at_most=1)

    def _apart(self, sets: Sequence[PodSet]) -> bool:
        most = max((len(node.devices) for node in self.reader.places.nodes), default=0)
        if sum(each.count for each in sets) < 2 or any(each.role.startswith("het") for each in sets):
            return False
        return any(2 * each.shape.gpus <= most for each in sets)

    def _near(self, scattered: TopologyRequest | None) -> TopologyRequest | None:
        reader, options = self.reader, self.options
        levels = reader.places.fleet.topology.levels
        if "switches" not in options:
            return scattered
        count, _, wait = options["switches"].value.partition("@")
        if not count.isdigit() or not int(count):
            raise reader.error(options["switches"], f"is {options['switches'].value[:20]!r}", "such as 1 or 1@10:00")
        leaf = next((level for level in LEAF_LEVELS if level in levels), "")
        if not leaf:
            reader.note(options["switches"], "is left out: the fleet has neither racks nor blocks")
            return scattered
        long = wait or "SchedulerParameters=max_switch_wait (5 minutes unless set)"
        reader.note(options["switches"], f"is preferred, one {leaf} a switch: after {long} Slurm takes any nodes")
        return TopologyRequest(preferred=leaf)

    def _depends_on(self) -> tuple[str, ...]:
        option = self.options.get("dependency")
        if option is None:
            return ()
        known = {each.name for each in self.snapshot.pending} | {each.workload.name for each in self.snapshot.running}
        found: list[str] = []
        unknown: list[str] = []
        for part in re.split(r"[,?]", option.value):
            kind, *jobs = part.strip().split(":")
            if kind == "singleton":
                self.reader.note(option, "singleton is left out: jobs of its name are not looked for")
                continue
            if kind not in ("after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer") or not jobs:
                raise self.reader.error(option, f"is {part[:40]!r}", "such as afterok:1234")
            for job in jobs:
                (found if job in known else unknown).append(job)
        if unknown:
            self.reader.note(option, f"{', '.join(unknown[:3])} neither waits nor runs in the snapshot: taken as met")
        if "?" in option.value and len(found) > 1:
            self.reader.note(option, "any of its jobs would do; all of them are waited for here")
        return tuple(dict.fromkeys(found))

    def _begins(self) -> float:
        option = self.options.get("begin")
        if option is None:
            return 0.0
        now_s = self.snapshot.taken_s
        match = re.fullmatch(r"now(?:\+(\d{1,9})([a-z]*))?", option.value.strip().casefold())
        if match is not None:
            units = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
            unit = units.get((match[2] or "second").removesuffix("s"))
            if unit is not None:
                return now_s + int(match[1] or 0) * unit
        from datetime import datetime

        try:
            moment = datetime.fromisoformat(option.value.strip())
        except ValueError:
            hint = "such as now+2hours or 2026-12-24T18:00:00"
            raise self.reader.error(option, f"is {option.value[:40]!r}, which is not read", hint) from None
        if now_s < 1e8:
            raise self.reader.error(option, "is a date, and the snapshot has no calendar", "such as now+2hours")
        if moment.tzinfo is None:
            self.reader.note(option, "is taken as UTC")
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
