"""Rules about nodes, their GPUs, partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from muster.slurm.conf_gres import GresLine
from muster.slurm.config.findings import ERROR, NOTE, WARNING, Hit, Look, Rule
from muster.slurm.hostlist import compress


def gres_counts(look: Look) -> Iterator[Hit]:
    """slurmd reports what gres.conf has; fewer than slurm.conf says takes the whole node out."""
    gres = look.config.gres
    for line in look.conf.nodes:
        wanted = {"gpu": line.gres_count("gpu")} if line.gres_count("gpu") else {}
        for name, count in wanted.items():
            for names, mine, detects in _alike(look, line.names):
                setting = line.settings.get("Gres")
                if detects:
                    continue
                found = sum(each.count or 0 for each in mine if each.name == name)
                where = compress(names)
                if gres is None or not any(each.name == name for each in mine):
                    what = (
                        f"{where} have {count} GPUs here and no line in gres.conf: slurmd finds no device files "
                        "for them"
                    )
                    fix = f"gres.conf: NodeName={where} Name=gpu File=/dev/nvidia[0-{count - 1}], or AutoDetect=nvml"
                    yield Hit(setting, what, fix)
                elif found < count:
                    what = (
                        f"{where}: {count} GPUs here and {found} in gres.conf: the nodes are drained (count "
                        f"reported lower than configured, {found} < {count}), all GPUs with them"
                    )
                    yield Hit(mine[-1].entry, what, f"File= with {count} devices, or Gres=gpu:{found}")
                elif found > count:
                    what = (
                        f"{where}: {count} GPUs here and {found} in gres.conf: slurmd ignores {found - count} of them"
                    )
                    yield Hit(mine[-1].entry, what, f"Gres=gpu:{found} in slurm.conf", WARNING)


def _alike(look: Look, names: tuple[str, ...]) -> Iterator[tuple[list[str], tuple[GresLine, ...], bool]]:
    """The nodes by which lines of gres.conf hold for them."""
    gres = look.config.gres
    if gres is None:
        yield list(names), (), False
        return
    groups: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        groups.setdefault(look.named_in_gres.get(name, ()), []).append(name)
    for members in groups.values():
        yield members, gres.of_node(members[0]), gres.detects(members[0])


def gres_types(look: Look) -> Iterator[Hit]:
    """A type of one file must be one of the other."""
    if look.config.gres is None:
        return
    for line in look.gpu_lines:
        types = {each.type for each in line.gres if each.name == "gpu" and each.type}
        for names, mine, detects in _alike(look, line.names):
            given = {each.type for each in mine if each.name == "gpu" and each.type}
            wrong = sorted(given - types)
            if types and wrong and not detects:
                place = next(each.entry for each in mine if each.type in wrong)
                what = (
                    f"{compress(names)}: type {', '.join(wrong)} here and {', '.join(sorted(types))} in slurm.conf: "
                    "the nodes are drained, as none of the type that slurm.conf has is there"
                )
                yield Hit(place, what, f"Type={sorted(types)[0]}")


def gres_not_told(look: Look) -> Iterator[Hit]:
    """GPUs that no job may ask for."""
    gres = look.config.gres
    if gres is None:
        return
    for each in gres.lines:
        if each.name != "gpu" or not each.nodes:
            continue
        lines = look.line_of
        none = [name for name in each.nodes if name in lines and not lines[name].gres_count("gpu")]
        gone = [name for name in each.nodes if name not in lines]
        if none:
            what = f"{compress(none)} have GPUs here and none in slurm.conf: no job can ask for them"
            yield Hit(each.entry, what, f"Gres=gpu:{each.count or 1} on their NodeName line")
        if gone:
            yield Hit(each.entry, f"{compress(gone)} are in no NodeName line of slurm.conf", "take them out", WARNING)


def gres_type_list(look: Look) -> Iterator[Hit]:
    """slurmctld refuses a Gres that GresTypes does not name."""
    types = {each.lower() for each in look.settings.words("GresTypes")}
    for line in look.conf.nodes:
        for name in dict.fromkeys(each.name for each in line.gres):
            if name.lower() not in types:
                what = f"GresTypes does not name {name}: slurmctld does not know it and ignores the nodes' Gres"
                yield Hit(look.settings.get("GresTypes") or line.settings.get("Gres"), what,
                          f"GresTypes={','.join([*look.settings.words('GresTypes'), name])}")  # fmt: skip
                return


def device_twice(look: Look) -> Iterator[Hit]:
    """A device file on two lines of one node is counted twice."""
    gres = look.config.gres
    for line in look.gpu_lines if gres is not None else ():
        for names, mine, _ in _alike(look, line.names):
            seen: dict[str, GresLine] = {}
            for each in mine:
                twice = [file for file in each.files if file in seen and each.name == "gpu"]
                if twice:
                    what = f"{compress(names)}: {compress(twice)} stand at {seen[twice[0]].entry.where} already"
                    yield Hit(each.entry, what, "each device on one line")
                seen.update(dict.fromkeys(each.files, each) if each.name == "gpu" else {})


def cores_of_gpus(look: Look) -> Iterator[Hit]:
    """Cores are numbered from 0 to one less than the node has; threads do not count."""
    gres = look.config.gres
    for line in look.gpu_lines if gres is not None else ():
        for names, mine, detects in _alike(look, line.names):
            for each in mine:
                if each.cores and max(each.cores) >= line.cores:
                    cpus = f", {line.cpus} CPUs with threads" if line.cpus != line.cores else ""
                    what = (
                        f"{compress(names)}: core {max(each.cores)}, and the nodes have {line.cores} cores{cpus}: "
                        "those beyond are ignored, and from 25.05.3 on the node is set invalid"
                    )
                    yield Hit(each.entry, what, f"Cores= within 0-{line.cores - 1}: cores, not threads")
            lacking = [each for each in mine if each.name == "gpu" and each.cores is None]
            sockets = line.settings.integer("Sockets", 1) * line.settings.integer("SocketsPerBoard", 1)
            if lacking and not detects and sockets > 1:
                what = (
                    f"{compress(names)}: no Cores= on a node with {sockets} sockets: jobs may get CPUs far from "
                    "their GPUs"
                )
                yield Hit(lacking[0].entry, what, "AutoDetect=nvml, or Cores= as nvidia-smi topo -m says", NOTE)


def cpu_counts(look: Look) -> Iterator[Hit]:
    """CPUs is either all threads or all cores; anything else is taken for threads, and cores stay empty."""
    for line in look.conf.nodes:
        settings = line.settings
        given = settings.get("CPUs", "Procs")
        if given is None or not any(key in settings for key in ("Sockets", "CoresPerSocket", "SocketsPerBoard")):
            continue
        threads = line.cores * settings.integer("ThreadsPerCore", 1)
        if line.cpus not in (line.cores, threads):
            what = (
                f"{line.entry.name}: CPUs={line.cpus}, and sockets x cores x threads are {threads}: slurmctld takes "
                f"{threads} instead"
            )
            yield Hit(given, what, f"leave CPUs out, or CPUs={threads}")


def no_memory(look: Look) -> Iterator[Hit]:
    """RealMemory is 1 MiB where it is not told."""
    counted = "memory" in look.settings.text("SelectTypeParameters", "CR_Core_Memory").lower()
    for line in look.conf.nodes:
        if "RealMemory" not in line.settings and counted:
            what = f"{line.entry.name}: no RealMemory, which is 1 MiB then: jobs that ask for memory are refused"
            yield Hit(line.entry, what, "RealMemory= as slurmd -C prints it")


def partitions(look: Look) -> Iterator[Hit]:
    """Where jobs go, and nodes to which none goes."""
    inside = {name for each in look.conf.partitions for name in each.nodes}
    outside = [name for line in look.conf.nodes for name in line.names if name not in inside]
    if outside:
        line = look.line_of[outside[0]]
        yield Hit(line.entry, f"{compress(outside)} are in no partition: no job can run there", "add them to one")
    for each in look.conf.partitions:
        if not each.nodes:
            yield Hit(each.entry, f"partition {each.name} has no nodes: its jobs wait for ever", "Nodes=")
    default = [each for each in look.conf.partitions if each.is_default]
    if not default and look.conf.partitions:
        what = "no partition is the default: jobs without --partition are refused"
        yield Hit(look.conf.partitions[0].entry, what, f"Default=YES on {look.conf.partitions[0].name}", NOTE)
    if len(default) > 1:
        names = ", ".join(each.name for each in default)
        yield Hit(default[0].entry, f"{names} all say Default=YES: the last one counts", "on one of them")


def in_several(look: Look) -> Iterator[Hit]:
    """The same nodes in partitions of the same tier and different limits."""
    groups: dict[frozenset[str], int] = {}
    counted = Counter[str]()
    for each in look.conf.partitions:
        counted.update(each.nodes)
    of_node: dict[str, list[str]] = {}
    for each in look.conf.partitions:
        for name in each.nodes:
            if counted[name] > 1:
                of_node.setdefault(name, []).append(each.name)
    for names in of_node.values():
        groups[frozenset(names)] = groups.get(frozenset(names), 0) + 1
    by_name = {each.name: each for each in look.conf.partitions}
    for members, count in groups.items():
        mine = [each for name, each in by_name.items() if name in members]
        tiers = {each.settings.text("PriorityTier", "1") for each in mine}
        memory = {each.settings.text("DefMemPerGPU") or each.settings.text("DefMemPerCPU") for each in mine}
        listed = ", ".join(each.name for each in mine)
        if len(memory) > 1:
            what = (
                f"{count} nodes are in {listed}, with different memory defaults: jobs of one strand GPUs for the other"
            )
            yield Hit(mine[-1].entry, what, "the same DefMemPerGPU on both")
        elif len(tiers) == 1:
            what = (
                f"{count} nodes are in {listed}, of one PriorityTier: no partition goes first, and each one's "
                "limits count alone"
            )
            yield Hit(mine[-1].entry, what, "PriorityTier= tells which goes first, a QOS limits both", NOTE)


_FAMILY = "nodes"
RULES = (
    Rule("gres-counts", _FAMILY, ERROR, "GPUs in slurm.conf and in gres.conf differ",
         "Slurm, src/interfaces/gres.c: gres/gpu count reported lower than configured; gres.conf(5): Count, File",
         gres_counts),
    Rule("gres-types", _FAMILY, ERROR, "GPU types in slurm.conf and in gres.conf differ", "gres.conf(5): Type",
         gres_types),
    Rule("gres-not-told", _FAMILY, WARNING, "GPUs of gres.conf that slurm.conf does not have",
         "slurm.conf(5): NodeName, Gres", gres_not_told),
    Rule("gres-type-list", _FAMILY, ERROR, "GresTypes lacks a resource of the nodes", "slurm.conf(5): GresTypes",
         gres_type_list),
    Rule("device-twice", _FAMILY, ERROR, "one device on two lines", "gres.conf(5): File", device_twice),
    Rule("cores-of-gpus", _FAMILY, ERROR, "Cores= beyond those of the node",
         "gres.conf(5): Cores; CHANGELOG/slurm-25.05.md", cores_of_gpus),
    Rule("cpu-counts", _FAMILY, WARNING, "CPUs do not fit sockets, cores and threads", "slurm.conf(5): NodeName, CPUs",
         cpu_counts),
    Rule("no-memory", _FAMILY, ERROR, "nodes without memory", "slurm.conf(5): NodeName, RealMemory", no_memory),
    Rule("partitions", _FAMILY, WARNING, "partitions without nodes, nodes without partition, the default",
         "slurm.conf(5): PARTITION CONFIGURATION", partitions),
    Rule("in-several-partitions", _FAMILY, WARNING, "nodes in partitions that do not agree",
         "slurm.conf(5): PriorityTier, DefMemPerGPU", in_several),
)  # fmt: skip
