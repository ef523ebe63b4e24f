"""Hostlists: what Slurm's `scontrol show hostnames` and `show hostlist` make of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InputError
from muster.slurm.hostlist import compress, expand, following

PAIRS = (
    ("gpu01", ("gpu01",)),
    ("gpu[01-03,07],login1", ("gpu01", "gpu02", "gpu03", "gpu07", "login1")),
    ("gpu[8-11]", ("gpu8", "gpu9", "gpu10", "gpu11")),
    ("gpu[08-11]", ("gpu08", "gpu09", "gpu10", "gpu11")),
    ("gpu[098-101]", ("gpu098", "gpu099", "gpu100", "gpu101")),
    ("gpu[0-2].example.com", ("gpu0.example.com", "gpu1.example.com", "gpu2.example.com")),
    ("ip-10-0-1-[22-23].ec2.internal", ("ip-10-0-1-22.ec2.internal", "ip-10-0-1-23.ec2.internal")),
    ("n[1-2]-ib", ("n1-ib", "n2-ib")),
    ("login", ("login",)),
    ("gpu[01,08-10],gpu8", ("gpu01", "gpu08", "gpu09", "gpu10", "gpu8")),
)


@pytest.mark.parametrize(("text", "names"), PAIRS)
def test_a_hostlist_and_its_names(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names
    assert compress(names) == text


def test_what_only_expands() -> None:
    assert expand("r[1-2]n[1-2]") == ("r1n1", "r1n2", "r2n1", "r2n2")
    assert expand("a1,a1,a[1-2]") == ("a1", "a2"), "each once"


def test_what_only_compresses() -> None:
    assert compress(["gpu3", "login", "gpu1", "gpu2", "gpu1"]) == "gpu[1-3],login", "sorted in brackets, each once"
    assert compress([]) == ""


WRONG = (
    ("gpu[01-", "not closed"),
    ("gpu01]", "not closed or not opened"),
    ("gpu[[1]]", "not closed or not opened"),
    ("gpu[]", "no range of numbers"),
    ("gpu[a-b]", "no range of numbers"),
    ("gpu[1-2-3]", "no range of numbers"),
    ("gpu[5-1]", "runs backwards"),
    ("gpu1,,gpu2", "empty name"),
    ("gpu1, gpu2", "blank"),
    ("", "empty name"),
    ("gpu[0-65536]", "more than 65,536"),
    ("r[1-2000]n[1-2000]", "more than 65,536"),
)


@pytest.mark.parametrize(("text", "what"), WRONG)
def test_mistakes_are_told(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        expand(text)


NAMES = st.lists(st.text(st.sampled_from("ab-.019"), min_size=1, max_size=6), max_size=30)


@given(NAMES)
def test_what_is_compressed_expands_to_the_same_names(names: list[str]) -> None:
    text = compress(names)
    assert set(expand(text) if text else ()) == set(names)
    assert text.count(",") <= max(0, len(set(names)) - 1), "never longer than the list of names"
    assert compress(expand(text) if text else ()) == text


@given(st.lists(st.integers(0, 1100), min_size=1, unique=True), st.integers(0, 4))
def test_sorted_numbers_keep_their_order(numbers: list[int], width: int) -> None:
    names = [f"gpu{number:0{width}d}" for number in sorted(numbers)]
    if width == 0 or max(numbers) < 10**width:  # names that outgrow their zeros are of two kinds
        assert list(expand(compress(names))) == names


def test_names_are_continued() -> None:
    assert following(["gpu01", "gpu09", "login1"], "gpu01", 2) == ("gpu10", "gpu11")
    assert following(["rack-1", "rack-12"], "rack-1", 1) == ("rack-13",)
    assert following(["main"], "main", 2) == ("main-2", "main-3")
    assert following(["main", "main-2"], "main", 1) == ("main-3",)
    assert following(["n0"], "n0", 1) == ("n1",)
