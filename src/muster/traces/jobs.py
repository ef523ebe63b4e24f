"""Shapes of jobs that are told by one number: GPUs or processors; equal sizes share their objects."""

from __future__ import annotations

from muster.model import PodSet, PodShape


class GangSizes:
    """Turns a job's number of GPUs into pod sets: whole nodes first, then one pod for the rest.

    A job of up to ``gpus_per_pod`` GPUs is one pod. More becomes n // gpus_per_pod pods with all GPUs of a node and,
    if something is left, one pod with the rest, all in one gang.
    """

    def __init__(self, gpus_per_pod: int, cpu_milli_per_gpu: int = 0, memory_bytes_per_gpu: int = 0) -> None:
        self._gpus_per_pod = gpus_per_pod
        self._cpu_milli = cpu_milli_per_gpu
        self._memory_bytes = memory_bytes_per_gpu
        self._known: dict[int, tuple[PodSet, ...]] = {}

    def pod_sets(self, gpu_milli: int) -> tuple[PodSet, ...]:
        """Pod sets for a job of ``gpu_milli`` thousandths of a GPU; below 1000 it is a share of one GPU."""
        if gpu_milli not in self._known:
            self._known[gpu_milli] = self._make(gpu_milli)
        return self._known[gpu_milli]

    def _make(self, gpu_milli: int) -> tuple[PodSet, ...]:
        if gpu_milli < 1000:
            return (PodSet(self._shape(1, gpu_milli)),)
        whole, rest = divmod(gpu_milli // 1000, self._gpus_per_pod)
        sets = [PodSet(self._shape(self._gpus_per_pod), whole)] if whole else []
        if rest:
            sets.append(PodSet(self._shape(rest), role="rest" if whole else "main"))
        return tuple(sets)

    def _shape(self, gpus: int, gpu_milli: int = 1000) -> PodShape:
        share = gpus * gpu_milli
        return PodShape(
            cpu_milli=round(self._cpu_milli * share / 1000),
            memory_bytes=round(self._memory_bytes * share / 1000),
            gpus=gpus,
            gpu_milli=gpu_milli,
        )


class Words:
    """Texts made from numbers, each made once: ``user-12``; empty for numbers below zero (unknown)."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._known: dict[int, str] = {}

    def word(self, number: int) -> str:
        """The text for ``number``."""
        word = self._known.get(number)
        if word is None:
            word = self._known[number] = f"{self._prefix}-{number}" if number >= 0 else ""
        return word
