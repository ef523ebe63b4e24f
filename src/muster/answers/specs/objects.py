"""One Kubernetes object on its way to gangs: its name, queue and priority, and the objects beside it in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from muster.answers.specs.base import Note
from muster.answers.specs.places import Places
from muster.answers.specs.pods import KUEUE, PodReader
from muster.errors import InputError
from muster.kube.claims import PRIORITY_LABEL
from muster.kube.claims import QUEUE_LABELS as LABELS
from muster.kube.objects import first_of
from muster.model.workload import PodSet, PodShape, TopologyRequest, Workload
from muster.traces.checks import check_workload
from muster.traces.document import Document

QUEUE_LABELS = tuple(label for _, label in LABELS)
TIME_LABEL = f"{KUEUE}max-exec-time-seconds"


class Context(Struct):
    """What is known beside an object.

    Attributes:
        places: the fleet's words.
        priorities: values of the priority classes in the file.
        runtimes: of Kubeflow's Trainer, by kind and name.
        local_queues: the queue of each LocalQueue, by ``NAMESPACE/NAME``.
        notes: what was told of so far.
        namespace: of objects that say none.
        group_levels: of each PodGroup of Kubernetes' own API that has one, the node label of its topology constraint.
    """

    places: Places
    priorities: Mapping[str, int] = field(default_factory=dict[str, int])
    runtimes: Mapping[tuple[str, str], Document] = field(default_factory=dict[tuple[str, str], Document])
    local_queues: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: list[Note] = field(default_factory=list[Note])
    namespace: str = ""
    group_levels: Mapping[str, str] = field(default_factory=dict[str, str])

    def queue(self, namespace: str, name: str) -> str:
        """The queue that a name in a namespace means: that of the LocalQueue, or of that name.

        Where no namespace is said, that of the only LocalQueue of the name.
        """
        if namespace:
            return self.local_queues.get(f"{namespace}/{name}", name)
        found = {queue for key, queue in self.local_queues.items() if key.rpartition("/")[2] == name}
        return found.pop() if len(found) == 1 else name


class ObjectReader(PodReader):
    """Reads one object; `gang` makes a workload of its pod sets."""

    def __init__(self, document: Document, context: Context) -> None:
        super().__init__(document, context.places, context.priorities)
        self.context = context
        self.notes = context.notes
        self.kind = str(document.data.get("kind", ""))
        self.name = str(self.mapping("metadata").get("name") or "")
        if not self.name and self.at("metadata.generateName"):
            self.name = f"{self.at('metadata.generateName')}x"
        if not self.name:
            raise document.error("metadata.name", "is missing or empty")

    def shape(self, where: str, count: int) -> tuple[PodShape, TopologyRequest | None]:
        """As for any pod, with what its PodGroup asks of the topology."""
        shape, topology = super().shape(where, count)
        path = f"{where}.spec" if where else "spec"
        label = self.context.group_levels.get(str(self.at(f"{path}.schedulingGroup.podGroupName")), "")
        if not label or (topology is not None and topology.required):
            return shape, topology
        try:
            level = self.places.level(label)
        except InputError as error:
            raise self.document.error(f"{path}.schedulingGroup", error.what, error.hint) from None
        return shape, replace(topology or TopologyRequest(), required=level)

    def gang(
        self, sets: Sequence[PodSet], *, suffix: str = "", queue: str = "", limit_s: float | None = None
    ) -> Workload:
        """The gang of some pod sets that were read.

        Args:
            suffix: after the object's name, where it makes several gangs.
            queue: where the object names it itself; else that of a label.
            limit_s: its time limit, if it has one; else that of its pods.
        """
        document, meta = self.document, self.mapping("metadata")
        if not any(each.count for each in sets):
            raise document.error("spec", "asks for no pods")
        labels = {**self.labels, **self.texts("metadata.labels")}
        if labels.get(PRIORITY_LABEL):
            self.priority = None  # Kueue orders by its own class, whatever the pods say
            self.named_priority(labels[PRIORITY_LABEL], f"metadata.labels.{PRIORITY_LABEL}")
        if limit_s is None and labels.get(TIME_LABEL, "").isdigit():
            limit_s = float(labels[TIME_LABEL])
        namespace = str(meta.get("namespace") or self.context.namespace)
        name = f"{self.name}{suffix}"
        workload = Workload(
            f"{namespace}/{name}" if namespace else name,
            tuple(each for each in sets if each.count),
            time_limit_s=self.time_limit_s if limit_s is None else limit_s,
            queue=self.context.queue(namespace, queue or first_of(labels, QUEUE_LABELS)),
            namespace=namespace,
            priority=self.priority or 0,
            topology=self.gang_topology(),
        )
        check_workload(workload, document.file, document.line)
        return workload


def objects_at(reader: PodReader, path: str) -> list[dict[str, Any]]:
    """The mappings of the list at a path; raises `InputError` where there is none."""
    found = reader.at(path)
    if not isinstance(found, list) or not found:
        raise reader.document.error(path, "is missing or empty" if not found else "must be a list")
    items = cast("list[Any]", found)
    for at, each in enumerate(items):
        if not isinstance(each, dict):
            raise reader.document.error(f"{path}[{at}]", "must be a mapping")
    return cast("list[dict[str, Any]]", items)
