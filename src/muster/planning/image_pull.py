"""How long an image takes to arrive, layer by layer: connections, downloads beside each other, unpacking, many nodes.

Of each layer that the node lacks: s bytes as sent, U bytes unpacked. At most `downloads` layers come at once, in order,
each over `connections` connections; they share what the node may take:

    node    = min(link, registry / nodes)
    layer   = min(connections x rate of one connection, node / layers that come now)

A layer is unpacked when it is there and those below it are (at most `unpacks` at once, each at the rate of one thread,
together no faster than the disk). That is played through event by event. The disk writes both, so

    pull >= (sum of s + sum of U) / disk

Bounds that tell what binds: the largest layer over its connections; all bytes over the node's rate; all unpacked bytes
over the unpackers.

Peer to peer: a node may serve a layer when it has it (Spegel), so holders double with each copy:

    last node = pull of the first + ceil(log2(nodes)) x largest layer / link

Layers in a Dockerfile: a change of one rebuilds all above it. With p_i the share of builds that change layer i, a pull
after the next build takes on average sum s_i (1 - product over j <= i of (1 - p_j)); that is least with the layers in
falling order of s_i (1 - p_i) / p_i (exchange of neighbours).

Sources: containerd and kubelet defaults (muster.catalog.images); the exchange argument is Smith's rule, 1956.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct


class Layer(Struct, frozen=True):
    """One layer.

    Attributes:
        size_bytes: as the registry sends it.
        unpacked_bytes: on disk.
        changes: share of builds that change it.
        cached: whether the node has it.
    """

    name: str
    size_bytes: float
    unpacked_bytes: float
    changes: float = 0.0
    cached: bool = False


class Way(Struct, frozen=True):
    """How a node pulls; rates in bytes a second.

    Attributes:
        connection: what the registry sends over one connection.
        link: of the node.
        registry: what it sends to all nodes together.
        nodes: that pull at the same time.
        downloads: layers that come at once.
        connections: of one layer.
        unpack: unpacked bytes a second of one thread.
        unpacks: layers unpacked at once.
        disk: what it writes.
    """

    connection: float
    link: float
    registry: float
    nodes: int
    downloads: int
    connections: int
    unpack: float
    unpacks: int
    disk: float

    @property
    def node_rate(self) -> float:
        """What a node may take in all."""
        return min(self.link, self.registry / self.nodes)


class Pulled(Struct, frozen=True):
    """When it is done.

    Attributes:
        total_s: until the image can run.
        download_s: until the last byte has come.
        rows: of each layer that came: name, download begins, ends, unpack begins, ends, in seconds.
    """

    total_s: float
    download_s: float
    rows: tuple[tuple[str, float, float, float, float], ...]


def pull(layers: Sequence[Layer], way: Way) -> Pulled:
    """Play a pull through, event by event; see the module's text."""
    missing = [layer for layer in layers if not layer.cached]
    if not missing:
        return Pulled(0.0, 0.0, ())
    downloaded = _downloads([layer.size_bytes for layer in missing], way)
    unpacked = _unpacks([(end, layer.unpacked_bytes) for (_, end), layer in zip(downloaded, missing, strict=True)], way)
    rows = tuple(
        (layer.name, *came, *done) for layer, came, done in zip(missing, downloaded, unpacked, strict=True)
    )  # fmt: skip
    written = sum(layer.size_bytes + layer.unpacked_bytes for layer in missing)
    total = max(max(end for _, end in unpacked), written / way.disk)
    return Pulled(total, max(end for _, end in downloaded), rows)


def _downloads(sizes: Sequence[float], way: Way) -> list[tuple[float, float]]:
    """Begin and end of each layer's download; layers share the node's rate equally, each up to its connections."""
    left = list(sizes)
    begun: dict[int, float] = {}
    ended: dict[int, float] = {}
    clock = 0.0
    waiting = list(range(len(sizes)))
    running: list[int] = []
    while waiting or running:
        while waiting and len(running) < way.downloads:
            begun[waiting[0]] = clock
            running.append(waiting.pop(0))
        rate = min(way.connections * way.connection, way.node_rate / len(running))
        first = min(left[at] for at in running)
        clock += first / rate
        for at in running:
            left[at] -= first
        for at in [at for at in running if left[at] <= 1e-6]:
            running.remove(at)
            ended[at] = clock
    return [(begun[at], ended[at]) for at in range(len(sizes))]


def _unpacks(layers: Sequence[tuple[float, float]], way: Way) -> list[tuple[float, float]]:
    """Begin and end of each layer's unpacking, in order, so many at once; ``layers`` are (there at, unpacked bytes)."""
    rate = min(way.unpack, way.disk / way.unpacks)
    free = [0.0] * way.unpacks
    done: list[tuple[float, float]] = []
    for there, size in layers:
        at = min(range(way.unpacks), key=lambda one: (free[one], one))
        begin = max(there, free[at], done[-1][0] if done else 0.0)
        free[at] = begin + size / rate
        done.append((begin, free[at]))
    return done


def bounds(layers: Sequence[Layer], way: Way) -> dict[str, float]:
    """What a pull cannot be faster than, in seconds, by what binds."""
    missing = [layer for layer in layers if not layer.cached]
    sent = sum(layer.size_bytes for layer in missing)
    unpacked = sum(layer.unpacked_bytes for layer in missing)
    largest = max((layer.size_bytes for layer in missing), default=0.0)
    unpackers = min(way.disk, way.unpacks * way.unpack)
    return {
        "one layer's connections": largest / min(way.connections * way.connection, way.node_rate),
        "the node's share": sent / way.node_rate,
        "unpacking": unpacked / unpackers,
        "the disk": (sent + unpacked) / way.disk,
    }


def peer_to_peer_s(layers: Sequence[Layer], way: Way) -> float:
    """Until the last of the nodes has the image, if each serves the layers that it has."""
    from msgspec.structs import replace

    first = pull(layers, replace(way, nodes=1)).total_s
    largest = max((layer.size_bytes for layer in layers if not layer.cached), default=0.0)
    return first + math.ceil(math.log2(way.nodes)) * largest / way.link


def expected_bytes(layers: Sequence[Layer]) -> float:
    """Bytes that a pull after the next build takes on average, if a change rebuilds all layers above."""
    same = 1.0
    total = 0.0
    for layer in layers:
        same *= 1 - layer.changes
        total += layer.size_bytes * (1 - same)
    return total


def best_order(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The order, lowest layer first, with the least `expected_bytes`; those that never change are lowest."""

    def index(layer: Layer) -> float:
        return math.inf if layer.changes <= 0 else layer.size_bytes * (1 - layer.changes) / layer.changes

    return tuple(sorted(layers, key=lambda layer: -index(layer)))


def split(layers: Sequence[Layer], most_bytes: float) -> tuple[Layer, ...]:
    """The same with every layer cut into equal parts of at most so many bytes."""
    found: list[Layer] = []
    for layer in layers:
        parts = max(1, math.ceil(layer.size_bytes / most_bytes))
        found += [
            Layer(
                layer.name if parts == 1 else f"{layer.name}/{at + 1}", layer.size_bytes / parts,
                layer.unpacked_bytes / parts, layer.changes, layer.cached,
            )
            for at in range(parts)
        ]  # fmt: skip
    return tuple(found)
