"""`muster plan image`: how long an image takes to arrive on nodes, what binds, and what makes it shorter."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from msgspec.structs import replace

from muster.catalog import images
from muster.catalog.sources import SOURCES
from muster.errors import InputError
from muster.planning.derivation import Chart, Line, Result, Step, Table
from muster.planning.image_pull import (
    Layer,
    Way,
    best_order,
    bounds,
    expected_bytes,
    peer_to_peer_s,
    pull,
    split,
)
from muster.planning.quantities import BYTES, RATE, SHARE, TIME, counts, numbers
from muster.planning.question import Ask, Question, Worked
from muster.planning.rows import read_row

MOST_LAYERS = 500
_EXAMPLE = (
    "base:size=30MB",
    "cuda:size=2.2GB,changes=2%",
    "torch:size=4.5GB,changes=5%",
    "python:size=1.2GB,changes=30%",
    "engine:size=2.8GB,changes=20%",
    "code:size=50MB,changes=100%",
)
_HINT = "such as torch:size=4.5GB,changes=5%; unpacked=9GB and cached=yes if you like"
_PULL = str(SOURCES[images.PULL_SOURCE])


def read_layer(text: str, ratio: float, field: str = "--layer") -> Layer:
    """A layer written ``name:size=4.5GB,unpacked=9GB,changes=5%,cached=yes``; raises `InputError`."""
    name, said = read_row(text, ("size",), ("unpacked", "changes", "cached"), field, _HINT)
    size = BYTES.read(said["size"], field)
    unpacked = BYTES.read(said["unpacked"], field) if "unpacked" in said else size * ratio
    changes = SHARE.read(said.get("changes", "0"), field)
    cached = said.get("cached", "no")
    if not (0 <= size <= 1e13 and 0 <= unpacked <= 1e14 and 0 <= changes <= 1 and cached in ("yes", "no")):
        hint = "size up to 10TB, changes from 0 to 1, cached yes or no"
        raise InputError(f"{name[:30]!r} makes no sense", field=field, hint=hint)
    return Layer(name, size, unpacked, changes, cached == "yes")


class Image(Question, frozen=True, kw_only=True, dict=True):
    """An image by its layers, and how nodes pull it."""

    planner = "image"
    asks = "How long does this image take to arrive, what binds, and what would make it shorter?"

    layers: Annotated[
        tuple[str, ...],
        Ask("Y", "layers from the lowest, each name:size=,unpacked=,changes=,cached=", option="layer"),
    ] = _EXAMPLE  # fmt: skip
    ratio: Annotated[
        float, Ask("r", "unpacked bytes of each byte sent, where a layer does not say", numbers("times", "2"), least=1,
                   most=20, usual="1.5 to 3", source="NGC PyTorch: about 10 GB sent, more than 20 GB on disk")
    ] = 2.0  # fmt: skip
    nodes: Annotated[
        int, Ask("N", "nodes that pull at once", counts("nodes", "64"), least=1, most=1e6, usual="1 to 2,000")
    ] = 16  # fmt: skip
    connection: Annotated[
        float, Ask("c", "what the registry sends over one connection", RATE, above=True, usual="30MB/s to 300MB/s")
    ] = 100e6  # fmt: skip
    link: Annotated[
        float, Ask("L", "link of a node to the registry", RATE, above=True, usual="10Gb/s to 100Gb/s")
    ] = 3.125e9  # fmt: skip
    registry: Annotated[
        float, Ask("R", "what the registry, or a mirror, sends to all nodes together", RATE, above=True,
                   usual="10Gb/s to 400Gb/s")
    ] = 5e9  # fmt: skip
    downloads: Annotated[
        int, Ask("d", "layers downloaded at once", counts("layers", "3"), least=1, most=1000, usual="3 to 20",
                 source=_PULL)
    ] = images.DOWNLOADS  # fmt: skip
    connections: Annotated[
        int, Ask("k", "connections of one layer", counts("", "10"), least=1, most=1000, usual="1, or 10 in SOCI's "
                 "parallel mode", source=_PULL)
    ] = 1  # fmt: skip
    unpack: Annotated[
        float, Ask("u", "unpacked bytes a second of one thread", RATE, above=True, usual="100MB/s to 300MB/s for gzip")
    ] = 150e6  # fmt: skip
    unpacks: Annotated[
        int, Ask("p", "layers unpacked at once", counts("layers", "1"), least=1, most=1000, usual="1 to 10",
                 source=_PULL)
    ] = images.UNPACKS  # fmt: skip
    disk: Annotated[
        float, Ask("D", "what the node's disk writes", RATE, above=True, usual="125MiB/s (gp3 by default) to 4GB/s")
    ] = 2e9  # fmt: skip
    needed: Annotated[
        float, Ask("q", "share of the image that is read at start, for lazy loading", SHARE, above=True, most=1,
                   usual="0.05 to 1", source=f"{SOURCES[images.READ_SOURCE]}; images with weights read nearly all")
    ] = images.READ_AT_START  # fmt: skip

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        if not 1 <= len(self.layers) <= MOST_LAYERS:
            raise InputError(f"are {len(self.layers)}", field="--layer", hint=f"1 to {MOST_LAYERS}; or --from MANIFEST")
        return tuple(read_layer(text, self.ratio) for text in self.layers)

    @property
    def _way(self) -> Way:
        return Way(
            self.connection, self.link, self.registry, self.nodes, self.downloads, self.connections, self.unpack,
            self.unpacks, self.disk,
        )  # fmt: skip

    def headline(self) -> float:
        """The time alone."""
        return pull(self._layers, self._way).total_s

    def work(self) -> Worked:
        """See `muster.planning.image_pull`."""
        found, binds = pull(self._layers, self._way), bounds(self._layers, self._way)
        missing = [layer for layer in self._layers if not layer.cached]
        ways = self._ways(found.total_s)
        ordered, now = expected_bytes(best_order(self._layers)), expected_bytes(self._layers)
        results = [
            Result("until the image can run on a node", found.total_s, "s"),
            Result("until its last byte is there", found.download_s, "s"),
            Result("sent to all nodes", self.nodes * sum(layer.size_bytes for layer in missing), "B"),
            Result("written by each node", sum(layer.size_bytes + layer.unpacked_bytes for layer in missing), "B"),
        ]
        if now:
            results.append(Result("sent for a pull after the next build, on average", now, "B"))
        if ordered < now * 0.999:
            results.append(Result("the same with layers in the best order", ordered, "B"))
        return Worked(
            self._answer(found.total_s, binds, ways), _FORMULA,
            f"{_PULL}; played event by event: muster.planning.image_pull", tuple(self._steps(found.total_s, binds)),
            tuple(results), tuple(self._tables(ways)), (self._chart(),), _FAILS, tuple(self._todo(binds, ordered, now)),
        )  # fmt: skip

    def _answer(self, total: float, binds: dict[str, float], ways: list[tuple[str, float]]) -> str:
        if not total:
            return "Nothing is pulled: every layer is on the node."
        name, least = min((each for each in ways if not each[0].startswith("lazy")), key=lambda each: each[1])
        what = max(binds, key=lambda each: binds[each])
        on = "a node" if self.nodes == 1 else f"each of {self.nodes:,} nodes"
        better = f" {name[:1].upper()}{name[1:]}: {TIME.show(least)}." if least < 0.95 * total else ""
        return f"{TIME.show(total)} until the image can run on {on}; {what} binds most.{better}"

    def _ways(self, now: float) -> list[tuple[str, float]]:
        """Other ways to pull, with their times."""
        layers, way = self._layers, self._way
        largest = max((layer.size_bytes for layer in layers if not layer.cached), default=0.0)
        if not largest:
            return [("as it is", now)]
        cores = max(self.unpacks, images.SOCI_UNPACKS)
        parallel = replace(way, connections=max(self.connections, images.SOCI_CONNECTIONS))
        plain = tuple(replace(layer, size_bytes=layer.unpacked_bytes) for layer in layers)
        raw = replace(way, unpack=self.disk)
        sliced = split(layers, largest / 4)
        wide = replace(parallel, unpacks=cores)
        raw_wide = replace(raw, connections=wide.connections)
        rows = [
            ("as it is", now),
            (f"{parallel.connections} connections a layer", pull(layers, parallel).total_s),
            (f"{cores} layers unpacked at once", pull(layers, replace(way, unpacks=cores)).total_s),
            ("the largest layers cut into parts of a quarter, unpacked at once",
             pull(sliced, replace(way, unpacks=cores)).total_s),
            ("all of that", pull(sliced, wide).total_s),
            ("layers sent without compression", pull(plain, raw).total_s),
            ("without compression, with connections as above", pull(plain, raw_wide).total_s),
        ]  # fmt: skip
        if self.nodes > 1:
            rows.append(("peer to peer, by layer", peer_to_peer_s(layers, way)))
            rows.append(("peer to peer with all of that", peer_to_peer_s(sliced, wide)))
        sent = sum(layer.size_bytes for layer in layers if not layer.cached) * self.needed
        rate = min(self.connection, way.node_rate)
        rows.append((f"lazy: {SHARE.show(self.needed)} read before it runs", sent / rate))
        return rows

    def _steps(self, total: float, binds: dict[str, float]) -> list[Step]:
        missing = [layer for layer in self._layers if not layer.cached]
        sent = BYTES.show(sum(layer.size_bytes for layer in missing))
        unpacked = BYTES.show(sum(layer.unpacked_bytes for layer in missing))
        largest = max((layer.size_bytes for layer in missing), default=0.0)
        node = self._way.node_rate
        one = min(self.connections * self.connection, node)
        share = f"min({RATE.show(self.link)}, {RATE.show(self.registry)} / {self.nodes:,})"
        unpackers = min(self.disk, self.unpacks * self.unpack)
        worked = {
            "one layer's connections": f"{BYTES.show(largest)} / min({self.connections} x "
            f"{RATE.show(self.connection)}, {RATE.show(node)}) = {BYTES.show(largest)} / {RATE.show(one)}",
            "the node's share": f"{sent} / {RATE.show(node)}",
            "unpacking": f"{unpacked} / min({RATE.show(self.disk)}, {self.unpacks} x {RATE.show(self.unpack)}) = "
            f"{unpacked} / {RATE.show(unpackers)}",
            "the disk": f"({sent} + {unpacked}) / {RATE.show(self.disk)}",
        }
        steps = [Step("what a node may take", share, node, "B/s")]
        steps += [Step(f"no faster than {name}", worked[name], value, "s") for name, value in binds.items()]
        text = f"played: {self.downloads} layers come at once, {self.unpacks} unpacked at once in order"
        return [*steps, Step(text, f"{len(missing)} layers, event by event (below)", total, "s")]

    def _tables(self, ways: list[tuple[str, float]]) -> list[Table]:
        total = ways[0][1]
        rows = tuple((name, TIME.show(value), f"{total / value:.1f} x" if value else "") for name, value in ways)
        tables = [Table("Other ways", ("way", "can run after", "faster"), rows)]
        played = pull(self._layers, self._way).rows
        by_name = {layer.name: layer for layer in self._layers}
        largest = sorted(played, key=lambda row: -by_name[row[0]].size_bytes)[:12]
        shown = [row for row in played if row in largest]
        tables.append(
            Table(
                "The pull" + (", its 12 largest layers" if len(played) > 12 else ""),
                ("layer", "sent", "comes", "is there", "unpacking", "done"),
                tuple(
                    (name, BYTES.show(by_name[name].size_bytes), *(TIME.show(at) for at in times))
                    for name, *times in shown
                ),
            )
        )
        return tables

    def _chart(self) -> Chart:
        grid = [2**at for at in range(11)]
        layers, way = self._layers, self._way
        lines = [
            Line("from the registry", tuple((n, pull(layers, replace(way, nodes=n)).total_s / 60) for n in grid)),
            Line("peer to peer", tuple((n, peer_to_peer_s(layers, replace(way, nodes=n)) / 60) for n in grid)),
        ]
        title = "Time until the image can run, by nodes that pull at once"
        return Chart(title, "nodes", "minutes", tuple(lines))

    def _todo(self, binds: dict[str, float], ordered: float, now: float) -> list[str]:
        what = max(binds, key=lambda each: binds[each])
        told: list[str] = []
        if what == "unpacking":
            told.append(
                "Unpack in parallel: containerd max_concurrent_unpacks, or SOCI's parallel mode "
                f"(max-concurrent-unpacks-per-image {images.SOCI_UNPACKS}, a core each); or send layers with zstd or "
                "without compression."
            )
        elif what == "one layer's connections":
            told.append(
                "Cut the largest layer into several RUN or COPY steps, or fetch it in ranges: SOCI's parallel mode "
                f"({images.SOCI_CONNECTIONS} connections, chunks of 8 to 16 MB)."
            )
        elif what == "the node's share":
            told.append("Serve nodes from nodes (Spegel, Dragonfly, Kraken), or put a mirror beside them.")
        else:
            told.append("Faster disks first: parallel pulls are slower than plain ones below about 600 MiB/s.")
        if ordered < now * 0.999:
            order = ", ".join(layer.name for layer in best_order(self._layers)[:8])
            sent = f"the next pull sends {BYTES.show(ordered)}, not {BYTES.show(now)}"
            told.append(f"Where nothing forbids it, order layers from the lowest: {order}; {sent}.")
        told.append(
            "Kubelet: serializeImagePulls false and maxParallelImagePulls, where pods start together; "
            "image_pull_progress_timeout in containerd above the time of the largest layer."
        )
        told.append("Keep weights out of the image, and pull it before it is needed: a DaemonSet on idle nodes.")
        return told


_FORMULA = (
    "a layer comes at min(k c, min(L, R / N) / layers that come now), d layers at once, in order",
    "it is unpacked at min(u, D / p), p layers at once, when those below are begun; all bytes are written at D",
    "peer to peer: the first node's pull + ceil(log2 N) x largest layer / L",
    "next pull: sum of s_i (1 - product over j <= i of (1 - p_j)); best order: falling s (1 - p)/p",
)
_FAILS = (
    "The registry throttles, or a proxy limits connections of a whole site: c and R are then not what one pull shows.",
    "Other pulls share the node's disk and cores: unpacking slows with the cores of the node.",
    "Lazy loading: what is read later comes then, at the pace of single requests; images with weights read nearly all "
    "of it, and lazy pulls of such images were measured 66 % slower.",
    "Peer to peer assumes that nodes find each other at once, and that none is slow.",
)
