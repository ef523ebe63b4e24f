"""slurm.conf as values: settings, nodes with the defaults of their DEFAULT lines, node sets and partitions.

`read_slurm_conf` reads one; `muster.slurm.conf_gres` and `muster.slurm.conf_topology` read the files beside it.
Keys are found whatever the case of their letters; keys that no Slurm knows are told in ``unknown`` and not refused, as
a newer Slurm may know them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from muster.errors import InputError, near
from muster.slurm.conf_keys import DOWN_NODES, FRONTEND, NODE, NODE_SET, PARTITION, SLURM
from muster.slurm.conf_lines import Entry, Keys, Read, Setting, Settings, Unknown, read_lines
from muster.slurm.hostlist import expand

_KINDS = {
    "nodename": NODE, "partitionname": PARTITION, "nodeset": NODE_SET, "downnodes": DOWN_NODES,
    "frontendname": FRONTEND,
}  # fmt: skip
_GRES = re.compile(r"(?:gres/)?([A-Za-z0-9_-]+)(?:[:=]([^:=]+?))??(?::no_consume)?(?:[:=](\d+[KMGTkmgt]?))?")
_SUFFIX = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


class Gres(Struct, frozen=True):
    """A generic resource of a node: ``gpu:h100:8`` is 8 of name gpu and type h100; an empty type is any."""

    name: str
    type: str
    count: int

    def __str__(self) -> str:
        return ":".join(part for part in (self.name, self.type, str(self.count)) if part)


class ConfNode(Struct, frozen=True):
    """The nodes of one NodeName line.

    Attributes:
        names: each of them.
        entry: the line.
        settings: those of the line, over those of the DEFAULT lines before it.
    """

    names: tuple[str, ...]
    entry: Entry
    settings: Settings

    @property
    def cpus(self) -> int:
        """CPUs of each node, as slurmctld counts them: CPUs, or boards x sockets x cores x threads; else 1."""
        given = self.settings.get("CPUs", "Procs")
        if given is not None:
            return self.settings.integer(given.key, 1)
        return max(1, self.cores * self.settings.integer("ThreadsPerCore", 1))

    @property
    def cores(self) -> int:
        """Cores of each node; where sockets are not told, CPUs over threads."""
        settings = self.settings
        given = settings.get("CPUs", "Procs")
        if given is not None and not any(key in settings for key in ("Sockets", "SocketsPerBoard", "CoresPerSocket")):
            return max(1, settings.integer(given.key, 1) // max(1, settings.integer("ThreadsPerCore", 1)))
        boards = settings.integer("Boards", 1)
        sockets = settings.integer("Sockets", boards * settings.integer("SocketsPerBoard", 1))
        return sockets * settings.integer("CoresPerSocket", 1)

    @property
    def memory_mib(self) -> int:
        """RealMemory in MiB; 1 where it is not told, which is slurmctld's default."""
        return self.settings.integer("RealMemory", 1)

    @property
    def features(self) -> tuple[str, ...]:
        """Its features."""
        return self.settings.words("Features") or self.settings.words("Feature")

    @property
    def gres(self) -> tuple[Gres, ...]:
        """Its generic resources."""
        setting = self.settings.get("Gres")
        return () if setting is None else gres_of(setting)

    def gres_count(self, name: str) -> int:
        """How many of a generic resource each node has, of all types."""
        return sum(each.count for each in self.gres if each.name == name)


class Partition(Struct, frozen=True):
    """A partition.

    Attributes:
        name: its name.
        nodes: the names of its nodes, node sets and ALL resolved, in the order of the file.
        entry: its line.
        settings: those of the line, over those of the DEFAULT lines before it.
    """

    name: str
    nodes: tuple[str, ...]
    entry: Entry
    settings: Settings

    @property
    def max_time_s(self) -> float | None:
        """The longest time limit, seconds; None: there is none."""
        return _limit(self.settings.get("MaxTime"))

    @property
    def default_time_s(self) -> float | None:
        """The time limit of a job that asks for none: DefaultTime, else MaxTime; None: no limit."""
        return _limit(self.settings.get("DefaultTime", "MaxTime"))

    @property
    def is_default(self) -> bool:
        """Whether jobs that name no partition come here."""
        return self.settings.flag("Default")


class SlurmConf(Struct, frozen=True):
    """A slurm.conf with all that it includes.

    Attributes:
        path: of the file.
        settings: those of the cluster as a whole.
        nodes: NodeName lines.
        partitions: PartitionName lines.
        node_sets: name of each NodeSet to its nodes.
        hosts: the controllers, the primary first.
        unknown: keys that no Slurm from 22.05 on knows.
        twice: settings that were given more than once, the earlier of each.
    """

    path: str
    settings: Settings
    nodes: tuple[ConfNode, ...]
    partitions: tuple[Partition, ...]
    node_sets: Mapping[str, tuple[str, ...]]
    hosts: tuple[Setting, ...]
    unknown: tuple[Unknown, ...]
    twice: tuple[Setting, ...]

    def node(self, name: str) -> ConfNode | None:
        """The line that has a node."""
        return next((each for each in self.nodes if name in each.names), None)

    def partition(self, name: str) -> Partition | None:
        """A partition by its name."""
        return next((each for each in self.partitions if each.name == name), None)

    @property
    def default_partition(self) -> Partition | None:
        """The partition of jobs that name none."""
        return next((each for each in reversed(self.partitions) if each.is_default), None)

    def setting(self, partition: Partition | None, key: str) -> Setting | None:
        """What holds for a partition: its own setting, else the cluster's."""
        return (partition.settings.get(key) if partition is not None else None) or self.settings.get(key)


def read_slurm_conf(path: str, read: Read) -> SlurmConf:
    """Read a slurm.conf.

    Args:
        path: of the file.
        read: gives the text of a file by its path; `InputError` without a line where there is none.

    Raises:
        InputError: a line is not made of ``key=value``, a hostlist or a number is none, a node stands in two lines, a
            partition names a node that there is not; with file and line.
    """
    return _Reader(path, read).conf()


class _Reader:
    """One reading of a slurm.conf."""

    def __init__(self, path: str, read: Read) -> None:
        self.path, self.read = path, read
        self.settings: dict[str, Setting] = {}
        self.entries: dict[str, list[Entry]] = {kind: [] for kind in _KINDS}
        self.hosts: list[Setting] = []
        self.unknown: list[Unknown] = []
        self.twice: list[Setting] = []

    def conf(self) -> SlurmConf:
        for line in read_lines(self.path, self.read, cluster=self._cluster()):
            first = line.pairs[0]
            keys = _KINDS.get(first.key.lower())
            if keys is None:
                for pair in line.pairs:
                    self._global(pair)
            else:
                self.entries[first.key.lower()].append(self._entry(keys, line.pairs))
        nodes = tuple(self._nodes())
        where: dict[str, ConfNode] = {}
        for each in nodes:
            for name in each.names:
                if name in where:
                    what = f"node {name} stands at {where[name].entry.where} already"
                    raise each.entry.error(what, "each node stands in one line")
                where[name] = each
        sets = {entry.name: self._node_set(entry, nodes, where) for entry in self.entries["nodeset"]}
        return SlurmConf(
            self.path, Settings(self.settings), nodes, tuple(self._partitions(where, sets)), sets, tuple(self.hosts),
            tuple(self.unknown), tuple(self.twice),
        )  # fmt: skip

    def _cluster(self) -> str:
        found = re.search(r"^\s*ClusterName\s*=\s*(\S+)", self.read(self.path), re.IGNORECASE | re.MULTILINE)
        return found[1].lower() if found else ""

    def _global(self, pair: Setting) -> None:
        setting = SLURM.check(pair, self.unknown)
        if setting.key == "SlurmctldHost":
            self.hosts.append(setting)
            return
        if setting.key.lower() in self.settings:
            self.twice.append(self.settings[setting.key.lower()])
        self.settings[setting.key.lower()] = setting

    def _entry(self, keys: Keys, pairs: tuple[Setting, ...]) -> Entry:
        first, *rest = (keys.check(pair, self.unknown) for pair in pairs)
        settings = {each.key.lower(): each for each in rest}
        return Entry(first.key, first.value, Settings(settings), first.file, first.line)

    def _defaulted(self, kind: str) -> Iterator[tuple[Entry, Settings]]:
        default = Settings()
        for entry in self.entries[kind]:
            if entry.name.upper() == "DEFAULT":
                default = entry.settings.over(default)
            else:
                yield entry, entry.settings.over(default)

    def _nodes(self) -> Iterator[ConfNode]:
        for entry, settings in self._defaulted("nodename"):
            yield ConfNode(_hosts(entry, entry.name), entry, settings)

    def _node_set(self, entry: Entry, nodes: tuple[ConfNode, ...], where: Mapping[str, ConfNode]) -> tuple[str, ...]:
        """By feature, by name, or both: a node that is meant by either is in the set."""
        feature, listed = entry.settings.text("Feature"), entry.settings.text("Nodes")
        if not feature and not listed:
            raise entry.error(f"{entry.name} has no nodes", "give it Feature= or Nodes=")
        names = dict.fromkeys(name for each in nodes if feature in each.features for name in each.names)
        if listed:
            names.update(dict.fromkeys(_known(entry, listed, where, {})))
        return tuple(names)

    def _partitions(self, where: Mapping[str, ConfNode], sets: Mapping[str, tuple[str, ...]]) -> Iterator[Partition]:
        seen: dict[str, Entry] = {}
        for entry, settings in self._defaulted("partitionname"):
            if entry.name in seen:
                raise entry.error(f"{entry.name} stands at {seen[entry.name].where} already", "put them into one line")
            seen[entry.name] = entry
            listed = settings.text("Nodes")
            yield Partition(entry.name, _known(entry, listed, where, sets) if listed else (), entry, settings)


def _known(
    entry: Entry, listed: str, where: Mapping[str, ConfNode], sets: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """The nodes that a list means: hostlists, names of node sets, ALL; each must be there."""
    if listed.upper() == "ALL":
        return tuple(where)
    setting = entry.settings.get("Nodes")
    error: Callable[..., InputError] = entry.error if setting is None else setting.error
    names: dict[str, None] = {}
    for name in _hosts(entry, listed):
        if name in sets:
            names.update(dict.fromkeys(sets[name]))
        elif name in where:
            names[name] = None
        else:
            hint = near(name, [*sets, *where]) or "add a NodeName line, or take it out"
            raise error(f"no NodeName line has {name[:60]}", hint)
    return tuple(names)


def _hosts(entry: Entry, text: str) -> tuple[str, ...]:
    try:
        return expand(text)
    except InputError as error:
        raise entry.error(error.what, error.hint) from None


def _limit(setting: Setting | None) -> float | None:
    if setting is None:
        return None
    from muster.slurm.sbatch_lines import minutes_up

    try:
        return minutes_up(setting.value)
    except (ValueError, OverflowError):
        raise setting.error(f"is {setting.value[:40]!r}", "minutes, or D-HH:MM:SS, or UNLIMITED") from None


def gres_of(setting: Setting) -> tuple[Gres, ...]:
    """``gpu:h100:8,nic:2`` as resources; raises `InputError` with the setting's place."""
    found: list[Gres] = []
    for part in re.sub(r"\([^)]*\)", "", setting.value).split(","):
        if part.strip() in ("", "(null)"):
            continue
        match = _GRES.fullmatch(part.strip())
        if match is None:
            raise setting.error(f"{part[:40]!r} is no resource", "such as gpu:h100:8 or gpu:8")
        found.append(Gres(match[1], match[2] or "", counted(match[3] or "1")))
    return tuple(found)


def counted(text: str) -> int:
    """A count with K, M, G or T for powers of 1024; raises `ValueError`."""
    match = re.fullmatch(r"(\d{1,15})([kmgt]?)", text.strip().lower())
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _SUFFIX[match[2]]
