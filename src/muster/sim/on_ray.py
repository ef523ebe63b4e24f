"""Runs of a sweep on a Ray cluster that is there already (extra ``sweep``); nothing else imports Ray.

Muster's own code, what was read and what was fitted go with the runs: the nodes of the cluster need neither this
version of Muster nor the files, only the libraries that Muster needs. Ray runs a task again, three times at most, whose
worker was lost; runs are deterministic, so that changes nothing.
"""

from __future__ import annotations

# Ray is an extra, and its types tell little of what it returns.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false
import contextlib
import logging
import os
import socket
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import muster
from muster.errors import BackendError, InputError, MusterError, StateError
from muster.model.fleet import Fleet
from muster.model.workload import ShapeMix
from muster.policy.registry import find_policy
from muster.sim.inputs import fleet_of, give_inputs, workload_of
from muster.traces import Trace

if TYPE_CHECKING:
    from muster.planning.tune import Tuning

RETRIES = 3
"""How often a run is tried again whose worker was lost."""
CONNECT_S = 5.0
"""How long the cluster's address may take to answer."""


class InputsNamed(Protocol):
    """A task that names its inputs by specs, and its policy."""

    @property
    def fleet(self) -> str:
        """The fleet's spec."""
        ...

    @property
    def workload(self) -> str:
        """The workload's spec."""
        ...

    @property
    def policy(self) -> str:
        """The policy's name."""
        ...


_Task = TypeVar("_Task", bound=InputsNamed)
_Result = TypeVar("_Result")
_Inputs = tuple[str, Fleet, str, Trace, "Tuning | None"]


@contextmanager
def running_on_ray(function: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> Generator[list[Future[_Result]]]:
    """Start ``function`` on all tasks, one CPU each; the futures are in the order of ``tasks``.

    The cluster is that of ``RAY_ADDRESS``, else the one that this machine belongs to. When the block ends, however it
    ends, what still runs is given up.

    Raises:
        InputError: the extra is not installed.
        BackendError: there is no cluster, it cannot run Muster, or workers were lost again and again.
    """
    ray = _connected()
    try:
        start = ray.remote(num_cpus=1, max_retries=RETRIES)(_perform)
        inputs = {key: ray.put(_inputs_of(key)) for key in dict.fromkeys(map(_key_of, tasks))}
        # a reference within a list stays one: each worker fetches its inputs once and not with each task
        refs = [start.remote(function, task, [inputs[_key_of(task)]]) for task in tasks]
        yield [ref.future() for ref in refs]
    except Exception as error:
        told = _told(ray, error)
        if told is None:
            raise
        raise told from None
    finally:
        ray.shutdown()


def _key_of(task: InputsNamed) -> tuple[str, str, bool]:
    return task.fleet, task.workload, find_policy(task.policy).needs_tuning


def _inputs_of(key: tuple[str, str, bool]) -> _Inputs:
    fleet_spec, workload_spec, fitted = key
    fleet, trace = fleet_of(fleet_spec), workload_of(workload_spec, fleet_spec)
    tuning = None
    if fitted:
        from muster.planning.tune import tuned

        tuning = tuned(fleet, ShapeMix.of(trace.workloads))
    return fleet_spec, fleet, workload_spec, trace, tuning


_taken: list[Any] = []
"""In a worker: the reference of the inputs that it has."""


def _perform(function: Callable[[_Task], _Result], task: _Task, inputs: list[Any]) -> _Result:
    """In a worker: one run, on the inputs that were sent."""
    import ray

    if _taken != inputs:
        fleet_spec, fleet, workload_spec, trace, tuning = ray.get(inputs[0])
        give_inputs(fleet_spec, fleet, workload_spec, trace)
        if tuning is not None:
            from muster.planning.tune import give_tuning

            give_tuning(fleet, ShapeMix.of(trace.workloads), tuning)
        _taken[:] = inputs
    return function(task)


def _connected() -> Any:
    """The module ``ray``, connected; raises `InputError` or `BackendError`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
    except ImportError:
        hint = "pip install '.[sweep]'; it must be the Ray version of the cluster"
        raise InputError("ray needs Ray, which is not installed", field="--on", hint=hint) from None
    if ray.is_initialized():
        raise StateError("this process is connected to a Ray cluster already; call ray.shutdown() before")
    address = os.environ.get("RAY_ADDRESS") or "auto"
    hint = "start one with `ray start --head`, or set RAY_ADDRESS=HOST:PORT"
    _check_address(address, hint)
    package = str(Path(muster.__file__).parent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(
                address=address,
                runtime_env={"py_modules": [package]},
                log_to_driver=False,
                configure_logging=False,
                logging_level=logging.ERROR,
            )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        ray.shutdown()
        shown = "" if address == "auto" else f" at {address}"
        raise BackendError(f"no Ray cluster can be used{shown}: {_one_line(error)}; {hint}") from None
    if not ray.cluster_resources().get("CPU"):
        ray.shutdown()
        raise BackendError("the Ray cluster has no CPUs to run on; add nodes with `ray start --address=HOST:PORT`")
    return ray


def _check_address(address: str, hint: str) -> None:
    """Raise `BackendError` at once where nobody listens; Ray itself would try for a minute."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        with contextlib.closing(socket.create_connection((host.strip("[]"), int(port)), CONNECT_S)):
            pass
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise BackendError(f"no Ray cluster answers at {address} ({why}); {hint}") from None


def _told(ray: Any, error: Exception) -> MusterError | None:
    """An error of Ray in the user's words; None where it is none of Ray's."""
    resume = "finished runs of a sweep are kept for --resume"
    if isinstance(error, ray.exceptions.RayTaskError):
        cause = error.cause  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(cause, MusterError):
            return cause
        if isinstance(cause, ImportError):
            hint = "install muster-gpu, or what it needs, on all nodes"
            return BackendError(f"a node of the Ray cluster cannot run Muster ({_one_line(cause)}); {hint}")
        return None
    if isinstance(error, ray.exceptions.RuntimeEnvSetupError):
        return BackendError(f"a node of the Ray cluster cannot take Muster's code ({_one_line(error)}); {resume}")
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return BackendError(f"a node of the Ray cluster has too little memory for a run; {resume}")
    if isinstance(error, ray.exceptions.RayError):
        lost = f"a run was lost with its worker, and again {RETRIES} times ({type(error).__name__})"
        return BackendError(f"{lost}; {resume}")
    return None


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:197]}..."
