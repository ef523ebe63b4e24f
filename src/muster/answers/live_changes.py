"""A fix carried out on a live cluster: each change as writes of its API, and each write as the kubectl command it is.

What is printed and what is done cannot differ: the command is made of the request. Work is stopped as its kind allows:
Jobs and JobSets are suspended, other pods are evicted by the Eviction API, which honours disruption budgets; then what
made them makes them anew. What the API cannot do, or what would only look done, is refused, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from muster.answers.by_hand.quoting import quoted
from muster.answers.changes import AddNodes, Change, EndReservation, Move, SetJob, SetLimit, SetNodes, SetQuota, Stop
from muster.answers.live import Reading
from muster.backends.kubernetes.changes import JSON_PATCH
from muster.kube.kinds import JOB_SETS, JOBS, NODES, PODS
from muster.kube.nodes import LEVEL_LABELS, SPARE_LABEL
from muster.kube.objects import KubeNode, KubePod
from muster.kube.owners import Gang, gang_of
from muster.kube.world import Kind
from muster.model.fleet import HOST

MERGE = "application/merge-patch+json"
_KUEUE = "kueue.x-k8s.io"
_LEVELS = {level: labels[0] for level, labels in LEVEL_LABELS} | {HOST: "kubernetes.io/hostname"}
_SUSPENDED = {"Job": JOBS, "JobSet": JOB_SETS}
_FIXED = (
    "pods", "min_pods", "gpus", "cpu_milli", "memory_bytes", "models", "flavors", "segment", "spread", "at_most",
    "priority", "preemptible",
)  # fmt: skip
"""What cannot be changed of work that is there: pods keep what they were made with."""


class Write(Struct, frozen=True):
    """One write.

    Attributes:
        kind, namespace, name: of the object; ``sub``: its subresource, ``eviction`` or none.
        body: what is sent, as ``content_type``.
        done: in words, what it does.
    """

    kind: Kind
    namespace: str
    name: str
    body: Any
    done: str
    content_type: str = MERGE
    sub: str = ""

    @property
    def command(self) -> str:
        """The kubectl command that sends the same."""
        text = quoted(json.dumps(self.body, separators=(",", ":")))
        if self.sub:
            path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}/{self.sub}"
            return f"echo {text} | kubectl create --raw {quoted(path)} -f -"
        space = f" -n {quoted(self.namespace)}" if self.namespace else ""
        form = "json" if self.content_type == JSON_PATCH else "merge"
        return f"kubectl{space} patch {self.kind.name} {quoted(self.name)} --type {form} -p {text}"


class Writes(Struct, frozen=True):
    """All writes of a fix, in order; ``later``: those that end it, once the gang has started.

    ``refused``: why changes cannot be made, each in a sentence; then nothing is to be written.
    """

    now: tuple[Write, ...]
    later: tuple[Write, ...]
    refused: tuple[str, ...]


def writes_of(changes: Sequence[Change], reading: Reading) -> Writes:
    """The writes that make some changes on the cluster that was read."""
    maker = _Maker(reading, changes)
    now = [write for change in changes for write in maker.of(change)]
    return Writes(tuple(now), tuple(maker.later), tuple(maker.refused))


class _Maker:
    def __init__(self, reading: Reading, changes: Sequence[Change]) -> None:
        self._nodes = reading.world.of(NODES, KubeNode)
        self._pods = reading.world.of(PODS, KubePod)
        self._seen = reading.seen
        self._taints: dict[str, list[str]] = {}
        for change in changes:
            if isinstance(change, SetNodes) and change.what in ("untaint", "unspare"):
                for name in change.names:
                    key = change.key if change.what == "untaint" else SPARE_LABEL
                    if any(taint.key == key for taint in self._nodes[name].spec.taints or ()):
                        self._taints.setdefault(name, []).append(key)
        self.later: list[Write] = []
        self.refused: list[str] = []

    def of(self, change: Change) -> Iterator[Write]:
        """The writes of a change; where there are none, it is noted why."""
        if isinstance(change, Stop):
            yield from self._stop(change.job)
        elif isinstance(change, SetNodes):
            yield from self._set_nodes(change)
        elif isinstance(change, SetJob):
            yield from self._set_job(change)
        else:
            self.refused.append(f"{change}: {_why_not(change)}")

    def _gang(self, job: str) -> tuple[Gang | None, list[KubePod]]:
        """What makes a workload's gang, and its pods that are there."""
        found = self._seen.get(job)
        there = [self._pods.get(f"{ref.namespace}/{ref.name}") for ref in found.refs] if found else []
        pods = [pod for pod in there if pod is not None]
        return (gang_of(pods[0]) if pods else None), pods

    def _stop(self, job: str) -> Iterator[Write]:
        gang, pods = self._gang(job)
        if gang is None:
            self.refused.append(f"stop {job}: it has no pods any more")
            return
        kind = _SUSPENDED.get(gang.kind)
        if kind is not None:
            what = f"{gang.kind} {gang.namespace}/{gang.name}"
            yield Write(kind, gang.namespace, gang.name, {"spec": {"suspend": True}}, f"{what} is suspended")
            again = Write(kind, gang.namespace, gang.name, {"spec": {"suspend": False}}, f"{what} goes on")
            self.later.append(again)
            return
        for pod in pods:
            meta = pod.metadata
            body = {
                "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": meta.name, "namespace": meta.namespace},
                "deleteOptions": {"preconditions": {"uid": meta.uid}},
            }  # fmt: skip
            done = f"pod {meta.namespace}/{meta.name} is evicted"
            if meta.owner is None:
                done += ", and is gone: nothing makes it anew"
            yield Write(PODS, meta.namespace, meta.name, body, done, "application/json", "eviction")

    def _set_nodes(self, change: SetNodes) -> Iterator[Write]:
        if change.what == "uncordon":
            for name in change.names:
                yield Write(NODES, "", name, {"spec": {"unschedulable": None}}, f"node {name} is uncordoned")
        elif change.what in ("untaint", "unspare"):
            for name in change.names:
                if change.what == "unspare":
                    body = {"metadata": {"labels": {SPARE_LABEL: None}}}
                    yield Write(NODES, "", name, body, f"node {name} is no spare any more")
                # one write a node for all of its taints, as their places shift when one goes
                if keys := self._taints.pop(name, None):
                    done = f"node {name} loses the taint{'s' if len(keys) > 1 else ''} {' and '.join(keys)}"
                    yield Write(NODES, "", name, self._without_taints(name, keys), done, JSON_PATCH)
        else:
            self.refused.append(f"{change}: {_why_not(change)}")

    def _without_taints(self, name: str, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Taints are taken out by their places, the last first, which must still hold them: others stay as they are."""
        taints = self._nodes[name].spec.taints or []
        patch: list[dict[str, Any]] = []
        for at in reversed([at for at, taint in enumerate(taints) if taint.key in keys]):
            patch.append({"op": "test", "path": f"/spec/taints/{at}/key", "value": taints[at].key})
            patch.append({"op": "remove", "path": f"/spec/taints/{at}"})
        return patch

    def _set_job(self, change: SetJob) -> Iterator[Write]:
        gang, _ = self._gang(change.job)
        fixed = [name for name in _FIXED if getattr(change, name) is not None]
        if fixed:
            self.refused.append(f"{change}: pods keep what they were made with: submit it anew")
            return
        if gang is None or gang.kind != "Job":
            what = gang.kind if gang else "it"
            self.refused.append(f"{change}: of a {what} that is done where it is defined, not here")
            return
        body = _job_patch(change)
        yield Write(JOBS, gang.namespace, gang.name, body, f"Job {gang.namespace}/{gang.name} is changed")


def _job_patch(change: SetJob) -> dict[str, Any]:
    """What of a Job is changed; the server refuses other templates of one that is not suspended."""
    meta: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    template: dict[str, Any] = {}
    if change.queue is not None:
        meta["labels"] = {f"{_KUEUE}/queue-name": change.queue}
    if change.released:
        spec["suspend"] = False
    if change.limit_s is not None:
        spec["activeDeadlineSeconds"] = None if change.limit_s == float("inf") else int(change.limit_s)
    notes = {
        f"{_KUEUE}/podset-{kind}-topology": _LEVELS.get(level, level) or None
        for kind, level in (("required", change.topology), ("preferred", change.prefer))
        if level is not None
    }
    if notes:
        template["metadata"] = {"annotations": notes}
    if change.selector is not None:
        template["spec"] = {"nodeSelector": dict(pair.split("=", 1) for pair in change.selector) or None}
    if change.tolerate is not None:
        borne = [{"key": key, "operator": "Exists"} for key in change.tolerate]
        template.setdefault("spec", {})["tolerations"] = borne
    if template:
        spec["template"] = template
    return {**({"metadata": meta} if meta else {}), **({"spec": spec} if spec else {})}


def _why_not(change: Change) -> str:
    if isinstance(change, Move):
        return "where its pods start again is for their scheduler to say, so that a move cannot be promised"
    if isinstance(change, SetQuota | SetLimit):
        return "quotas are changed where they are defined; the commands are those above"
    if isinstance(change, AddNodes):
        return "nodes are added by whoever provides them"
    if isinstance(change, EndReservation):
        return "Kubernetes has no reservations; it is ended where it was made"
    if isinstance(change, SetNodes) and change.what == "repair":
        return "that needs hands"
    return "the API has nothing of the kind"
