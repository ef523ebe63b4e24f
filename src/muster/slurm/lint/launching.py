"""Rules about how ranks are started: srun, torchrun, mpirun, and how they find each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from muster.slurm.lint.findings import ERROR, NOTE, WARNING, Edit, Hit, Rule
from muster.slurm.lint.launches import ACCELERATE, MPIRUN, PYTHON, SRUN, TORCHRUN, Launch
from muster.slurm.lint.look import Look

HEAD = 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
PORT = "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))"
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def _place(look: Look, launch: Launch, pattern: str) -> tuple[int, str] | None:
    """The line of a command, with those that continue it, where a pattern is, and what is there."""
    lines, number = look.job.lines, launch.line
    while number <= len(lines):
        found = re.search(pattern, lines[number - 1])
        if found:
            return number, found[0]
        if not lines[number - 1].rstrip().endswith("\\"):
            return None
        number += 1
    return None


def _replace(look: Look, launch: Launch, pattern: str, new: str) -> tuple[Edit, ...]:
    place = _place(look, launch, pattern)
    return (Edit("replace", value=new, line=place[0], old=place[1]),) if place else ()


def _name(launch: Launch) -> str:
    """The launcher's name in the script, as a pattern."""
    return {TORCHRUN: r"torchrun|torch\.distributed\.(run|launch)", ACCELERATE: r"accelerate launch"}.get(
        launch.kind, re.escape(launch.kind)
    )


def launcher_in_every_task(look: Look) -> Iterator[Hit]:
    """torchrun starts the ranks of its node itself."""
    for launch in look.starts:
        inner = launch.innermost()
        if launch.kind != SRUN or inner.kind in (SRUN, PYTHON, MPIRUN):
            continue
        _, tasks, on_node = look.step_tasks(launch)
        count = on_node or -(-(tasks or 0) // look.shape.least)
        if count < 2:
            continue
        each = look.number(inner.options.get("nproc-per-node", ""), launch) or look.shape.gpus_per_node
        total = (
            f", {count * each} processes for {look.shape.gpus_per_node} GPUs"
            if each and look.shape.gpus_per_node
            else ""
        )
        what = f"srun starts {inner.kind} {count} times a node, and each starts the ranks of the whole node{total}"
        edits: tuple[Edit, ...] = (Edit("drop", "ntasks"), Edit("set", "ntasks-per-node", "1"))
        cpus = look.job.number("cpus-per-task")
        if cpus:
            edits = (*edits, Edit("set", "cpus-per-task", str(cpus * count)))
        if "ntasks" in launch.options or "ntasks-per-node" in launch.options:
            edits = _replace(look, launch, r"--ntasks-per-node[= ]\d+", "--ntasks-per-node=1") or _replace(
                look, launch, r"(?<=\s)(-n ?\d+|--ntasks[= ]\d+)", "--ntasks-per-node=1"
            )
        yield Hit(
            what, "--ntasks-per-node=1" + (f" --cpus-per-task={cpus * count}" if cpus else ""), launch.line, edits
        )


def only_the_first_node(look: Look) -> Iterator[Hit]:
    """The script runs on the first node; srun starts a command on all."""
    if any(each.kind in (SRUN, MPIRUN) for each in look.starts):
        return
    for launch in look.starts:
        if launch.kind not in (TORCHRUN, ACCELERATE, PYTHON):
            continue
        nodes = look.shape.most if look.job.nodes else 1
        tasks = look.shape.tasks
        if nodes > 1:
            what = f"{launch.kind} without srun runs on the first of {nodes} nodes only; the others stand idle"
        elif launch.kind == PYTHON and tasks > 1:
            what = f"{launch.kind} without srun is started once; the job has {tasks} tasks"
        else:
            continue
        place = _place(look, launch, rf"(?<![\w./-])({_name(launch)}|python[0-9.]* -m torch\S+)")
        edits = (Edit("replace", value=f"srun {place[1]}", line=place[0], old=place[1]),) if place else ()
        if launch.kind != PYTHON and look.shape.tasks_per_node != 1:
            edits = (*edits, Edit("drop", "ntasks"), Edit("set", "ntasks-per-node", "1"))
        yield Hit(what, f"srun {launch.kind} ...", launch.line, edits)
        return


def ranks_and_gpus(look: Look) -> Iterator[Hit]:
    """A rank a GPU."""
    gpus = look.shape.gpus_per_node
    for launch in look.starts:
        inner = launch.innermost()
        if inner.kind != TORCHRUN or not gpus:
            continue
        given = inner.options.get("nproc-per-node")
        if given is None:
            if gpus > 1:
                what = f"torchrun without --nproc-per-node starts 1 rank a node, which has {gpus} GPUs"
                edits = _replace(look, launch, _name(inner), f"{_found(look, launch, inner)} --nproc-per-node={gpus}")
                yield Hit(what, f"--nproc-per-node={gpus}", launch.line, edits)
            continue
        number = look.number(given, launch)
        if number is None or number == gpus:
            continue
        if number > gpus:
            what = (
                f"torchrun starts {number} ranks a node, which has {gpus} GPUs: the rest fail (invalid device ordinal)"
            )
        else:
            what = f"torchrun starts {number} ranks a node, which has {gpus} GPUs: {gpus - number} do nothing"
        edits = _replace(look, launch, r"--?nproc[_-]per[_-]node[= ]\S+", f"--nproc-per-node={gpus}")
        yield Hit(what, f"--nproc-per-node={gpus}", launch.line, edits, "", ERROR if number > gpus else WARNING)


def _found(look: Look, launch: Launch, inner: Launch) -> str:
    place = _place(look, launch, _name(inner))
    return place[1] if place else inner.kind


def nodes_of_torchrun(look: Look) -> Iterator[Hit]:
    """Without ``--nnodes`` and a rendezvous each node trains by itself."""
    nodes = look.shape.most if look.shape.least == look.shape.most else None
    for launch in look.starts:
        inner = launch.innermost()
        if inner.kind != TORCHRUN:
            continue
        on = look.step_tasks(launch)[0] if launch.kind == SRUN else nodes
        given = look.number(inner.options["nnodes"], launch) if "nnodes" in inner.options else None
        if given is not None and on is not None and given != on and on >= 1:
            then = "it waits for nodes that never come" if given > on else f"{on - given} more than it waits for"
            what = f"torchrun is told of {given} nodes and the job has {on}: {then}"
            yield Hit(what, "--nnodes=$SLURM_NNODES", launch.line,
                      _replace(look, launch, r"--nnodes[= ]\S+", "--nnodes=$SLURM_NNODES"))  # fmt: skip
            continue
        if on is None or on < 2:
            continue
        missing: list[str] = []
        if "nnodes" not in inner.options:
            missing.append("--nnodes=$SLURM_NNODES")
        meets = any(name in inner.options for name in ("rdzv-endpoint", "master-addr"))
        if not meets or "standalone" in inner.options:
            missing += ["--rdzv-id=$SLURM_JOB_ID", "--rdzv-backend=c10d", "--rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT"]
        if "master-addr" in inner.options and "node-rank" not in inner.options and "rdzv-endpoint" not in inner.options:
            missing.append("--node-rank=$SLURM_NODEID")
            what = "torchrun with --master-addr needs a --node-rank of each node; all say 0"
            yield Hit(
                f"{what}, and wait for each other", "use --rdzv-backend=c10d --rdzv-endpoint instead", launch.line
            )
            continue
        if not missing:
            continue
        old = _found(look, launch, inner)
        before = [
            line for line, name in ((HEAD, "MASTER_ADDR"), (PORT, "MASTER_PORT")) if name not in look.job.assigned
        ]
        edits = (
            *(Edit("before", value=line, line=launch.line) for line in (before if not meets else [])),
            *_replace(look, launch, r"\s--standalone\b", ""),
            *_replace(look, launch, _name(inner), f"{old} {' '.join(missing)}"),
        )
        what = (
            f"torchrun on {on} nodes without "
            f"{' and '.join(name.partition('=')[0] for name in missing[:1] + missing[-1:])}: each node trains by "
            "itself, or waits for the others for ever"
        )
        yield Hit(what, " ".join(missing), launch.line, edits)


def finding_each_other(look: Look) -> Iterator[Hit]:
    """Slurm sets none of the variables that torch.distributed reads."""
    set_here = look.job.assigned
    for launch in look.starts:
        inner = launch.innermost()
        if launch.kind != SRUN or inner.kind != PYTHON or not look.shape.gpus or look.number("", launch):
            continue
        _, tasks, _ = look.step_tasks(launch)
        if tasks is None or tasks < 2:
            continue
        names = {**set_here, **launch.variables, **inner.variables}
        lacking = [
            name for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK") if name not in names
        ]
        if not lacking:
            continue
        lines = [HEAD, PORT, "export WORLD_SIZE=$SLURM_NTASKS"]
        add = [line for line in lines if line.split()[1].partition("=")[0] in lacking]
        edits = [Edit("before", value=line, line=launch.line) for line in add]
        line = look.job.lines[launch.line - 1].rstrip()
        ranks = [f"{name}=${variable}" for name, variable in (("RANK", "SLURM_PROCID"), ("LOCAL_RANK", "SLURM_LOCALID"))
                 if name in lacking]  # fmt: skip
        found = re.search(r"(?<![\w./-])python[0-9.]* .*$", line)
        if ranks and found and "'" not in line and not line.endswith(("\\", "&")):
            edits.append(
                Edit("replace", value=f"bash -c '{' '.join(ranks)} exec {found[0]}'", line=launch.line, old=found[0])
            )
        what = (
            f"{tasks} ranks, and {', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not set: "
            "torch.distributed (env://) reads them, Slurm does not set them"
        )
        yield Hit(
            what,
            "set them from SLURM_PROCID, SLURM_LOCALID, SLURM_NTASKS and the first host",
            launch.line,
            tuple(edits),
            "whether the program reads Slurm's variables itself (Lightning and JAX do)",
        )


def master_is_local(look: Look) -> Iterator[Hit]:
    """Each node would look for it at itself."""
    nodes = look.shape.most if look.job.nodes else 1
    for name in ("MASTER_ADDR", "HEAD_NODE", "HEAD_NODE_IP"):
        found = look.job.assigned.get(name)
        if found and nodes > 1 and found.value.strip("'\"") in _LOCAL:
            what = f"{name}={found.value}: on {nodes} nodes each looks for it at itself"
            line = look.job.lines[found.line - 1]
            edits = (
                (Edit("replace", value=HEAD, line=found.line, old=line),)
                if line.startswith("export MASTER_ADDR=")
                else ()
            )
            yield Hit(what, HEAD, found.line, edits)
    for launch in look.starts:
        inner = launch.innermost()
        for name in ("master-addr", "rdzv-endpoint", "main-process-ip"):
            host = inner.options.get(name, "").rpartition(":")[0] or inner.options.get(name, "")
            if nodes > 1 and host in _LOCAL and host:
                yield Hit(f"--{name}={inner.options[name]}: on {nodes} nodes each looks for it at itself",
                          f"--{name}=$MASTER_ADDR{':$MASTER_PORT' if name == 'rdzv-endpoint' else ''}, with {HEAD}",
                          launch.line)  # fmt: skip


def mpirun(look: Look) -> Iterator[Hit]:
    """srun and mpirun both start ranks."""
    for launch in look.starts:
        if launch.kind == SRUN and launch.inner is not None and launch.inner.kind == MPIRUN:
            _, tasks, _ = look.step_tasks(launch)
            if tasks != 1:
                times = f"{tasks} times" if tasks else "in every task"
                place = _place(look, launch, r"\bsrun\b.*?(?=\b(mpirun|mpiexec|orterun|prterun)\b)")
                edits = (Edit("replace", value="", line=place[0], old=place[1]),) if place else ()
                what = f"srun starts mpirun {times}, and each starts all ranks"
                yield Hit(what, "mpirun alone, or srun --mpi=pmix alone", launch.line, edits)
        elif launch.kind == MPIRUN and "np" in launch.options:
            number, tasks = look.number(launch.options["np"], launch), look.shape.tasks
            asked = look.job.option("ntasks", "ntasks-per-node", "ntasks-per-gpu")
            if number is None or number == tasks:
                continue
            if number > tasks:
                what = (
                    f"mpirun starts {number} ranks and the job has {tasks} task{'' if tasks == 1 else 's'}: it "
                    "refuses, there are not enough slots"
                )
                fix = (
                    f"--ntasks-per-node={number // look.shape.most}"
                    if number % look.shape.most == 0
                    else f"--ntasks={number}"
                )
                edits = (
                    (Edit("drop", "ntasks"), Edit("set", "ntasks-per-node", str(number // look.shape.most)))
                    if look.job.nodes and number % look.shape.most == 0
                    else ()
                )
                yield Hit(what, fix, launch.line, edits)
            elif asked:
                what = f"mpirun starts {number} ranks and the job has {tasks} tasks: {tasks - number} stand idle"
                yield Hit(what, "leave -np out: mpirun takes Slurm's number", launch.line,
                          _replace(look, launch, r"\s--?(np|n)[= ]\S+", ""), "", WARNING)  # fmt: skip


def steps_beside_each_other(look: Look) -> Iterator[Hit]:
    """A step takes all that the job has, unless it is told how much."""
    steps = [each for each in look.starts if each.kind == SRUN and each.background]
    if not steps:
        return
    text = look.job.text
    last = steps[-1]
    if not re.search(r"^\s*wait\b", text, re.MULTILINE) and not re.search(r"(;|&&|done)\s*wait\b", text):
        what = "steps run in the background and nothing waits for them: they are killed when the script ends"
        end = Edit("before", value="wait", line=len(look.job.lines) + 1)
        yield Hit(what, "wait, as the last line", last.line, (end,), "", ERROR)
    for launch in steps:
        options = launch.options
        if "overlap" in options:
            continue
        gpus = [name for name in ("gpus", "gpus-per-node", "gres", "gpus-per-task") if name in options]
        memory = [name for name in ("mem", "mem-per-cpu", "mem-per-gpu") if name in options]
        lacking = [*([] if "exact" in options else ["--exact"])]
        if look.shape.gpus and (not gpus or gpus == ["gpus"]):
            lacking.append("--gpus-per-node=N")
        if (
            not memory
            and (look.site is None or look.site.counts_memory)
            and look.job.option("mem-per-cpu", "mem-per-gpu") is None
        ):
            lacking.append("--mem=SIZE")
        if lacking:
            what = (
                f"this step takes all that the job has: the next one waits until it ends (without {', '.join(lacking)})"
            )
            unsure = (
                "" if len(lacking) > 1 or lacking[0] != "--mem=SIZE" else "whether the site counts memory (--config)"
            )
            yield Hit(what, f"srun {' '.join(lacking)} ... &", launch.line, (), unsure)
            return


def fixed_port(look: Look) -> Iterator[Hit]:
    """Two jobs on one node that take the same port."""
    found = look.job.assigned.get("MASTER_PORT")
    value = found.value.strip("'\"") if found else ""
    idle = (look.shape.gpus_per_node or 0) < look.node_gpus and look.job.option("exclusive") is None
    if found and value.isdigit() and look.shape.gpus and idle:
        line = look.job.lines[found.line - 1].strip()
        edits = (
            (Edit("replace", value=PORT, line=found.line, old=line),)
            if line == f"export MASTER_PORT={found.value}"
            else ()
        )
        what = f"port {value} is the same in every job: two of them on one node cannot both have it"
        yield Hit(what, PORT, found.line, edits, "whether another job is on the node", NOTE)


def heterogeneous(look: Look) -> Iterator[Hit]:
    """The rules about shape look at one component."""
    if look.job.components > 1:
        yield Hit(f"a job of {look.job.components} components: nodes, tasks and GPUs of the first are looked at here",
                  "look at the others by scripts of their own", None)  # fmt: skip


_FAMILY = "launching"
_TORCHRUN = "PyTorch, torchrun (Elastic Launch): Usage"
RULES = (
    Rule("launcher-in-every-task", _FAMILY, ERROR, "torchrun in each task instead of once a node", _TORCHRUN,
         launcher_in_every_task),
    Rule("only-first-node", _FAMILY, ERROR, "a command without srun runs on one node", "sbatch(1): DESCRIPTION",
         only_the_first_node),
    Rule("ranks-of-torchrun", _FAMILY, WARNING, "ranks a node and GPUs a node differ", _TORCHRUN, ranks_and_gpus),
    Rule("nodes-of-torchrun", _FAMILY, ERROR, "nodes that do not find each other", _TORCHRUN, nodes_of_torchrun),
    Rule("ranks-find-each-other", _FAMILY, WARNING, "variables that torch.distributed reads are not set",
         "PyTorch, torch.distributed: environment variable initialization", finding_each_other),
    Rule("master-is-local", _FAMILY, ERROR, "the first rank is looked for at each node", _TORCHRUN, master_is_local),
    Rule("mpirun", _FAMILY, ERROR, "mpirun within srun, or with another number of ranks",
         "Slurm, MPI Users Guide: Open MPI", mpirun),
    Rule("steps-in-turn", _FAMILY, WARNING, "steps that wait for each other", "srun(1): --exact, --exclusive",
         steps_beside_each_other),
    Rule("fixed-port", _FAMILY, NOTE, "a port that is the same in every job", _TORCHRUN, fixed_port),
    Rule("heterogeneous", _FAMILY, NOTE, "a heterogeneous job", "Slurm, Heterogeneous Job Support", heterogeneous),
)  # fmt: skip
