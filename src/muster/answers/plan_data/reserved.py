"""Demand and prices for commitments, from the user's own data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.answers.plan_data.hours import hours_of
from muster.errors import InputError
from muster.planning.question import FromData
from muster.traces.prices import read_prices


def read_demand(path: str, given: Mapping[str, Any]) -> FromData:
    """GPUs in use, hour by hour; raises `InputError`."""
    hours, source = hours_of(path)
    told = () if len(hours) >= 168 else (f"{path}: {len(hours)} hours are less than a week",)
    return FromData({"demand": hours}, {"demand": source}, told)


def read_terms(path: str, given: Mapping[str, Any]) -> FromData:
    """Prices as parts of the on-demand price, of the offer that ``--sku`` names; raises `InputError`."""
    prices = read_prices(path)
    terms = prices.terms(str(given.get("sku") or ""), path)
    if "on-demand" not in terms:
        raise InputError("has no on-demand price of it", file=path, hint="a line with term: on-demand")
    base = terms["on-demand"]
    if base.per_gpu_hour <= 0:
        raise InputError("the on-demand price is 0", file=path, field=base.sku)
    values: dict[str, Any] = {"price": base.per_gpu_hour, "long": None, "block": None}
    sources = {"price": str(base), "long": f"{path}: no term of years", "block": f"{path}: no block"}
    years = sorted(name for name in terms if name.endswith("y") and name[:-1].isdigit())
    for name, field in (("1y", "short"), ("block", "block"), ("spot", "spot")):
        if name in terms:
            values[field] = min(1.0, terms[name].per_gpu_hour / base.per_gpu_hour)
            sources[field] = str(terms[name])
    longer = [name for name in years if name != "1y"]
    if longer:
        values["long"] = min(1.0, terms[longer[-1]].per_gpu_hour / base.per_gpu_hour)
        values["years"] = int(longer[-1][:-1])
        sources["long"] = sources["years"] = str(terms[longer[-1]])
    if "short" not in values:
        raise InputError("has no price of a commitment of one year", file=path, hint="a line with term: 1y")
    return FromData(values, sources)
