"""Why free GPU is of no use: the words for `muster.policy.fragmentation.CAUSES`, the same in tables and pictures."""

from __future__ import annotations

from msgspec import Struct


class Cause(Struct, frozen=True):
    """A cause in words.

    Attributes:
        name: in tables and pictures.
        meaning: what free GPU counts here.
        remedy: what to do about it where pods run; empty: nothing can be done.
        remedy_empty: what to do about it on a fleet on which nothing runs.
    """

    name: str
    meaning: str
    remedy: str = ""
    remedy_empty: str = ""


_FEWER_CPU = "lower the CPU that pods ask for a GPU"
_LESS_MEMORY = "lower the memory that pods ask for a GPU"
_OPEN = "let the pods accept more GPU models, or lift the taint; `muster fleet show` tells where the GPUs are"
_FRACTIONS = "choose fractions that add up to a whole GPU"

PIECE_WORDS = {
    "whole_nodes": Cause("whole nodes", "of use to any pod"),
    "whole_gpus": Cause("whole GPUs", "on nodes in use: of no use to a pod that needs a node"),
    "shares": Cause("rests of shared GPUs", "for pods that may share them; never a whole GPU"),
    "slices": Cause("MIG slices", "beside others, where an instance may still stand"),
    "no_start": Cause("MIG slices without a start", "no instance can take them before another ends"),
}
"""In words, where free GPU lies: `muster.engine.pieces.PIECES`."""

CAUSE_WORDS = {
    "no_gpu_asked": Cause("no GPU asked", "typical pods that ask for no GPU cannot use one"),
    "wrong_model": Cause("closed nodes", "on nodes that a model, selector or taint closes to the pod", _OPEN, _OPEN),
    "lack_of_gpu": Cause(
        "lack of GPU",
        "on nodes with less free GPU than the pod asks for",
        "ask for fewer GPUs a pod, or drain a partly used node so that whole ones come free",
        "ask for fewer GPUs a pod, or take nodes with more",
    ),
    "wrong_shape": Cause(
        "wrong shape",
        "enough in all, but split over devices",
        "pack fractions onto fewer devices: move the smallest pods together, and place with the default policy",
        _FRACTIONS,
    ),
    "lack_of_cpu": Cause(
        "lack of CPU",
        "the GPU is free and the CPU is taken",
        f"move CPU pods off GPU nodes, or {_FEWER_CPU}",
        f"{_FEWER_CPU}, or take nodes with more of it",
    ),
    "lack_of_memory": Cause(
        "lack of memory",
        "the GPU is free and the memory is taken",
        f"move pods with large memory off GPU nodes, or {_LESS_MEMORY}",
        f"{_LESS_MEMORY}, or take nodes with more of it",
    ),
    "leftover": Cause("leftover", "the pod fits beside it, on another device", _FRACTIONS, _FRACTIONS),
}
