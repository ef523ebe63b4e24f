"""topology.conf (tree and block) and topology.yaml (from 25.05 on) as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from muster.errors import InputError, near
from muster.slurm.conf_keys import TOPOLOGY
from muster.slurm.conf_lines import Entry, Read, Settings, Unknown, read_lines
from muster.slurm.hostlist import expand

TREE, BLOCK, FLAT = "tree", "block", "flat"


class Switch(Struct, frozen=True):
    """A switch of a tree: a leaf has nodes, any other has switches."""

    name: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    entry: Entry | None = None


class Block(Struct, frozen=True):
    """A block of nodes, such as an NVLink domain or a rack of them."""

    name: str
    nodes: tuple[str, ...]
    entry: Entry | None = None


class TopologyConf(Struct, frozen=True):
    """One topology.

    Attributes:
        path: of the file.
        kind: TREE, BLOCK or FLAT.
        name: as partitions name it (topology.yaml); else empty.
        switches: of a tree, in the order of the file.
        blocks: of blocks, in the order of the file.
        block_sizes: the planning base block size, then the larger ones; empty: the smallest block's.
        default: whether partitions that name none have it.
        unknown: keys that are not known.
    """

    path: str
    kind: str
    name: str = ""
    switches: tuple[Switch, ...] = ()
    blocks: tuple[Block, ...] = ()
    block_sizes: tuple[int, ...] = ()
    default: bool = True
    unknown: tuple[Unknown, ...] = ()

    @property
    def leaves(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Leaf switches or blocks: name and nodes."""
        if self.kind == BLOCK:
            return tuple((each.name, each.nodes) for each in self.blocks)
        return tuple((each.name, each.nodes) for each in self.switches if each.nodes)

    def paths(self) -> Mapping[str, tuple[str, ...]]:
        """Node to the names of what it is in, widest first; a node of no leaf is not there."""
        if self.kind == BLOCK:
            return {node: (each.name,) for each in self.blocks for node in each.nodes}
        parents = {child: each.name for each in self.switches for child in each.switches}
        found: dict[str, tuple[str, ...]] = {}
        for each in self.switches:
            upwards, at = [each.name], each.name
            while at in parents:
                at = parents[at]
                upwards.append(at)
            found.update(dict.fromkeys(each.nodes, tuple(reversed(upwards))))
        return found


def read_topology_conf(path: str, read: Read) -> TopologyConf:
    """Read a topology.conf.

    Raises:
        InputError: with file and line: switches beside blocks, a switch with nodes and switches or with neither, a
            switch or node that stands twice, a child that is no switch, switches in a circle.
    """
    unknown: list[Unknown] = []
    switches: list[Switch] = []
    blocks: list[Block] = []
    sizes: tuple[int, ...] = ()
    for line in read_lines(path, read):
        pairs = [TOPOLOGY.check(pair, unknown) for pair in line.pairs]
        first = pairs[0]
        entry = Entry(first.key, first.value, Settings({each.key.lower(): each for each in pairs}), path, first.line)
        if first.key == "SwitchName":
            if len(_hosts(entry, entry.name)) > 1:
                raise entry.error("names more than one switch", "a line each")
            switches.append(Switch(entry.name, _hosts(entry, entry.settings.text("Nodes")),
                                   _hosts(entry, entry.settings.text("Switches")), entry))  # fmt: skip
        elif first.key == "BlockName":
            blocks.append(Block(entry.name, _hosts(entry, entry.settings.text("Nodes")), entry))
        elif first.key == "BlockSizes":
            try:
                sizes = tuple(int(part) for part in first.value.split(","))
            except ValueError:
                raise first.error(f"is {first.value[:40]!r}", "such as 18 or 4,16") from None
        elif TOPOLOGY.spelled(first.key) is not None:
            raise entry.error("a line begins with SwitchName, BlockName or BlockSizes")
    if switches and blocks:
        entry = blocks[0].entry
        assert entry is not None
        raise entry.error("blocks stand beside switches", "topology/block reads blocks, topology/tree switches")
    kind = BLOCK if blocks or sizes else TREE
    conf = TopologyConf(path, kind, "", tuple(switches), tuple(blocks), sizes, True, tuple(unknown))
    _check(conf)
    return conf


def _hosts(entry: Entry, text: str) -> tuple[str, ...]:
    try:
        return expand(text) if text else ()
    except InputError as error:
        raise entry.error(error.what, error.hint) from None


def _check(conf: TopologyConf) -> None:
    """What Slurm's plugins refuse, or take otherwise than it was meant."""
    seen: dict[str, str] = {}
    named: dict[str, None] = {}
    for each in (*conf.switches, *conf.blocks):
        if each.name in named:
            raise _error(conf, each.entry, f"{each.name} stands twice")
        named[each.name] = None
        for node in each.nodes:
            if node in seen:
                raise _error(conf, each.entry, f"{node} is in {seen[node]} already", "a node is in one leaf")
            seen[node] = each.name
    for each in conf.switches:
        if bool(each.nodes) == bool(each.switches):
            both = "nodes and switches" if each.nodes else "neither nodes nor switches"
            raise _error(conf, each.entry, f"{each.name} has {both}", "a leaf has Nodes=, any other Switches=")
        for child in each.switches:
            if child not in named:
                raise _error(conf, each.entry, f"there is no switch {child[:60]}", near(child, list(named)))
    parents: dict[str, str] = {}
    for each in conf.switches:
        for child in each.switches:
            if child in parents:
                raise _error(conf, each.entry, f"{child} is below {parents[child]} already", "below one switch")
            parents[child] = each.name
    for each in conf.switches:
        at, steps = each.name, 0
        while at in parents:
            at, steps = parents[at], steps + 1
            if steps > len(conf.switches):
                raise _error(conf, each.entry, f"{each.name} is above itself")
    for each in conf.blocks:
        if not each.nodes:
            raise _error(conf, each.entry, f"{each.name} has no nodes", "give it Nodes=")


def _error(conf: TopologyConf, entry: Entry | None, what: str, hint: str | None = None) -> InputError:
    return InputError(what, file=conf.path, hint=hint) if entry is None else entry.error(what, hint)


# -- topology.yaml


def read_topology_yaml(path: str, read: Read) -> tuple[TopologyConf, ...]:
    """Read a topology.yaml; raises `InputError` with the file and the field."""
    import msgspec

    try:
        document: object = msgspec.yaml.decode(read(path))
    except msgspec.DecodeError as error:
        raise InputError(f"is no YAML ({str(error).splitlines()[0][:80]})", file=path) from None
    if not isinstance(document, list):
        raise InputError("is no list of topologies", file=path, hint="begin with - topology: NAME")
    return tuple(_from_yaml(path, f"[{at}]", each) for at, each in enumerate(cast("Sequence[object]", document)))


def _from_yaml(path: str, at: str, given: object) -> TopologyConf:
    fields = _fields(path, at, given, ("topology", "cluster_default", TREE, BLOCK, FLAT))
    kinds = [kind for kind in (TREE, BLOCK, FLAT) if kind in fields]
    if len(kinds) != 1:
        raise InputError("has not exactly one of tree, block and flat", file=path, field=at)
    kind, name = kinds[0], str(fields.get("topology", ""))
    if not name:
        raise InputError("has no name", file=path, field=f"{at}.topology")
    default = bool(fields.get("cluster_default", False))
    if kind == FLAT:
        return TopologyConf(path, FLAT, name, default=default)
    inner = _fields(path, f"{at}.{kind}", fields[kind], ("switches",) if kind == TREE else ("block_sizes", "blocks"))
    items = inner.get("switches" if kind == TREE else "blocks", [])
    if not isinstance(items, list):
        raise InputError("is no list", file=path, field=f"{at}.{kind}")
    switches: list[Switch] = []
    blocks: list[Block] = []
    for number, item in enumerate(cast("Sequence[object]", items)):
        where = f"{at}.{kind}[{number}]"
        if kind == TREE:
            each = _fields(path, where, item, ("switch", "children", "nodes"))
            switches.append(Switch(_named(path, where, each, "switch"), _listed(path, where, each, "nodes"),
                                   _listed(path, where, each, "children")))  # fmt: skip
        else:
            each = _fields(path, where, item, ("block", "nodes"))
            blocks.append(Block(_named(path, where, each, "block"), _listed(path, where, each, "nodes")))
    sizes = inner.get("block_sizes", [])
    if not isinstance(sizes, list) or not all(type(each) is int for each in cast("Sequence[object]", sizes)):
        raise InputError("is no list of whole numbers", file=path, field=f"{at}.block.block_sizes")
    conf = TopologyConf(path, kind, name, tuple(switches), tuple(blocks), tuple(cast("list[int]", sizes)), default)
    _check(conf)
    return conf


def _fields(path: str, at: str, given: object, known: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise InputError("has no fields", file=path, field=at, hint=f"known: {', '.join(known)}")
    fields = {str(key).lower(): value for key, value in cast("dict[object, object]", given).items()}
    for key in fields:
        if key not in known:
            hint = near(key, known) or f"known: {', '.join(known)}"
            raise InputError("is not known", file=path, field=f"{at}.{key}", hint=hint)
    return fields


def _named(path: str, at: str, fields: Mapping[str, Any], key: str) -> str:
    if not fields.get(key):
        raise InputError("is missing", file=path, field=f"{at}.{key}")
    return str(fields[key])


def _listed(path: str, at: str, fields: Mapping[str, Any], key: str) -> tuple[str, ...]:
    if not fields.get(key):
        return ()
    try:
        return expand(str(fields[key]))
    except InputError as error:
        raise InputError(error.what, file=path, field=f"{at}.{key}", hint=error.hint) from None
