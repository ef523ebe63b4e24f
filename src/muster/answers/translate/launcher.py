"""What a pod runs before the script: the environment of Slurm for each rank, and srun as a function of the shell.

Variables as srun(1) and sbatch(1) name them; RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT as
torch.distributed reads them. Each node of the job is a pod; ranks go to nodes in blocks, the first nodes having one
more where they do not divide evenly, as Slurm's block distribution has it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from msgspec import Struct

PORT = 29500
NAME, GROUP, FIRST, TASK = "MUSTER_NAME", "MUSTER_GROUP", "MUSTER_FIRST_NODE", "MUSTER_ARRAY_TASK"
"""Variables of the pods: the object's name, the component of a heterogeneous job, the number of the first node of the
pod's set in it, and the task of an array."""


class Hosts(Struct, frozen=True):
    """Pods of one set: host names are ``before`` + number + ``after``, in which ``$MUSTER_NAME`` is the object's."""

    before: str
    after: str
    count: int


class Group(Struct, frozen=True):
    """One component of a job.

    Attributes:
        hosts: its pods by set, in order.
        tasks: ranks that srun starts if it does not say how many.
        gpus_per_task: GPUs that each rank has for itself; 0: it sees all of its pod.
        tasks_given: the job says how many ranks there are.
        cyclic: ranks go round the nodes (--distribution=cyclic).
        env: what is set in its pods only.
    """

    hosts: tuple[Hosts, ...]
    tasks: int
    gpus_per_task: int = 0
    tasks_given: bool = False
    cyclic: bool = False
    env: tuple[tuple[str, str], ...] = ()

    @property
    def nodes(self) -> int:
        """How many pods it has."""
        return sum(each.count for each in self.hosts)


class Launch(Struct, frozen=True):
    """What the launcher needs to know.

    Attributes:
        job_name: of Slurm.
        job_id: a number that all pods agree on, as scripts make ports of it.
        groups: the components.
        tasks: numbers of an array's tasks; empty: it is none. Of those that are pods of one Job, by its index.
        by_index: whether the pods' index is that of the array's task.
        lines: more shell lines before the script.
        run: the command that runs the script.
    """

    job_name: str
    job_id: int
    groups: tuple[Group, ...]
    tasks: tuple[int, ...] = ()
    by_index: bool = False
    lines: tuple[str, ...] = ()
    run: str = ". /muster/job"


_SRUN = r"""
# Start the ranks of this pod, as srun does on this node; options are those of srun.
srun() {
    local nodes=$SLURM_NNODES tasks=$SLURM_NTASKS per_node='' gpus=$MUSTER_GPUS_PER_TASK given=$MUSTER_OWN_TASKS option
    while [[ ${1-} == --*=* ]]; do
        option=$1
        shift
        case $option in
            --nodes=*) nodes=${option#*=} ;;
            --ntasks=*) tasks=${option#*=} given=1 ;;
            --ntasks-per-node=*) per_node=${option#*=} ;;
            --gpus-per-task=*) gpus=${option##*[=:]} ;;
            --het-group=*) [[ ,${option#*=}, == *,$MUSTER_GROUP,* ]] || return 0 ;;
        esac
    done
    # as on Slurm, a number of tasks goes before tasks per node, be it of the job
    [[ -z $per_node || $given == 1 ]] || tasks=$((nodes * per_node))
    ((nodes <= tasks)) || nodes=$tasks
    ((SLURM_NODEID < nodes)) || return 0
    local each=$((tasks / nodes)) more=$((tasks % nodes)) node=$SLURM_NODEID local_rank rank failed=0 pid
    local here=$((each + (node < more))) first=$((node * each + (node < more ? node : more))) pids=()
    for ((local_rank = 0; local_rank < here; local_rank++)); do
        rank=$((MUSTER_CYCLIC ? local_rank * nodes + node : first + local_rank))
        (
            export SLURM_PROCID=$rank SLURM_LOCALID=$local_rank SLURM_STEP_NUM_TASKS=$tasks SLURM_NTASKS=$tasks
            export SLURM_NPROCS=$tasks SLURM_STEP_NUM_NODES=$nodes RANK=$rank WORLD_SIZE=$tasks
            export LOCAL_RANK=$local_rank LOCAL_WORLD_SIZE=$here
            ((gpus == 0)) || CUDA_VISIBLE_DEVICES=$(seq -s, $((local_rank * gpus)) $((local_rank * gpus + gpus - 1)))
            ((gpus == 0)) || export CUDA_VISIBLE_DEVICES
            exec "$@"
        ) &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || failed=$?; done
    return "$failed"
}

scontrol() {
    if [[ "${1-} ${2-}" != 'show hostnames' && "${1-} ${2-}" != 'show hostname' ]]; then
        echo "scontrol $*: there is no Slurm here" >&2
        return 1
    fi
    tr , '\n' <<<"${3:-$SLURM_JOB_NODELIST}"
}

type module >/dev/null 2>&1 || module() { echo "module $*: there are no modules here" >&2; }
"""


def launcher(launch: Launch) -> str:
    """The shell script that the pods run."""
    lines = [
        "#!/bin/bash",
        "# What Slurm gives a job, for pods that stand for its nodes. Written by muster translate.",
        f"export SLURM_JOB_NAME={shlex.quote(launch.job_name)} SLURM_SUBMIT_DIR=$PWD",
        f"MUSTER_GROUP=${{{GROUP}:-0}} index=${{JOB_COMPLETION_INDEX:-0}}",
        *_array(launch),
        "case $MUSTER_GROUP in",
    ]
    for number, group in enumerate(launch.groups):
        lines += [
            f"    {number})",
            f"        export SLURM_NNODES={group.nodes} SLURM_NTASKS={group.tasks}",
            f"        hosts={_hosts(group.hosts)}",
            f"        MUSTER_GPUS_PER_TASK={group.gpus_per_task} MUSTER_CYCLIC={int(group.cyclic)} "
            f"MUSTER_OWN_TASKS={int(group.tasks_given)}",
        ]
        lines += [f"        export {name}={shlex.quote(value)}" for name, value in group.env]
        lines.append("        ;;")
    lines += ["esac"]
    node = "0" if launch.by_index else f"$((${{{FIRST}:-0}} + index))"
    lines += [
        f"export SLURM_NODEID={node}",
        "export SLURM_JOB_NUM_NODES=$SLURM_NNODES SLURM_NPROCS=$SLURM_NTASKS SLURM_PROCID=0 SLURM_LOCALID=0",
        "export SLURM_JOB_NODELIST=$hosts SLURM_NODELIST=$hosts SLURMD_NODENAME=$(hostname)",
    ]
    for number, group in enumerate(launch.groups if len(launch.groups) > 1 else ()):
        lines.append(f"export SLURM_JOB_NODELIST_HET_GROUP_{number}={_hosts(group.hosts)}")
    lines += [
        f"export MASTER_ADDR=${{MASTER_ADDR:-{_first(launch)}}} MASTER_PORT=${{MASTER_PORT:-{PORT}}}",
        _SRUN.strip("\n"),
        "",
        *launch.lines,
        launch.run,
    ]
    return "\n".join(lines) + "\n"


def _array(launch: Launch) -> list[str]:
    if not launch.tasks:
        return [f"export SLURM_JOB_ID={launch.job_id} SLURM_JOBID={launch.job_id}"]
    low, high = min(launch.tasks), max(launch.tasks)
    lines: list[str] = []
    if launch.by_index:
        step = launch.tasks[1] - launch.tasks[0] if len(launch.tasks) > 1 else 1
        if launch.tasks == tuple(range(low, low + step * len(launch.tasks), step)):
            lines.append(f"export SLURM_ARRAY_TASK_ID=$(({low} + {step} * index))")
        else:
            lines.append(f"tasks=({' '.join(map(str, launch.tasks))})")
            lines.append("export SLURM_ARRAY_TASK_ID=${tasks[index]}")
    else:
        lines.append(f"export SLURM_ARRAY_TASK_ID=${TASK}")
    return [
        *lines,
        f"export SLURM_ARRAY_JOB_ID={launch.job_id} SLURM_ARRAY_TASK_COUNT={len(launch.tasks)}",
        f"export SLURM_ARRAY_TASK_MIN={low} SLURM_ARRAY_TASK_MAX={high}",
        f"export SLURM_JOB_ID=$(({launch.job_id} + SLURM_ARRAY_TASK_ID)) "
        f"SLURM_JOBID=$(({launch.job_id} + SLURM_ARRAY_TASK_ID))",
    ]


def _hosts(hosts: Sequence[Hosts]) -> str:
    parts = [f'"{each.before}"{{0..{each.count - 1}}}"{each.after}"' if each.before else "localhost" for each in hosts]
    return f"$(printf '%s,' {' '.join(parts)} | sed 's/,$//')"


def _first(launch: Launch) -> str:
    first = launch.groups[0].hosts[0]
    return f"{first.before}0{first.after}" if first.before else "localhost"
