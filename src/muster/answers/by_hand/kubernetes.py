"""Changes as kubectl commands. Queues are Kueue's ClusterQueues and Cohorts, where it is there, else Muster's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from muster.answers.by_hand.quoting import quoted
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
from muster.kube.nodes import LEVEL_LABELS
from muster.model.fleet import HOST

_q = quoted
_LABELS = {level: labels[0] for level, labels in LEVEL_LABELS} | {HOST: "kubernetes.io/hostname"}
_KUEUE = "kueue.x-k8s.io"

_ANEW = ("pods", "min_pods", "gpus", "cpu_milli", "memory_bytes", "models", "flavors", "segment", "spread", "at_most")
"""What cannot be changed of a job that is there: it is submitted anew."""


class Hand:
    """Writes the commands for one snapshot.

    ``pods``: work of one pod is that pod, as in a dump, where Jobs have several; else all are Jobs. ``kueue``: queues
    are Kueue's; else Muster's own.
    """

    def __init__(self, view: View, *, pods: bool, kueue: bool = True) -> None:
        self.view = view
        self._pods, self._kueue = pods, kueue
        self.again: list[str] = []

    def commands(self, change: Change) -> Iterator[str]:
        """The commands for a change."""
        if isinstance(change, SetJob):
            yield from self._job(change)
        elif isinstance(change, Stop):
            yield from self._stop(change.job)
        elif isinstance(change, Move):
            nodes = ", ".join(dict.fromkeys(pod.node for pod in change.pods))
            yield f"{self._delete(change.job)}  # it starts again: on {nodes}, if the others are cordoned meanwhile"
        elif isinstance(change, SetNodes):
            yield from self._nodes(change)
        elif isinstance(change, (SetQuota, SetLimit)):
            yield from self._quota(change)
        elif isinstance(change, EndReservation):
            yield f"# reservation {change.name}: Kubernetes has none; it is ended where it was made"
        elif isinstance(change, AddNodes):
            yield f"# {change}: grow the node group of {change.like} by {change.count}"
        else:
            yield f"# {change}"

    def afterwards(self) -> Iterator[str]:
        """What is to be done once the gang has started."""
        if self.again:
            yield "# when it has started:"
            yield from self.again

    def _kind(self, name: str) -> str:
        return "pod" if self._pods and self.view.find(name).workload.pods == 1 else "job"

    def _stop(self, name: str) -> Iterator[str]:
        if self._kind(name) == "pod":
            yield f"{self._delete(name)}  # its controller starts it again; a bare pod is gone"
            return
        yield f"{self._patch(name, {'spec': {'suspend': True}})}"
        self.again.append(self._patch(name, {"spec": {"suspend": False}}))

    def _delete(self, name: str) -> str:
        space, short = self._of(name)
        which = _q(short) if self._kind(name) == "pod" else f"-l {_q(f'job-name={short}')}"
        return f"kubectl{space} delete pod {which}"

    def _of(self, name: str) -> tuple[str, str]:
        """``-n NAMESPACE``, and the name in it."""
        where, _, short = name.rpartition("/")
        where = where or self.view.find(name).workload.namespace
        return (f" -n {_q(where)}" if where else ""), short

    def _patch(self, name: str, patch: dict[str, Any]) -> str:
        space, short = self._of(name)
        text = json.dumps(patch, separators=(",", ":"))
        return f"kubectl{space} patch {self._kind(name)} {_q(short)} --type merge -p {_q(text)}"

    # -- the gang -----------------------------------------------------------------------------------------------------

    def _job(self, change: SetJob) -> Iterator[str]:
        space, short = self._of(change.job)
        anew = [name for name in _ANEW if getattr(change, name) is not None]
        kind = self._kind(change.job)
        if kind == "pod":
            owner = "jsonpath={.metadata.ownerReferences[*].kind}"
            what = str(change).partition(" ")[2].partition(" ")[2]
            yield f"kubectl{space} get pod {_q(short)} -o {_q(owner)}  # who makes it"
            yield f"# a StatefulSet, Deployment or Job: set {what} in its template (kubectl edit)"
            yield "# it makes the pod anew, and would undo what follows, which is for a bare pod:"
        elif self.view.find(change.job).workload.pods == 1:
            yield f"# where {short} is no Job but a pod (kubectl{space} get job,pod {_q(short)}), change instead"
            yield "# the template of the StatefulSet or Deployment that makes it (kubectl edit)"
        if anew or kind == "pod":
            file = _q(f"{short}.yaml")
            yield f"kubectl{space} get {kind} {_q(short)} -o yaml > {file}"
            yield f"# change in {short}.yaml: {str(change).partition(' ')[2].partition(' ')[2]}"
            yield f"kubectl{space} replace --force -f {file}"
            return
        if change.queue is not None:
            label = _q(f"{f'{_KUEUE}/queue-name' if self._kueue else 'muster.dev/queue'}={change.queue}")
            yield f"kubectl{space} label {kind} {_q(short)} {label} --overwrite"
        if change.priority is not None and not self._kueue:
            yield f"# priority {change.priority}: of pods that are there it is fixed; submit {short} anew"
            yield "# with a priorityClassName of that value"
        elif change.priority is not None:
            patch = json.dumps({"spec": {"priority": change.priority}}, separators=(",", ":"))
            yield f"kubectl{space} get workloads.{_KUEUE}  # the name of its Workload: job-{short}-..."
            yield f"kubectl{space} patch workloads.{_KUEUE} WORKLOAD --type merge -p {_q(patch)}"
        if change.released:
            yield self._patch(change.job, {"spec": {"suspend": False}})
        if change.limit_s is not None:
            yield self._patch(change.job, {"spec": {"activeDeadlineSeconds": int(change.limit_s)}})
        template: dict[str, Any] = {}
        notes = self._topology(change)
        if notes:
            template["metadata"] = {"annotations": notes}
        if change.selector is not None:
            pairs = dict(pair.split("=", 1) for pair in change.selector)
            before = self.view.find(change.job).workload.pod_sets
            dropped = {key: None for each in before for key, _ in each.shape.node_selector if key not in pairs}
            template["spec"] = {"nodeSelector": {**dropped, **pairs}}
        if change.tolerate is not None:
            borne = [{"key": key, "operator": "Exists"} for key in change.tolerate]
            template.setdefault("spec", {})["tolerations"] = borne
        if template:
            yield f"{self._patch(change.job, {'spec': {'template': template}})}  # while it is suspended"

    def _topology(self, change: SetJob) -> dict[str, str | None]:
        """Kueue's annotations for other levels; None takes one away."""
        notes: dict[str, str | None] = {}
        for kind, level in (("required", change.topology), ("preferred", change.prefer)):
            if level is not None:
                notes[f"{_KUEUE}/podset-{kind}-topology"] = _LABELS.get(level, level) if level else None
        return notes

    # -- nodes and queues ---------------------------------------------------------------------------------------------

    def _nodes(self, change: SetNodes) -> Iterator[str]:
        names = " ".join(map(_q, change.names))
        if change.what == "repair":
            yield f"# repair the GPUs of {', '.join(change.names)}; then, if they are cordoned:"
            yield f"kubectl uncordon {names}"
        elif change.what == "uncordon":
            yield f"kubectl uncordon {names}"
        elif change.what == "untaint":
            yield f"kubectl taint nodes {names} {_q(change.key + '-')}"
        elif change.what == "unspare":
            yield f"kubectl label nodes {names} muster.dev/spare-"
            yield f"kubectl taint nodes {names} muster.dev/spare-  # where they have it"
        else:
            yield f"# {change}"

    def _quota(self, change: SetQuota | SetLimit) -> Iterator[str]:
        queues = self.view.scheduler.queues
        if not self._kueue:
            yield f"kubectl edit queues.muster.dev {_q(change.queue)}  # {change}"
            yield "# queues of another scheduler are changed where that one keeps them"
            return
        if isinstance(change, SetLimit) and change.which == "user":
            yield f"# {change}: Kueue has no limit of a user"
            return
        kind = "cohort" if any(queue.parent == change.queue for queue in queues.values()) else "clusterqueue"
        quota = next((each for each in queues[change.queue].quotas if each.flavor == change.flavor), None)
        if isinstance(change, SetQuota):
            nominal = quota.nominal_milli if quota else 0
            milli = nominal + change.by_milli if change.to_milli is None else change.to_milli
            done = f'.nominalQuota) = "{gpus(milli)}"'
        else:
            field = f".{change.which}Limit)"
            done = f'{field} = "{gpus(change.to_milli)}"' if change.to_milli is not None else f"{field} = null"
        flavor = change.flavor.lower().replace("/", "-")
        path = f"(.spec.resourceGroups[].flavors[] | select(.name == {json.dumps(flavor)}) | .resources[]"
        path += ' | select(.name == "nvidia.com/gpu") | '
        name = _q(change.queue)
        yield f"kubectl get {kind} {name} -o json | jq {_q(path + done)} | kubectl replace -f -"
        yield f"# {flavor} is the ResourceFlavor of {change.flavor}: kubectl get resourceflavors"
