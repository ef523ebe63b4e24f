"""From numbers of nodes, tasks, GPUs and CPUs, as Slurm takes them, to pods."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.errors import InputError
from muster.model.fleet import WHOLE_GPU_MILLI, Node
from muster.model.workload import PodSet, PodShape

PARTS = "parts"
"""End of the role of pods that are parts of a node's share, so that several may stand on one node."""


class Asked(Struct, frozen=True):
    """What the options of one component ask for; 0 and None: not given."""

    nodes: tuple[int, int] | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    tasks_per_gpu: int | None = None
    cpus_per_task: int = 1
    cpus_per_gpu: int = 0
    least_cpus: int = 0
    overcommit: bool = False
    total: int = 0
    per_node: int = 0
    per_task: int = 0
    share_milli: int = 0
    models: tuple[str, ...] = ()
    memory: int | None = None
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None
    exclusive: bool = False
    hosts: int = 0


class Nodes(Struct, frozen=True):
    """What the nodes that may be used have: the most GPUs and CPUs of one, and the least of each on any."""

    gpus: int
    cpus: int
    least_gpus: int
    least_cpu_milli: int
    least_memory_bytes: int
    alike: bool

    @staticmethod
    def of(nodes: Sequence[Node], *, needs_gpus: bool) -> Nodes:
        """Of these nodes those that count: with GPUs, if it asks for GPUs."""
        counted = [node for node in nodes if node.healthy_gpus or not needs_gpus]
        sizes = {(node.healthy_gpus, node.cpu_milli, node.memory_bytes) for node in counted}
        if not sizes:
            return Nodes(0, 0, 0, 0, 0, alike=True)
        gpus, cpus, memory = ([each[at] for each in sizes] for at in range(3))
        return Nodes(max(gpus), max(cpus) // 1000, min(gpus), min(cpus), min(memory), alike=len(sizes) == 1)


def pods_of(
    asked: Asked, nodes: Nodes, selector: tuple[tuple[str, str], ...], role: str, told: list[tuple[str, str]]
) -> list[PodSet]:
    """The pods of a component; what is counted otherwise than Slurm may do it is put into ``told`` by option.

    Raises:
        InputError: options that contradict each other; the field is the option.
    """
    maker = _Maker(asked, nodes, selector, role, told)
    count = maker.node_count()
    return maker.scattered() if count is None else maker.on_nodes(*count)


class _Maker:
    def __init__(
        self, asked: Asked, nodes: Nodes, selector: tuple[tuple[str, str], ...], role: str,
        told: list[tuple[str, str]],
    ) -> None:  # fmt: skip
        self.asked, self.nodes, self.selector, self.role, self.told = asked, nodes, selector, role, told
        self.tasks = asked.tasks
        if asked.tasks_per_gpu and self.tasks is None and asked.total:
            self.tasks = asked.tasks_per_gpu * asked.total
        if asked.tasks_per_node and self.tasks is None and asked.nodes is None and not asked.hosts:
            self.tasks = asked.tasks_per_node  # of one node
        if asked.per_task and asked.total and self.tasks is None:
            if asked.total % asked.per_task:
                what = f"{asked.total} GPUs are no multiple of {asked.per_task} a task"
                raise InputError(what, field="--gpus")
            self.tasks = asked.total // asked.per_task
        if asked.per_task and asked.total and self.tasks and self.tasks * asked.per_task != asked.total:
            what = f"{self.tasks} tasks x {asked.per_task} GPUs are not the {asked.total} of --gpus"
            raise InputError(what, field="--gpus-per-task")

    def node_count(self) -> tuple[int, int] | None:
        """The least and most nodes; None where Slurm may take as many as it likes."""
        asked, tasks = self.asked, self.tasks
        if asked.nodes is not None:
            if tasks is not None and tasks < asked.nodes[0] and not asked.overcommit:
                # Slurm warns and takes fewer nodes
                self.told.append(("nodes", f"{tasks} tasks cannot run on {asked.nodes[0]} nodes: Slurm takes {tasks}"))
                return tasks, tasks
            if asked.hosts > asked.nodes[1]:
                what = f"names {asked.hosts} nodes, and --nodes asks for {asked.nodes[1]}"
                raise InputError(what, field="--nodelist")
            return asked.nodes
        if asked.hosts:
            self.told.append(("nodelist", f"all {asked.hosts} nodes that it names are taken"))
            return asked.hosts, asked.hosts
        if asked.tasks_per_node and tasks:
            count = -(-tasks // asked.tasks_per_node)
            if asked.total <= count * max(1, self.nodes.gpus):
                return count, count
        if asked.per_node and asked.total:
            if asked.total % asked.per_node:
                raise InputError(f"{asked.total} GPUs are no multiple of {asked.per_node} a node", field="--gpus")
            count = asked.total // asked.per_node
            return count, count
        if asked.per_node or asked.share_milli or not (asked.total or asked.per_task or (tasks or 1) > 1):
            return self._by_cpus(tasks or 1)
        return self._whole(tasks) if asked.exclusive else None

    def _by_cpus(self, tasks: int) -> tuple[int, int]:
        """As many nodes as the tasks' CPUs need."""
        count = max(1, -(-tasks * self.asked.cpus_per_task // max(1, self.nodes.cpus)))
        if tasks > 1:
            option = "gres" if self.asked.per_node else "ntasks"
            text = f"without --nodes Slurm takes as many as {tasks} tasks need: here {count}, of {self.nodes.cpus} CPUs"
            self.told.append((option, text))
        return count, count

    def _whole(self, tasks: int | None) -> tuple[int, int]:
        """As many whole nodes as suffice."""
        asked, per_node = self.asked, max(1, self.nodes.gpus)
        if asked.per_task:
            count = -(-(tasks or 1) // max(1, per_node // asked.per_task))
        elif asked.total:
            count = -(-asked.total // per_node)
        else:
            count = -(-(tasks or 1) * asked.cpus_per_task // max(1, self.nodes.cpus))
        self.told.append(("exclusive", f"without --nodes the fewest whole nodes are asked for, {count}"))
        return count, count

    def on_nodes(self, least: int, most: int) -> list[PodSet]:
        """One pod a node."""
        asked = self.asked
        if self.asked.share_milli and asked.per_node:
            raise InputError("whole GPUs and a share of one", field="--gres", hint="one of them")
        if asked.total and asked.total < most and not asked.per_node:
            raise InputError(f"{asked.total} GPUs for {most} nodes: each must have one", field="--gpus")
        tasks = self.tasks if self.tasks is not None else (asked.tasks_per_node or 1) * most
        if asked.tasks_per_gpu and self.tasks is None and asked.per_node:
            tasks = asked.tasks_per_gpu * asked.per_node * most
        by_tasks = _divided(tasks, most)
        by_gpus = _divided(asked.total, most) if asked.total and not asked.per_node and not asked.per_task else []
        if len(by_gpus) > 1:
            text = f"{asked.total} GPUs on {most} nodes: as even as possible here; Slurm may divide them otherwise"
            self.told.append(("gpus", text))
        sets: list[PodSet] = []
        for count, mine, gpus in _joined(by_tasks, by_gpus or [(0, most)]):
            gpus = asked.per_node or asked.per_task * mine or gpus
            shape = self._shape(mine, gpus)
            count += sum(each.count for each in sets if each.shape == shape)
            sets = [*(each for each in sets if each.shape != shape), PodSet(shape, count, role=self.role)]
        if least < most:
            self.told.append(("nodes", f"{least} to {most} nodes: it starts with as many as there are"))
            if len(sets) == 1 and (self.tasks is None or asked.per_node):
                sets = [PodSet(sets[0].shape, most, least, self.role)]
            else:
                return self._maker_for(least).on_nodes(least, least)
        return [
            PodSet(each.shape, each.count, each.min_count, f"{self.role}-{at}" if len(sets) > 1 else each.role)
            for at, each in enumerate(sets)
        ]

    def _maker_for(self, count: int) -> _Maker:
        self.told.append(("nodes", f"tasks or GPUs are divided over the nodes: asked for the least, {count}"))
        return _Maker(self.asked, self.nodes, self.selector, self.role, self.told)

    def _shape(self, tasks: int, gpus: int) -> PodShape:
        """What the job has of one node."""
        asked = self.asked
        cpus = max(tasks * asked.cpus_per_task, gpus * asked.cpus_per_gpu, asked.least_cpus)
        cpu_milli = 1000 if asked.overcommit else cpus * 1000
        memory = asked.memory or 0
        if asked.memory_per_cpu is not None:
            memory = asked.memory_per_cpu * cpus
        if asked.memory_per_gpu is not None:
            memory = asked.memory_per_gpu * gpus
        if asked.memory == 0:
            memory = self.nodes.least_memory_bytes
            self._tell_whole("mem", "all memory of a node")
        if asked.exclusive:
            cpu_milli, gpus = max(cpu_milli, self.nodes.least_cpu_milli), max(gpus, self.nodes.least_gpus)
            self._tell_whole("exclusive", "all CPUs and GPUs of a node")
        milli = WHOLE_GPU_MILLI
        sharing = ""
        if asked.share_milli:
            gpus, milli, sharing = 1, asked.share_milli, "mps"
        return PodShape(cpu_milli, memory, gpus, milli, asked.models if gpus else (), self.selector, sharing=sharing)

    def _tell_whole(self, option: str, what: str) -> None:
        text = f"{what} counts as that of the smallest node that may be used, as the nodes differ"
        if not self.nodes.alike and (option, text) not in self.told:
            self.told.append((option, text))

    def scattered(self) -> list[PodSet]:
        """Parts that Slurm may put on any number of nodes: a pod a GPU, or a task."""
        asked, nodes = self.asked, self.nodes
        if asked.total and not asked.per_task:
            pods, gpus, tasks = asked.total, 1, self.tasks or 1
            cpus = max(-(-tasks * asked.cpus_per_task // pods), asked.cpus_per_gpu)
            on_one = max(1, nodes.gpus)
        else:
            pods, gpus = self.tasks or 1, asked.per_task
            cpus = max(asked.cpus_per_task, gpus * asked.cpus_per_gpu)
            on_one = max(1, nodes.gpus // gpus if gpus else nodes.cpus // max(1, cpus))
        fewest = -(-pods // on_one)
        option = "gpus" if asked.total and not asked.per_task else "ntasks"
        if pods > 1:
            unit = "GPUs" if option == "gpus" else "tasks"
            text = f"{pods} {unit} without --nodes may scatter over {fewest} to {pods} nodes ({on_one} on one at most)"
            whole = f"--nodes={fewest} --gpus-per-node={on_one * max(1, gpus)}" if gpus else f"--nodes={fewest}"
            self.told.append((option, f"{text}; {whole} asks for the fewest"))
        memory = -(-(asked.memory or 0) // min(on_one, pods))
        if asked.memory and pods > 1:
            self.told.append(("mem", f"is a node's: counted as 1/{min(on_one, pods)} of it for each of {pods} parts"))
        if asked.memory_per_cpu is not None:
            memory = asked.memory_per_cpu * cpus
        if asked.memory_per_gpu is not None:
            memory = asked.memory_per_gpu * gpus
        cpu_milli = cpus * 1000
        shape = PodShape(cpu_milli, memory, gpus, WHOLE_GPU_MILLI, asked.models if gpus else (), self.selector)
        return [PodSet(shape, pods, role=f"{self.role} {PARTS}" if pods > 1 else self.role)]


def _divided(total: int, over: int) -> list[tuple[int, int]]:
    """``total`` as evenly as possible over so many: (each, how many), the larger first."""
    each, more = divmod(total, over)
    return [(value, count) for value, count in ((each + 1, more), (each, over - more)) if count]


def _joined(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Two divisions of the same number: (how many, value of one, value of the other)."""
    found: list[tuple[int, int, int]] = []
    left, right = [list(each) for each in one], [list(each) for each in other]
    while left and right:
        count = min(left[0][1], right[0][1])
        found.append((count, left[0][0], right[0][0]))
        for parts in (left, right):
            parts[0][1] -= count
            if not parts[0][1]:
                parts.pop(0)
    return found
