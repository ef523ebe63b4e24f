"""What nobody means to give: names, times and fleets that must break no answer, and no shell it is pasted into."""

from __future__ import annotations

import math
import shlex

import pytest

from muster.answers.by_hand.quoting import REFUSED, quoted, quoted_one
from muster.answers.changes import parse_change
from muster.answers.how import by_hand
from muster.answers.queue_table import waiting
from muster.answers.times import instant, moment, span, until
from muster.answers.view import View
from muster.answers.whatif import Variant, compare
from muster.answers.why import why
from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node
from muster.model.queue import Queue, Quota
from muster.model.reasons import Reason
from muster.model.snapshot import Snapshot
from muster.model.workload import PodSet, PodShape, Workload
from muster.traces.document import read_document


def job(name: str, **what: object) -> Workload:
    return Workload(name, (PodSet(PodShape(1000, 0, 8)),), **what)  # pyright: ignore[reportArgumentType]


def fleet(*names: str) -> Fleet:
    return Fleet(tuple(Node(name, 64_000, 1 << 40, tuple(Device(at, "H100") for at in range(8))) for name in names))


@pytest.mark.parametrize("name", ["--all", "-n", "", "a\nb", "a\x1b]0;t\x07"])
def test_names_that_programs_would_take_for_something_else_stay_out_of_commands(name: str) -> None:
    assert quoted(name) == quoted_one(name) == REFUSED


@pytest.mark.parametrize("name", ["a", "a b", "$(touch x)", "a;b", "a'b", "ns/a"])
def test_other_names_are_one_word(name: str) -> None:
    assert shlex.split(quoted(name)) == [name]
    assert quoted_one("a,b") == REFUSED


def test_the_steps_by_hand_are_safe_to_paste() -> None:
    view = View(Snapshot(fleet("g0;reboot #"), pending=(job("$(x)", namespace="ns;rm -rf x"), job("y"))))
    for step in by_hand(view, why(view, "$(x)")):
        for command in (step.kubectl, step.slurm):
            assert "rm" not in shlex.split(command.replace(";", " ; "), comments=True)
            assert "$(x)" not in command.replace("'$(x)'", "")


@pytest.mark.parametrize("queues", [(), (Queue("q", quotas=(Quota("H100", 8000),)),)])
def test_a_fleet_of_no_nodes(queues: tuple[Queue, ...]) -> None:
    view = View(Snapshot(Fleet(()), queues, pending=(job("a", queue="q"),)))
    told = why(view, "a")
    assert told.reason in (Reason.NO_FLAVOR, Reason.GPU_COUNT, Reason.NEVER_FITS)
    assert [each.job for each in waiting(view)[0]] == ["a"]


def test_all_nodes_may_be_taken_away() -> None:
    view = View(Snapshot(fleet("g0", "g1"), pending=(job("a"),)))
    found = compare(view, [Variant("none", parse_change("remove g0 g1", view.snapshot))])
    assert [math.isinf(each.after_s) for each in found.outcomes[1].effects] == [True]


@pytest.mark.parametrize("time_s", [0.0, 1e9, 2.6e11, 1e15, 1e300, -1e300, math.inf])
def test_any_time_can_be_told(time_s: float) -> None:
    view = View(Snapshot(fleet("g0"), taken_s=0.0 if math.isinf(time_s) else time_s))
    for text in (instant(time_s), moment(view, time_s), until(view, time_s), span(abs(time_s))):
        assert text
        assert len(text) < 40


def test_control_characters_in_names_are_refused() -> None:
    for snapshot in (
        Snapshot(fleet("g\x1b0")), Snapshot(fleet("g0"), pending=(job("a\nb"),)),
        Snapshot(fleet("g0"), pending=(job("a", user="ann\x07"),)),
    ):  # fmt: skip
        with pytest.raises(InputError, match="control characters"):
            View(snapshot)


def test_a_few_lines_of_aliases_are_no_bomb(tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 9)]
    (tmp_path / "bomb.yaml").write_text("\n".join(lines))
    with pytest.raises(InputError, match="too large"):
        read_document(str(tmp_path / "bomb.yaml"))
