"""Times of the components of `muster plan bringup` out of the operator's pods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from statistics import median, pstdev
from typing import Any, cast

import msgspec

from muster.catalog.bringup import COMPONENTS
from muster.errors import InputError
from muster.planning.plans.bringup import default_links
from muster.planning.question import FromData
from muster.traces.files import read_bytes

_HINT = "kubectl get pods -n gpu-operator -o json"


def times_of(named: str, given: Mapping[str, Any]) -> FromData:
    """What each component took on the nodes of a ``kubectl get pods -o json``: the median over nodes.

    A component begins when its pod is there and those before it are ready; components without pods of their own keep
    their default. Raises `InputError`.
    """
    del given
    try:
        document: Any = msgspec.json.decode(read_bytes(named))
    except msgspec.DecodeError:
        raise InputError("is no JSON", file=named, hint=_HINT) from None
    top = _object(document)
    items = [
        _object(each) for each in cast("list[Any]", top.get("items") if isinstance(top.get("items"), list) else [])
    ]
    ready, made, late = _by_node(items)
    spent: defaultdict[str, list[float]] = defaultdict(list)
    for node, at in ready.items():
        for each in COMPONENTS:
            if each.name in at:
                begin = max([made[node][each.name], *(at[name] for name in _before(each.name) if name in at)])
                spent[each.name].append(max(0.0, at[each.name] - begin))
    if not spent:
        raise InputError("has no pods of the GPU Operator that are ready on a node", file=named, hint=_HINT)
    links = default_links({name: median(times) for name, times in spent.items()})
    values: dict[str, Any] = {"links": links, "nodes": len(ready)}
    sources = {"links": f"{named}: {', '.join(spent)} on {len(ready)} nodes", "nodes": f"{named}: nodes with such pods"}
    driver = spent.get("driver", [])
    if len(driver) >= 5 and median(driver) > 0:
        values["spread"] = min(3.0, pstdev(driver) / median(driver))
        sources["spread"] = f"{named}: of the driver on {len(driver)} nodes"
    told = (f"{named}: {late} pods were restarted; they became ready later than at first",) if late else ()
    return FromData(values, sources, told)


def _before(name: str) -> tuple[str, ...]:
    """All that a component waits for, also through components without pods."""
    by_name = {each.name: each for each in COMPONENTS}
    found: list[str] = []
    for other in by_name[name].after:
        found += [other, *_before(other)]
    return tuple(dict.fromkeys(found))


def _by_node(
    items: list[dict[str, Any]],
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]], int]:
    """When the pods of each node were ready and made, in seconds, by component; and how many were restarted."""
    ready: defaultdict[str, dict[str, float]] = defaultdict(dict)
    made: defaultdict[str, dict[str, float]] = defaultdict(dict)
    late = 0
    longest = sorted((each for each in COMPONENTS if each.pods), key=lambda each: -len(each.pods))
    for item in items:
        meta, status = _object(item.get("metadata")), _object(item.get("status"))
        name, node = str(meta.get("name", "")), str(_object(item.get("spec")).get("nodeName", ""))
        component = next((each.name for each in longest if name.startswith(each.pods)), "")
        states = _objects(status.get("conditions"))
        done = next((each for each in states if each.get("type") == "Ready" and each.get("status") == "True"), None)
        begun, ended = _time(meta.get("creationTimestamp")), _time(done.get("lastTransitionTime") if done else None)
        if component and node and begun is not None and ended is not None:
            ready[node][component], made[node][component] = ended, begun
            late += any(each.get("restartCount") for each in _objects(status.get("containerStatuses")))
    return dict(ready), dict(made), late


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [_object(each) for each in cast("list[Any]", value)] if isinstance(value, list) else []


def _time(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None
