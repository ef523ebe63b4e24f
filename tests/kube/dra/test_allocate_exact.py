"""`allocate` beside all ways to give devices to small claims, with a check of its own of what is right."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert
from tests.kube.dra.building import DRIVER, N1, asks, claim, devices, gpu, slice_of

from muster.kube.dra.allocate import Devices
from muster.kube.dra.amounts import Allocated
from muster.kube.dra.objects import DraAllocation, KubeDraClaim
from muster.kube.dra.requests import Refusal

Given = list[tuple[int, dict[str, Any], dict[str, Any]]]
"""(claim, what was asked, device) of each device that was given."""


@st.composite
def nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Up to five devices: some share counters, some are tainted, some may be shared."""
    found: list[dict[str, Any]] = []
    for at in range(draw(st.integers(1, 5))):
        taints = draw(st.sampled_from([(), (), ("sick:NoSchedule",), ("seen:None",)]))
        more = draw(st.sampled_from([{}, {"side": 0}, {"side": 1}, {"side": 1}]))
        one = gpu(f"g{at}", memory=str(draw(st.sampled_from([4, 8]))), taints=taints, **more)
        if draw(st.booleans()):
            one["consumesCounters"] = [{"counterSet": "c", "counters": {"m": {"value": draw(st.integers(1, 3))}}}]
        if draw(st.integers(0, 3)) == 0:
            one["allowMultipleAllocations"] = True
            if draw(st.booleans()):
                one["capacity"]["memory"]["requestPolicy"] = {"default": "1", "validValues": ["1", "2", "4"]}
        found.append(one)
    return found


@st.composite
def requests(draw: st.DrawFn, name: str) -> dict[str, Any]:
    def asked(of: str) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if draw(st.integers(0, 3)) == 0:
            more["tolerations"] = [{"key": "sick", "operator": "Exists"}]
        if draw(st.integers(0, 3)) == 0:
            more["capacity"] = {"requests": {"memory": str(draw(st.integers(1, 8)))}}
        if draw(st.integers(0, 7)) == 0:
            more["allocationMode"] = "All"
        select = draw(st.sampled_from([(), (), (f"device.capacity['{DRIVER}'].memory == quantity('8')",)]))
        return asks(of, draw(st.integers(1, 2)), "gpu.nvidia.com", *select, **more)

    if draw(st.integers(0, 3)) == 0:
        return asks(name, alternatives=[asked("p"), asked("q")])
    return asked(name)


@st.composite
def pods(draw: st.DrawFn) -> list[KubeDraClaim]:
    found: list[KubeDraClaim] = []
    for number in range(draw(st.integers(1, 2))):
        names = ["x", "y"][: draw(st.integers(1, 2))]
        side = f"{DRIVER}/side"
        kinds = st.sampled_from([
            [], [], [{"matchAttribute": side}], [{"distinctAttribute": side}],
            [{"matchAttribute": side, "requests": ["x"]}],
        ])  # fmt: skip
        found.append(claim(f"c{number}", *(draw(requests(name)) for name in names), constraints=draw(kinds)))
    return found


def known(node: Sequence[dict[str, Any]], held: Sequence[KubeDraClaim]) -> Devices:
    counters = slice_of(
        "counters", [], pool="n1", resourceSliceCount=2, sharedCounters=[{"name": "c", "counters": {"m": {"value": 4}}}]
    )
    return devices([counters, slice_of("devices", node, resourceSliceCount=2)], held)


# -- what is right, said once more ------------------------------------------------------------------------------------


def plain(request: Any) -> list[tuple[str, dict[str, Any]]]:
    """The alternatives of a request, as JSON has them."""
    return [
        (name, {"count": one.count, "all": one.allocation_mode == "All", "bears": bool(one.tolerations),
                "large": bool(one.selectors), "memory": one.capacity and (one.capacity.requests or {}).get("memory")})
        for name, one in request.alternatives
    ]  # fmt: skip


def share(asked: dict[str, Any], device: dict[str, Any]) -> int | None:
    """Memory that a request takes of a device; None: it cannot have that."""
    capacity = device["capacity"]["memory"]
    whole, policy = int(capacity["value"]), capacity.get("requestPolicy")
    if asked["memory"] is None:
        return 1 if policy else whole
    wanted = int(asked["memory"])
    if policy:
        wanted = next((each for each in (1, 2, 4) if each >= wanted), 99)
    return wanted if wanted <= whole else None


def matching(asked: dict[str, Any], node: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        each for each in node
        if (not asked["large"] or each["capacity"]["memory"]["value"] == "8") and share(asked, each) is not None
    ]  # fmt: skip


def right(claims: Sequence[KubeDraClaim], node: Sequence[dict[str, Any]], held: set[str], taken: Sequence[Any]) -> bool:
    """Whether devices, as (claim, request, alternative, device), break no rule."""
    alone = Counter(device["name"] for *_, device in taken if not device.get("allowMultipleAllocations"))
    if any(count > 1 for count in alone.values()) or held & {device["name"] for *_, device in taken}:
        return False
    for name in {device["name"] for *_, device in taken}:
        mine = [(asked, device) for _, _, asked, device in taken if device["name"] == name]
        if mine[0][1].get("allowMultipleAllocations") and sum(share(*each) or 0 for each in mine) > int(
            mine[0][1]["capacity"]["memory"]["value"]
        ):
            return False
    if any(
        not asked["bears"] and any(t["effect"] != "None" for t in device.get("taints", []))
        for _, _, asked, device in taken
    ):
        return False  # fmt: skip
    used = {device["name"] for *_, device in taken}

    def counted(names: set[str]) -> int:
        return sum(
            each["consumesCounters"][0]["counters"]["m"]["value"] for each in node
            if each["name"] in names and "consumesCounters" in each
        )  # fmt: skip

    ours = any("consumesCounters" in device for *_, device in taken)
    if ours and counted(held | used) > 4:
        return False
    for number, one in enumerate(claims):
        for rule in one.spec.devices.constraints or ():
            sides = [
                device["attributes"].get("side", {}).get("int")
                for of, request, _, device in taken
                if of == number and (not rule.requests or request in rule.requests)
            ]
            if None in sides or len(set(sides)) != (len(sides) if rule.distinct_attribute else min(1, len(sides))):
                return False
    return True


def ways(claims: Sequence[KubeDraClaim], node: Sequence[dict[str, Any]]) -> Iterator[list[Any]]:
    """All ways to choose alternatives and devices, right or wrong."""
    wanted = [(number, request) for number, one in enumerate(claims) for request in one.spec.devices.requests or ()]
    for chosen in itertools.product(*(plain(request) for _, request in wanted)):
        options: list[list[tuple[Any, ...]]] = []
        for (number, request), (_, asked) in zip(wanted, chosen, strict=True):
            good = matching(asked, node)
            count = len(good) if asked["all"] else asked["count"]
            sets = itertools.combinations(good, count) if count else ()
            options.append([tuple((number, request.name, asked, each) for each in one) for one in sets])
        for one in itertools.product(*options):
            yield [each for part in one for each in part]


@settings(deadline=None, max_examples=300)
@given(nodes(), pods(), st.sets(st.integers(0, 4), max_size=2))
def test_it_finds_devices_exactly_where_there_are_some(
    node: list[dict[str, Any]], claims: list[KubeDraClaim], taken: set[int]
) -> None:
    held = {node[at]["name"] for at in taken if at < len(node)}
    there = known(node, [claim("held", given=[f"n1/{name}" for name in sorted(held)])])
    possible = any(right(claims, node, held, way) for way in ways(claims, node))
    try:
        found = there.allocate(N1, claims)
    except Refusal:
        assert not possible
        return
    assert possible
    by_name = {device["name"]: device for device in node}
    given_out: list[Any] = []
    for number, (one, allocation) in enumerate(zip(claims, found, strict=True)):
        alternatives = {name: asked for request in one.spec.devices.requests or () for name, asked in plain(request)}
        for result in allocation.devices.results:
            asked = alternatives[result.request]
            assert by_name[result.device] in matching(asked, node)
            given_out.append((number, result.request.partition("/")[0], asked, by_name[result.device]))
        for request in one.spec.devices.requests or ():
            counts = Counter(
                r.request for r in allocation.devices.results if r.request.partition("/")[0] == request.name
            )
            ((name, count),) = counts.items()
            asked = alternatives[name]
            assert count == (len(matching(asked, node)) if asked["all"] else asked["count"])
    assert right(claims, node, held, given_out)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5), max_size=4), min_size=1, max_size=6))
def test_what_is_held_follows_claims_as_they_change(steps: list[dict[str, int]]) -> None:
    """Claims come, go and get other devices; what is counted is always what counting anew gives."""
    kept: dict[tuple[str, int], KubeDraClaim] = {}
    followed = Allocated()
    for step in steps:
        claims = {name: kept.setdefault((name, what), held_claim(name, what)) for name, what in step.items()}
        followed.follow(claims)
        anew = Allocated(claims.values())
        assert (followed.alone, followed.shares) == (anew.alone, anew.shares)
        assert {key: sorted(each.items()) for key, each in followed.consumed.items()} == {
            key: sorted(each.items()) for key, each in anew.consumed.items()
        }


def held_claim(name: str, what: int) -> KubeDraClaim:
    """A claim that has one of three devices alone, a share of one of two, or (5) nothing."""
    if what < 3:
        return claim(name, given=[f"n1/g{what}"])
    found = claim(name)
    if what < 5:
        share = {"request": "x", "driver": DRIVER, "pool": "n1", "device": f"s{what}", "shareID": name,
                 "consumedCapacity": {"memory": str(what)}}  # fmt: skip
        found.status.allocation = convert({"devices": {"results": [share]}}, DraAllocation)
    return found


@settings(deadline=None, max_examples=60)
@given(nodes(), st.lists(pods(), min_size=2, max_size=5))
def test_pods_one_after_the_other_never_get_too_much(
    node: list[dict[str, Any]], each: list[list[KubeDraClaim]]
) -> None:
    """What earlier pods hold counts for later ones just as within one pod."""
    held: list[KubeDraClaim] = []
    by_name = {device["name"]: device for device in node}
    for at, claims in enumerate(each):
        for one in claims:
            one.metadata.name += f"-{at}"
        try:
            found = known(node, held).allocate(N1, claims)
        except Refusal:
            continue
        for one, allocation in zip(claims, found, strict=True):
            one.status.allocation = allocation
            held.append(one)
    results = [result for one in held if one.status.allocation for result in one.status.allocation.devices.results]
    alone = Counter(result.device for result in results if not result.share_id)
    assert all(count == 1 for count in alone.values())
    assert not set(alone) & {result.device for result in results if result.share_id}
    for name in {result.device for result in results if result.share_id}:
        mine = [result for result in results if result.device == name]
        assert len({result.share_id for result in mine}) == len(mine)
        memory = sum(int((result.consumed_capacity or {})["memory"]) for result in mine)
        assert memory <= int(by_name[name]["capacity"]["memory"]["value"])
    counted = (by_name[name].get("consumesCounters") for name in {result.device for result in results})
    assert sum(one[0]["counters"]["m"]["value"] for one in counted if one) <= 4
