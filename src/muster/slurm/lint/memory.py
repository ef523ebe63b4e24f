"""Rules about memory and CPUs: what a job takes of a node beyond its GPUs, so that the others stand idle."""

from __future__ import annotations

from collections.abc import Iterator

from muster.slurm.lint.findings import ERROR, NOTE, WARNING, Edit, Hit, Rule
from muster.slurm.lint.launches import SRUN
from muster.slurm.lint.look import Look

_MIB = 1 << 20
_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")


def _share_mib(look: Look) -> int:
    """A GPU's share of a node's memory, rounded down to GiB."""
    site = look.site
    if site is None or not site.gpus_per_node:
        return 0
    return site.memory_mib // site.gpus_per_node // 1024 * 1024


def _idle(look: Look) -> int:
    """GPUs of each node that the job does not have."""
    return max(0, (look.node_gpus) - (look.shape.gpus_per_node or 0)) if look.shape.gpus_per_node else 0


def whole_memory_by_default(look: Look) -> Iterator[Hit]:
    """Without a default the job has all memory of its nodes, and no other job fits beside it."""
    if look.job.option(*_MEMORY, "exclusive") is not None or not look.shape.gpus:
        return
    site, idle = look.site, _idle(look)
    if site is None:
        if idle:
            what = (
                "no memory is asked for: where the site has no DefMemPer..., the job takes all of a node's "
                f"memory, and the other {idle} GPUs are of no use to anybody"
            )
            yield Hit(what, "--mem-per-gpu=SIZE, a GPU's share of the node's memory", None, (),
                      "the site's defaults and GPUs a node (--config)", NOTE)  # fmt: skip
        return
    found = site.memory_default
    if found is None and site.counts_memory and idle:
        share = _share_mib(look)
        where = f"partition {site.partition.name}" if site.partition else "the cluster"
        what = (
            f"no memory is asked for and {where} has no default: the job takes all {site.memory_mib // 1024} GiB "
            f"of a node, and its other {idle} GPUs are of no use to anybody"
        )
        yield Hit(what, f"--mem-per-gpu={share // 1024}G", None, (Edit("set", "mem-per-gpu", f"{share // 1024}G"),))
    elif found is not None and found.key == "DefMemPerCPU" and look.shape.gpus_per_node:
        cpus = _cpus(look) or 1
        size = int(found.value) * cpus if found.value.isdigit() else 0
        fair = _share_mib(look) * look.shape.gpus_per_node
        if size * 4 < fair:
            what = (
                f"no memory is asked for: {found.key}={found.value} gives {size / 1024:,.0f} GiB of a node for "
                f"{look.shape.gpus_per_node} GPUs, whose share is {fair / 1024:,.0f} GiB"
            )
            size_of = f"{_share_mib(look) // 1024}G"
            yield Hit(what, f"--mem-per-gpu={size_of}", None, (Edit("set", "mem-per-gpu", size_of),),
                      "how much the program needs", NOTE)  # fmt: skip


def all_memory(look: Look) -> Iterator[Hit]:
    """``--mem=0`` is all of a node."""
    option, idle = look.job.option("mem"), _idle(look)
    if option is not None and look.job.memory_bytes("mem") == 0 and idle and look.job.option("exclusive") is None:
        share = _share_mib(look) // 1024
        what = (
            f"all memory of a node, and {look.shape.gpus_per_node} of its GPUs: the other {idle} are of no use to "
            "anybody"
        )
        edits = (Edit("drop", "mem"), Edit("set", "mem-per-gpu", f"{share}G")) if share else ()
        unsure = "" if look.site else "how many GPUs a node has (--config)"
        yield Hit(what, f"--mem-per-gpu={share or 'SIZE'}{'G' if share else ''}", option.line, edits, unsure)


def _memory_mib(look: Look) -> int | None:
    """What the job takes of each node."""
    shape = look.shape
    whole = look.job.memory_bytes("mem")
    if whole is not None:
        return whole // _MIB
    by_gpu = look.job.memory_bytes("mem-per-gpu")
    if by_gpu is not None and shape.gpus_per_node:
        return by_gpu // _MIB * shape.gpus_per_node
    by_cpu, cpus = look.job.memory_bytes("mem-per-cpu"), _cpus(look)
    return by_cpu // _MIB * cpus if by_cpu is not None and cpus else None


def _cpus(look: Look) -> int | None:
    """CPUs that the job takes of each node."""
    job, shape = look.job, look.shape
    by_gpu = job.number("cpus-per-gpu")
    if by_gpu is not None:
        return by_gpu * shape.gpus_per_node if shape.gpus_per_node else None
    if shape.tasks_per_node is None:
        return None
    return shape.tasks_per_node * (job.number("cpus-per-task") or 1)


def too_much_memory(look: Look) -> Iterator[Hit]:
    """More than a node has, or more than the GPUs' share."""
    site, option, memory = look.site, look.job.option(*_MEMORY), _memory_mib(look)
    if site is None or option is None or not memory or not site.memory_mib:
        return
    has, gpus = site.memory_mib, look.shape.gpus_per_node
    share = _share_mib(look)
    if memory > has:
        what = f"{memory / 1024:,.0f} GiB of a node: the nodes have {has / 1024:,.0f} GiB; sbatch refuses it"
        if gpus and share:
            edits = (*(Edit("drop", name) for name in _MEMORY if name in look.job.options),
                     Edit("set", "mem-per-gpu", f"{share // 1024}G"))  # fmt: skip
            yield Hit(what, f"--mem-per-gpu={share // 1024}G", option.line, edits, "", ERROR)
        else:
            yield Hit(what, f"--mem={has // 1024}G at most", option.line, (), "", ERROR)
    elif gpus and gpus < site.gpus_per_node and look.job.option("exclusive") is None:
        left = has - memory
        stranded = site.gpus_per_node - gpus - (left // share if share else 0)
        if stranded > 0:
            what = (
                f"{memory / 1024:,.0f} of {has / 1024:,.0f} GiB for {gpus} of {site.gpus_per_node} GPUs: beside "
                f"it there is memory for {left // share} GPUs, {stranded} are of no use"
            )
            yield Hit(what, f"--mem-per-gpu={share // 1024}G is a GPU's share", option.line, (),
                      "how much the program needs")  # fmt: skip


def too_many_cpus(look: Look) -> Iterator[Hit]:
    """More than a node has, or more than the GPUs' share."""
    site, cpus, gpus = look.site, _cpus(look), look.shape.gpus_per_node
    option = look.job.option("cpus-per-task", "cpus-per-gpu", "ntasks-per-node", "ntasks")
    if site is None or option is None or not cpus or not site.cpus_per_node:
        return
    has = site.cpus_per_node
    if cpus > has:
        what = f"{cpus} CPUs of a node: the nodes have {has}; sbatch refuses it"
        yield Hit(what, f"--cpus-per-task={max(1, has // max(1, look.shape.tasks_per_node or 1))} at most", option.line,
                  (), "", ERROR)  # fmt: skip
    elif gpus and gpus < site.gpus_per_node and look.job.option("exclusive") is None:
        share = max(1, has // site.gpus_per_node)
        stranded = site.gpus_per_node - gpus - (has - cpus) // share
        if stranded > 0:
            what = (
                f"{cpus} of {has} CPUs for {gpus} of {site.gpus_per_node} GPUs: {stranded} GPUs are of no use to "
                f"jobs with {share} CPUs a GPU"
            )
            yield Hit(what, f"{share} CPUs a GPU is its share", option.line, (), "how many the program needs")


def one_cpu(look: Look) -> Iterator[Hit]:
    """A task has one CPU unless it asks for more; data loaders and torchrun's processes share it."""
    job, shape = look.job, look.shape
    if job.option("cpus-per-task", "cpus-per-gpu", "exclusive", "mincpus", "tres-per-task") is not None:
        return
    if not shape.gpus or not shape.gpus_per_node or (look.site and look.site.setting("DefCpuPerGPU")):
        return
    tasks = 1 if look.one_a_node else shape.tasks_per_node
    if tasks is None:
        return
    ranks = shape.gpus_per_node if look.one_a_node else tasks
    share = look.site.cpus_per_node // look.site.gpus_per_node if look.site and look.site.gpus_per_node else 0
    each = share * shape.gpus_per_node // tasks if share else 0
    name = "cpus-per-task"
    what = (
        f"{ranks} rank{'' if ranks == 1 else 's'} of a node with {tasks} CPU{'' if tasks == 1 else 's'}: the data "
        f"loaders share {'it' if tasks == 1 else 'them'}"
    )
    edits = (Edit("set", name, str(each)),) if each else ()
    unsure = "" if look.site else "whether the site has DefCpuPerGPU, and how many CPUs a node has (--config)"
    fix = f"--{name}={each}, the share of {shape.gpus_per_node} GPUs" if each else f"--{name}=N"
    yield Hit(what, fix, None, edits, unsure, "" if look.site else NOTE)


def cpus_not_inherited(look: Look) -> Iterator[Hit]:
    """From 22.05 on srun does not take ``--cpus-per-task`` over."""
    option = look.job.option("cpus-per-task")
    if option is None or look.job.number("cpus-per-task") in (None, 1):
        return
    if "SRUN_CPUS_PER_TASK" in look.job.assigned:
        return
    for launch in look.starts:
        if (
            launch.kind == SRUN
            and "cpus-per-task" not in launch.options
            and "SRUN_CPUS_PER_TASK" not in launch.variables
        ):
            what = f"srun does not take --cpus-per-task={option.value} over (since 22.05): each task is bound to 1 CPU"
            line = "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"
            yield Hit(what, line, launch.line, (Edit("before", value=line, line=launch.line),),
                      "whether the site binds tasks (TaskPlugin=task/affinity or task/cgroup)")  # fmt: skip
            return


_FAMILY = "memory"
RULES = (
    Rule("whole-memory-by-default", _FAMILY, WARNING, "without a default one job has a node's whole memory",
         "slurm.conf(5): DefMemPerGPU, DefMemPerNode", whole_memory_by_default),
    Rule("all-memory", _FAMILY, WARNING, "--mem=0 with a part of a node's GPUs", "sbatch(1): --mem", all_memory),
    Rule("too-much-memory", _FAMILY, WARNING, "more memory than the GPUs' share", "sbatch(1): --mem-per-gpu",
         too_much_memory),
    Rule("too-many-cpus", _FAMILY, WARNING, "more CPUs than the GPUs' share", "sbatch(1): -c, --cpus-per-task",
         too_many_cpus),
    Rule("one-cpu", _FAMILY, WARNING, "one CPU for the data loaders of a GPU", "sbatch(1): -c, --cpus-per-task",
         one_cpu),
    Rule("cpus-not-inherited", _FAMILY, WARNING, "srun does not take --cpus-per-task over",
         "sbatch(1): -c, --cpus-per-task (22.05 and newer)", cpus_not_inherited),
)  # fmt: skip
