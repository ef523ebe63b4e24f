"""Jobs and prices of `muster plan multicloud` out of the user's own data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.errors import InputError
from muster.planning.plans.multicloud import MOST_JOBS, Multicloud, read_site
from muster.planning.question import FromData, fields_of
from muster.traces import read_workload
from muster.traces.prices import read_prices


def jobs_of(named: str, given: Mapping[str, Any]) -> FromData:
    """The GPU jobs of a workload with their run times (or limits), the largest first; data and home are not known."""
    del given
    found: list[tuple[float, str]] = []
    unknown = 0
    for work in read_workload(named).workloads:
        gpus = -(-work.gpu_milli // 1000)
        length = work.duration_s if work.duration_s is not None else work.time_limit_s
        if not gpus:
            continue
        if not length:
            unknown += 1
            continue
        name = "".join(each for each in work.name if each not in ":,=")[:30] or "job"
        found.append((gpus * length, f"{name}:gpus={gpus},hours={length / 3600:.6g}"))
    if not found:
        raise InputError("has no GPU jobs with a run time", file=named, hint="say them: --job")
    found.sort(key=lambda each: (-each[0], each[1]))
    told = [f"{named}: no data or home is known of the jobs: they are taken to be at the first site, without data"]
    if unknown:
        told.append(f"{named}: {unknown:,} jobs without a run time are left out")
    if len(found) > MOST_JOBS:
        told.append(f"{named}: of {len(found):,} jobs the {MOST_JOBS} largest are shared out")
    jobs = tuple(text for _, text in found[:MOST_JOBS])
    return FromData({"jobs": jobs}, {"jobs": f"{named}: {len(jobs)} jobs"}, tuple(told))


def site_prices(named: str, given: Mapping[str, Any]) -> FromData:
    """On-demand prices of the sites by the sku that each names; raises `InputError`."""
    prices = read_prices(named)
    rows = given.get("sites") or next(field.default for field in fields_of(Multicloud) if field.name == "sites")
    found: list[str] = []
    used: list[str] = []
    for text in rows:
        site, sku = read_site(text)
        if not sku:
            raise InputError(f"{site.name} names no sku", field="--site", hint=f"sku= of an offer of {named}")
        terms = prices.terms(sku, named)
        if "on-demand" not in terms:
            raise InputError(f"has no on-demand price of {sku}", file=named)
        found.append(f"{site.name}={terms['on-demand'].per_gpu_hour:g}")
        used.append(str(terms["on-demand"]))
    return FromData({"paid": tuple(found)}, {"paid": "; ".join(dict.fromkeys(used))})
