"""Changes as Slurm commands. Queues are taken to be accounts; a workload is named by its job id or its job name."""

from __future__ import annotations

from collections.abc import Iterator

from muster.answers.by_hand.quoting import quoted, quoted_one
from muster.answers.changes import (
    AddNodes,
    Change,
    EndReservation,
    Move,
    SetJob,
    SetLimit,
    SetNodes,
    SetQuota,
    Stop,
)
from muster.answers.changes.values import gpus
from muster.answers.view import View
from muster.slurm.hostlist import compress

_q = quoted

_ANEW = ("min_pods", "segment", "spread", "at_most", "topology", "prefer", "tolerate", "flavors")
"""What `scontrol update` cannot change of a job that waits."""


class Hand:
    """Writes the commands for one snapshot."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.again: list[str] = []

    def commands(self, change: Change) -> Iterator[str]:
        """The commands for a change."""
        if isinstance(change, SetJob):
            yield from self._job(change)
        elif isinstance(change, Stop):
            yield f"scontrol requeuehold {job_id(change.job)}"
            self.again.append(f"scontrol release {job_id(change.job)}")
        elif isinstance(change, Move):
            nodes = compress(dict.fromkeys(pod.node for pod in change.pods))
            yield f"scontrol requeuehold {job_id(change.job)}"
            yield f"scontrol update JobId={job_id(change.job)} ReqNodeList={_q(nodes)}"
            yield f"scontrol release {job_id(change.job)}"
        elif isinstance(change, SetNodes):
            yield from self._nodes(change)
        elif isinstance(change, (SetQuota, SetLimit)):
            yield from self._quota(change)
        elif isinstance(change, EndReservation):
            yield f"scontrol delete ReservationName={_q(change.name)}"
        elif isinstance(change, AddNodes):
            yield f"# {change}: NodeName= lines in slurm.conf, then"
            yield "scontrol reconfigure"
        else:
            yield f"# {change}"

    def afterwards(self) -> Iterator[str]:
        """What is to be done once the gang has started."""
        if self.again:
            yield "# when it has started:"
            yield from self.again

    def _job(self, change: SetJob) -> Iterator[str]:
        this = job_id(change.job)
        fields: list[str] = []
        if change.priority is not None:
            yield "# a priority above that of all that it is to pass: squeue -h -t PD -o '%Q %A %j' | sort -nr"
            fields.append("Priority=PRIORITY")
        if change.queue is not None:
            fields.append(f"Account={_q(change.queue)}")
        if change.limit_s is not None:
            fields.append(f"TimeLimit={int(change.limit_s // 60)}")
        if change.pods is not None:
            fields.append(f"NumNodes={sum(change.pods)}")
        if change.gpus is not None:
            fields.append(f"TresPerNode=gres/gpu:{max(change.gpus)}")
        if change.cpu_milli is not None:
            fields.append(f"MinCPUsNode={max(change.cpu_milli) // 1000}")
        if change.memory_bytes is not None:
            fields.append(f"MinMemoryNode={max(change.memory_bytes) >> 20}")
        if change.models is not None:
            fields.append(f"Features={_q('|'.join(change.models))}")
        if change.selector is not None:
            fields.append(f"Features={_q('&'.join(pair.partition('=')[2] for pair in change.selector))}")
        if change.released:
            yield f"scontrol release {this}"
            fields.append("Dependency=")
        if fields:
            yield f"scontrol update JobId={this} {' '.join(fields)}"
        anew = [name for name in _ANEW if getattr(change, name) is not None]
        if anew:
            asked = str(change).partition(" ")[2].partition(" ")[2]
            yield f"# {asked}: submit it again with other options of sbatch (--switches, --segment, --partition), then"
            yield f"scancel {this}"

    def _nodes(self, change: SetNodes) -> Iterator[str]:
        names = _q(compress(change.names))
        if change.what == "repair":
            yield f"# repair the GPUs of {compress(change.names)}, then"
        if change.what in ("uncordon", "repair"):
            yield f"scontrol update NodeName={names} State=RESUME"
        elif change.what == "unspare":
            yield f"# {compress(change.names)}: take them out of the reservation that keeps them as spares:"
            yield f"scontrol update ReservationName=SPARES Nodes-={names}"
        else:
            yield f"# {change}: Slurm has no taints; the nodes may be in another partition (scontrol show partition)"

    def _quota(self, change: SetQuota | SetLimit) -> Iterator[str]:
        queue = self.view.scheduler.queues[change.queue]
        quota = next((each for each in queue.quotas if each.flavor == change.flavor), None)
        nominal = quota.nominal_milli if quota else 0
        if isinstance(change, SetLimit) and change.which == "lending":
            yield f"# {change}: on Slurm an account lends all that it does not use"
            return
        if isinstance(change, SetQuota):
            milli = nominal + change.by_milli if change.to_milli is None else change.to_milli
        else:
            milli = (change.to_milli or 0) + (nominal if change.which == "borrowing" else 0)
        single = len(self.view.scheduler.cluster.flavors) <= 1 or not change.flavor
        kind = "gres/gpu" if single else f"gres/gpu:{change.flavor.partition('/')[0].lower()}"
        amount = "-1" if isinstance(change, SetLimit) and change.to_milli is None else gpus(milli)
        what = f"set GrpTRES={_q(f'{kind}={amount}')}"
        if isinstance(change, SetLimit) and change.which == "user":
            yield f"sacctmgr -i modify user where account={_q(change.queue)} {what}"
        else:
            yield f"sacctmgr -i modify account where name={_q(change.queue)} {what}"


def job_id(name: str) -> str:
    """A job's id; where only its name is known, what tells the id."""
    short = name.rpartition("/")[2]
    return short if short.isdigit() else f"$(squeue -h -o %A --name={quoted_one(short)})"
