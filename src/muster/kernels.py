"""Compiled kernels: the only place that knows numba.

``kernel`` compiles a function on its first call and keeps the machine code on disk; ``scorer_kernel`` compiles a
policy's score function to a function pointer, so that one placement kernel serves every policy and a new policy
compiles only itself. With ``NUMBA_DISABLE_JIT=1`` the same functions run as plain Python.

The cache folder is named after the text of all kernel files: an edited helper can never meet a stale caller.
"""

from __future__ import annotations

# Numba has no stubs, and numpy's tell arrays from scalars only in part.
# pyright: reportArgumentType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingTypeStubs=false, reportUntypedFunctionDecorator=false
# pyright: reportReturnType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false, reportPrivateImportUsage=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false
import contextlib
import functools
import hashlib
import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_Function = TypeVar("_Function", bound=Callable[..., Any])

_ROOM = Path(__file__).parent
_KERNEL_FILES = ("kernels.py", "policy/*.py", "engine/kernels/*.py", "planning/tables.py")


def cache_folder() -> Path:
    """Where compiled kernels are kept: ``$MUSTER_CACHE_DIR`` or the user's cache folder, by kernel text."""
    digest = hashlib.sha256()
    for pattern in _KERNEL_FILES:
        for path in sorted(_ROOM.glob(pattern)):
            digest.update(path.read_bytes())
    return user_cache() / "kernels" / digest.hexdigest()[:16]


def user_cache() -> Path:
    """The folder for what may be thrown away: ``$MUSTER_CACHE_DIR``, else ``$XDG_CACHE_HOME/muster``."""
    chosen = os.environ.get("MUSTER_CACHE_DIR")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111, PTH118
    return Path(home) / "muster"


def _prepare_cache() -> None:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        import atexit
        import shutil
        import tempfile

        folder = Path(tempfile.mkdtemp(prefix="muster-kernels-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = str(folder)


_prepare_cache()

import numba  # noqa: E402
from numba import types  # noqa: E402
from numba.core import caching  # noqa: E402

importlib.import_module("numba.experimental.function_type")  # else numba does not know function pointers yet


def _damaged_is_absent(load: Callable[..., Any]) -> Callable[..., Any]:
    """Numba compiles again where a kept file is not there, but gives up where one was cut short. Here both are one."""

    @functools.wraps(load)
    def call(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except FileNotFoundError:
            raise
        except Exception:  # unpickling rubbish raises whatever it likes
            if load.__name__ == "_load_index":
                return {}
            raise FileNotFoundError from None

    return call


for _loader in ("_load_index", "_load_data"):
    if hasattr(caching.IndexDataCacheFile, _loader):
        setattr(caching.IndexDataCacheFile, _loader, _damaged_is_absent(getattr(caching.IndexDataCacheFile, _loader)))


def _kept(cache: Any, signature: Any, context: Any) -> Any:
    """What is on disk of a kernel, or None.

    Numba first imports all that it could compile with, and SciPy to look whether it is there: a third of a second. To
    load machine code takes none of that. Whatever goes wrong here, the normal way follows.
    """
    try:
        with cache._guard_against_spurious_io_errors():
            return cache._load_overload(signature, context)
    except Exception:
        return None


def _told_once(load: Callable[..., Any]) -> Callable[..., Any]:
    """The first kernel of this process that is not found on disk, and so is compiled, is told on a terminal."""
    told = False

    @functools.wraps(load)
    def call(*arguments: Any) -> Any:
        nonlocal told
        found = _kept(*arguments)
        if found is None:
            found = load(*arguments)
        if found is None and not told:
            told = True
            if multiprocessing.parent_process() is None and sys.stderr.isatty():
                with contextlib.suppress(OSError):
                    sys.stderr.write("muster: compiling kernels, once (10 to 60 seconds)\n")
                    sys.stderr.flush()
        return found

    return call


caching.Cache.load_overload = _told_once(caching.Cache.load_overload)


FREE_CPU, FREE_MEMORY, FREE_PODS, ALL_CPU, ALL_MEMORY, ALL_PODS, ALL_GPUS, KIND, SHARED, VERSION = range(10)
"""Columns of `NodeArrays.table`."""

ON_NODE = 3
"""What is free, needed or kept on a node is a row: CPU, memory and pods (as the columns above), then each device."""

USE, OFFER = range(2)
"""Parts of `NodeArrays.gpu_ways`."""

CHANGES, KEPT, RING = range(3)
"""In `NodeArrays.changes`: how many changes there were, the sum of ``SHARED``, and where the ring begins."""

CPU, MEMORY, GPUS, GPU_MILLI, CONSTRAINT, OWNER, FIRST, COUNT, PLACE, SLICES = range(10)
"""Columns of `ShapeArrays.table`."""


class NodeArrays(NamedTuple):
    """The state of N nodes with at most G GPUs each, in tie order: the first of equal nodes wins. All int64.

    ``table`` is N x 10: what is left on the node and what it has in all, without limit very much; ``KIND`` is its
    hardware kind, ``VERSION`` rises with each change, ``SHARED`` is how many of its GPUs are kept from others by those
    who share them. ``gpu_free`` is N x G, 0 beyond ``ALL_GPUS`` and on unhealthy devices; ``gpu_classes`` N x (G + 2),
    the pods by GPU class (`gpu_class`); ``changes`` two numbers and a ring of the nodes changed last.

    ``gpu_ways`` is 2 x N x G. ``USE`` says who shares a GPU: owner << 32 | used MIG slices << 16 | number of pods; 0 is
    nobody, and pods that take it whole are not counted. ``OFFER`` (fixed) is what MIG instances a GPU offers: number of
    its table << 40 | a bit a placement.

    There are few arrays because compiled code takes an argument for each number that describes one; by the names of
    columns Python sees them one by one.
    """

    table: Ints
    gpu_free: Ints
    gpu_ways: Ints
    gpu_classes: Ints
    changes: Ints

    cpu_free = property(lambda self: self.table[:, FREE_CPU])
    memory_free = property(lambda self: self.table[:, FREE_MEMORY])
    pods_free = property(lambda self: self.table[:, FREE_PODS])
    cpu_total = property(lambda self: self.table[:, ALL_CPU])
    memory_total = property(lambda self: self.table[:, ALL_MEMORY])
    gpus = property(lambda self: self.table[:, ALL_GPUS])
    kind = property(lambda self: self.table[:, KIND])
    shared = property(lambda self: self.table[:, SHARED])
    version = property(lambda self: self.table[:, VERSION])
    gpu_use = property(lambda self: self.gpu_ways[USE])
    gpu_mig = property(lambda self: self.gpu_ways[OFFER])

    @property
    def pods(self) -> Ints:
        """The pods on each node."""
        return self.table[:, ALL_PODS] - self.table[:, FREE_PODS]

    @property
    def change_count(self) -> int:
        """How many changes there were."""
        return int(self.changes[CHANGES])


class ShapeArrays(NamedTuple):
    """What S pod shapes ask for; all int64. ``static_refusals`` is C x N: refusals that no change of state lifts.

    ``table`` is S x 10: what a pod asks for, the row of its constraint in ``static_refusals``, and how it shares GPUs:
    the owner of its share; first and number of the rows that are its MIG instances, one a start; and of such a row its
    placement (as in ``OFFER``) and its slices. ``layouts`` has a row a MIG table: of each placement
    log2(memory slices) << 16 | slices; 0 is none.
    """

    table: Ints
    static_refusals: Ints
    layouts: Ints

    cpu = property(lambda self: self.table[:, CPU])
    memory = property(lambda self: self.table[:, MEMORY])
    gpus = property(lambda self: self.table[:, GPUS])
    gpu_milli = property(lambda self: self.table[:, GPU_MILLI])
    constraint = property(lambda self: self.table[:, CONSTRAINT])


class Knowledge(NamedTuple):
    """All that a policy knows beyond the node and the pod; fixed before the run. Unused parts are empty.

    ``weights`` are numbers of the policy's own; ``curve`` is 1001 values over the free milli of one GPU; ``by_kind``
    is one row a hardware kind; ``typical`` are shape ids and ``typical_share`` their shares, summing to 1.
    """

    weights: Floats
    curve: Floats
    by_kind: Floats
    typical: Ints
    typical_share: Floats


_i1, _i2, _i3 = types.int64[::1], types.int64[:, ::1], types.int64[:, :, ::1]
_f1, _f2 = types.float64[::1], types.float64[:, ::1]
NODES_TYPE = types.NamedTuple([_i2, _i2, _i3, _i2, _i1], NodeArrays)
SHAPES_TYPE = types.NamedUniTuple(_i2, 3, ShapeArrays)
KNOWLEDGE_TYPE = types.NamedTuple([_f1, _f1, _f2, _i1, _f1], Knowledge)
_f1_row, _i1_row = types.float64[::1], types.int8[::1]
SCORES_SIGNATURE = types.void(types.int64, _i1, types.int64, NODES_TYPE, SHAPES_TYPE, KNOWLEDGE_TYPE, _f1_row, _i1_row)

Score = Callable[[int, int, NodeArrays, ShapeArrays, Knowledge], tuple[float, int]]
"""``score(node, shape, nodes, shapes, knowledge)``: what a policy defines. The node is known to fit; larger is better.

Gives the score and the device for a pod that takes a fraction of one GPU (of no meaning for others). It may look at
this node and this shape only: scores are kept until the node changes.
"""

Scores = Callable[[int, Ints, int, NodeArrays, ShapeArrays, Knowledge, Floats, npt.NDArray[np.int8]], None]
"""A policy's score of many nodes in one call: ``scores(shape, due, count, nodes, shapes, knowledge, row, devices)``.

The scores of the first ``count`` nodes of ``due`` go to ``row``, their devices to ``devices``.
"""


def kernel(function: _Function, **options: Any) -> _Function:
    """Compile a function that other kernels call, on its first call, and keep the machine code on disk.

    Kernels allocate nothing: without numba's reference counts (``_nrt``) a call costs a tenth. Without the wrapper by
    which Python calls it, one compiles in half the time; `entry_kernel` has it.
    """
    return entry_kernel(function, no_cpython_wrapper=True, **options)


def entry_kernel(function: _Function, **options: Any) -> _Function:
    """A `kernel` that Python may call too."""
    compiled = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False, no_cfunc_wrapper=True, **options)
    return compiled(function)


def direct(function: _Function) -> _Function:
    """An `entry_kernel` that is called from Python many times with arguments of the same types.

    Numba looks at the type of every argument on each call, which for a `NamedTuple` with many arrays takes up to a
    millisecond. Here only the first call does; the later ones go straight to the machine code, whose types it fixed.
    All arrays must then be contiguous and writable, as everywhere in the kernels.
    """
    entry: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal entry
        if entry is not None:
            return entry(*arguments)
        result = function(*arguments)
        compiled = list(getattr(function, "overloads", {}).values())
        if len(compiled) == 1:
            entry = compiled[0].entry_point
        return result

    return call


def part(function: _Function) -> _Function:
    """A `kernel` that becomes part of each kernel that calls it before that is compiled, and has no code of its own.

    Good for what is called in few places: the code of a kernel is compiled again with each of its callers.
    """
    return kernel(function, inline="always")


def vector_kernel(function: _Function) -> _Function:
    """A `kernel` whose sums and maxima may be taken in any order (finite or infinite numbers, no NaN)."""
    return kernel(function, fastmath={"nnan", "nsz", "reassoc"})


score_one: Score
"""Stands for the policy's own function in `_score_due`; `scorer_kernel` binds it."""


def _score_due(
    shape: int, due: Ints, count: int, nodes: NodeArrays, shapes: ShapeArrays, knowledge: Knowledge, row: Floats,
    devices: npt.NDArray[np.int8],
) -> None:  # fmt: skip
    for index in range(count):
        node = due[index]
        row[node], devices[node] = score_one(node, shape, nodes, shapes, knowledge)  # noqa: F821


def scorer_kernel(function: Score) -> Scores:
    """Compile a policy's score function, in a loop over nodes, to a function pointer of `SCORES_SIGNATURE`.

    A call by pointer copies some hundred arguments, so there is one for many nodes. The loop is given the policy's
    file and line, by which numba names what it keeps on disk.
    """
    own = function.__code__
    code = _score_due.__code__.replace(
        co_filename=own.co_filename, co_firstlineno=own.co_firstlineno, co_name=own.co_name, co_qualname=own.co_qualname
    )
    scope = {"__name__": function.__module__, "__builtins__": __builtins__, "score_one": kernel(function)}
    loop = FunctionType(code, scope, function.__name__)
    loop.__doc__ = function.__doc__
    if numba.config.DISABLE_JIT:
        return loop
    return numba.cfunc(SCORES_SIGNATURE, cache=True, nopython=True, error_model="numpy", _nrt=False)(loop)
