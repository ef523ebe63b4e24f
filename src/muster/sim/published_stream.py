"""The arrival order and the node order of the FGD paper's published runs, draw for draw.

Those runs (seeds 42 to 51) took their randomness from Go's ``math/rand``. `GoRandom` follows that generator, and
`published_arrivals` draws from it in the order in which the published simulator did.

Sources:

- Generator: the additive lagged Fibonacci generator of Mitchell and Reeds, as in ``src/math/rand/rng.go`` and
  ``rand.go`` of the Go distribution. The values mixed into each seed are its state after 7.8e12 steps
  (``gen_cooked.go``); they are computed here, not listed.
- Order of the draws: ``pkg/simulator/core.go`` and ``simulator.go`` of hkust-adsl/kubernetes-scheduler-simulator.
  That ten further draws precede the node order was found by trying: it is the number with which every published
  run of the five deterministic policies comes out.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import MutableSequence, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from muster.kernels import Ints, user_cache

_LONG, _SHORT = 607, 273
_WARM_UP = 7_800_000_000_000
_PRIME = (1 << 31) - 1
_SEED_FOR_ZERO = 89482311
_SEED_SKIP = 20
_MASK_63, _MASK_64 = (1 << 63) - 1, (1 << 64) - 1
_START_SHA256 = "1928503b93a563e491119a5889baba73d1605b90b63634c14a408805797a7c7b"
_DRAWS_BEFORE_NODES = 10

_Words = npt.NDArray[np.uint64]


class GoRandom:
    """The random numbers of ``rand.New(rand.NewSource(seed))`` in Go."""

    def __init__(self, seed: int) -> None:
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Start afresh; ``seed`` is an integer of 64 bits, taken modulo 2**31 - 1."""
        mixed = _seed_words(int(np.fmod(np.int64(seed), _PRIME)), 40, 20) ^ np.frombuffer(_start_words(), "<u8")
        self._state: list[int] = mixed.tolist()
        self._tap, self._feed = 0, _LONG - _SHORT

    def int63(self) -> int:
        """A number of 63 bits."""
        state = self._state
        self._tap = tap = (self._tap or _LONG) - 1
        self._feed = feed = (self._feed or _LONG) - 1
        state[feed] = word = (state[feed] + state[tap]) & _MASK_64
        return word & _MASK_63

    def int31n(self, bound: int) -> int:
        """A number below ``bound`` (at most 2**31 - 1) by multiplication: the way that Go shuffles."""
        _check_bound(bound, _PRIME)
        product = (self.int63() >> 31) * bound
        if product & 0xFFFFFFFF < bound:
            refused = (1 << 32) % bound
            while product & 0xFFFFFFFF < refused:
                product = (self.int63() >> 31) * bound
        return product >> 32

    def intn(self, bound: int) -> int:
        """A number below ``bound`` by remainder: Go's ``Intn``."""
        _check_bound(bound, _MASK_63)
        bits = 31 if bound <= _PRIME else 63
        value = self.int63() >> (63 - bits)
        if bound & (bound - 1) == 0:
            return value & (bound - 1)
        accepted = (1 << bits) - (1 << bits) % bound
        while value >= accepted:
            value = self.int63() >> (63 - bits)
        return value % bound

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Shuffle ``items`` in place."""
        for last in range(len(items) - 1, 0, -1):
            other = self.int31n(last + 1)
            items[last], items[other] = items[other], items[last]

    def perm(self, count: int) -> list[int]:
        """The numbers 0 to ``count`` - 1 in random order."""
        order = [0] * count
        for index in range(count):
            other = self.intn(index + 1)
            order[index] = order[other]
            order[other] = index
        return order


def published_arrivals(
    per_gpu_milli: Sequence[int], total_milli: Sequence[int], nodes: int, target_milli: float, seed: int
) -> tuple[Ints, Ints]:
    """The order in which pods arrive and the order in which nodes win ties, for one published seed.

    The two sequences describe the pods in order of name: what a pod asks of one GPU and of all its GPUs. The trace
    is shuffled. If it asks for less than ``target_milli``, pods drawn with replacement follow it, until one drawn
    would pass the target by its demand on one GPU; if for more, pods are removed at random until it does not.

    Returns indices into the pods by name, and into the nodes by name: the i-th is the node that is i-th in tie order.
    """
    per_gpu, total = [int(milli) for milli in per_gpu_milli], [int(milli) for milli in total_milli]
    if len(per_gpu) != len(total):
        raise ValueError(f"{len(per_gpu)} demands on one GPU but {len(total)} total demands: give one of each a pod")
    random = GoRandom(seed)
    random.int63()
    order = list(range(len(total)))
    random.shuffle(order)
    demand = sum(total)
    if demand > target_milli:
        while order and demand > target_milli:
            demand -= total[order.pop(random.intn(len(order)))]
    elif total:
        if not any(one > 0 and every > 0 for one, every in zip(per_gpu, total, strict=True)):
            raise ValueError("no pod asks for a GPU, so no number of them reaches the target")
        while True:
            drawn = random.intn(len(total))
            if demand + per_gpu[drawn] > target_milli:
                break
            demand += total[drawn]
            order.append(drawn)
    for _ in range(_DRAWS_BEFORE_NODES):
        random.int63()
    rank = np.array(random.perm(nodes), dtype=np.int64)
    return np.array(order, dtype=np.int64), np.argsort(rank).astype(np.int64)


def _check_bound(bound: int, most: int) -> None:
    if not 0 < bound <= most:
        raise ValueError(f"the bound must be from 1 to {most}, not {bound}")


def _seed_words(seed: int, first_shift: int, second_shift: int) -> _Words:
    """607 words of three Lehmer numbers (48271 modulo 2**31 - 1) each."""
    value = seed % _PRIME or _SEED_FOR_ZERO
    value = value * pow(48271, _SEED_SKIP, _PRIME) % _PRIME
    words: list[int] = []
    for _ in range(_LONG):
        high = value * 48271 % _PRIME
        middle = high * 48271 % _PRIME
        value = middle * 48271 % _PRIME
        words.append((high << first_shift ^ middle << second_shift ^ value) & _MASK_64)
    return np.array(words, dtype=np.uint64)


@functools.cache
def _start_words() -> bytes:
    """The words mixed into each seed, little-endian: from the cache folder, else computed and put there."""
    path = user_cache() / "go-rand-607.bin"
    with contextlib.suppress(OSError):
        kept = path.read_bytes()
        if hashlib.sha256(kept).hexdigest() == _START_SHA256:
            return kept
    words = _compute_start_words().astype("<u8").tobytes()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(words)
            Path(draft).replace(path)
        except OSError:
            Path(draft).unlink(missing_ok=True)
    return words


def _compute_start_words() -> _Words:
    """The generator's state 7.8e12 steps after seed 1, by jumping ahead.

    A draw is y[n] = y[n - 607] + y[n - 273] modulo 2**64, so y[n + k] is the sum of c[j] y[j + k], where c are the
    coefficients of x**n modulo x**607 - x**334 - 1. Draw n lies in slot (333 - n) modulo 607.
    """
    power = np.zeros(_LONG, dtype=np.uint64)
    power[0] = 1
    for bit in bin(_WARM_UP)[2:]:
        power = _reduce(np.convolve(power, power))
        if bit == "1":
            power = _reduce(np.concatenate((np.zeros(1, dtype=np.uint64), power)))
    slots = (_LONG - _SHORT - 1 - np.arange(_LONG)) % _LONG
    draws: list[int] = _seed_words(1, 20, 10)[slots].tolist()
    for n in range(_LONG, 2 * _LONG):
        draws.append((draws[n - _LONG] + draws[n - _SHORT]) & _MASK_64)
    jumped = np.correlate(np.array(draws[:-1], dtype=np.uint64), power, mode="valid")
    state = np.empty(_LONG, dtype=np.uint64)
    state[(slots - _WARM_UP) % _LONG] = jumped
    return state


def _reduce(product: _Words) -> _Words:
    """``product`` modulo x**607 - x**334 - 1, from the top in blocks that do not feed themselves."""
    top = len(product)
    while top > _LONG:
        low = max(_LONG, top - _SHORT)
        block = product[low:top].copy()
        product[low - _LONG : top - _LONG] += block
        product[low - _SHORT : top - _SHORT] += block
        top = low
    return product[:_LONG]
