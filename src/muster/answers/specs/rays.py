"""Ray clusters as gangs: what `muster.traces.ray` reads, with what the pods' templates say of nodes and topology."""

from __future__ import annotations

from muster.answers.specs.objects import ObjectReader
from muster.model.workload import PodSet, PodShape, TopologyRequest, Workload
from muster.traces.document import Document
from muster.traces.ray import RayObject, RayReader, Template


class _Templates(RayReader):
    """Reads the shape of a template as that of any pod."""

    def __init__(self, document: Document, item: RayObject, reader: ObjectReader) -> None:
        super().__init__(document, item)
        self._reader = reader
        self.requests: dict[str, TopologyRequest | None] = {}

    def shape(self, template: Template, where: str) -> PodShape:
        """What a pod of a template asks for."""
        at = where.removesuffix(".template.spec")
        role = "submitter" if "submitterPodTemplate" in at else "head"
        if "workerGroupSpecs" in at:
            role = str(self._reader.at(f"{at}.groupName") or "workers")
        shape, self.requests[role] = self._reader.shape(where.removesuffix(".spec"), 1)
        return shape


def read_ray_object(reader: ObjectReader) -> list[Workload]:
    """A RayCluster, RayJob or RayService: head, workers, and what submits a job, all in one gang."""
    document = reader.document
    spec = reader.mapping("spec")
    if spec.pop("suspend", None):
        reader.note("spec.suspend", "is asked as if it were not suspended")
    templates = _Templates(document, document.convert(RayObject), reader)
    workload, why = templates.workload()
    if workload is None:
        raise document.error("spec", why, "ask for what makes its pods")
    requests = [templates.requests.get(each.role) for each in workload.pod_sets]
    reader.topologies = list[tuple[PodSet, TopologyRequest | None]](zip(workload.pod_sets, requests, strict=True))
    return [reader.gang(workload.pod_sets, limit_s=workload.time_limit_s)]
