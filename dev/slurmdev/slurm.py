"""One Slurm: started, asked, hurt on purpose, and ended."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from controlplane.processes import FOLDER, NAME, PORTS, cost, identity, is_free, lock, ports_of, start, tail
from slurmdev import packages
from slurmdev.errors import SlurmError
from slurmdev.settings import DATABASE_PASSWORD, USERS, Place, Settings, write

STARTS_WITHIN_S = 90.0
_REST_USER = "daemon"
_PATH_LIMIT = 60
"""A socket's path may have 107 characters, and two of ours end it."""


def slurms_folder() -> Path:
    """Where they keep their state: ``$MUSTER_CLUSTERS_DIR/slurm``, else a folder of the user's that others can enter.

    Others must: a command of another user reads slurm.conf and asks munge through a socket.
    """
    if given := os.environ.get("MUSTER_CLUSTERS_DIR"):
        return Path(given).resolve() / "slurm"
    return Path(f"/var/tmp/muster-dev-{os.geteuid()}") / "slurm"


@dataclass(slots=True)
class Slurm:
    """A Slurm by name. Its state is its folder; any process may open it by name."""

    name: str
    settings: Settings = field(default_factory=Settings)
    say: Callable[[str], None] = lambda _: None
    folder: Path = field(init=False)
    _complaint: str = field(init=False, default="")
    _children: list[tuple[str, subprocess.Popen[bytes]]] = field(
        init=False, default_factory=list[tuple[str, "subprocess.Popen[bytes]"]]
    )

    def __post_init__(self) -> None:
        if not self.name.replace("-", "").replace("_", "").isalnum() or self.name != self.name.lower():
            raise SlurmError(f"'{self.name}' is no name for a Slurm; use small letters, digits and -")
        self.folder = slurms_folder() / self.name
        if len(str(self.folder)) > _PATH_LIMIT:
            raise SlurmError(f"{self.folder} is too long for sockets in it; set MUSTER_CLUSTERS_DIR to a shorter path")

    # ---- start ----

    @classmethod
    def open(cls, name: str) -> Slurm:
        """A Slurm that was started before. Raises `SlurmError`, with the names that there are, if it was not."""
        found = cls(name)
        if not found.state_file.exists():
            there = ", ".join(names()) or "none"
            raise SlurmError(f"there is no Slurm '{name}' (there are: {there}); start it with `dev/slurm up`")
        found.settings = msgspec.convert(found.state()["settings"], Settings)
        return found

    def up(self, tied: bool = False) -> Slurm:
        """Start everything and wait until every node is idle.

        ``tied``: it belongs to this process; `sweep` ends it when the process is gone. Whatever goes wrong, an
        interrupt too, ends what was started. Raises `SlurmError`, with the end of the log, if a program ends.
        """
        if self.processes():
            raise SlurmError(
                f"Slurm '{self.name}' runs already; `dev/slurm down --name {self.name}` ends it, "
                "--name OTHER starts another"
            )
        if self.settings.rest and os.geteuid() != 0:
            raise SlurmError("slurmrestd runs as another user than slurmctld: --rest needs root")
        if lacking := packages.missing(self.settings.accounting):
            raise SlurmError(f"not installed: {', '.join(lacking)}; `dev/slurm install` installs them (as root, apt)")
        slurms_folder().mkdir(parents=True, exist_ok=True)
        with lock(slurms_folder() / f".{self.name}.lock"):
            try:
                self._prepare(tied)
                for name in self.wanted():
                    self.start(name)
                    self._until_up(name)
                self._until_idle()
            except BaseException:
                self._end_all()
                raise
        return self

    def wanted(self) -> list[str]:
        """What should run, in the order of the start."""
        accounting = ["mariadbd", "slurmdbd"] if self.settings.accounting else []
        nodes = [] if self.settings.cloud else self.settings.node_names()
        return ["munged", *accounting, "slurmctld", *nodes, *(["slurmrestd"] if self.settings.rest else [])]

    def _prepare(self, tied: bool) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o755)
        with lock(slurms_folder() / ".ports.lock"):
            state = {
                "settings": asdict(self.settings),
                "ports": self._ports(),
                "owner": identity(os.getpid()) if tied else "",
                "created": time.time(),
            }
            self.state_file.write_text(json.dumps(state, indent=1))
        write(self.place())
        key = self.folder / "etc" / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        if not self.settings.cloud:
            _devices(self.folder / "dev", self.settings.gpus)
        if self.settings.rest:
            self.rest_socket.parent.mkdir()
            shutil.chown(self.rest_socket.parent, _REST_USER)
        if self.settings.accounting:
            self._make_database()

    def _ports(self) -> dict[str, int]:
        """A free port for each server, and as many free ports in a row as there are slurmd."""
        taken = ports_of([slurms_folder() / n / "slurm.json" for n in names()])
        for name in names():
            with contextlib.suppress(OSError, ValueError, KeyError):
                state = json.loads((slurms_folder() / name / "slurm.json").read_text())
                first = state["ports"]["slurmd"]
                taken |= set(range(first, first + state["settings"]["nodes"]))
        count = 1 if self.settings.cloud else self.settings.nodes
        need = 3 + count
        for _ in range(200):
            first = random.SystemRandom().randrange(PORTS.start, PORTS.stop - need)
            if all(port not in taken and is_free(port) for port in range(first, first + need)):
                return {"slurmctld": first, "slurmdbd": first + 1, "mariadbd": first + 2, "slurmd": first + 3}
        raise SlurmError(
            f"no {need} free ports in a row between {PORTS.start} and {PORTS.stop}; end others: dev/slurm ls"
        )

    def _make_database(self) -> None:
        self.say("making a database")
        command = [
            packages.program("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={self.folder}/mysql",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            *(["--user=root"] if os.geteuid() == 0 else []),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SlurmError(f"mariadb-install-db failed:\n{done.stderr.strip()[-500:]}")

    def start(self, name: str) -> None:
        """Start one program that does not run; does not wait for it."""
        if self.processes().get(name):
            raise SlurmError(f"{name} runs already in Slurm '{self.name}'")
        if not name.startswith("gpu"):
            self.say(f"starting {name}")
        elif name == self.settings.node_names()[0]:
            self.say(f"starting {self.settings.nodes} slurmd")
        self._children.append((name, start(self.folder, name, self._command(name))))

    def _command(self, name: str) -> list[str]:
        run, conf = self.folder / "run", str(self.conf)
        state = self.state()
        if name == "munged":
            return [
                packages.program("munged"),
                *("--foreground", "--force", "--num-threads=2"),
                f"--socket={self.place().munge_socket}",
                f"--key-file={self.folder}/etc/munge.key",
                f"--pid-file={run}/munged.pid",
                f"--log-file={self.folder}/log/munged.log",
                f"--seed-file={run}/munged.seed",
            ]
        if name == "mariadbd":
            return [
                packages.program("mariadbd"),
                *("--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", "--skip-log-bin"),
                *("--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900"),
                "--innodb-flush-log-at-trx-commit=0",
                f"--datadir={self.folder}/mysql",
                f"--socket={run}/mysql",
                f"--port={state['ports']['mariadbd']}",
                f"--pid-file={run}/mariadbd.pid",
                *(["--user=root"] if os.geteuid() == 0 else []),
            ]
        set_conf = ["env", f"SLURM_CONF={conf}"]
        if name == "slurmdbd":
            return [*set_conf, packages.program("slurmdbd"), "-D"]
        if name == "slurmctld":
            return [*set_conf, packages.program("slurmctld"), "-D", "-f", conf]
        if name == "slurmrestd":
            # it refuses root and the user of slurmctld
            user = ["setpriv", f"--reuid={_REST_USER}", "--regid=nogroup", "--clear-groups"]
            return [
                *user,
                *set_conf,
                packages.program("slurmrestd"),
                "-a",
                "rest_auth/local",
                f"unix:{self.rest_socket}",
            ]
        return [*set_conf, packages.program("slurmd"), "-D", "-N", name, "-f", conf]

    # ---- wait ----

    def wait(
        self, what: str, is_so: Callable[[], object], within_s: float = STARTS_WITHIN_S, every_s: float = 0.1
    ) -> None:
        """Ask until it is so. Raises `SlurmError`, with the log's end, when a program ends or the time is over."""
        deadline = time.monotonic() + within_s
        while not is_so():
            for name, child in self._children:
                if child.poll() is not None:
                    raise SlurmError(
                        f"{name} ended (exit {child.returncode}) before {what}; its log ends with:\n{self.tail(name)}"
                    )
            if time.monotonic() > deadline:
                said = self._complaint or f"slurmctld says:\n{self.tail('slurmctld')}"
                raise SlurmError(f"waited {within_s:.0f} s until {what}; {said}")
            time.sleep(every_s)

    def tail(self, name: str, lines: int = 6) -> str:
        """The last lines that a program wrote."""
        log = self.folder / "log" / f"{name}.log"
        if log.exists() and (text := log.read_text(errors="replace").strip()):
            return "\n".join(f"  {line[:300]}" for line in text.splitlines()[-lines:])
        return tail(self.folder, name, lines)

    def _until_up(self, name: str) -> None:
        ready: dict[str, Callable[[], bool]] = {
            "munged": self.place().munge_socket.exists,
            "mariadbd": lambda: self._sql("select 1").returncode == 0,
            "slurmdbd": lambda: self._asked("sacctmgr", "-n", "-i", "list", "cluster"),
            "slurmctld": lambda: self._asked("scontrol", "show", "config"),
            "slurmrestd": self.rest_socket.exists,
        }
        if is_so := ready.get(name):
            self.wait(f"{name} answered", is_so)
        if name == "mariadbd":
            user = "slurm@'127.0.0.1'"
            done = self._sql(f"create user {user} identified by '{DATABASE_PASSWORD}'; grant all on *.* to {user}")
            if done.returncode != 0:
                raise SlurmError(f"the database refused its user: {done.stderr.strip()}")
        if name == "slurmdbd":
            self._fill_accounts()
        if name == "slurmctld" and self.settings.accounting and self.settings.gpus:
            # the database learns what a GPU is when the controller registers
            self.wait("the database knew GPUs", lambda: "gpu" in self.run("sacctmgr", "-n", "-P", "list", "tres"))
            self.run("sacctmgr", "-i", "-Q", "modify", "qos", "small", "set", "MaxTRESPerUser=gres/gpu=16")

    def _fill_accounts(self) -> None:
        """Before the controller starts, so that it knows them from its first second."""
        self.say("adding accounts, users and QOS")
        change = ("sacctmgr", "-i", "-Q")
        self.run(*change, "add", "cluster", self.name)
        for qos in ("high Priority=1000", "spot Priority=0", "small MaxWall=1-00:00:00"):
            self.run(*change, "add", "qos", *qos.split())
        for number, (account, users) in enumerate(USERS.items()):
            self.run(*change, "add", "account", account, f"Fairshare={60 - 20 * number}", "Organization=muster")
            self.run(
                *change, "add", "user", ",".join((*users, "root")), f"Account={account}", "QOS=normal,high,spot,small"
            )

    def _sql(self, statement: str) -> subprocess.CompletedProcess[str]:
        client = [packages.program("mariadb"), "--no-defaults", "-u", "root", "-S", f"{self.folder}/run/mysql"]
        return subprocess.run([*client, "-e", statement], capture_output=True, text=True, check=False)

    def _asked(self, *command: str) -> bool:
        done = self.command(*command, within_s=20)
        self._complaint = "" if done.returncode == 0 else f"{command[0]}: {(done.stderr or done.stdout).strip()}"
        if "fatal:" in self._complaint:  # a wrong configuration does not mend itself
            raise SlurmError(self._complaint)
        return done.returncode == 0

    def _until_idle(self) -> None:
        count = self.settings.nodes
        self.say(f"waiting for {count} nodes to be idle")
        self.wait("every node was idle", lambda: self.idle() >= count, 60 + count / 20, 0.2)

    def idle(self) -> int:
        """How many nodes are idle; powered-off CLOUD nodes count."""
        return sum(1 for line in self.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%t").split() if line[:4] == "idle")

    # ---- ask ----

    def command(
        self, *command: str, user: str = "", within_s: float = 60.0, text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands (as another user if told so); the caller looks at its exit code."""
        prefix = ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups"] if user else []
        # the user's current folder is the job's: one that every user may enter
        return subprocess.run(
            [*prefix, *command],
            env=self.environment(),
            cwd=self.folder,
            input=text,
            stdin=None if text is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=within_s,
        )

    def run(self, *command: str, user: str = "", text: str | None = None) -> str:
        """As `command`; returns what it printed. Raises `SlurmError` with what it complained of."""
        done = self.command(*command, user=user, text=text)
        if done.returncode != 0:
            raise SlurmError(
                f"`{' '.join(command)}` ended with {done.returncode}: {(done.stderr or done.stdout).strip()}"
            )
        return done.stdout

    def submit(self, *options: str, body: str = "sleep 600", user: str = "") -> int:
        """Submit a batch job, its output thrown away unless told otherwise; returns its number."""
        output = [] if any(o.startswith(("-o", "--output")) for o in options) else ["--output=/dev/null"]
        script = f"#!/bin/sh\n{body}\n"
        return int(self.run("sbatch", "--parsable", *output, *options, text=script, user=user).split(";")[0])

    def environment(self) -> dict[str, str]:
        """The environment for Slurm's commands; no variable of an outer Slurm's job is left."""
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "SALLOC_", "SRUN_"))}
        sbin = [p for p in ("/usr/sbin", "/sbin") if p not in ours.get("PATH", "").split(":")]
        return ours | {"SLURM_CONF": str(self.conf), "PATH": ":".join((ours.get("PATH", "/usr/bin:/bin"), *sbin))}

    # ---- end ----

    def down(self) -> None:
        """End every process, jobs included, and remove the folder. Nothing to end is no error."""
        self._end_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def clear(self, within_s: float = 60.0) -> None:
        """No jobs and reservations are left, all nodes are idle: for the next test."""
        if jobs := set(self.run("squeue", "-h", "-o", "%A").split()):
            self.run("scancel", "--full", *sorted(jobs))
        for line in self.command("scontrol", "-o", "show", "reservation").stdout.splitlines():
            if line.startswith("ReservationName="):
                self.run("scontrol", "delete", line.split()[0])
        self.wait("no job was left", lambda: not self.run("squeue", "-h").strip(), within_s)
        for node in self.run("sinfo", "-h", "-N", "-p", "gpu", "-t", "drain,down,fail", "-o", "%N").split():
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self.wait("every node was idle", lambda: self.idle() >= self.settings.nodes, within_s)

    def _end_all(self) -> None:
        for _ in range(50):
            left = _belonging(self.folder)
            if not left:
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            for _, child in self._children:
                child.poll()
            time.sleep(0.05)
        for _, child in self._children:
            child.wait()
        self._children.clear()

    # ---- hurt ----

    def kill(self, name: str, by: int = signal.SIGKILL) -> None:
        """Send a signal to one program; after SIGKILL or SIGTERM, wait until it is gone."""
        pid = self.processes().get(name)
        if pid is None:
            raise SlurmError(f"{name} does not run in Slurm '{self.name}'")
        os.kill(pid, by)
        if by in (signal.SIGKILL, signal.SIGTERM):
            for child in [c for n, c in self._children if n == name]:
                child.wait()
            self._children = [(n, c) for n, c in self._children if n != name]
            deadline = time.monotonic() + 30
            while self.processes().get(name) == pid and time.monotonic() < deadline:
                time.sleep(0.05)

    def restart(self, name: str) -> None:
        """End one program if it runs, start it with the files and ports that it had, wait until it answers."""
        if name not in self.wanted():
            raise SlurmError(f"there is no '{name}'; there are {', '.join(self.wanted())}")
        if name in self.processes():
            self.kill(name, signal.SIGTERM)
        self.start(name)
        if not name.startswith(("gpu", "mariadbd", "slurmdbd")):
            self._until_up(name)

    # ---- state ----

    @property
    def conf(self) -> Path:
        """slurm.conf."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def rest_socket(self) -> Path:
        """Where slurmrestd listens."""
        return self.folder / "rest" / "socket"

    @property
    def state_file(self) -> Path:
        """What it was started with: settings, ports, owner."""
        return self.folder / "slurm.json"

    def state(self) -> dict[str, Any]:
        """The content of the state file."""
        return json.loads(self.state_file.read_text())

    def place(self) -> Place:
        """What the configuration files need to know."""
        return Place(self.name, self.folder, self.state()["ports"], self.settings)

    def processes(self) -> dict[str, int]:
        """Process ids by program, of those that run; the jobs' own processes are not among them."""
        found: dict[str, int] = {}
        for pid, variables in _marked(self.folder):
            name = next((v.partition(b"=")[2].decode() for v in variables if v.startswith(NAME.encode() + b"=")), "?")
            # a slurmstepd has its slurmd's environment; the server is the one that started first
            if name not in found or pid < found[name]:
                found[name] = pid
        return found

    def cost(self, name: str) -> tuple[float, int]:
        """CPU seconds and resident bytes of a program since its start."""
        return cost(self.folder, name)


def names() -> list[str]:
    """Those that have a state, running or not."""
    return sorted(state.parent.name for state in slurms_folder().glob("*/slurm.json"))


def sweep() -> list[str]:
    """End those whose owning process is gone (a test run that was killed); returns their names."""
    gone: list[str] = []
    for name in names():
        try:
            slurm = Slurm.open(name)
            owner = slurm.state().get("owner", "")
        except (OSError, ValueError, KeyError, TypeError, SlurmError):
            continue
        if owner and owner != identity(int(owner.split("@")[0])):
            slurm.down()
            gone.append(name)
    return gone


def say_on_stderr(line: str) -> None:
    """Progress for a person."""
    print(f"  {line}", file=sys.stderr, flush=True)


def _devices(folder: Path, count: int) -> None:
    """Character devices that look like GPUs, with null's numbers, so that a job that writes to one hurts nobody.

    Where devices cannot be made (no root, a container without the right): links to /dev/null, which will do.
    """
    folder.mkdir()
    for number in range(count):
        path = folder / f"nvidia{number}"
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:
            path.symlink_to("/dev/null")


def _marked(folder: Path) -> Generator[tuple[int, list[bytes]]]:
    """Processes that were started for a folder, with their environment. Zombies are not among them."""
    wanted = f"{FOLDER}={folder}".encode()
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                variables = (place / "environ").read_bytes().split(b"\0")
                if wanted in variables:
                    yield int(place.name), variables


def _belonging(folder: Path) -> set[int]:
    """The servers, and all that jobs started: children's children, and what names this Slurm as that of its job."""
    conf = f"SLURM_CONF={folder}/etc/slurm.conf".encode()
    marked = {pid for pid, _ in _marked(folder)}
    parents: dict[int, int] = {}
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            if fields[0] == "Z":
                continue
            parents[int(place.name)] = int(fields[1])
            variables = (place / "environ").read_bytes().split(b"\0")
            if conf in variables and any(v.startswith(b"SLURM_JOB_ID=") for v in variables):
                marked.add(int(place.name))
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in marked and pid not in marked}
        marked |= more
        grown = bool(more)
    return marked - {os.getpid()}
