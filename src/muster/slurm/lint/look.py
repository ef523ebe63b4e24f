"""What a job will get as it stands, and the even shape that it was most likely meant to have.

How Slurm spreads tasks and GPUs was measured on 22.05.8; `tests/slurm/test_lint_on_slurm.py` repeats it.
"""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct

from muster.slurm.lint.findings import Edit
from muster.slurm.lint.job import Job, resolved
from muster.slurm.lint.launches import MPIRUN, PYTHON, SRUN, TORCHRUN, Launch
from muster.slurm.lint.site import Site

USUAL_GPUS_PER_NODE = 8
"""GPUs of a node where no configuration tells: what a gang of 8 or more fills on HGX and DGX machines."""


class Shape(Struct, frozen=True):
    """How a job lies on nodes.

    Attributes:
        least: the fewest nodes that it may be on.
        most: the most.
        tasks: of the job.
        tasks_per_node: of each node; None: nodes may have different numbers.
        gpus: the fewest that it may have in all.
        gpus_per_node: of each node; None: nodes may have different numbers.
        gpus_per_task: that each task is bound to; 0: all of the node's job.
        kind: GPU type; empty: any.
    """

    least: int
    most: int
    tasks: int
    tasks_per_node: int | None
    gpus: int
    gpus_per_node: int | None
    gpus_per_task: int
    kind: str

    @property
    def fixed(self) -> bool:
        """Whether all of it is known before it starts."""
        return self.least == self.most and self.tasks_per_node is not None and self.gpus_per_node is not None


class Look:
    """A job, what is known of its site, and what follows; what the rules look at."""

    def __init__(self, job: Job, site: Site | None) -> None:
        self.job, self.site = job, site

    @cached_property
    def node_gpus(self) -> int:
        """GPUs of a node: the site's, else the usual number, or more where the job asks for more on one."""
        if self.site is not None and self.site.gpus_per_node:
            return self.site.gpus_per_node
        return max(USUAL_GPUS_PER_NODE, self.per_node or 0)

    @cached_property
    def per_node(self) -> int | None:
        """GPUs that the job asks for on each node."""
        found = self.job.gpus("gpus-per-node") or self.job.gres_gpus
        return found[1] if found else None

    @cached_property
    def shape(self) -> Shape:
        """What the job gets."""
        job = self.job
        total, per_task = job.gpus("gpus"), job.gpus("gpus-per-task")
        kind = next((each[0] for each in (total, job.gpus("gpus-per-node"), per_task, job.gres_gpus) if each), "")
        per_node, each_task = self.per_node, per_task[1] if per_task else 0
        on_node, per_gpu = job.number("ntasks-per-node"), job.number("ntasks-per-gpu")
        tasks = job.number("ntasks")
        nodes = job.nodes
        if tasks is None and total and per_task:
            tasks = total[1] // max(1, each_task)
        if tasks is None and per_gpu and (total or per_node):
            tasks = per_gpu * (total[1] if total else (per_node or 0) * (nodes or (1, 1))[0])
        least, most = nodes or self._nodes(tasks, on_node, total[1] if total else 0, each_task)
        if tasks is None:
            tasks = (on_node or 1) * most
        per_gpu_tasks = per_gpu * per_node if per_gpu and per_node else None
        even: int | None = on_node if on_node and on_node * most == tasks else per_gpu_tasks
        if even is None and (least == most == 1 or tasks == most == least):
            even = tasks // most
        gpus_each = per_node
        if gpus_each is None and each_task and even is not None:
            gpus_each = each_task * even
        if gpus_each is None and (not total or least == most == 1):
            gpus_each = total[1] if total else 0
        gpus = total[1] if total else each_task * tasks if each_task else (per_node or 0) * least
        if not each_task and per_gpu:
            each_task = 1
        return Shape(least, most, tasks, even, gpus, gpus_each, each_task, kind)

    def _nodes(self, tasks: int | None, on_node: int | None, total: int, each_task: int) -> tuple[int, int]:
        """Nodes where the job names no number: the fewest that suffice, up to one a task and one a GPU."""
        least, most = 1, 1
        if total:
            least, most = -(-total // self.node_gpus), total
        if tasks is not None and tasks > 1:
            by_tasks = -(-tasks // on_node) if on_node else 1
            if each_task:
                by_tasks = max(by_tasks, -(-tasks // max(1, self.node_gpus // each_task)))
            least = max(least, by_tasks)
            most = max(least, min(most, tasks) if total else tasks)
        return least, most

    # -- what was meant

    @cached_property
    def meant(self) -> Shape | None:
        """The even shape with the same GPUs and tasks on the fewest nodes; None: nothing divides evenly."""
        shape = self.shape
        tasks = shape.tasks if self.job.option("ntasks", "ntasks-per-node", "ntasks-per-gpu") else 0
        gpus = shape.gpus
        if self.per_node and not self.job.option("gpus") and self.job.nodes is None and tasks > 1:
            gpus = max(self.per_node, tasks)  # --gres=gpu:8 --ntasks=8: a node's GPUs, one each
            gpus = gpus if gpus % self.per_node == 0 else self.per_node
        if self.job.nodes is not None:
            numbers = [self.job.nodes[1]]
        else:
            fewest = max(1, -(-gpus // (self.per_node or self.node_gpus)))
            numbers = list(range(fewest, max(fewest, gpus, 1) + 1))
        for nodes in numbers:
            if gpus % nodes == 0 and tasks % nodes == 0:
                launcher = self.one_a_node
                on_node = 1 if launcher else tasks // nodes if tasks else None
                each = gpus // nodes if not (self.job.nodes and self.per_node) else self.per_node
                return Shape(nodes, nodes, (on_node or 1) * nodes, on_node, each * nodes, each, 0, shape.kind)
        return None

    @cached_property
    def shape_edits(self) -> tuple[Edit, ...]:
        """The edits that make the job what was meant; one answer for every rule about the shape."""
        meant = self.meant
        if meant is None:
            return ()
        edits = [Edit("drop", name) for name in ("gpus", "gpus-per-task", "ntasks", "ntasks-per-gpu")
                 if name in self.job.options]  # fmt: skip
        edits.append(Edit("set", "nodes", str(meant.least)))
        if meant.tasks_per_node is not None:
            edits.append(Edit("set", "ntasks-per-node", str(meant.tasks_per_node)))
        cpus, before = self.job.number("cpus-per-task"), self.shape.tasks // meant.least
        if cpus and self.one_a_node and before > 1 and self.job.option("ntasks", "ntasks-per-node"):
            edits.append(Edit("set", "cpus-per-task", str(cpus * before)))
        if meant.gpus_per_node:
            kind = f"{meant.kind}:" if meant.kind else ""
            if self.job.option("gpus-per-node") is None and self.job.gres_gpus:
                if self.job.gres_gpus[1] != meant.gpus_per_node:
                    edits.append(Edit("set", "gres", f"gpu:{kind}{meant.gpus_per_node}"))
            elif self.job.value("gpus-per-node") != f"{kind}{meant.gpus_per_node}":
                edits.append(Edit("set", "gpus-per-node", f"{kind}{meant.gpus_per_node}"))
        return tuple(edits)

    @cached_property
    def shape_words(self) -> str:
        """The options of the shape that was meant."""
        if self.meant is None:
            return ""
        words = [f"--{edit.name}={edit.value}" for edit in self.shape_edits if edit.kind == "set"]
        return " ".join(words)

    @cached_property
    def has_even_shape(self) -> bool:
        """Whether nodes, tasks and GPUs of each node are all told."""
        return self.job.nodes is not None and self.job.nodes[0] == self.job.nodes[1] and self.shape.fixed

    # -- what it starts

    @cached_property
    def starts(self) -> tuple[Launch, ...]:
        """The commands that start ranks: launchers, and python where the script has none."""
        launchers = tuple(each for each in self.job.launches if each.kind != PYTHON)
        return launchers or self.job.launches

    @cached_property
    def one_a_node(self) -> bool:
        """Whether what srun starts is to be started once a node, as it starts the ranks of the node itself."""
        agents = (each for each in self.starts if each.kind in (SRUN, TORCHRUN))
        return any(each.innermost().kind not in (SRUN, PYTHON, MPIRUN) for each in agents)

    @cached_property
    def known(self) -> dict[str, int | None]:
        """Slurm's variables in the batch script."""
        shape = self.shape
        nodes = shape.most if shape.least == shape.most else None
        asked = bool(self.job.option("ntasks", "ntasks-per-node", "ntasks-per-gpu"))
        return {
            "SLURM_NNODES": nodes,
            "SLURM_JOB_NUM_NODES": nodes,
            "SLURM_NTASKS": shape.tasks if asked else None,
            "SLURM_NPROCS": shape.tasks if asked else None,
            "SLURM_NTASKS_PER_NODE": self.job.number("ntasks-per-node"),
            "SLURM_GPUS_PER_NODE": self.per_node if self.job.option("gpus-per-node") else None,
            "SLURM_GPUS_ON_NODE": shape.gpus_per_node or None,
            "SLURM_GPUS": shape.gpus if self.job.option("gpus") else None,
            "SLURM_CPUS_PER_TASK": self.job.number("cpus-per-task"),
        }

    def number(self, text: str, launch: Launch | None = None) -> int | None:
        """A number of a launcher's option."""
        return resolved(text, self.known, {**self.job.assigned, **(launch.variables if launch else {})})

    def step_tasks(self, launch: Launch) -> tuple[int | None, int | None, int | None]:
        """Nodes, tasks and tasks a node of an srun; None where they are not known."""
        shape, options = self.shape, launch.options
        nodes = self.number(options["nodes"]) if "nodes" in options else shape.most
        on_node = self.number(options["ntasks-per-node"]) if "ntasks-per-node" in options else None
        if "ntasks" in options:
            tasks = self.number(options["ntasks"])
            if on_node is None and tasks is not None and nodes:
                on_node = tasks // nodes if tasks % nodes == 0 else None
            return nodes, tasks, on_node
        if on_node is not None and nodes:
            return nodes, on_node * nodes, on_node
        if "nodes" in options and nodes is not None:
            on_node = shape.tasks_per_node
            return nodes, on_node * nodes if on_node else None, on_node
        return nodes, shape.tasks, shape.tasks_per_node
