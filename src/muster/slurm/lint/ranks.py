"""How each rank finds its GPU: what it sees, by which number it has its own, and which variables tell."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from muster.slurm.lint.launches import ACCELERATE, DEEPSPEED, MPIRUN, SRUN, TORCHRUN, Launch
from muster.slurm.lint.look import Look


class Ranks(Struct, frozen=True):
    """The ranks that one command starts.

    Attributes:
        line: of the command.
        launcher: such as ``srun`` or ``srun torchrun``.
        nodes: on so many nodes; None: not known before it starts.
        ranks_per_node: on each; None: not known, or different.
        sees: GPUs that a rank sees by CUDA's numbers, by local rank; empty: not known.
        device: the GPU that a rank should use.
        rank: the variable with its number.
        local_rank: the variable with its number on the node.
        world: the variable with the number of ranks.
    """

    line: int
    launcher: str
    nodes: int | None
    ranks_per_node: int | None
    sees: tuple[tuple[int, ...], ...]
    device: str
    rank: str
    local_rank: str
    world: str


def ranks_of(look: Look) -> Iterator[Ranks]:
    """The ranks of each command that starts some."""
    for launch in look.starts:
        inner = launch.innermost()
        if inner.kind in (TORCHRUN, ACCELERATE, DEEPSPEED):
            yield _by_agent(look, launch, inner)
        elif launch.kind == SRUN:
            yield _by_srun(look, launch)
        elif launch.kind == MPIRUN:
            yield _by_mpirun(look, launch)


def _by_agent(look: Look, launch: Launch, inner: Launch) -> Ranks:
    """torchrun and its like: a process for each rank of the node, all of which see what the agent sees."""
    gpus = look.shape.gpus_per_node
    number = look.number(inner.options.get("nproc-per-node", ""), launch) or (gpus if inner.kind != TORCHRUN else 1)
    nodes = look.step_tasks(launch)[0] if launch.kind == SRUN else 1
    sees = tuple(tuple(range(gpus)) for _ in range(number or 0)) if gpus else ()
    name = f"{'srun ' if launch.kind == SRUN else ''}{inner.kind}"
    return Ranks(launch.line, name, nodes, number, sees, "cuda:$LOCAL_RANK", "RANK", "LOCAL_RANK", "WORLD_SIZE")


def _by_srun(look: Look, launch: Launch) -> Ranks:
    """A task is a rank; it sees the GPUs of its node's step, or those that it is bound to."""
    nodes, _, on_node = look.step_tasks(launch)
    gpus, each = look.shape.gpus_per_node, look.shape.gpus_per_task
    for name in ("gpus-per-task", "ntasks-per-gpu"):
        if name in launch.options:
            each = (look.number(launch.options[name], launch) or 1) if name == "gpus-per-task" else 1
    kind, _, listed = (launch.options.get("gpu-bind") or look.job.value("gpu-bind")).rpartition(":")
    if kind.endswith("single") and on_node and on_node > 1:
        each = each or 1
    sees: tuple[tuple[int, ...], ...] = ()
    if on_node and kind.endswith("map_gpu") and listed:
        entries = [int(part) for part in listed.split(",") if part.isdigit()]
        sees = tuple((entries[rank % len(entries)],) for rank in range(on_node)) if entries else ()
        each = 1
    elif on_node and each and on_node > 1:
        sees = tuple(tuple(range(rank * each, (rank + 1) * each)) for rank in range(on_node))
    elif on_node and gpus:
        sees = tuple(tuple(range(gpus)) for _ in range(on_node))
    device = "cuda:0" if each and (on_node or 0) > 1 else "cuda:$SLURM_LOCALID"
    return Ranks(launch.line, "srun", nodes, on_node, sees, device if gpus or each else "none", "SLURM_PROCID",
                 "SLURM_LOCALID", "SLURM_NTASKS")  # fmt: skip


def _by_mpirun(look: Look, launch: Launch) -> Ranks:
    """mpirun starts a daemon a node by srun, and the ranks from it: all see the node's GPUs."""
    number, nodes = look.number(launch.options.get("np", ""), launch), look.shape.most
    on_node = look.shape.tasks_per_node if number is None or number == look.shape.tasks else None
    gpus = look.shape.gpus_per_node
    sees = tuple(tuple(range(gpus)) for _ in range(on_node)) if on_node and gpus else ()
    return Ranks(launch.line, "mpirun", nodes, on_node, sees, "cuda:$OMPI_COMM_WORLD_LOCAL_RANK",
                 "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE")  # fmt: skip
