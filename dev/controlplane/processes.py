"""Start, find and end the processes of a cluster.

No file of process ids is kept: each process carries its cluster's folder and its own name in its environment, so what
runs is what ``/proc`` says runs, after a kill -9, an interrupted start or a reused id as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from controlplane.errors import ClusterError

FOLDER = "MUSTER_DEV_CLUSTER"
NAME = "MUSTER_DEV_CLUSTER_COMPONENT"
PORTS = range(20_000, 30_000)
"""Below the range that outgoing connections take theirs from: a component that is down keeps its port."""


def running(folder: Path) -> dict[str, int]:
    """Process ids by component of a cluster, as of now. Zombies are not among them."""
    wanted = f"{FOLDER}={folder}".encode()
    found: dict[str, int] = {}
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            variables = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in variables:
            names = [v.partition(b"=")[2].decode() for v in variables if v.startswith(NAME.encode() + b"=")]
            found[names[0] if names else "?"] = int(place.name)
    return found


def start(folder: Path, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a component in a session of its own; its output goes to ``NAME.log`` of the folder."""
    # GOMAXPROCS and the like are handed on; nothing of a proxy, which would stand before loopback
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and k != "KUBECONFIG"}
    environment |= {FOLDER: str(folder), NAME: name}
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def stop(folder: Path, name: str, patience_s: float = 10.0, by: int = signal.SIGTERM) -> bool:
    """End one component and wait until it is gone, by SIGKILL if it takes longer; False if it did not run."""
    pid = running(folder).get(name)
    if pid is None:
        return False
    deadline = time.monotonic() + patience_s
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, by)
        os.kill(pid, signal.SIGCONT)
        while _alive(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                deadline += 60
            time.sleep(0.02)
    return True


def send(folder: Path, name: str, number: int) -> None:
    """A signal to one component. Raises `ClusterError` if it does not run."""
    pid = running(folder).get(name)
    if pid is None:
        raise ClusterError(f"{name} does not run in {folder.name}")
    os.kill(pid, number)


def cost(folder: Path, name: str) -> tuple[float, int]:
    """CPU seconds (user and system) and resident bytes of a component. Raises `ClusterError` if it does not run."""
    pid = running(folder).get(name)
    if pid is None:
        raise ClusterError(f"{name} does not run in {folder.name}")
    place = Path("/proc") / str(pid)
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return cpu_s, int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def tail(folder: Path, name: str, lines: int = 6) -> str:
    """The last lines of a component's log, errors first if there are any."""
    log = folder / f"{name}.log"
    found = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return "\n".join(f"  {line[:300]}" for line in found[-lines:]) or "  (it wrote nothing)"


@contextlib.contextmanager
def lock(path: Path) -> Generator[None]:
    """Hold a lock file: among processes and threads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def free_ports(names: Sequence[str], taken: set[int]) -> dict[str, int]:
    """A free loopback port for each name, none of those that other clusters have written down."""
    found: dict[str, int] = {}
    candidates = random.SystemRandom().sample(PORTS, len(PORTS))
    for port in candidates:
        if len(found) == len(names):
            break
        if port not in taken and is_free(port):
            found[names[len(found)]] = port
    if len(found) < len(names):
        raise ClusterError("no free port between 20000 and 30000; end other clusters with `dev/cluster down`")
    return found


def ports_of(states: Sequence[Path]) -> set[int]:
    """The ports that the state files of clusters name."""
    taken: set[int] = set()
    for state in states:
        with contextlib.suppress(OSError, ValueError):
            taken |= set(json.loads(state.read_text()).get("ports", {}).values())
    return taken


def is_free(port: int) -> bool:
    """Whether nobody listens on a loopback port."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def identity(pid: int) -> str:
    """A process by id and start, so that a reused id is another; empty for one that is gone."""
    try:
        fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return f"{pid}@{fields[19]}"


def _alive(pid: int) -> bool:
    """False for a zombie too: it holds no port and no file, and only its parent can take it away."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
