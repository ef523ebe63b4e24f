"""How long work will run, as a distribution: drawn from what is known of work like it.

A snapshot holds the last run times of each kind of work (`muster.engine.predict`), and what runs now says how long its
kind lasts at least. Both are put together by the estimator of Kaplan and Meier (JASA 53, 1958), which takes work that
still runs as "longer than so far": what ended last is mostly short, what runs now is mostly long, and either alone
would mislead. Kinds are asked from narrow to wide; each is believed in ``n / (n + DOUBT)`` of the cases, where ``n``
are the run times of it that are longer than what the work has already run.

Wide kinds hold run times as parts of the stated limit where there is one: people leave alike much room.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from muster.engine.predict import LEAST, LEVELS, keys_of, surely_s
from muster.model.snapshot import Key, Snapshot
from muster.model.workload import Workload

DOUBT = 1.0
"""So many run times of a kind are believed in one half of the cases."""

SPREAD = 0.2
"""What is drawn differs from the run time that was seen by up to this part, and by half way to the next one at most."""

TAIL = 1.0
"""Beyond all that was seen, run times fall off by this power (Pareto): half of what runs so long runs twice as long."""

Floats = npt.NDArray[np.float64]


class _Curve:
    """The run times of one kind, with the part of all work that is longer than each, and the longest time seen."""

    def __init__(self, ended: Sequence[float], running: Sequence[float]) -> None:
        times, counts = np.unique(np.asarray(ended, np.float64), return_counts=True)
        still = np.sort(np.asarray(running, np.float64))
        self.times: Floats = times
        self.counts = counts
        # at a run time itself, what ended then and what has run so long are still at risk
        before = np.concatenate([[0], np.cumsum(counts)[:-1]])
        at_risk = len(ended) - before + len(still) - np.searchsorted(still, times, side="left")
        self.longer: Floats = np.cumprod(1.0 - counts / np.maximum(1, at_risk), dtype=np.float64)
        self.longest = max([0.0, *times[-1:].tolist(), *still[-1:].tolist()])
        logs = np.log(np.maximum(times, 1e-9))
        half = np.minimum(np.diff(logs) / 2, SPREAD)
        sides = half if len(half) else np.zeros(1)
        self.below: Floats = np.concatenate([sides[:1], half])[: len(times)]
        self.above: Floats = np.concatenate([half, sides[-1:]])[: len(times)]

    def known_above(self, elapsed: float) -> int:
        """How many run times above ``elapsed`` were seen."""
        return int(self.counts[bisect_right(self.times, elapsed) :].sum())

    def part_above(self, elapsed: float) -> float:
        """The part of all work that runs longer than ``elapsed``."""
        first = bisect_right(self.times, elapsed)
        return float(self.longer[first - 1]) if first else 1.0

    def draw(self, elapsed: float, chances: Floats, jitter: Floats) -> Floats:
        """Run times above ``elapsed``, one a pair of numbers in [0, 1)."""
        first = bisect_right(self.times, elapsed)
        now = self.longer[first - 1] if first else 1.0
        left = now * (1.0 - chances)
        # the first run time at which no more than ``left`` of all is longer
        at = len(self.times) - np.searchsorted(self.longer[::-1], left, side="right")
        at = np.maximum(at, first)
        seen = at < len(self.times)
        index = np.minimum(at, len(self.times) - 1)
        exponent = np.where(jitter < 0.5, (2 * jitter - 1) * self.below[index], (2 * jitter - 1) * self.above[index])
        drawn = self.times[index] * np.exp(exponent)
        if not seen.all():
            rest = self.longer[-1] if len(self.times) else 1.0
            part = np.clip((left + 1e-12) / max(rest, 1e-12), 1e-3, 1.0)
            drawn = np.where(seen, drawn, max(self.longest, elapsed, 1.0) * part ** (-1.0 / TAIL))
        return drawn


class Lengths:
    """Draws run times for the work of a snapshot.

    Args:
        snapshot: its history, and what runs in it.
        default_s: taken where nothing at all is known and no limit is stated.
    """

    def __init__(self, snapshot: Snapshot, default_s: float) -> None:
        self._default_s = default_s
        self._ended: dict[Key, list[float]] = {}
        self._running: dict[Key, list[float]] = {}
        self._curves: dict[Key, _Curve | None] = {}
        self._narrow = any(each.level == "job" for each in snapshot.run_times)
        for past in snapshot.run_times:
            if past.level == "job":
                self._enter_job(past.key, past.seconds)
            elif not self._narrow:  # written by something that keeps no narrow kinds
                self._ended.setdefault((past.level, *past.key), []).extend(past.seconds)
        for run in snapshot.running:
            elapsed = max(0.0, snapshot.taken_s - run.started_s)
            for key, scale in self._kinds(run.workload):
                self._running.setdefault(key, []).append(elapsed / scale)

    def _enter_job(self, key: Key, seconds: Iterable[float]) -> None:
        user, queue, _, pods, milli, limit_s = key
        owner, size = (user, queue), _size(int(milli), int(pods))
        scale = float(limit_s) if float(limit_s) > 0 else 1.0
        limited = float(limit_s) > 0
        parts = [each / scale for each in seconds]
        self._ended.setdefault(("job", *key), []).extend(seconds)
        self._ended.setdefault(("name", *key[:3], limited), []).extend(parts)
        self._ended.setdefault(("owner", *owner, limited), []).extend(parts)
        self._ended.setdefault(("size", size, limited), []).extend(parts)
        self._ended.setdefault(("all", limited), []).extend(parts)

    def _kinds(self, workload: Workload) -> Iterable[tuple[Key, float]]:
        """The kinds that a workload is of, narrow to wide, with the time by which run times are divided in each."""
        limit_s = workload.time_limit_s or 0.0
        limited, scale = limit_s > 0, limit_s if limit_s > 0 else 1.0
        keys = list(keys_of(workload))
        if not self._narrow:
            yield from (((level, *key), 1.0) for level, key in zip(LEVELS, keys, strict=True))
            return
        yield ("job", *keys[0]), 1.0
        yield ("name", *keys[1], limited), scale
        yield ("owner", *keys[2], limited), scale
        yield ("size", _size(workload.gpu_milli, workload.pods), limited), scale
        yield ("all", limited), scale

    def _curve(self, key: Key) -> _Curve | None:
        if key not in self._curves:
            ended, running = self._ended.get(key, ()), self._running.get(key, ())
            self._curves[key] = _Curve(ended, running) if ended else None
        return self._curves[key]

    def lasts(self, workload: Workload, elapsed: float) -> float:
        """The part of all work like this that runs longer than ``elapsed``; 1 where nothing is known."""
        for key, scale in self._kinds(workload):
            curve = self._curve(key)
            if curve is not None and curve.counts.sum() >= LEAST:
                return curve.part_above(elapsed / scale)
        return 1.0

    def draw(self, workload: Workload, elapsed: float, count: int, rng: np.random.Generator) -> Floats:
        """``count`` run times in seconds, all above ``elapsed`` (work that has just begun: 0), none above its limit.

        Work that has outlived its limit runs on.
        """
        limit_s = surely_s(workload)
        chances, jitter, belief = rng.random((3, count))
        drawn, open_ = np.full(count, np.nan), np.ones(count, np.bool_)
        for key, scale in self._kinds(workload):
            curve = self._curve(key)
            known = 0 if curve is None else curve.known_above(elapsed / scale)
            widest = key[0] == "all"
            if curve is None or not (known or widest):
                continue
            part = 1.0 if widest else known / (known + DOUBT)
            taken = open_ & (belief < part)
            drawn[taken] = curve.draw(elapsed / scale, chances[taken], jitter[taken]) * scale
            open_ &= ~taken
            if not open_.any():
                break
            belief = (belief - part) / (1.0 - part)
        drawn[open_] = max(limit_s if limit_s < math.inf else self._default_s, elapsed)
        drawn = np.maximum(drawn, elapsed)
        return np.minimum(drawn, limit_s) if elapsed < limit_s else drawn


def _size(milli: int, pods: int) -> int:
    """GPU to the next power of two, of CPU work its pods."""
    return milli.bit_length() if milli else -pods.bit_length()
