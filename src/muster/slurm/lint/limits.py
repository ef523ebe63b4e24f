"""Rules about time, partition and account: what keeps a job from starting, or from being backfilled."""

from __future__ import annotations

from collections.abc import Iterator

from muster.errors import near
from muster.slurm.lint.findings import ERROR, NOTE, WARNING, Edit, Hit, Rule
from muster.slurm.lint.look import Look

_DAY_S = 86400.0


def _time(seconds: float) -> str:
    """``D-HH:MM:SS``, as Slurm writes times."""
    whole = int(seconds)
    days, rest = divmod(whole, 86400)
    return f"{f'{days}-' if days else ''}{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"


def no_time_limit(look: Look) -> Iterator[Hit]:
    """Backfill starts a job in a gap that is as long as its limit."""
    if look.job.option("time", "time-min") is not None:
        return
    site = look.site
    if site is None or site.partition is None:
        what = (
            "no --time: the partition's default counts, often its maximum, and backfill starts only what fits in a gap"
        )
        yield Hit(what, "--time=HH:MM:SS, a little more than it needs", None, (),
                  "the partition's DefaultTime (--config)", NOTE)  # fmt: skip
        return
    limit = site.partition.default_time_s
    name = site.partition.name
    if limit is None:
        what = (
            f"no --time, and partition {name} has no default and no maximum: without an end backfill never starts "
            "it in front of others, and nothing can be planned behind it"
        )
        yield Hit(what, "--time=HH:MM:SS, a little more than it needs", None)
    else:
        what = f"no --time: partition {name} gives it {_time(limit)}, and backfill needs a gap of that length"
        yield Hit(what, "--time=HH:MM:SS, a little more than it needs", None, (), "how long it runs",
                  NOTE if limit <= 4 * 3600 else WARNING)  # fmt: skip


def minutes_meant_hours(look: Look) -> Iterator[Hit]:
    """A bare number is minutes, and two numbers are minutes and seconds."""
    option, limit = look.job.option("time"), look.job.limit_s
    if option is None or limit is None or "-" in option.value:
        return
    parts = option.value.split(":")
    if len(parts) < 3 and int(parts[0]) <= 96 and not (len(parts) == 1 and int(parts[0]) in (15, 20, 30, 45, 60, 90)):
        meant = f"{int(parts[0]):02d}:{parts[1] if len(parts) > 1 else '00'}:00"
        what = f"--time={option.value} is {_time(limit)}: {'minutes and seconds' if len(parts) > 1 else 'minutes'}"
        yield Hit(what, f"--time={meant} if hours were meant", option.line, (), "whether hours were meant",
                  WARNING if limit <= 1800 else NOTE)  # fmt: skip


def unlimited(look: Look) -> Iterator[Hit]:
    """No end: no plan behind it."""
    option = look.job.option("time")
    if option is not None and option.value.upper() in ("0", "UNLIMITED", "INFINITE", "-1"):
        what = f"--time={option.value} is no limit: backfill finds no gap for it, and plans nothing behind it"
        yield Hit(what, "--time=D-HH:MM:SS", option.line)


def over_the_maximum(look: Look) -> Iterator[Hit]:
    """It waits for ever with PartitionTimeLimit, or is refused."""
    option, limit, site = look.job.option("time"), look.job.limit_s, look.site
    if option is None or site is None or site.partition is None or site.partition.max_time_s is None:
        return
    most = site.partition.max_time_s
    if limit is None or limit > most:
        refused = site.conf.settings.text("EnforcePartLimits", "NO").upper() in ("YES", "ALL", "ANY")
        then = "sbatch refuses it" if refused else "it waits for ever (PartitionTimeLimit)"
        what = f"--time={option.value} is more than the {_time(most)} of partition {site.partition.name}: {then}"
        yield Hit(what, f"--time={_time(most)}", option.line, (Edit("set", "time", _time(most)),))


def unknown_partition(look: Look) -> Iterator[Hit]:
    """sbatch refuses it."""
    option, site = look.job.option("partition"), look.site
    if option is None or site is None:
        return
    names = [each.name for each in site.conf.partitions]
    for name in option.value.split(","):
        if name not in names:
            hint = near(name, names)
            what = f"there is no partition {name[:40]}: sbatch refuses it"
            yield Hit(what, hint or f"known: {', '.join(names[:8])}", option.line)


def no_partition(look: Look) -> Iterator[Hit]:
    """sbatch refuses it."""
    if look.site is not None and look.job.option("partition") is None and look.site.conf.default_partition is None:
        names = [each.name for each in look.site.conf.partitions]
        yield Hit("no --partition, and no partition is the default: sbatch refuses it",
                  f"--partition={names[0] if len(names) == 1 else 'one of ' + ', '.join(names[:8])}", None)  # fmt: skip


def too_many_nodes(look: Look) -> Iterator[Hit]:
    """More than the partition has or allows."""
    site, nodes, option = look.site, look.job.nodes, look.job.option("nodes")
    if site is None or site.partition is None or nodes is None or option is None:
        return
    has, most = len(site.partition.nodes), site.partition.settings.number("MaxNodes")
    name = site.partition.name
    if nodes[0] > has:
        yield Hit(f"{nodes[0]} nodes: partition {name} has {has}; sbatch refuses it", f"--nodes={has} at most",
                  option.line)  # fmt: skip
    elif most is not None and nodes[0] > most:
        what = f"{nodes[0]} nodes: partition {name} gives a job {most} at most; it waits for ever (PartitionNodeLimit)"
        yield Hit(what, f"--nodes={most} at most", option.line)


def unknown_gpu_type(look: Look) -> Iterator[Hit]:
    """sbatch refuses a type that no node has; letters count, big or small."""
    site, job = look.site, look.job
    option = job.option("gpus", "gpus-per-node", "gpus-per-task", "gres")
    kind = look.shape.kind
    if site is None or option is None or not kind:
        return
    types = sorted({gres.type for each in site.conf.nodes for gres in each.gres if gres.name == "gpu" and gres.type})
    if types and kind not in types:
        same = next((each for each in types if each.lower() == kind.lower()), "")
        hint = f"it is written {same}" if same else near(kind, types) or f"known: {', '.join(types)}"
        edits = (Edit("set", option.name, option.value.replace(kind, same)),) if same else ()
        yield Hit(f"no node has GPUs of type {kind[:40]}: sbatch refuses it", hint, option.line, edits)


_FAMILY = "limits"
RULES = (
    Rule("no-time-limit", _FAMILY, WARNING, "without a limit of its own a job has the longest",
         "sbatch(1): -t, --time; slurm.conf(5): DefaultTime", no_time_limit),
    Rule("minutes-not-hours", _FAMILY, WARNING, "a number of minutes where hours may be meant", "sbatch(1): -t, --time",
         minutes_meant_hours),
    Rule("unlimited-time", _FAMILY, WARNING, "a limit that is none", "Slurm, Scheduling Configuration Guide: backfill",
         unlimited),
    Rule("time-over-maximum", _FAMILY, ERROR, "a limit that the partition does not give", "slurm.conf(5): MaxTime",
         over_the_maximum),
    Rule("unknown-partition", _FAMILY, ERROR, "a partition that there is not", "sbatch(1): -p, --partition",
         unknown_partition),
    Rule("no-partition", _FAMILY, ERROR, "no partition is named and none is the default", "slurm.conf(5): Default",
         no_partition),
    Rule("too-many-nodes", _FAMILY, ERROR, "more nodes than the partition has", "slurm.conf(5): MaxNodes",
         too_many_nodes),
    Rule("unknown-gpu-type", _FAMILY, ERROR, "a GPU type that no node has", "slurm.conf(5): NodeName, Gres",
         unknown_gpu_type),
)  # fmt: skip
