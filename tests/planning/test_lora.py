"""Adapters on shared bases: published sizes, hits against a simulated cache, charges that sum to the cent."""

from __future__ import annotations

import csv
import io
import random
import tarfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.answers.plan_data.lora import read_lora
from muster.errors import InputError
from muster.planning.adapters import adapters_on, charges, hit_share, zipf
from muster.planning.plans.lora import Lora
from muster.planning.question import derive


def value(asked: Lora, name: str) -> float:
    found = {each.name: each.value for each in derive(asked, sensitivity=False).results}[name]
    assert not isinstance(found, str)
    return found


def test_sizes_of_published_models() -> None:
    """8B at rank 16: 41.9 M parameters, 84 MB to serve, 0.67 GB to train; 70B: 207 M, 414 MB, 3.3 GB."""
    small = derive(Lora(tokens=0), sensitivity=False).steps
    assert small[0].value == pytest.approx(41.9e6, rel=0.002)
    assert small[1].value == pytest.approx(0.67e9, rel=0.005)
    assert small[4].value == pytest.approx(84e6, rel=0.005)
    large = derive(Lora(per_rank=12_943_360, base_bytes=141e9, memory_bytes=288e9, tokens=0), sensitivity=False).steps
    assert large[0].value == pytest.approx(207e6, rel=0.002)
    assert large[1].value == pytest.approx(3.3e9, rel=0.005)
    assert large[4].value == pytest.approx(414e6, rel=0.002)


def test_the_base_is_far_larger_than_an_adapter_so_it_is_shared() -> None:
    """Published: 24 times the training state of a rank-16 adapter for 8B."""
    assert 16.1e9 / derive(Lora(tokens=0), sensitivity=False).steps[1].value == pytest.approx(24, abs=0.5)


@given(st.floats(1e9, 3e11), st.floats(0, 1e10), st.floats(1e9, 2e11), st.floats(1e7, 1e10))
def test_what_is_packed_fits_and_one_more_does_not(memory: float, reserve: float, base: float, each: float) -> None:
    count = adapters_on(memory, reserve, base, each)
    assert reserve + base + count * each <= memory * (1 + 1e-6) or not count
    assert reserve + base + (count + 1) * each > memory * (1 - 1e-6)


def cache_hits(requests: Iterator[int], slots: int, count: int) -> float:
    """A cache that forgets the least recently used, request by request; the first tenth is not counted."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = counted = 0
    for number in range(count):
        name = next(requests)
        found = name in held
        if found:
            held.move_to_end(name)
        else:
            held[name] = None
            if len(held) > slots:
                held.popitem(last=False)
        if number > count // 10:
            counted += 1
            hits += found
    return hits / counted


def independent(shares: list[float], rng: random.Random) -> Iterator[int]:
    while True:
        yield from rng.choices(range(len(shares)), shares, k=1000)


@pytest.mark.parametrize(("skew", "slots"), [(0.0, 20), (0.8, 10), (1.0, 16), (1.3, 8), (1.0, 64)])
def test_hits_agree_with_a_simulated_cache(skew: float, slots: int) -> None:
    shares = zipf(100, skew)
    seen = cache_hits(independent(shares, random.Random(slots)), slots, 60_000)
    assert seen == pytest.approx(hit_share(shares, slots), abs=0.015)


def bursts(shares: list[float], rng: random.Random) -> Iterator[int]:
    while True:
        name = rng.choices(range(len(shares)), shares)[0]
        yield from [name] * rng.randrange(1, 40)


def test_bursts_break_the_form() -> None:
    """Requests of one adapter that come together find it resident: more hits than told."""
    shares = zipf(100, 0.5)
    assert cache_hits(bursts(shares, random.Random(2)), 10, 60_000) > hit_share(shares, 10) + 0.4


def test_real_requests(shared_data: Callable[[str], Path]) -> None:
    """Alibaba's GenAI trace of 2026: 87 bases of which the first has 30.7 %, five 70.4 %; its busiest hour has 436.

    Followed request by request, the cache finds more than told, as requests of one base come together; shuffled, as
    much as told.
    """
    path = shared_data("serving/genai_2026/lora_request_trace.tar.gz")
    found = read_lora(str(path), {}).values
    counts = [int(each.rpartition("=")[2]) for each in found["popular"]]
    assert (found["tenants"], found["requests"]) == (86, 436)  # one of the published 87 is the empty name
    shares = [each / sum(counts) for each in counts]
    assert [sum(shares[:top]) for top in (1, 5, 10, 20)] == pytest.approx([0.307, 0.704, 0.866, 0.939], abs=0.002)
    with tarfile.open(path) as archive:
        inner = archive.extractfile(next(each for each in archive if each.isfile()))
        assert inner is not None
        rows = list(csv.DictReader(io.TextIOWrapper(inner, "utf-8-sig")))
    rows.sort(key=lambda row: row["gmt_create"])
    names = [row["checkpoint_model_version_id"] for row in rows if row["checkpoint_model_version_id"]]
    number = {name: at for at, name in enumerate(dict.fromkeys(names))}
    order = [number[name] for name in names]
    for slots, more in ((4, 0.20), (8, 0.16), (16, 0.07), (32, 0.03)):
        seen = cache_hits(iter(order), slots, len(order))
        assert seen - hit_share(shares, slots) == pytest.approx(more, abs=0.01)
    random.Random(1).shuffle(order)
    for slots in (4, 8, 16, 32):
        assert cache_hits(iter(order), slots, len(order)) == pytest.approx(hit_share(shares, slots), abs=0.012)


def test_a_log_without_times_tells_no_rate(tmp_path: Path) -> None:
    file = tmp_path / "it.csv"
    file.write_text("Adapter\na\nb\na\n\n")
    assert read_lora(str(file), {}).values == {"popular": ("a=2", "b=1"), "tenants": 2}


def test_all_slots_or_none() -> None:
    assert hit_share(zipf(10, 1), 10) == 1
    assert hit_share(zipf(10, 1), 0) == 0


names = st.text("abcdef", min_size=1, max_size=4)


@given(
    st.floats(0.01, 1e6).map(lambda each: round(each, 2)),
    st.dictionaries(names, st.floats(0, 1e9), min_size=1, max_size=20),
    st.floats(0, 0.6), st.floats(0, 0.4),
)  # fmt: skip
def test_charges_sum_to_the_bill_to_the_cent(bill: float, tokens: dict[str, float], base: float, slot: float) -> None:
    paid = charges(bill, tokens, dict.fromkeys(tokens, 1.0), base, slot)
    assert round(sum(paid.values()) * 100) == round(bill * 100)
    assert all(each >= 0 for each in paid.values())
    assert all(round(each * 100) == pytest.approx(each * 100) for each in paid.values())


def test_who_uses_more_pays_more() -> None:
    paid = charges(100.0, {"a": 3.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, 0.2, 0.1)
    assert paid == {"a": 67.5, "b": 32.5}


def test_the_working_set_is_the_cliff() -> None:
    """SGLang: 16 adapters on 8 slots were 158 times as slow; here loading alone takes more than the time there is."""
    even = Lora(tenants=16, skew=0, slots=8, servers=1, requests=7200)
    assert value(even, "share of a server's time spent loading") > 1
    assert value(Lora(tenants=8, skew=0, slots=8, servers=1), "share of a server's time spent loading") == 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Lora(base_bytes=141e9), "holds no adapter"),
        (Lora(max_rank=8), "16 at least"),
        (Lora(popular=("a",)), "NAME=COUNT"),
        (Lora(popular=("a=0",)), "counts no requests"),
    ],
)
def test_what_cannot_be_is_told(asked: Lora, told: str) -> None:
    with pytest.raises(InputError, match=told):
        derive(asked)
