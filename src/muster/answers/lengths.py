"""How long work will run, as a distribution: drawn from what is known of work like it.

A snapshot holds the last run times of each kind of work (`muster.engine.predict`). As each job ends once, they are a
fair sample of all work of the kind; for work that runs already, those count that are longer than it has run so far.
(What runs now is not put in as "longer than so far": most of what runs is long, and it would outweigh the short work
of which only the last is kept.) Kinds are asked from narrow to wide; each is believed in ``n / (n + DOUBT)`` of the
cases, where ``n`` are the run times of it that are longer than what the work has already run.

Few run times leave much open, and it is open for all work of a kind at once. So the draws are those of several worlds
(one a future that is simulated): in each the run times of a kind have other weights, drawn as in the Bayesian bootstrap
(Rubin, Annals of Statistics 9, 1981). For work that runs already one more weight is for what is longer than all that
was seen.

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

MOST_TIMES = 60
"""Of wide kinds so many run times are kept, evenly spread over all."""

Floats = npt.NDArray[np.float64]


class _Curve:
    """The run times of one kind that were seen, how far what is drawn may lie from each, and their weights.

    ``up_to`` has a row a world: the summed weights up to each run time; the last one, 1, is of what is longer than all.
    """

    def __init__(self, ended: Sequence[float], worlds: int, rng: np.random.Generator) -> None:
        times = np.sort(np.asarray(ended, np.float64))
        if len(times) > MOST_TIMES:
            times = times[np.linspace(0, len(times) - 1, MOST_TIMES).round().astype(np.int64)]
        self.times: Floats = times
        gaps = np.diff(np.log(np.maximum(times, 1e-9)))
        half: Floats = np.minimum(gaps / 2, SPREAD)
        sides = half if len(half) else np.zeros(1)
        self.below: Floats = np.concatenate([sides[:1], half])
        self.above: Floats = np.concatenate([half, sides[-1:]])
        weights = rng.standard_exponential((worlds, len(times) + 1))
        self.up_to: Floats = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)

    def known_above(self, elapsed: float) -> int:
        """How many run times above ``elapsed`` were seen."""
        return len(self.times) - bisect_right(self.times, elapsed)

    def draw(self, elapsed: float, chances: Floats, jitter: Floats) -> Floats:
        """Run times above ``elapsed``; all arrays are copies x worlds, the given ones in [0, 1)."""
        first, count = bisect_right(self.times, elapsed), len(self.times)
        passed = self.up_to[:, first - 1] if first else np.zeros(len(self.up_to))
        # new work is as what was seen: one time beyond it would weigh more than all the others
        last = self.up_to[:, -1] if elapsed > 0 else self.up_to[:, -2]
        sought = passed + chances * (last - passed)
        at = np.maximum(first, (self.up_to[None, :, :-1] <= sought[:, :, None]).sum(axis=2))
        index = np.minimum(at, count - 1)
        exponent = np.where(jitter < 0.5, self.below[index], self.above[index]) * (2.0 * jitter - 1.0)
        beyond = max(elapsed, float(self.times[-1]), 1e-3) * np.maximum(1.0 - jitter, 0.1) ** (-1.0 / TAIL)
        near, seen = self.times[index] * np.exp(exponent), self.times[index]
        return np.where(at < count, np.where(near > elapsed, near, seen), beyond)


class Lengths:
    """Draws run times for the work of a snapshot.

    Args:
        snapshot: its history.
        default_s: taken where nothing at all is known and no limit is stated.
        worlds: in how many.
        rng: what is drawn comes from it.
    """

    def __init__(self, snapshot: Snapshot, default_s: float, worlds: int, rng: np.random.Generator) -> None:
        self._default_s = default_s
        self.worlds = worlds
        self._rng = rng
        self._ended: dict[Key, list[float]] = {}
        self._curves: dict[Key, _Curve | None] = {}
        self._narrow = any(each.level == "job" for each in snapshot.run_times)
        for past in snapshot.run_times:
            if past.level == "job":
                self._enter_job(past.key, past.seconds)
            elif not self._narrow:  # written by something that keeps no narrow kinds
                self._ended.setdefault((past.level, *past.key), []).extend(past.seconds)

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
            ended = self._ended.get(key)
            self._curves[key] = _Curve(ended, self.worlds, self._rng) if ended else None
        return self._curves[key]

    def mean_s(self, workload: Workload) -> float:
        """How long work like this runs on average; NaN where nothing is known."""
        for key, scale in self._kinds(workload):
            curve = self._curve(key)
            if curve is not None and (len(curve.times) >= LEAST or key[0] == "all"):
                return float(curve.times.mean()) * scale
        return math.nan

    def draw(self, workload: Workload, elapsed: float, copies: int = 1) -> Floats:
        """Run times in seconds: ``copies`` x worlds, all above ``elapsed`` (work that begins: 0), none above its limit.

        Work that has outlived its limit runs on.
        """
        limit_s = surely_s(workload)
        chances, jitter, belief = self._rng.random((3, copies, self.worlds))
        drawn, open_ = np.full(chances.shape, np.nan), np.ones(chances.shape, np.bool_)
        for key, scale in self._kinds(workload):
            curve = self._curve(key)
            known = 0 if curve is None else curve.known_above(elapsed / scale)
            widest = key[0] == "all"
            if curve is None or not (known or widest):
                continue
            part = 1.0 if widest else known / (known + DOUBT)
            taken = open_ & (belief < part)
            drawn = np.where(taken, curve.draw(elapsed / scale, chances, jitter) * scale, drawn)
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
