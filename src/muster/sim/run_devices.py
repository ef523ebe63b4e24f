"""How a job of a run file uses GPUs: whole ones, a share of one, or a MIG instance; checked against the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from muster.catalog.mig import MIG_TABLES
from muster.catalog.mig_placements import mig_placements, table_of
from muster.catalog.mps import MOST_MPS_CLIENTS
from muster.engine.sharing import with_tenant
from muster.errors import InputError, near
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.workload import PodSet
from muster.traces.document import Document

if TYPE_CHECKING:
    from muster.sim.run_file import JobItem

SharingMode = Literal["", "mps", "time-slicing", "soft"]


class GpuShare(Struct, frozen=True):
    """What each pod takes: fields of `muster.model.workload.PodShape`."""

    gpus: int
    gpu_milli: int = WHOLE_GPU_MILLI
    mig_profile: str = ""
    sharing: str = ""


def with_shares(
    document: Document, where: str, item: JobItem, pod_sets: tuple[PodSet, ...], models: Sequence[str]
) -> tuple[PodSet, ...]:
    """The pods of a job with what it says of sharing GPUs.

    Args:
        where: path of the job, such as ``workload[3]``.
        pod_sets: as they are without that.
        models: the GPU models of the fleet.

    Raises:
        InputError: at the field that makes no sense.
    """
    form = next((key for key in ("roles", "bundles", "ray") if getattr(item, key) is not None), "")
    if form:
        for key in ("mig", "sharing"):
            if getattr(item, key):
                raise document.error(
                    f"{where}.{key}", f"cannot be given beside {form}", "it is for pods that are alike"
                )
    else:
        usable = [model for model in models if not item.gpu_models or model in item.gpu_models]
        share = gpu_share(document, where, item.gpus, item.mig, item.sharing, usable)
        changes = {key: getattr(share, key) for key in share.__struct_fields__}
        pod_sets = tuple(replace(each, shape=replace(each.shape, **changes)) for each in pod_sets)
    return with_tenant(pod_sets, item.tenant)


def gpu_share(
    document: Document, where: str, asked_gpus: float, mig: str, sharing: SharingMode, models: Sequence[str]
) -> GpuShare:
    """The share that a job asks for, on GPUs of some models; raises `InputError` at the field that makes no sense."""
    if mig:
        return _instance(document, where, asked_gpus, mig, sharing, models)
    gpus, milli = int(asked_gpus), WHOLE_GPU_MILLI
    if 0 < asked_gpus < 1:
        gpus, milli = 1, round(asked_gpus * WHOLE_GPU_MILLI)
    if milli == WHOLE_GPU_MILLI:
        if sharing:
            what = f"is {sharing}, but the job takes {gpus or 'no'} GPU{'' if gpus == 1 else 's'} whole"
            raise document.error(f"{where}.sharing", what, "ask for a share, such as gpus: 0.25")
        return GpuShare(gpus)
    if sharing == "mps" and milli * MOST_MPS_CLIENTS < WHOLE_GPU_MILLI:
        what = f"is {asked_gpus:g} of a GPU, but MPS serves at most {MOST_MPS_CLIENTS} clients on one"
        raise document.error(f"{where}.gpus", what, f"at least {-(-WHOLE_GPU_MILLI // MOST_MPS_CLIENTS) / 1000:g}")
    return GpuShare(gpus, milli, "", sharing)


def _instance(document: Document, where: str, gpus: float, mig: str, sharing: str, models: Sequence[str]) -> GpuShare:
    at = f"{where}.mig"
    if gpus != 1:
        what = f"is {gpus:g} with mig: {mig[:40]}"
        raise document.error(f"{where}.gpus", what, "a pod takes one MIG instance; for more, give more pods")
    if sharing:
        what = f"is {sharing}, but a MIG instance is not shared"
        raise document.error(f"{where}.sharing", what, "leave out one of mig and sharing")
    found: dict[int, list[str]] = {}
    has: list[str] = []
    name = ""
    for model in dict.fromkeys(models):
        table = table_of(model)
        if table is None:
            continue
        has.append(f"{model} has {', '.join(profile.name for profile in table.profiles if not profile.variant)}")
        try:
            name = table.profile(mig).name
        except InputError:
            continue
        milli = next(place.gpu_milli for place in mig_placements(table) if place.profile == name)
        found.setdefault(milli, []).append(model)
    if len(found) == 1:
        return GpuShare(1, next(iter(found)), name)
    if found:
        parts = " and ".join(f"{milli / 1000:g} of {', '.join(found[milli])}" for milli in sorted(found))
        raise document.error(at, f"{mig[:40]!r} is {parts}", "name in gpu_models which of them the job may use")
    known = list(dict.fromkeys(profile.name for table in MIG_TABLES for profile in table.profiles))
    if mig not in known:
        hint = near(mig, known) or "'muster catalog mig' lists them"
        raise document.error(at, f"there is no MIG profile {mig[:40]!r}", hint)
    what = f"no GPU that the job may use has the MIG profile {mig!r}"
    raise document.error(at, what, "; ".join(has) or "none of them can be split by MIG")
