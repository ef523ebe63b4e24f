"""`muster.answers.whatif.Comparison` as plain values with a schema version."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from muster.answers.view import View
from muster.answers.whatif import Comparison, Effect, Options, Outcome

WHATIF = "muster.whatif/v1"


def whatif_document(view: View, found: Comparison, options: Options, source: str) -> dict[str, Any]:
    """What comes of each variant; ``source`` is where the snapshot is from."""
    return {
        "schema": WHATIF, "source": source, "taken_s": view.now_s, "compared_s": found.end_s, "use_s": found.use_s,
        "samples": found.samples, "seed": options.seed, "cut": found.cut,
        "unknown_run_times": found.unknown,
        "variants": [_variant(each) for each in found.outcomes],
    }  # fmt: skip


def effect_document(effect: Effect) -> dict[str, Any]:
    """When one job starts, before and after."""
    return {
        "job": effect.job, "queue": effect.queue, "gpus": effect.gpus, "before_s": _finite(effect.before_s),
        "after_s": _finite(effect.after_s), "later_s": _finite(effect.later_s),
    }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _variant(outcome: Outcome) -> dict[str, Any]:
    figures: dict[str, Any] = msgspec.to_builtins(outcome.figures)
    figures["wait_p90_s"] = _finite(outcome.figures.wait_p90_s)
    figures["flavors"] = dict(outcome.figures.flavors)
    return {
        "name": outcome.variant.name, "changes": [str(each) for each in outcome.variant.changes],
        "changes_nothing": outcome.same, "notes": list(outcome.notes), **figures,
        "jobs_moved": [effect_document(each) for each in outcome.movers],
    }  # fmt: skip
