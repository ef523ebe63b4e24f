"""Xids: the numbers that the sources name, and where programs contradict the catalogue."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from muster.catalog import SOURCES
from muster.catalog.xids import ACTIONS, EKS_FATAL, PLUGIN_IGNORES, SOURCES_OF, XIDS, find_xid
from muster.cli.catalog import command


def test_table_is_whole() -> None:
    numbers = [xid.number for xid in XIDS]
    assert numbers == sorted(set(numbers))
    assert all(xid.action in ACTIONS and xid.source in SOURCES for xid in XIDS)
    assert set(SOURCES_OF.values()) <= set(SOURCES)
    assert set(numbers) >= PLUGIN_IGNORES
    assert EKS_FATAL - set(numbers) == {142}, "in the EKS agent's list only; no meaning was found"


@pytest.mark.parametrize(
    ("number", "action", "plugin", "eks"),
    [  # node-layer facts, F5, with issues k8s-device-plugin 189, 1014 and 1974
        (63, "IGNORE", "marks unhealthy", "fatal"),
        (69, "RESTART_APP", "marks unhealthy", "event"),
        (79, "RESTART_BM", "marks unhealthy", "fatal"),
        (94, "RESTART_APP", "marks unhealthy", "event"),
        (109, "RESET_GPU", "ignores", "fatal"),
        (31, "RESTART_APP", "ignores", "event"),
    ],
)
def test_policies_differ(number: int, action: str, plugin: str, eks: str) -> None:
    xid = find_xid(number)
    assert xid is not None
    assert (xid.action, xid.plugin, xid.eks) == (action, plugin, eks)
    assert bool(xid.disagrees) == (number in (63, 69, 94, 109))


def test_command() -> None:
    said = CliRunner().invoke(command, ["xids", "94", "-o", "json"])
    assert json.loads(said.stdout)["xids"][0]["asks"] == "restart the application"
    assert CliRunner().invoke(command, ["xids"]).stdout.count("\n") == len(XIDS) + 1
