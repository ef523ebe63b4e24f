"""Small work where it breaks up nothing: in the fullest domain that has room for all of it, found in one pass."""

from __future__ import annotations

import numpy as np

from muster.engine.domains import TopologyIndex
from muster.engine.kernels.domains import node_rooms
from muster.engine.placement import Placer
from muster.engine.topology import MOST_PER_NODE
from muster.kernels import Ints, direct

_node_rooms = direct(node_rooms)
_NEVER = np.iinfo(np.int64).max


def place_in_fullest(placer: Placer, index: TopologyIndex, shape: int, count: int, depth: int) -> Ints | None:
    """Place pods of a shape in the domain of ``depth`` with the least room that suffices, the first of equals.

    Ideally this is what `muster.engine.topology.place_gang` does for a preferred level; where one domain holds all,
    there is nothing else to weigh, and a look at each node and a sum a domain is enough. Rooms are exact, so the pods
    find their places.

    Returns:
        Rows node, shape and device mask, a column a pod, in order along the topology; None, with nothing changed, where
        no domain with a name holds all.
    """
    nodes, shapes = placer.state.nodes, placer.state.shapes
    room = np.zeros(len(index.order), np.int64)
    if not len(room):
        return None
    _node_rooms(shape, MOST_PER_NODE, index.order, 0, len(room), nodes, shapes, room)
    starts = index.starts[depth]
    rooms = np.add.reduceat(room[index.order], starts[:-1])
    enough = np.where((rooms >= count) & index.real[depth], rooms, _NEVER)
    domain = int(enough.argmin())
    if enough[domain] == _NEVER:
        return None
    span = np.array([[starts[domain]], [starts[domain + 1]], [count]], np.int64)
    rows = placer.place_in_spans(shape, span, index.order)
    if rows is None:
        return None
    return np.ascontiguousarray(rows[:, np.lexsort((rows[2], index.rank[rows[0]]))])
