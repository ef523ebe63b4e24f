"""Losses of spot instances from a trace, and prices from a price file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.errors import InputError
from muster.planning.question import FromData
from muster.traces.prices import read_prices
from muster.traces.spot import figures_of, read_spot


def read_losses(path: str, given: Mapping[str, Any]) -> FromData:
    """Losses, what is lost together, and availability of the whole gang; raises `InputError`."""
    found = figures_of(read_spot(path), path)
    values: dict[str, Any] = {
        "losses": found.losses, "together": found.together, "seen_nodes": found.nodes, "available": found.full,
        "seen": found.breaks if found.breaks else None, "nodes": found.nodes,
    }  # fmt: skip
    source = f"{path}: {found.nodes} instances, {found.hours:,.0f} hours"
    told: list[str] = []
    if not found.breaks:
        told.append(f"{path}: the whole gang was never seen to break; its breaks are taken from parts of it")
    if found.hours < 72:
        told.append(f"{path}: {found.hours:.0f} hours are little: other days may differ by several times")
    return FromData(values, dict.fromkeys(values, source), tuple(told))


def read_ratio(path: str, given: Mapping[str, Any]) -> FromData:
    """The price of spot as a part of on-demand's; raises `InputError`."""
    terms = read_prices(path).terms(str(given.get("sku") or ""), path)
    for term in ("on-demand", "spot"):
        if term not in terms:
            raise InputError(f"has no {term} price of it", file=path, hint=f"a line with term: {term}")
    if terms["on-demand"].per_gpu_hour <= 0:
        raise InputError("the on-demand price is 0", file=path)
    ratio = terms["spot"].per_gpu_hour / terms["on-demand"].per_gpu_hour
    return FromData({"ratio": ratio}, {"ratio": str(terms["spot"])})
