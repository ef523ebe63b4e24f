"""`muster.answers.fit.Fit` as plain values with a schema version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from muster.answers.documents import fix_document, start_document
from muster.answers.fit import Answer, Changes, Fit, FitView
from muster.answers.specs.base import Specs
from muster.answers.told import said_of

FIT = "muster.fit/v1"


def fit_document(told: Fit, view: FitView, specs: Specs, changes: Sequence[Changes] | None = None) -> dict[str, Any]:
    """What is told of a spec; ``changes`` None: they were not asked for."""
    explained = {} if changes is None else {"changes": [_changes(each) for each in changes]}
    return {
        "schema": FIT,
        "spec": {"source": specs.source, "kind": specs.kind},
        "now_s": view.now_s,
        "fits": told.fits,
        "jobs": [_job(each) for each in told.answers],
        "displaced": msgspec.to_builtins(list(told.displaced)),
        "delayed": msgspec.to_builtins(list(told.delayed)),
        **explained,
        "notes": msgspec.to_builtins(list(told.notes)),
    }


def _changes(each: Changes) -> dict[str, Any]:
    return {
        "job": each.job,
        "of_the_work": [fix_document(fix) for fix in each.own],
        "of_others": [fix_document(fix) for fix in each.others],
    }


def _job(each: Answer) -> dict[str, Any]:
    workload, place = each.workload, each.place
    return {
        "job": workload.name,
        "queue": workload.queue,
        "pods": workload.pods,
        "gpu_milli": workload.gpu_milli,
        "fits": place is not None,
        "slurm": msgspec.to_builtins(said_of(workload)),
        "pods_now": each.pods,
        "flavor": place.flavor if place else "",
        "borrowed_milli": place.borrowed_milli if place else 0,
        "backfilled": bool(place and place.backfilled),
        "nodes": each.nodes,
        "placement": place and msgspec.to_builtins(place.pods),
        "domains": {domains.level: dict(domains.pods) for domains in each.domains},
        "slowdown": each.slowdown,
        "blockers": [
            {"reason": blocker.reason.name.lower(), "text": blocker.text, "dominant": blocker.first}
            for blocker in each.blockers
        ],
        "start": each.forecast and start_document(each.forecast),
    }
