"""Quantities: what people write, what is meant, and what is refused because it could mean two things."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InputError
from muster.planning.quantities import BYTES, COUNT, FLOPS, NUMBER, PER_HOUR, RATE, SHARE, TIME, Kind, figure, seconds

READ = [
    (BYTES, "80GB", 80e9),
    (BYTES, "80GiB", 80 * 2**30),
    (BYTES, "80 GB", 80e9),
    (BYTES, "1.5TiB", 1.5 * 2**40),
    (BYTES, "512B", 512),
    (RATE, "400Gb/s", 50e9),
    (RATE, "400Gbps", 50e9),
    (RATE, "400Gbit/s", 50e9),
    (RATE, "50GB/s", 50e9),
    (RATE, "1GiB/s", 2**30),
    (RATE, "125MB/s", 125e6),
    (TIME, "30m", 1800),
    (TIME, "1800s", 1800),
    (TIME, "1800", 1800),
    (TIME, "1h30m", 5400),
    (TIME, "2.5h", 9000),
    (TIME, "3d", 259200),
    (TIME, "250ms", 0.25),
    (SHARE, "30%", 0.3),
    (SHARE, "0.3", 0.3),
    (FLOPS, "400TFLOPS", 4e14),
    (PER_HOUR, "0.55/h", 0.55),
    (PER_HOUR, "12/d", 0.5),
    (PER_HOUR, "2/s", 7200),
    (COUNT, "1,250", 1250),
    (COUNT, "50k", 50_000),
    (NUMBER, "6.5", 6.5),
]


@pytest.mark.parametrize(("kind", "text", "value"), READ, ids=lambda each: each if isinstance(each, str) else None)
def test_what_is_written_is_what_is_meant(kind: Kind, text: str, value: float) -> None:
    assert kind.read(text) == pytest.approx(value, rel=1e-12)


REFUSED = [
    (BYTES, "80G", "80GB (powers of ten) or 80GiB (powers of two)"),
    (BYTES, "80gb", "80GB"),
    (BYTES, "80", "has no unit"),
    (BYTES, "80Gb", "80GB"),
    (RATE, "400G", "400Gb/s (bits) or 400GB/s (bytes)"),
    (RATE, "400GB", "400GB/s (bytes)"),
    (RATE, "50", "has no unit"),
    (TIME, "30 minutes", "such as"),
    (TIME, "3x", "such as"),
    (TIME, "1h30", "such as"),
    (SHARE, "thirty", "such as"),
    (COUNT, "2.5", "no whole number"),
    (NUMBER, "1e400", "beyond all bounds"),
    (NUMBER, "nan", "is not a number"),
    (NUMBER, "", "is not a number"),
]


@pytest.mark.parametrize(("kind", "text", "told"), REFUSED)
def test_what_could_mean_two_things_is_refused(kind: Kind, text: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        kind.read(text, "--it")
    assert told in str(caught.value)
    assert "--it" in str(caught.value)


@pytest.mark.parametrize("kind", [BYTES, RATE, TIME, FLOPS])
@given(value=st.floats(1e-3, 1e15))
def test_what_is_shown_is_read_again(kind: Kind, value: float) -> None:
    value = min(value, 0.99 * kind.most)
    shown = kind.show(value)
    assert kind.read(shown) == pytest.approx(value, rel=6e-3, abs=kind.units[kind.shown[-1]])


@given(st.floats(1e-9, 1e12))
def test_a_figure_keeps_three_digits(value: float) -> None:
    assert float(figure(value).replace(",", "")) == pytest.approx(value, rel=0.05 if value < 1e-4 else 0.005)


def test_shares_near_one_tell_what_is_missing() -> None:
    assert [SHARE.show(each) for each in (0.97, 0.9995, 0.99998, 1.0, 0.5)] == [
        "97.0 %", "99.950 %", "99.9980 %", "100 %", "50 %",
    ]  # fmt: skip
    assert figure(math.inf) == "no limit"


def test_an_instant_may_be_as_near_zero_as_it_likes() -> None:
    """Changes write instants as they are; a planner's input so near 0 is a slip."""
    assert seconds("9.3e-74s") == pytest.approx(9.3e-74)
    with pytest.raises(InputError, match="too near 0"):
        TIME.read("9.3e-74s")
