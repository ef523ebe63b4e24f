"""Jobs as pods: what a job asks for on each node, or has there, and which nodes it may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from muster.errors import InputError
from muster.model.fleet import Node
from muster.model.notes import Notes
from muster.model.plan import PodPlacement
from muster.model.workload import PodSet, PodShape
from muster.slurm.features import feature_test
from muster.slurm.hostlist import expand
from muster.slurm.places import FEATURE, PARTITION
from muster.slurm.pods import Asked, Nodes, pods_of
from muster.slurm.records import Held, SlurmJob, gpus_asked, ids_of, per_gpu
from muster.slurm.world import SlurmWorld

Selector = tuple[tuple[str, str], ...]
_MOST_MARKS = 2000


class Marks:
    """Labels of nodes that stand for conditions of jobs which no label of Slurm's says, such as ``--exclude``."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._found: dict[str, frozenset[str]] = {}

    def mark(self, words: str, allows: Callable[[Node], bool]) -> tuple[str, str]:
        """The label that bears the condition which ``words`` say."""
        if words not in self._found:
            self._found[words] = frozenset(node.name for node in self._nodes if allows(node))
        return words, "yes"

    def labels(self, node: str) -> list[tuple[str, str]]:
        """The marks of a node."""
        return [(words, "yes") for words, names in self._found.items() if node in names]

    def __len__(self) -> int:
        return len(self._found)


class Part(NamedTuple):
    """Pods of a job on one node that it has: their shape, and where it is."""

    shape: PodShape
    place: PodPlacement


class ShapeReader:
    """Reads what jobs ask for and have, for the nodes of one fleet."""

    def __init__(
        self, world: SlurmWorld, nodes: Sequence[Node], model: Callable[[str], str], notes: Notes
    ) -> None:  # fmt: skip
        self._world, self._notes, self._model = world, notes, model
        self._nodes = {node.name: node for node in nodes}
        self.marks = Marks(nodes)
        self._taken: dict[str, set[int]] = {}
        self._candidates: dict[tuple[Selector, bool], Nodes] = {}
        self._pods: dict[tuple[object, ...], tuple[list[PodSet], list[tuple[str, str]]]] = {}
        self._reservations = {each.name: each for each in world.reservations}
        self._features = {name for node in nodes for key, name in node.labels if key.startswith(FEATURE)}
        selection = world.config.get("SelectTypeParameters", "")
        self._counts_memory = "MEMORY" in selection.upper() if selection else True

    # -- what waits

    def asked(self, job: SlurmJob, role: str) -> list[PodSet]:
        """The pods of a job that waits."""
        selector = self.selector(job)
        asked = self._asked(job)
        key = (asked, selector, role)
        if key not in self._pods:
            told: list[tuple[str, str]] = []
            nodes = self._candidates_of(selector, needs_gpus=bool(asked.per_node or asked.per_task or asked.total))
            try:
                sets = pods_of(asked, nodes, selector, role, told)
            except InputError as error:
                told = [("request", f"{error.what}: counted as even as possible")]
                sets = self._even(job, selector, role)
            self._pods[key] = sets, told
        sets, told = self._pods[key]
        for option, text in told:
            self._notes.add("job", job.id, f"--{option}", text)
        return sets

    def _even(self, job: SlurmJob, selector: Selector, role: str) -> list[PodSet]:
        """All that a job is counted with, divided over its nodes."""
        nodes = job.nodes[0]
        gpus = -(-job.tres.get("gres/gpu", 0) // nodes)
        memory = (job.tres.get("mem", 0) // nodes) << 20
        shape = PodShape(1000 * -(-job.cpus // nodes), memory if self._counts_memory else 0, gpus,
                         node_selector=selector)  # fmt: skip
        return [PodSet(shape, nodes, role=role)]

    def _asked(self, job: SlurmJob) -> Asked:
        per_node, types, others = gpus_asked(job.tres_per_node)
        total, more, else_ = gpus_asked(job.tres_per_job)
        per_task, again, last = gpus_asked(job.tres_per_task)
        if job.tres_per_socket:
            total = total or (0 if per_node or per_task else job.tres.get("gres/gpu", 0))
            what = f"{job.tres_per_socket}: GPUs a socket are counted as {total} in all"
            self._notes.add("job", job.id, "TresPerSocket", what)
        for other in dict.fromkeys((*others, *else_, *last)):
            if not other.startswith(("cpu", "mem")):
                self._notes.add("job", job.id, "TRES", f"{other} is not counted: nodes without it would not do")
        if job.licenses:
            self._notes.add("job", job.id, "Licenses", f"{job.licenses}: licences are not counted")
        least, most = job.nodes
        tasks = job.tasks if job.tasks > 1 or most else None
        memory, memory_cpu, memory_gpu = self._memory(job)
        return Asked(
            nodes=(least, most) if most else None,
            tasks=tasks if not job.tasks_per_node or tasks != least else None,
            tasks_per_node=job.tasks_per_node or None,
            cpus_per_task=job.cpus_per_task,
            cpus_per_gpu=per_gpu(job.cpus_per_tres),
            total=total,
            per_node=per_node,
            per_task=per_task,
            models=tuple(self._model(kind) for kind in dict.fromkeys((*types, *more, *again))),
            memory=memory,
            memory_per_cpu=memory_cpu,
            memory_per_gpu=memory_gpu,
            exclusive=job.exclusive,
            hosts=0 if most else len(self._names(job, job.req_nodes)),
        )

    def _memory(self, job: SlurmJob) -> tuple[int | None, int | None, int | None]:
        """Bytes a node, a CPU and a GPU; 0 a node is all of it."""
        if not self._counts_memory:
            return None, None, None
        if job.memory_node_mib:
            return job.memory_node_mib << 20, None, None
        if job.memory_cpu_mib:
            return None, job.memory_cpu_mib << 20, None
        if amount := per_gpu(job.memory_per_tres):
            return None, None, amount << 20
        each = job.tres.get("mem", 0) // max(1, job.nodes[0])
        largest = max((node.memory_bytes for node in self._nodes.values()), default=0) >> 20
        if each and each >= largest:
            what = "it asks for no memory, and no default says how much: it takes all of each node's"
            self._notes.add("job", job.id, "--mem", what)
            return 0, None, None
        return (each << 20 if each else None), None, None

    def selector(self, job: SlurmJob) -> Selector:
        """The labels of the nodes that a job may use."""
        found: dict[str, str] = {}
        partitions = [part for part in job.partition.split(",") if part]
        if len(partitions) == 1:
            found[f"{PARTITION}{partitions[0]}"] = "yes"
        elif partitions:
            keys = {f"{PARTITION}{part}" for part in partitions}
            self._mark(found, f"--partition={job.partition}", lambda node: any(key in keys for key, _ in node.labels))
        if job.features:
            self._constraint(job, found)
        if names := self._names(job, job.exc_nodes):
            self._mark(found, f"--exclude={job.exc_nodes}", lambda node: node.name not in names)
        if names := self._names(job, job.req_nodes):
            if len(names) >= job.nodes[0]:
                self._mark(found, f"--nodelist={job.req_nodes}", lambda node: node.name in names)
            else:
                what = f"{job.req_nodes} and others: all nodes are looked at"
                self._notes.add("job", job.id, "--nodelist", what)
        kept = self._reservations.get(job.reservation.split(",")[0])
        if kept is not None and kept.nodes and "FLEX" not in kept.flags:
            inside = frozenset(kept.nodes)
            self._mark(found, f"--reservation={kept.name}", lambda node: node.name in inside)
        return tuple(sorted(found.items()))

    def _mark(self, found: dict[str, str], words: str, allows: Callable[[Node], bool]) -> None:
        if len(self.marks) >= _MOST_MARKS:
            self._notes.add("job", "", words.partition("=")[0], f"more than {_MOST_MARKS} different: left out")
            return
        key, value = self.marks.mark(words, allows)
        found[key] = value

    def _constraint(self, job: SlurmJob, found: dict[str, str]) -> None:
        text = job.features.replace("[", "(").replace("]", ")")
        if text != job.features:
            what = f"{job.features}: one of them for all nodes; nodes of either kind are looked at"
            self._notes.add("job", job.id, "--constraint", what)

        def one(name: str) -> Callable[[Node], bool]:
            pair = f"{FEATURE}{name}", name
            return lambda node: pair in node.labels

        try:
            test = feature_test(text, one)
        except InputError as error:
            self._notes.add("job", job.id, "--constraint", f"{error.what}: all nodes are looked at")
            return
        self._mark(found, f"--constraint={job.features}", test)

    def _names(self, job: SlurmJob, text: str) -> frozenset[str]:
        try:
            return frozenset(expand(text)) if text else frozenset()
        except InputError as error:
            self._notes.add("job", job.id, "nodes", f"{error.what}: all nodes are looked at")
            return frozenset()

    def _candidates_of(self, selector: Selector, *, needs_gpus: bool) -> Nodes:
        key = selector, needs_gpus
        if key not in self._candidates:
            labels = dict(selector)
            nodes = [
                node
                for node in self._nodes.values()
                if node.schedulable and labels.items() <= dict((*node.labels, *self.marks.labels(node.name))).items()
            ]
            self._candidates[key] = Nodes.of(nodes or list(self._nodes.values()), needs_gpus=needs_gpus)
        return self._candidates[key]

    # -- what runs

    def has(self, job: SlurmJob) -> list[Part]:
        """What a job that runs has, node by node, in the order of its nodes."""
        selector = self.selector(job)
        found: list[Part] = []
        for held in job.held or self._divided(job):
            node = self._nodes.get(held.node)
            if node is None:
                self._notes.add("job", job.id, "NodeList", f"{held.node} is no node that may be seen: not counted")
                continue
            indexes = self._indexes(job, held, node)
            models = tuple(sorted({node.devices[at].model for at in indexes})) if held.gpu_type else ()
            memory = held.memory_mib << 20 if self._counts_memory else 0
            shape = PodShape(1000 * held.cpus, memory, len(indexes), gpu_models=models, node_selector=selector)
            found.append(Part(shape, PodPlacement(held.node, indexes, 1000 if indexes else 0)))
        return found

    def _indexes(self, job: SlurmJob, held: Held, node: Node) -> tuple[int, ...]:
        """The GPUs that it has, free ones where Slurm does not say which or two jobs share one."""
        taken = self._taken.setdefault(node.name, set())
        free = [at for at in range(len(node.devices)) if at not in taken]
        indexes = tuple(at for at in held.indexes if at in free)
        if lacking := held.gpus - len(indexes):
            if held.indexes:
                self._notes.add("job", job.id, "GRES", "has GPUs that others have too: free ones are counted in place")
            indexes += tuple(at for at in free if at not in indexes)[:lacking]
        taken.update(indexes)
        return tuple(sorted(indexes))

    def _divided(self, job: SlurmJob) -> list[Held]:
        """Where Slurm was not asked for details (``-d``): all that it has, evenly."""
        names = sorted(self._names(job, job.node_list))
        if not names:
            return []
        gpus = job.tres.get("gres/gpu", 0)
        if gpus or len(names) > 1:
            what = "details were not asked for (scontrol -d show job): evenly divided over its nodes"
            self._notes.add("job", job.id, "allocation", what)
        count = len(names)
        return [
            Held(name, (job.cpus + at) // count, job.tres.get("mem", 0) // count, (gpus + count - 1 - at) // count)
            for at, name in enumerate(names)
        ]

    def closed_gpus(self, used: Mapping[str, str]) -> None:
        """GPUs that nodes say are used and no job has are not told apart here: that is noted."""
        for name, text in used.items():
            count = len(ids_of(text.partition("IDX:")[2].rstrip(")"))) if "IDX:" in text else 0
            if count > len(self._taken.get(name, ())):
                self._notes.add("node", name, "GresUsed", "has more GPUs in use than the jobs that may be seen hold")
