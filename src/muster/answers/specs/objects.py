"""One Kubernetes object on its way to gangs: its name, queue and priority, and the objects beside it in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct, field

from muster.answers.specs.base import Note
from muster.answers.specs.places import Places
from muster.answers.specs.pods import KUEUE, PodReader
from muster.kube.objects import QUEUE_LABEL
from muster.model.workload import PodSet, Workload
from muster.traces.checks import check_workload
from muster.traces.document import Document

QUEUE_LABELS = (QUEUE_LABEL, "kai.scheduler/queue", "runai/queue")
PRIORITY_LABEL = f"{KUEUE}priority-class"
TIME_LABEL = f"{KUEUE}max-exec-time-seconds"


class Context(Struct):
    """What is known beside an object.

    Attributes:
        places: the fleet's words.
        priorities: values of the priority classes in the file.
        runtimes: of Kubeflow's Trainer, by kind and name.
        notes: what was told of so far.
    """

    places: Places
    priorities: Mapping[str, int] = field(default_factory=dict[str, int])
    runtimes: Mapping[tuple[str, str], Document] = field(default_factory=dict[tuple[str, str], Document])
    notes: list[Note] = field(default_factory=list[Note])


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
        namespace = str(meta.get("namespace") or "")
        name = f"{self.name}{suffix}"
        workload = Workload(
            f"{namespace}/{name}" if namespace else name,
            tuple(each for each in sets if each.count),
            time_limit_s=self.time_limit_s if limit_s is None else limit_s,
            queue=queue or next((labels[key] for key in QUEUE_LABELS if labels.get(key)), ""),
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
