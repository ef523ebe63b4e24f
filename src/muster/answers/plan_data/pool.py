"""What serving needs over time: a table of GPUs, or a log of requests and what a GPU serves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from muster.answers.plan_data.coldstart import arrivals_of
from muster.answers.plan_data.hours import hours_of
from muster.answers.words import plural
from muster.errors import InputError
from muster.planning.quantities import PER_HOUR, TIME
from muster.planning.question import FromData


def floor_of(demand: Sequence[float]) -> float:
    """GPUs that serving always keeps, where nobody says: the least that it ever needed; the loan sizes the rest."""
    return min(demand, default=0.0)


def read_serving(path: str, given: Mapping[str, Any]) -> FromData:
    """GPUs step by step: a CSV with a column gpus, one row a step (``--step``); raises `InputError`."""
    hours, source = hours_of(path)
    step = given.get("step_s")
    told = () if step is not None else (f"{path}: a row is taken for an hour; say --step",)
    values: dict[str, Any] = {
        "demand": hours,
        "step_s": TIME.read(step, "--step") if step is not None else 3600.0,
        "floor": floor_of(hours),
    }
    return FromData(values, dict.fromkeys(values, source.replace("hours", "steps")), told)


def read_requests(path: str, given: Mapping[str, Any]) -> FromData:
    """GPUs step by step from a log of requests: arrivals of a step over what a GPU serves (``--per-gpu``)."""
    per_gpu = given.get("per_gpu")
    if per_gpu is None:
        raise InputError("is missing", field="--per-gpu", hint="requests that one GPU serves, such as 2/s")
    rate = PER_HOUR.read(per_gpu, "--per-gpu")
    if rate <= 0:
        raise InputError("is 0", field="--per-gpu", hint="such as 2/s")
    step_s = TIME.read(given.get("step_s") or "60s", "--step")
    times, _ = arrivals_of(path)
    counted = Counter(int((each - times[0]) // step_s) for each in times)
    count = int((times[-1] - times[0]) // step_s)
    if count < 10:
        raise InputError(f"has {plural(count, 'step')} of time", file=path, hint="a longer log or a shorter --step")
    demand = tuple(math.ceil(counted.get(at, 0) / step_s * 3600 / rate) * 1.0 for at in range(count))
    source = f"{path}: {plural(len(times), 'request')} in {plural(count, 'step')}"
    values = {"demand": demand, "step_s": step_s, "floor": floor_of(demand)}
    return FromData(values, dict.fromkeys(values, source))
