"""Every planner, every option, values that nobody means: one clear line that names the option, or a sane answer."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from muster.cli.main import main as muster
from muster.errors import InputError
from muster.planning.quantities import BYTES, COUNT, NUMBER, SHARE, TIME, figure

ODD = ("0", "-1", "1e-300", "1e-11", "1e18", "nan", "1e400", "x\x1b[2J", "101%", "100y", "1ms", "1B/s", "1PB", "1e6")
_PLAN = muster.get_command(click.Context(muster), "plan")
assert isinstance(_PLAN, click.Group)
PLANNERS = tuple(_PLAN.list_commands(click.Context(_PLAN)))
NOT_NUMBERS = ("--report", "--plot", "--output", "--prometheus")


def _values_of(planner: str) -> list[str]:
    assert isinstance(_PLAN, click.Group)
    command = _PLAN.get_command(click.Context(_PLAN), planner)
    assert command is not None
    return [
        each.opts[0]
        for each in command.params
        if isinstance(each, click.Option)
        and not each.is_flag
        and not isinstance(each.type, click.Choice)
        and each.metavar not in (None, "TEXT", "FILE", "PATH")
        and each.opts[0] not in NOT_NUMBERS
    ]


def _ask(*words: str) -> tuple[str, str]:
    """What is printed, or the error."""
    found = CliRunner().invoke(muster, ["plan", *words, "--no-sensitivity"], catch_exceptions=True)
    if found.exception is None:
        assert found.exit_code == 0
        return found.stdout, ""
    if isinstance(found.exception, InputError):
        assert not found.stdout, "half an answer before the error"
        return "", str(found.exception)
    assert isinstance(found.exception, SystemExit), (words, repr(found.exception))
    assert found.exit_code == 2, words
    return "", found.stderr


@pytest.mark.slow  # 18 planners, some 2,000 questions: about two minutes
@pytest.mark.parametrize("planner", PLANNERS)
def test_no_value_of_any_option_gives_a_traceback_a_nan_or_a_page_that_is_wider_than_it_may_be(planner: str) -> None:
    for option in _values_of(planner):
        for value in ODD:
            page, error = _ask(planner, option, value)
            if error:
                assert "--" in error or ": " in error, (option, value, error)
                assert not re.search("'(share|wait)'", error), (option, value, error)  # names of formulas
                continue
            assert not re.search(r"\b(nan|inf)\b|\d e\+|\de\+\d\d %", page), (option, value, page)
            assert max(map(len, page.splitlines())) <= 100, (option, value)


@pytest.mark.parametrize(
    "words",
    [
        ("bringup", "--spread", "1e-300"),  # a division by zero
        ("sandboxes", "--cpu", "0"),  # the same
        ("sandboxes", "--working", "0B"),
        ("sandboxes", "--starts", "1e-300"),  # an infinity that was rounded
        ("rollout", "--fault", "1e-300"),
        ("checkpoint", "--mttf", "1e18"),  # "save every - ms: then nan % of the time"
        ("checkpoint", "--rate", "1e-300"),  # a table of 403 columns
        ("checkpoint", "--size", "0B"),  # named an interval that was never given
        ("notebooks", "--seen", "1e18"),  # ran without end
        ("spares", "--repair", "100y"),  # the same
        ("pool", "--floor", "1e6"),  # training had -999,744 GPUs
        ("coldstart", "--boot", "100y"),  # "field 'share'"
    ],
)
def test_the_error_names_the_option_that_was_given(words: tuple[str, ...]) -> None:
    page, error = _ask(*words)
    assert not page
    assert words[1] in error
    assert "\n" not in error.strip()


def test_a_team_is_named_once_and_an_unset_variable_is_not_the_folder_that_one_stands_in() -> None:
    _, error = _ask("fairshare", *(2 * ("--team", "a:gpus=8,jobs=3/h,time=2h,quota=64")))
    assert "--team" in error
    found = CliRunner().invoke(muster, ["doctor", "--from", ""])
    assert isinstance(found.exception, InputError)
    assert "--from" in str(found.exception)


def test_shares_in_sentences_are_shares() -> None:
    page, _ = _ask("checkpoint", "--nodes", "1000000")
    restarting = re.search(r"Restarting alone costs ([\d.]+) %", page)
    assert restarting is not None
    assert 0 < float(restarting[1]) <= 100  # it said 2256.9 %: the restart over the time to the failure alone
    page, _ = _ask("checkpoint", "--size", "1B")
    assert "nan" not in page  # the exact interval is a difference of near equals there
    page, _ = _ask("pool", "--restart", "11d")
    assert not re.search(r"-[\d,.]+ %", page)  # "utilisation -1,932 %": training cannot lose more than it has
    page, _ = _ask("notebooks", "--worked", "1y")
    assert "e+" not in page  # "1e+02 % of sessions"
    page, _ = _ask("spot", "--ratio", "101%")
    assert "it is at 101 %, dearer" in " ".join(page.split())  # it said that spot is dearer below the break-even


def test_what_is_beyond_meaning_is_refused_where_it_is_read() -> None:
    for kind, text in ((NUMBER, "1e-300"), (TIME, "1e-20s"), (TIME, "1e5y"), (SHARE, "1e-14%"), (COUNT, "1e22")):
        with pytest.raises(InputError, match=r"beyond all bounds|too near 0"):
            kind.read(text, "--x")
    assert (NUMBER.read("0"), TIME.read("1000y"), TIME.read("1e2d3h")) == (0, 365_250 * 86_400, 100 * 86_400 + 3 * 3600)


def test_figures_stay_short() -> None:
    assert (figure(1e300), figure(-2e18), figure(9.99e14)) == ("1.00e300", "-2.00e18", "999,000,000,000,000")
    assert (TIME.show(float("nan")), BYTES.show(float("nan")), SHARE.show(float("nan"))) == ("-", "-", "-")
