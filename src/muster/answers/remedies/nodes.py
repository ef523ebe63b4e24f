"""Nodes for the gang: those that refuse it for what can be set right, that are kept for others, or that are new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from muster.answers.changes import AddNodes, EndReservation, SetNodes
from muster.answers.changes.grow import NARROW
from muster.answers.remedies.ask import Ask, Candidate
from muster.answers.words import listed, plural
from muster.engine.state import refusing_taints
from muster.kernels import Ints
from muster.model.fleet import WHOLE_GPU_MILLI, Node
from muster.model.reasons import Reason
from muster.model.workload import PodShape
from muster.slurm.hostlist import compress

What = Literal["uncordon", "repair", "unspare", "untaint"]

MOST_MORE = 3
"""How often more nodes than reckoned are tried."""


def uncordon(ask: Ask) -> Iterator[Candidate]:
    """Cordoned nodes, the fewest."""
    yield from _set(ask, refused_only_by(ask, Reason.UNSCHEDULABLE), "uncordon", "uncordon")


def spares(ask: Ask) -> Iterator[Candidate]:
    """Nodes that are kept as spares, the fewest."""
    yield from _set(ask, refused_only_by(ask, Reason.SPARE), "unspare", "give up as spares:")


def untaint(ask: Ask) -> Iterator[Candidate]:
    """Nodes whose taint is taken away, the fewest: one key at a time."""
    tainted = refused_only_by(ask, Reason.TAINT)
    refusing = {node.name: _refusing(ask, node) for node in tainted}
    for key in dict.fromkeys(key for node in tainted for key in refusing[node.name]):
        nodes = [node for node in tainted if refusing[node.name] == {key: None}]
        yield from _set(ask, nodes, "untaint", f"remove the taint {key} of", key)


def repaired(ask: Ask) -> Iterator[Candidate]:
    """Nodes with GPUs that are not healthy, the fewest; also such as are cordoned for it."""
    masks, position = _masks(ask), ask.cluster.position
    lifted = Reason.UNSCHEDULABLE.mask | Reason.GPU_COUNT.mask
    found = [node for node in ask.sick if not masks[position[node.name]] & ~lifted]
    yield from _set(ask, found, "repair", "repair")


def mixed(ask: Ask) -> Iterator[Candidate]:
    """Nodes that refuse it for several things, or some for this and some for that: each is set right."""
    lifted = Reason.UNSCHEDULABLE.mask | Reason.SPARE.mask | Reason.TAINT.mask | Reason.GPU_COUNT.mask
    masks, nodes = _masks(ask), ask.cluster.fleet.nodes
    ill = dict.fromkeys(node.name for node in ask.sick)
    refused = dict.fromkeys((*np.flatnonzero(masks).tolist(), *(ask.cluster.position[name] for name in ill)))
    found = [nodes[at] for at in sorted(refused) if not masks[at] & ~lifted]
    rooms = {node.name: _pods_on(ask, node, repaired=True) for node in found}
    for chosen in _fewest(ask, [node for node in found if rooms[node.name]], rooms):
        sick = [node.name for node in chosen if node.name in ill]
        shut = [node.name for node in chosen if not node.schedulable and node.name not in sick]
        kept = [node.name for node in chosen if node.spare]
        changes: list[SetNodes] = []
        parts: list[str] = []
        told: tuple[tuple[list[str], What, str], ...] = (
            (sick, "repair", "repair"), (shut, "uncordon", "uncordon"), (kept, "unspare", "give up the spare"),
        )  # fmt: skip
        for names, what, verb in told:
            if names:
                changes.append(SetNodes(tuple(sorted(names)), what))
                parts.append(f"{verb} {compress(sorted(names))}")
        refusing = {node.name: _refusing(ask, node) for node in chosen}
        for key in dict.fromkeys(key for node in chosen for key in refusing[node.name]):
            names = [node.name for node in chosen if key in refusing[node.name]]
            changes.append(SetNodes(tuple(sorted(names)), "untaint", key))
            parts.append(f"remove the taint {key} of {compress(sorted(names))}")
        if len(changes) > 1:
            yield Candidate("nodes", listed(parts, len(parts)), tuple(changes), ask.workload, room=True)


def _refusing(ask: Ask, node: Node) -> dict[str, None]:
    """The keys of a node's taints that the gang does not tolerate, in order."""
    shapes = [pods.shape for pods in ask.workload.pod_sets]
    return dict.fromkeys(taint.key for taint in refusing_taints(shapes, node))


def refused_only_by(ask: Ask, reason: Reason) -> list[Node]:
    """The nodes that a pod of the gang could use but for one reason that no load can lift."""
    masks = _masks(ask)
    nodes = ask.cluster.fleet.nodes
    return [nodes[at] for at in np.flatnonzero(masks == reason.mask).tolist()]


def _masks(ask: Ask) -> Ints:
    """Why each node refuses its largest pods, whatever runs there, as a mask."""
    state = ask.cluster.state
    row = ask.cluster.shape_id(ask.shape_set.shape, ask.flavor)
    return state.shapes.static_refusals[int(state.shapes.constraint[row])]


def _set(ask: Ask, nodes: Sequence[Node], what: What, verb: str, key: str = "") -> Iterator[Candidate]:
    """The fewest of some nodes with which the gang may find room, then some more."""
    rooms = {node.name: _pods_on(ask, node, repaired=what == "repair") for node in nodes}
    usable = [node for node in nodes if rooms[node.name]]
    for chosen in _fewest(ask, usable, rooms):
        names = tuple(sorted(node.name for node in chosen))
        several = len(names) > 1
        title = (
            f"{verb} {plural(len(names), 'node')} ({compress(names)})" if several else f"{verb} node {compress(names)}"
        )
        yield Candidate("nodes", title, (SetNodes(names, what, key),), ask.workload, room=True)


def _pods_on(ask: Ask, node: Node, *, repaired: bool) -> int:
    """How many of its largest pods would find room on a node."""
    shape, state = ask.shape_set.shape, ask.cluster.state.nodes
    at = ask.cluster.position[node.name]
    most = 1 << 20
    if shape.gpus:
        free = int((state.gpu_free[at] >= shape.gpu_milli).sum())
        if repaired:
            free += sum(not device.healthy for device in node.devices)
        most = free // shape.gpus
    if shape.cpu_milli:
        most = min(most, int(state.cpu_free[at]) // shape.cpu_milli)
    if shape.memory_bytes:
        most = min(most, int(state.memory_free[at]) // shape.memory_bytes)
    return max(0, most)


def _fewest(ask: Ask, nodes: Sequence[Node], rooms: dict[str, int]) -> Iterator[list[Node]]:
    """Nodes with most room first, as many as are reckoned to be needed, then more; of one domain if it must be so."""
    if not nodes:
        return
    now = ask.cluster.rooms(ask.cluster.shape_id(ask.shape_set.shape, ask.flavor))
    request, needed = ask.workload.topology, ask.shape_set.required
    groups: list[tuple[int, list[Node]]] = []
    if request is not None and request.required and not request.segment:
        depth = ask.cluster.index.depth_of(request.required)
        of_node = ask.cluster.index.groups[depth]
        by_domain: dict[int, list[Node]] = {}
        for node in nodes:
            by_domain.setdefault(int(of_node[ask.cluster.position[node.name]]), []).append(node)
        groups = [(int(now[of_node == domain].sum()), members) for domain, members in by_domain.items()]
    else:
        groups = [(int(now.sum()), list(nodes))]
    choices: list[list[Node]] = []
    for room, members in groups:
        members.sort(key=lambda node: (-rooms[node.name], node.name))
        count = 0
        while count < len(members) and (room < needed or not count):
            room += rooms[members[count].name]
            count += 1
        if room >= needed:
            choices.append(members[:count])
            choices += [members[:more] for more in _more(count, len(members))]
    yield from sorted(choices, key=len)[: MOST_MORE + 1]


def _more(count: int, most: int) -> list[int]:
    """Numbers above ``count`` to try in turn."""
    found = [count + 1, 2 * count, most]
    return sorted({each for each in found if count < each <= most})


def reservations(ask: Ask) -> Iterator[Candidate]:
    """An advance reservation that keeps nodes from it, ended."""
    ends_s = ask.now_s + ask.scheduler.running.expected_s(ask.workload)
    holding = [
        each for each in ask.scheduler.reservations
        if each.start_s < ends_s and each.end_s > ask.now_s
        and ask.workload.queue not in each.queues and ask.workload.name not in each.workloads
    ]  # fmt: skip
    for each in sorted(holding, key=lambda each: (len(each.nodes), each.name)):
        title = f"end the reservation {each.name} of {plural(len(each.nodes), 'node')}"
        yield Candidate("reservation", title, (EndReservation(each.name),), ask.workload, room=True)


def new_nodes(ask: Ask) -> Iterator[Candidate]:
    """New nodes like one of its flavor: as many as are reckoned to be needed, and then more."""
    pod_set, kind = ask.shape_set, ask.kind
    at = _model(ask)
    if at is None:
        return
    like = ask.cluster.fleet.nodes[at]
    per_node = _capacity(like, pod_set.shape)
    if not per_node:
        return
    request = ask.workload.topology
    level = domain = ""
    pods, room = pod_set.required, int(ask.cluster.rooms(ask.cluster.shape_id(pod_set.shape, ask.flavor)).sum())
    if request is not None and request.required in ask.cluster.fleet.topology.levels:
        refused, depth = ask.cluster.refusal(kind, ask.flavor), ask.cluster.index.depth_of(request.required)
        pods = refused.unit if refused is not None and refused.unit else pods
        if request.required in NARROW:  # such a domain has its full number of nodes: the new ones stand in new domains
            size = int((ask.cluster.index.groups[depth] == ask.cluster.index.groups[depth][at]).sum())
            room, pods = 0, pods if pods <= size * per_node else 0
        else:
            level, domain = request.required, like.topology[depth - 1]
            room = 0
            if refused is not None and refused.best_domain:
                room, domain = refused.best_room, refused.best_domain.rpartition("/")[2]
    least = max(1, -(-(pods - room) // per_node))
    for count in (least, *_more(least, -(-pod_set.count // per_node))) if pods else ():
        title = f"add {plural(count, 'node')} like {like.name}" + (f" in {level} {domain}" if level else "")
        change = AddNodes(count, like.name, level=level, domain=domain)
        yield Candidate("add", title, (change,), ask.workload, room=True)


def _model(ask: Ask) -> int | None:
    """The position of a node of the flavor that came nearest that takes its largest pods when nothing runs there."""
    masks = _masks(ask)
    nodes = ask.cluster.fleet.nodes
    shape = ask.shape_set.shape
    for at in np.flatnonzero(masks == 0).tolist():
        node = nodes[at]
        whole = node.healthy_gpus == len(node.devices) >= shape.gpus
        if whole and node.cpu_milli >= shape.cpu_milli and node.memory_bytes >= shape.memory_bytes:
            return at
    return None


def _capacity(node: Node, shape: PodShape) -> int:
    """Pods of a shape that a new node takes."""
    most = 1 << 20
    if shape.gpus:
        shares = WHOLE_GPU_MILLI // shape.gpu_milli if shape.gpus == 1 else 1
        most = len(node.devices) * shares // shape.gpus
    if shape.cpu_milli:
        most = min(most, node.cpu_milli // shape.cpu_milli)
    if shape.memory_bytes:
        most = min(most, node.memory_bytes // shape.memory_bytes)
    return most
