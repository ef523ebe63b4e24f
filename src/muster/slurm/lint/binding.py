"""Rules about which GPU a rank sees."""

from __future__ import annotations

import re
from collections.abc import Iterator

from muster.slurm.lint.findings import ERROR, NOTE, WARNING, Edit, Hit, Rule
from muster.slurm.lint.launches import PYTHON, SRUN
from muster.slurm.lint.look import Look

_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_SLURMS = ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "GPU_DEVICE_ORDINAL")
"""Variables that hold GPUs of the job."""


def one_gpu_a_task(look: Look) -> Iterator[Hit]:
    """Each rank sees its own GPU only, and calls it 0, whatever its local rank is."""
    shape, job = look.shape, look.job
    option = job.option("gpus-per-task", "ntasks-per-gpu")
    if option is None or shape.tasks < 2 or job.option("gpu-bind") is not None:
        return
    count = shape.gpus_per_task or 1
    sees = "GPU 0" if count == 1 else f"GPUs 0 to {count - 1}"
    inner = [each.innermost() for each in look.starts]
    if any(each.kind not in (PYTHON, SRUN) for each in inner):
        return  # rank-per-node, of the launch family
    what = (
        f"each rank is bound to {'its GPU' if count == 1 else f'{count} GPUs'}: CUDA names them from 0, so every rank "
        f"sees {sees} only, and cuda:$SLURM_LOCALID fails on all but the first"
    )
    fix = "--gpus-per-node and --ntasks-per-node, with cuda:$SLURM_LOCALID; or keep it and use cuda:0 in each rank"
    edits = look.shape_edits if look.meant is not None and count == 1 else ()
    yield Hit(what, fix, option.line, edits, "which of the two the program does")


def bind_none(look: Look) -> Iterator[Hit]:
    """On 22.05 a step with it has no CUDA_VISIBLE_DEVICES at all."""
    option = look.job.option("gpu-bind")
    if option is not None and option.value.lower().split(",")[-1] == "none":
        what = "ranks have no CUDA_VISIBLE_DEVICES (seen on 22.05): without cgroups they see the GPUs of other jobs too"
        unsure = "" if look.site is not None else "whether this site hides GPUs by cgroups (--config)"
        if look.site is None or not look.site.hides_gpus:
            fix = "leave it out: without it every rank sees the job's GPUs of its node"
            yield Hit(what, fix, option.line, (Edit("drop", "gpu-bind"),), unsure)


def bind_map(look: Look) -> Iterator[Hit]:
    """A map has an entry a rank of the node; fewer wrap around, so that two ranks share one GPU."""
    option, on_node = look.job.option("gpu-bind"), look.shape.tasks_per_node
    if option is None or on_node is None:
        return
    kind, _, listed = option.value.rpartition(":")
    entries = [each for each in listed.split(",") if each]
    if kind.endswith("map_gpu") and len(set(entries)) < on_node:
        what = f"{len(set(entries))} GPUs are listed for {on_node} ranks of a node: some ranks share one"
        gpus = ",".join(map(str, range(on_node)))
        yield Hit(what, f"--gpu-bind=map_gpu:{gpus}, or leave it out", option.line, (Edit("drop", "gpu-bind"),))
    elif kind.endswith("single") and listed.isdigit() and look.shape.gpus_per_node:
        room = look.shape.gpus_per_node * int(listed)
        if on_node > room:
            what = f"{on_node} ranks of a node, and room for {room} on its {look.shape.gpus_per_node} GPUs"
            yield Hit(what, f"--ntasks-per-node={room}", option.line)


def devices_set_by_hand(look: Look) -> Iterator[Hit]:
    """What Slurm gave is overwritten."""
    where = dict(look.job.assigned)
    for each in look.starts:
        where.update({**each.variables, **each.innermost().variables})
    found = where.get("CUDA_VISIBLE_DEVICES")
    if found is None:
        return
    value = found.value.strip("'\"")
    if value.replace(",", "").isdigit():
        what = f"CUDA_VISIBLE_DEVICES={value} takes the place of what Slurm gave: on a shared node those may be others'"
        line = look.job.lines[found.line - 1].strip()
        alone = line.removeprefix("export ").startswith("CUDA_VISIBLE_DEVICES=") and " " not in line[7:]
        edits = (Edit("delete", line=found.line),) if alone else ()
        yield Hit(what, "leave the line out: Slurm sets it", found.line, edits)
    elif (variable := _VARIABLE.fullmatch(value)) and variable[1] not in _SLURMS and not _hidden(look):
        what = f"CUDA_VISIBLE_DEVICES={value} counts the node's GPUs from 0, not the job's"
        unsure = "whether cgroups hide the others (--config), and whether the job has the node alone"
        fix = "srun --exact --ntasks=1 --gpus-per-node=1 for each process, or --gpu-bind=single:1: Slurm sets it then"
        yield Hit(what, fix, found.line, (), unsure, NOTE)


def _hidden(look: Look) -> bool:
    """Whether a job sees no GPUs but its own, for sure."""
    whole = look.site is not None and look.shape.gpus_per_node == look.site.gpus_per_node
    return whole or (look.site is not None and look.site.hides_gpus)


def exclusive_without_gpus(look: Look) -> Iterator[Hit]:
    """The job holds the node's GPUs, and its steps see only those that were asked for."""
    option = look.job.option("exclusive")
    if option is None or option.value not in ("", "exclusive"):
        return
    per_node, has = look.shape.gpus_per_node, look.site.gpus_per_node if look.site else 0
    if not look.shape.gpus and (has or look.site is None):
        what = "the job holds all GPUs of its nodes, and srun's ranks see none: no option asks for GPUs"
        unsure = "" if has else "whether the nodes have GPUs (--config)"
        number = has or look.node_gpus
        edits = (Edit("set", "gpus-per-node", str(number)),) if has else ()
        yield Hit(what, f"add --gpus-per-node={number}", option.line, edits, unsure)
    elif per_node and per_node < (has or look.node_gpus):
        what = f"the job holds all GPUs of its nodes, {has or look.node_gpus} each, and its ranks see {per_node}"
        fix = "leave --exclusive out, or ask for all GPUs"
        yield Hit(what, fix, option.line, (Edit("drop", "exclusive"),),
                  "" if has else "how many GPUs a node has (--config)")  # fmt: skip


def tasks_and_gpus_differ(look: Look) -> Iterator[Hit]:
    """A rank a GPU is what srun with python usually means."""
    for launch in look.starts:
        inner = launch.innermost()
        if launch.kind != SRUN or inner.kind != PYTHON or look.shape.gpus_per_task or "gpus" in launch.options:
            continue
        _, tasks, on_node = look.step_tasks(launch)
        gpus = look.shape.gpus_per_node
        if on_node is None or not gpus or on_node == gpus or look.job.option("gpu-bind") or tasks is None:
            continue
        if any(name in launch.options for name in ("gpus-per-task", "gpu-bind", "gres", "gpus-per-node")):
            continue
        if on_node > gpus:
            what = f"{on_node} ranks a node and {gpus} GPUs: ranks share a GPU"
        elif on_node > 1 or tasks > 1:
            what = f"{on_node} ranks a node and {gpus} GPUs: {gpus - on_node} do nothing, if a rank uses one"
        else:
            what = f"1 rank with {gpus} GPUs: {gpus - 1} do nothing, unless the program starts one process for each"
        edits: tuple[Edit, ...] = ()
        if on_node > 1 and not any(name in launch.options for name in ("ntasks", "ntasks-per-node")):
            edits = (Edit("drop", "ntasks"), Edit("set", "ntasks-per-node", str(gpus)))
        yield Hit(what, f"--ntasks-per-node={gpus}", launch.line, edits, "how many GPUs a rank uses",
                  WARNING if on_node > 1 else NOTE)  # fmt: skip


def gpus_not_hidden(look: Look) -> Iterator[Hit]:
    """Only a variable keeps jobs apart."""
    site, shape = look.site, look.shape
    if site is None or site.hides_gpus or not shape.gpus:
        return
    if look.job.option("exclusive") is None and (shape.gpus_per_node or 0) < site.gpus_per_node:
        what = "this site does not hide GPUs by cgroups: a program that sets CUDA_VISIBLE_DEVICES uses others' GPUs"
        yield Hit(what, "leave CUDA_VISIBLE_DEVICES as Slurm sets it; the site: muster slurm config check", None)


def no_gpus(look: Look) -> Iterator[Hit]:
    """A launcher of GPU ranks in a job that asks for none."""
    if look.shape.gpus or look.job.option("exclusive") is not None or not look.one_a_node:
        return
    launch = next(each for each in look.starts if each.innermost().kind not in (SRUN, PYTHON))
    inner = launch.innermost()
    number = look.number(inner.options.get("nproc-per-node", ""), launch)
    if look.job.option("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket") is None:
        what = f"{inner.kind} starts ranks, and no option asks for GPUs: CUDA_VISIBLE_DEVICES is not set by Slurm"
        edits = (Edit("set", "gpus-per-node", str(number)),) if number else ()
        yield Hit(what, f"add --gpus-per-node={number or 8}", launch.line, edits, "whether it is to run on CPUs only")


_FAMILY = "binding"
RULES = (
    Rule("one-gpu-a-task", _FAMILY, WARNING, "each rank sees its own GPU as number 0",
         "sbatch(1): --gpus-per-task, --ntasks-per-gpu, --gpu-bind", one_gpu_a_task),
    Rule("gpu-bind-none", _FAMILY, WARNING, "ranks see no list of the job's GPUs", "sbatch(1): --gpu-bind", bind_none),
    Rule("gpu-bind-map", _FAMILY, ERROR, "a map with fewer GPUs than ranks", "sbatch(1): --gpu-bind=map_gpu",
         bind_map),
    Rule("devices-by-hand", _FAMILY, ERROR, "CUDA_VISIBLE_DEVICES is set by the script",
         "Slurm, Generic Resource Scheduling: Running Jobs (gres.html)", devices_set_by_hand),
    Rule("exclusive-hides-gpus", _FAMILY, WARNING, "GPUs of an exclusive node that no step sees",
         "sbatch(1): --exclusive", exclusive_without_gpus),
    Rule("ranks-and-gpus-differ", _FAMILY, WARNING, "ranks a node are more or fewer than its GPUs",
         "sbatch(1): --ntasks-per-node, --gpus-per-node", tasks_and_gpus_differ),
    Rule("gpus-not-hidden", _FAMILY, NOTE, "jobs on one node can open each other's GPUs",
         "cgroup.conf(5): ConstrainDevices", gpus_not_hidden),
    Rule("no-gpus", _FAMILY, WARNING, "ranks are started and no GPU is asked for", "sbatch(1): --gpus-per-node",
         no_gpus),
)  # fmt: skip
