"""Rules about how nodes are shared: what is counted, what a job gets by default, what it sees."""

from __future__ import annotations

from collections.abc import Iterator

from muster.slurm.config.findings import ERROR, NOTE, WARNING, Hit, Look, Rule


def _share_mib(memory_mib: int, gpus: int) -> int:
    return memory_mib // max(1, gpus) // 1000 * 1000


def select_type(look: Look) -> Iterator[Hit]:
    """Only cons_tres gives GPUs out one by one, and knows ``--gpus`` and its like."""
    setting = look.settings.get("SelectType")
    if not look.gpu_lines:
        return
    if setting is None:
        yield Hit(look.gpu_lines[0].entry, "SelectType is not set: its default is not the same in all versions",
                  "SelectType=select/cons_tres", WARNING)  # fmt: skip
    elif not setting.value.lower().endswith("cons_tres"):
        whole = " and every job has whole nodes" if setting.value.lower().endswith("linear") else ""
        what = f"with {setting.value} --gpus, --gpus-per-node and --mem-per-gpu are refused{whole}"
        yield Hit(setting, what, "SelectType=select/cons_tres")


def memory_counted(look: Look) -> Iterator[Hit]:
    """Memory that is not given out is shared by whoever takes it."""
    setting = look.settings.get("SelectTypeParameters")
    if setting is not None and "memory" not in setting.value.lower():
        what = f"with {setting.value} memory is not counted: one job can take all of a node, and others are killed"
        yield Hit(setting, what, "SelectTypeParameters=CR_Core_Memory")


def memory_default(look: Look) -> Iterator[Hit]:
    """Without a default a job without ``--mem`` has its nodes' whole memory."""
    if "memory" not in look.settings.text("SelectTypeParameters", "CR_Core_Memory").lower():
        return
    for partition, lines in look.gpu_partitions():
        found = {key: look.conf.setting(partition, key) for key in ("DefMemPerGPU", "DefMemPerCPU", "DefMemPerNode")}
        line = min(lines, key=lambda each: each.memory_mib // max(1, each.gres_count("gpu")))
        gpus, memory = line.gres_count("gpu"), line.memory_mib
        share = _share_mib(memory, gpus)
        whole = str(partition.settings.text("OverSubscribe")).upper().startswith("EXCLUSIVE")
        given = [each for each in found.values() if each is not None and each.value not in ("0", "UNLIMITED")]
        if not given and not whole and gpus > 1:
            what = (
                f"partition {partition.name} has no memory default: a job with 1 GPU and no --mem takes all "
                f"{memory:,} MiB of its node, and the other {gpus - 1} GPUs are of no use"
            )
            yield Hit(partition.entry, what, f"DefMemPerGPU={share}")
        by_gpu = found["DefMemPerGPU"]
        if by_gpu is not None and by_gpu.value.isdigit() and int(by_gpu.value) * gpus > memory:
            what = (
                f"{by_gpu.value} MiB x {gpus} GPUs is more than the {memory:,} MiB of {line.entry.name}: no job "
                "gets all its GPUs without --mem"
            )
            yield Hit(by_gpu, what, f"DefMemPerGPU={share} at most", ERROR)
        by_cpu = found["DefMemPerCPU"]
        if by_cpu is not None and by_gpu is None and by_cpu.value.isdigit():
            fair = int(by_cpu.value) * line.cpus
            if fair > memory:
                what = f"{by_cpu.value} MiB x {line.cpus} CPUs is more than the {memory:,} MiB of {line.entry.name}"
                yield Hit(by_cpu, what, f"DefMemPerCPU={memory // max(1, line.cpus)} at most, or DefMemPerGPU={share}")
        if len(given) > 1:
            names = " and ".join(each.key for each in given)
            yield Hit(
                given[-1], f"{names} hold for partition {partition.name}: only one may be set", "keep DefMemPerGPU"
            )


def cpu_default(look: Look) -> Iterator[Hit]:
    """A task has 1 CPU unless it asks for more."""
    for partition, lines in look.gpu_partitions():
        setting = look.conf.setting(partition, "DefCpuPerGPU")
        line = min(lines, key=lambda each: each.cpus // max(1, each.gres_count("gpu")))
        share = line.cpus // max(1, line.gres_count("gpu"))
        jobs = partition.settings.text("JobDefaults").lower()
        if setting is None and "defcpupergpu" not in jobs:
            what = f"partition {partition.name} has no DefCpuPerGPU: a job with 1 GPU has 1 CPU unless it asks for more"
            yield Hit(partition.entry, what, f"DefCpuPerGPU={share}", NOTE)
        elif setting is not None and setting.value.isdigit() and int(setting.value) > share:
            what = (
                f"{setting.value} CPUs a GPU, and {line.entry.name} has {line.cpus} for {line.gres_count('gpu')}: "
                "not all its GPUs can be used"
            )
            yield Hit(setting, what, f"DefCpuPerGPU={share} at most", ERROR)


def memory_most(look: Look) -> Iterator[Hit]:
    """``--mem=0`` and typos take whole nodes."""
    for partition, lines in look.gpu_partitions():
        if look.conf.setting(partition, "MaxMemPerNode") or look.conf.setting(partition, "MaxMemPerCPU"):
            continue
        line = lines[0]
        cpus, memory = line.cpus, line.memory_mib
        what = f"partition {partition.name} has no MaxMemPerCPU: a job with 1 GPU may ask for a node's whole memory"
        fix = f"MaxMemPerCPU={max(1, memory // max(1, cpus))}: a job is given CPUs for its memory"
        yield Hit(partition.entry, what, fix, NOTE)


def devices(look: Look) -> Iterator[Hit]:
    """Without the device cgroup a job opens any GPU of its node."""
    if not look.gpu_lines:
        return
    plugins, cgroup = look.settings.get("TaskPlugin"), look.config.cgroup
    if plugins is None or "cgroup" not in plugins.value.lower():
        rest = plugins.value if plugins is not None else "task/affinity"
        what = (
            "TaskPlugin has no task/cgroup: a job can open every GPU of its node, only CUDA_VISIBLE_DEVICES "
            "tells it not to"
        )
        yield Hit(
            plugins or look.gpu_lines[0].entry,
            what,
            f"TaskPlugin={rest.replace('task/none', 'task/affinity')},task/cgroup",
        )
    elif cgroup is None:
        yield Hit(plugins, "there is no cgroup.conf: ConstrainDevices is off, and a job can open every GPU of its node",
                  "cgroup.conf: ConstrainDevices=yes")  # fmt: skip
    elif not cgroup.constrains_devices:
        setting = cgroup.settings.get("ConstrainDevices")
        yield Hit(setting or plugins, "ConstrainDevices is off: a job can open every GPU of its node",
                  "cgroup.conf: ConstrainDevices=yes")  # fmt: skip
    if cgroup is not None and plugins is not None and "cgroup" in plugins.value.lower():
        for key, harm in (("ConstrainRAMSpace", "a job that uses more memory than it has takes others down with it"),
                          ("ConstrainCores", "a job uses CPUs of others")):  # fmt: skip
            if not cgroup.settings.flag(key):
                yield Hit(cgroup.settings.get(key) or plugins, f"{key} is off: {harm}", f"cgroup.conf: {key}=yes", NOTE)


def tracking(look: Look) -> Iterator[Hit]:
    """What is left of a job keeps its GPUs busy."""
    setting = look.settings.get("ProctrackType")
    if setting is not None and "cgroup" not in setting.value.lower() and look.gpu_lines:
        what = f"{setting.value} misses processes that leave their group: they go on using GPUs after the job's end"
        yield Hit(setting, what, "ProctrackType=proctrack/cgroup")


_FAMILY = "sharing"
RULES = (
    Rule("select-type", _FAMILY, ERROR, "GPUs need select/cons_tres", "Slurm, Generic Resource Scheduling (gres.html)",
         select_type),
    Rule("memory-not-counted", _FAMILY, WARNING, "memory is not given out", "slurm.conf(5): SelectTypeParameters",
         memory_counted),
    Rule("memory-default", _FAMILY, WARNING, "what memory a job has that asks for none",
         "slurm.conf(5): DefMemPerGPU, DefMemPerNode (default unlimited)", memory_default),
    Rule("cpu-default", _FAMILY, WARNING, "what CPUs a GPU comes with", "slurm.conf(5): DefCpuPerGPU", cpu_default),
    Rule("memory-most", _FAMILY, NOTE, "how much memory a job may ask for", "slurm.conf(5): MaxMemPerCPU", memory_most),
    Rule("gpus-not-hidden", _FAMILY, WARNING, "whether jobs see each other's GPUs",
         "cgroup.conf(5): ConstrainDevices; slurm.conf(5): TaskPlugin", devices),
    Rule("process-tracking", _FAMILY, WARNING, "processes that outlive their job", "slurm.conf(5): ProctrackType",
         tracking),
)  # fmt: skip
