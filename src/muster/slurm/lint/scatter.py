"""Rules about nodes: options with which Slurm may spread GPUs or tasks otherwise than they were meant."""

from __future__ import annotations

from collections.abc import Iterator

from muster.slurm.lint.findings import ERROR, WARNING, Hit, Rule
from muster.slurm.lint.look import Look

_BUSY = "how busy the cluster is"


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _fix(look: Look) -> str:
    if look.meant is None:
        return f"say --nodes, and --gpus-per-node and --ntasks-per-node that divide {look.shape.gpus} GPUs evenly"
    return f"{look.shape_words}"


def gpus_without_nodes(look: Look) -> Iterator[Hit]:
    """``--gpus`` counts GPUs of the job; nothing says that they lie together."""
    option, shape = look.job.option("gpus"), look.shape
    if option is not None and look.job.nodes is None and shape.most > 1 and shape.gpus > 1:
        what = f"{shape.gpus} GPUs of the whole job: on a busy cluster they may come from up to {shape.most} nodes"
        yield Hit(f"{what}, {_plural(shape.least, 'node')} would do", _fix(look), option.line, look.shape_edits, _BUSY)


def tasks_without_nodes(look: Look) -> Iterator[Hit]:
    """Tasks that may go where there is room."""
    option, shape = look.job.option("ntasks", "ntasks-per-gpu"), look.shape
    if option is None or look.job.nodes is not None or shape.tasks < 2 or look.job.option("gpus") is not None:
        return
    if look.job.option("gpus-per-task") is not None:
        what = f"{shape.tasks} tasks, each with its GPUs, may run on up to {shape.most} nodes"
    elif look.per_node:
        gpus = shape.most * look.per_node
        what = f"{shape.tasks} tasks may run on up to {shape.most} nodes, and take {look.per_node} GPUs on each: {gpus}"
    else:
        return
    yield Hit(what, _fix(look), option.line, look.shape_edits, _BUSY)


def tasks_uneven(look: Look) -> Iterator[Hit]:
    """Slurm fills the first node with tasks and leaves one for each of the others."""
    option, nodes, shape = look.job.option("ntasks"), look.job.nodes, look.shape
    if option is None or nodes is None or nodes[0] != nodes[1] or nodes[1] < 2 or shape.tasks_per_node is not None:
        return
    if shape.tasks <= nodes[1] or look.job.option("ntasks-per-node") is not None:
        return
    if (look.job.gpus("gpus-per-task") and look.per_node) or not shape.gpus:
        return
    first = shape.tasks - nodes[1] + 1
    what = (
        f"{shape.tasks} tasks on {nodes[1]} nodes: Slurm fills one node after the other, with room for it "
        f"{', '.join(map(str, [first, *[1] * min(nodes[1] - 1, 3)]))}{' ...' if nodes[1] > 4 else ''}"
    )
    each = f"--ntasks-per-node={shape.tasks // nodes[1]}" if shape.tasks % nodes[1] == 0 else ""
    unsure = "how many CPUs are free on each node"
    if each:
        yield Hit(what, _fix(look), option.line, look.shape_edits, unsure)
    else:
        yield Hit(f"{what}; {shape.tasks} is no multiple of {nodes[1]}", "make it one", option.line, (), unsure)


def gpus_uneven(look: Look) -> Iterator[Hit]:
    """``--gpus`` on several nodes: each has one at least, the first as many as possible."""
    option, nodes, shape = look.job.option("gpus"), look.job.nodes, look.shape
    if option is None or nodes is None or nodes[1] < 2 or look.per_node or shape.gpus < nodes[1]:
        return
    if look.job.option("gpus-per-task") is not None and shape.tasks_per_node is not None:
        return
    if shape.gpus == nodes[0] == nodes[1]:
        return
    first = min(look.node_gpus, shape.gpus - nodes[1] + 1)
    what = f"{shape.gpus} GPUs on {nodes[1]} nodes are divided as there is room: {first} on one and 1 on another, say"
    if first * nodes[1] == shape.gpus:
        return  # all nodes must give all that they have
    if shape.gpus % nodes[1] == 0:
        yield Hit(what, _fix(look), option.line, look.shape_edits, "how many GPUs are free on each node")
    else:
        what = f"{what}; {shape.gpus} is no multiple of {nodes[1]}"
        yield Hit(what, "ask for a multiple, by --gpus-per-node", option.line)


def fewer_gpus_than_nodes(look: Look) -> Iterator[Hit]:
    """sbatch refuses it."""
    option, nodes = look.job.option("gpus"), look.job.nodes
    total = look.job.gpus("gpus")
    if option is not None and nodes is not None and total is not None and total[1] < nodes[0] and not look.per_node:
        what = f"{total[1]} GPUs for {nodes[0]} nodes: sbatch refuses it, each node must have one"
        yield Hit(what, f"--gpus-per-node={total[1]} if each node is to have {total[1]}", option.line)


def more_nodes_than_tasks(look: Look) -> Iterator[Hit]:
    """sbatch takes fewer nodes then, with a warning that is soon forgotten."""
    option, nodes, tasks = look.job.option("ntasks"), look.job.nodes, look.job.number("ntasks")
    if option is not None and nodes is not None and tasks is not None and tasks < nodes[0]:
        what = f"{_plural(tasks, 'task')} for {nodes[0]} nodes: Slurm takes {_plural(tasks, 'node')} and warns only"
        yield Hit(what, f"--ntasks-per-node=1 in the place of --ntasks={tasks}", option.line)


def more_than_a_node_has(look: Look) -> Iterator[Hit]:
    """No node could ever give it."""
    site, per_node = look.site, look.shape.gpus_per_node
    if site is None or not site.nodes or not per_node:
        return
    option = look.job.option("gpus-per-node", "gres", "gpus-per-task", "gpus")
    if option is not None and per_node > site.gpus_per_node:
        where = f"partition {site.partition.name}" if site.partition else "the cluster"
        what = f"{per_node} GPUs on a node: the nodes of {where} have {site.gpus_per_node} at most; sbatch refuses it"
        yield Hit(what, f"--nodes={-(-look.shape.gpus // max(1, site.gpus_per_node))} "
                  f"--gpus-per-node={site.gpus_per_node}" if site.gpus_per_node else "another partition",
                  option.line)  # fmt: skip


_FAMILY = "scatter"
RULES = (
    Rule("gpus-without-nodes", _FAMILY, WARNING, "GPUs of the job are counted, and may lie on as many nodes",
         "sbatch(1): -G, --gpus", gpus_without_nodes),
    Rule("tasks-without-nodes", _FAMILY, WARNING, "tasks may lie on as many nodes", "sbatch(1): -n, --ntasks; --gres",
         tasks_without_nodes),
    Rule("tasks-uneven", _FAMILY, WARNING, "one node gets most of the tasks",
         "sbatch(1): -m, --distribution (block); -n, --ntasks", tasks_uneven),
    Rule("gpus-uneven", _FAMILY, WARNING, "one node gets most of the GPUs", "sbatch(1): -G, --gpus", gpus_uneven),
    Rule("fewer-gpus-than-nodes", _FAMILY, ERROR, "a node would have no GPU", "sbatch(1): -G, --gpus",
         fewer_gpus_than_nodes),
    Rule("more-nodes-than-tasks", _FAMILY, WARNING, "nodes would have no task", "sbatch(1): -N, --nodes",
         more_nodes_than_tasks),
    Rule("more-than-a-node-has", _FAMILY, ERROR, "no node has so many GPUs", "slurm.conf(5): NodeName, Gres",
         more_than_a_node_has),
)  # fmt: skip
