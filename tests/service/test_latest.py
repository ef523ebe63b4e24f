"""A live cluster is read anew after a while, and what is to be said of it is said once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.answers.small import small_snapshot

from muster.answers.view import View
from muster.errors import ClusterError
from muster.service import latest


class Cluster:
    """Stands for reading a cluster: takes ``takes_s`` each time, and warns."""

    def __init__(self, takes_s: float) -> None:
        self.now_s, self.takes_s, self.reads = 1000.0, takes_s, 0
        self.away = False

    def read(self, source: str, at_s: object, settings: object, warn: Callable[[str], None]) -> tuple[View, tuple[()]]:
        self.reads += 1
        self.now_s += self.takes_s
        warn("The clock is wrong.")
        if self.away:
            raise ClusterError("it does not answer")
        return View(small_snapshot()), ()


@pytest.mark.parametrize(("takes_s", "again_s"), [(0.1, 15.0), (4.0, 40.0)])
def test_a_cluster_is_read_anew(monkeypatch: pytest.MonkeyPatch, takes_s: float, again_s: float) -> None:
    cluster = Cluster(takes_s)
    monkeypatch.setattr(latest, "open_view", cluster.read)
    monkeypatch.setattr(latest.time, "monotonic", lambda: cluster.now_s)
    said: list[str] = []
    followed = latest.Latest("kubernetes:prod", None, {}, said.append)
    first = followed.view()
    cluster.now_s += again_s - 0.1
    assert followed.view() is first
    cluster.now_s += 0.2
    assert followed.view() is not first
    assert (cluster.reads, said) == (2, ["The clock is wrong."])


def test_a_cluster_that_goes_away_is_told_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(0.1)
    monkeypatch.setattr(latest, "open_view", cluster.read)
    monkeypatch.setattr(latest.time, "monotonic", lambda: cluster.now_s)
    followed: Any = latest.Latest("kubernetes:prod", None, {})
    followed.view()
    cluster.away, cluster.now_s = True, cluster.now_s + 60
    with pytest.raises(ClusterError):
        followed.view()
    cluster.away = False
    assert followed.view() is followed.view()
