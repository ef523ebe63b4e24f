"""One control plane: started, watched, hurt on purpose, and ended."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from controlplane import build, certs, components, controllers, crds, nodes, processes
from controlplane.api import Api, ApiError
from controlplane.errors import ClusterError

STARTS_WITHIN_S = 120.0
PRIORITIES = {"low": 100, "normal": 1_000, "high": 10_000}
"""PriorityClasses that every cluster has beside Kubernetes' own two."""
_ADDED_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Settings:
    """What to start."""

    shapes: tuple[nodes.Shape, ...] = (nodes.Shape(),)
    scheduler: bool = True
    """Whether kube-scheduler runs; without it, pods wait for a scheduler of yours."""
    kubernetes: str = ""
    """Version, such as 1.34.4; empty: the one that `make controlplane` builds by default."""
    gates: tuple[str, ...] = ()
    """Further feature gates (``Name`` or ``Name=false``) for API server, controller manager and scheduler."""
    crds: tuple[str, ...] = ()
    lease_s: int = 0
    """How long a node's lease holds; 0: 40 s, and more on clusters over 200 nodes, so that leases cost no CPU there."""
    controllers: tuple[str, ...] = ()
    """Which of Kueue, JobSet and LeaderWorkerSet run, with their CRDs and webhooks: `build.CONTROLLERS`."""

    def all_crds(self) -> tuple[str, ...]:
        """The sets of CRDs: those of the controllers (by the same names), then those that were asked for."""
        return tuple(dict.fromkeys([*self.controllers, *self.crds]))

    def nodes(self) -> int:
        """How many nodes there will be."""
        return sum(shape.count for shape in self.shapes)


def clusters_folder() -> Path:
    """Where clusters keep their state: ``$MUSTER_CLUSTERS_DIR``, else a folder of the user's below the state folder."""
    if given := os.environ.get("MUSTER_CLUSTERS_DIR"):
        return Path(given).resolve()
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "muster-dev" / "clusters"


@dataclass(slots=True)
class Cluster:
    """A control plane by name. Its state is its folder; any process may open it by name."""

    name: str
    settings: Settings = field(default_factory=Settings)
    say: Callable[[str], None] = lambda _: None
    folder: Path = field(init=False)
    _children: dict[str, subprocess.Popen[bytes]] = field(
        init=False, default_factory=dict[str, "subprocess.Popen[bytes]"]
    )
    _api: Api | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if not self.name.replace("-", "").replace("_", "").replace(".", "").isalnum():
            raise ClusterError(f"'{self.name}' is no name for a cluster; use letters, digits and -")
        self.folder = clusters_folder() / self.name

    # ---- start ----

    @classmethod
    def open(cls, name: str) -> Cluster:
        """A cluster that was started before. Raises `ClusterError`, with the names that there are, if it was not."""
        found = cls(name)
        if not found.state_file.exists():
            there = ", ".join(names()) or "none"
            raise ClusterError(f"there is no cluster '{name}' (there are: {there}); start it with `dev/cluster up`")
        found.settings = _settings_from(found.state()["settings"])
        return found

    def up(self, tied: bool = False) -> Cluster:
        """Start everything and wait until a pod can be created and every node is ready.

        ``tied``: the cluster belongs to this process; `sweep` ends it when the process is gone. Whatever goes wrong, an
        interrupt too, ends what was started. Raises `ClusterError`, with the end of the log, if a component ends.
        """
        if processes.running(self.folder):
            raise ClusterError(
                f"cluster '{self.name}' runs already; `dev/cluster down --name {self.name}` ends it, "
                "--name OTHER starts another"
            )
        self._check_built()
        wanted = [name for name in self.wanted() if name in components.COMMANDS]
        with processes.lock(clusters_folder() / f".{self.name}.lock"):
            try:
                self._prepare(tied)
                for name in wanted[:2]:
                    self.start(name)
                    self._until_healthy(name)
                for name in wanted[2:]:
                    self.start(name)
                self._fill()
                for name in wanted[2:]:
                    self._until_healthy(name)
                self._until_ready()
                self._install_crds()
                self._start_controllers()
            except BaseException:
                self._end_all()
                raise
        return self

    def _check_built(self) -> None:
        for name in self.settings.controllers:
            if name not in build.CONTROLLERS:
                raise ClusterError(f"there is no controller '{name}'; there are {', '.join(build.CONTROLLERS)}")
        for program in ("etcd", "kwok", *self.settings.controllers):
            build.built(program)
        build.built("kubernetes", self.kubernetes)
        for name in self.settings.all_crds():
            build.crds(name)

    def _install_crds(self) -> None:
        if wanted := self.settings.all_crds():
            self.say(f"installing the CRDs of {', '.join(wanted)}")
            made = crds.install(self.api, wanted)
            self.wait("the CRDs were served", lambda: crds.served(self.api, made))

    def _start_controllers(self) -> None:
        for name in self.settings.controllers:
            controllers.install(self.api, name, self.place(), self.settings.all_crds())
            self.start(name)
        for name in self.settings.controllers:
            self._until_healthy(name)

    def wanted(self) -> list[str]:
        """The components that this cluster should run, in the order of their start."""
        core = [c for c in components.COMMANDS if c != "kube-scheduler" or self.settings.scheduler]
        return [*core, *self.settings.controllers]

    def _prepare(self, tied: bool) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, mode=0o700)
        ports = [*components.PORT_NAMES, *controllers.port_names(self.settings.controllers)]
        with processes.lock(clusters_folder() / ".ports.lock"):
            taken = processes.ports_of([clusters_folder() / n / "state.json" for n in names()])
            state = {
                "settings": asdict(self.settings),
                "ports": processes.free_ports(ports, taken),
                "owner": processes.identity(os.getpid()) if tied else "",
                "created": time.time(),
            }
            self.state_file.write_text(json.dumps(state, indent=1))
        certs.make_all(self.folder / "certs")
        components.write_configs(self.place())

    def start(self, name: str) -> None:
        """Start one component that is not running, with the ports and files that it had; does not wait for it."""
        self._check(name)
        if name in processes.running(self.folder):
            raise ClusterError(f"{name} runs already in cluster '{self.name}'")
        self.say(f"starting {name}")
        if name in components.COMMANDS:
            command = components.COMMANDS[name](self.place())
        else:
            command = controllers.command(name, self.place(), self.settings.all_crds())
        self._children[name] = processes.start(self.folder, name, command)

    def _fill(self) -> None:
        """Nodes and the objects that every cluster has, while the controllers start."""
        for name, value in PRIORITIES.items():
            self.api.post(
                "/apis/scheduling.k8s.io/v1/priorityclasses",
                {"metadata": {"name": name}, "value": value, "description": "An example of dev/cluster."},
            )
        for shape in self.settings.shapes:
            self.say(f"adding {shape.count} nodes")
            self.add_nodes(shape)

    def add_nodes(self, shape: nodes.Shape) -> list[str]:
        """Add nodes, and their ResourceSlices where they advertise by DRA; returns their names, does not wait."""
        made = list(nodes.nodes(shape, f"v{self.kubernetes}"))
        self.create("/api/v1/nodes", made)
        if shape.gpus and shape.advertise in ("dra", "both"):
            try:
                self.api.post("/apis/resource.k8s.io/v1/deviceclasses", nodes.device_class())
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
            slices = [nodes.resource_slice(node, shape) for node in made]
            self.create("/apis/resource.k8s.io/v1/resourceslices", slices)
        return [node["metadata"]["name"] for node in made]

    def create(self, path: str, objects: Iterable[dict[str, Any]]) -> None:
        """POST many objects, several at once. Raises the first error."""

        def post(one: dict[str, Any]) -> None:
            self.api.post(path, one)

        with ThreadPoolExecutor(_ADDED_AT_ONCE) as pool:
            try:
                for _ in pool.map(post, objects):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    @contextlib.contextmanager
    def namespace(self, name: str) -> Generator[str]:
        """A namespace in which pods can be created; at the end its pods are removed, then it is."""
        path = f"/api/v1/namespaces/{name}"
        self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        try:
            account = f"{path}/serviceaccounts/default"
            self.wait(f"namespace {name} had its service account", lambda: self.api.raw("GET", account)[0] == 200)
            yield name
        finally:
            self.api.delete(f"{path}/pods", {"gracePeriodSeconds": 0})
            self.api.delete(path)

    # ---- wait ----

    def wait(
        self, what: str, is_so: Callable[[], object], within_s: float = STARTS_WITHIN_S, every_s: float = 0.1
    ) -> None:
        """Ask until it is so. Raises `ClusterError`, with the log's end, when a component ends or the time is over."""
        deadline = time.monotonic() + within_s
        while not is_so():
            for name, child in self._children.items():
                if child.poll() is not None:
                    raise ClusterError(
                        f"{name} ended (exit {child.returncode}) before {what}; its log ends with:\n"
                        f"{processes.tail(self.folder, name)}"
                    )
            if time.monotonic() > deadline:
                logs = "".join(f"\n{n}:\n{processes.tail(self.folder, n, 2)}" for n in self._children)
                raise ClusterError(f"waited {within_s:.0f} s for {what}; the logs end with:{logs}")
            time.sleep(every_s)

    def _until_healthy(self, name: str) -> None:
        self.wait(f"{name} was healthy", lambda: self.healthy(name))

    def healthy(self, name: str) -> bool:
        """What the component itself says at its health address."""
        ports = self.state()["ports"]
        if name == "kube-apiserver":
            try:
                return self.api.raw("GET", "/readyz", timeout_s=5)[0] == 200
            except OSError:
                return False
        path = "/health" if name == "etcd" else "/readyz" if name in build.CONTROLLERS else "/healthz"
        scheme = "https" if name in ("kube-controller-manager", "kube-scheduler") else "http"
        port = ports.get(f"{name}-health", ports[name])
        try:
            with urllib.request.urlopen(
                f"{scheme}://127.0.0.1:{port}{path}", timeout=5, context=_any_certificate()
            ) as answer:
                return answer.status == 200
        except OSError:
            return False

    def _until_ready(self) -> None:
        """The service account that pods need is there, and every node is ready and rid of its first taints."""
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self.wait("namespace default had its service account", lambda: self.api.raw("GET", account)[0] == 200)
        count = self.settings.nodes()
        self.say(f"waiting for {count} nodes to be ready")
        self.wait("every node was ready", lambda: self.ready_nodes() >= count, 60 + count / 20, 0.2 + count / 2000)

    def ready_nodes(self) -> int:
        """How many nodes are ready and not tainted as unready."""
        return sum(1 for node in self.api.items("/api/v1/nodes") if _is_ready(node))

    # ---- end ----

    def down(self) -> None:
        """End every process in reverse order, wait for each, and remove the folder. Nothing to end is no error."""
        self._end_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end_all(self) -> None:
        order = [*reversed(self.settings.controllers), *reversed(components.COMMANDS)]
        for _ in range(20):
            left = processes.running(self.folder)
            if not left:
                break
            for name in sorted(left, key=lambda n: order.index(n) if n in order else -1):
                processes.stop(self.folder, name)
        for child in self._children.values():
            child.wait()
        self._children.clear()
        if self._api:
            self._api.close()

    # ---- hurt ----

    def kill(self, name: str, by: int = signal.SIGKILL) -> None:
        """End one component, by kill -9 if not told otherwise, and wait until it is gone."""
        self._check(name)
        if not processes.stop(self.folder, name, by=by):
            raise ClusterError(f"{name} does not run in cluster '{self.name}'")
        if child := self._children.pop(name, None):
            child.wait()

    def restart(self, name: str, by: int = signal.SIGKILL) -> None:
        """End one component (kill -9) if it runs, start it again, and wait until it is healthy."""
        self._check(name)
        processes.stop(self.folder, name, by=by)
        if child := self._children.pop(name, None):
            child.wait()
        self.start(name)
        self._until_healthy(name)

    def pause(self, name: str) -> None:
        """Stop one component's clock (SIGSTOP): connections stay open, and nothing answers."""
        self._check(name)
        processes.send(self.folder, name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a paused component go on."""
        self._check(name)
        processes.send(self.folder, name, signal.SIGCONT)

    def _check(self, name: str) -> None:
        known = [*components.COMMANDS, *self.settings.controllers]
        if name not in known:
            raise ClusterError(f"there is no component '{name}'; there are {', '.join(known)}")

    def compact(self) -> int:
        """Let etcd forget all but the present; returns the revision. Older resource versions are then 410 Gone."""
        revision = int(self._etcd("kv/range", {"key": base64.b64encode(b"/").decode()})["header"]["revision"])
        self._etcd("kv/compaction", {"revision": revision, "physical": True})
        return revision

    def _etcd(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.state()['ports']['etcd']}/v3/{path}"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=10) as answer:
            return json.load(answer)

    # ---- users ----

    @property
    def api(self) -> Api:
        """The API as the administrator."""
        if self._api is None:
            folder = self.folder / "certs"
            self._api = Api(self.place().server, folder / "ca.crt", folder / "admin.crt", folder / "admin.key")
        return self._api

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    def user(self, name: str, groups: tuple[str, ...] = (), valid_hours: float = 24.0) -> Path:
        """A kubeconfig with a certificate for a user without any rights of its own; below 0 hours: one that expired."""
        certs.client(self.folder / "certs", f"user-{name}", name, groups, valid_hours)
        path = self.folder / f"user-{name}.kubeconfig"
        certs.kubeconfig(path, self.place().server, self.folder / "certs", f"user-{name}")
        return path

    def service_account(self, namespace: str, name: str, valid_s: int = 3600) -> Path:
        """A kubeconfig with a token of a service account, which is made if it is not there."""
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        if self.api.raw("GET", f"{account}/{name}")[0] == 404:
            self.api.post(account, {"metadata": {"name": name}})
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": valid_s},
        }
        token = self.api.post(f"{account}/{name}/token", asked)["status"]["token"]
        path = self.folder / f"account-{namespace}-{name}.kubeconfig"
        certs.write_kubeconfig(path, self.place().server, self.folder / "certs", name, {"token": token}, namespace)
        return path

    def as_token(self, token: str) -> Api:
        """The API with a bearer token."""
        return Api(self.place().server, self.folder / "certs" / "ca.crt", token=token)

    def as_user(self, name: str, groups: tuple[str, ...] = (), valid_hours: float = 24.0) -> Api:
        """The API as a user with a certificate, as `user` makes it."""
        self.user(name, groups, valid_hours)
        folder = self.folder / "certs"
        return Api(self.place().server, folder / "ca.crt", folder / f"user-{name}.crt", folder / f"user-{name}.key")

    # ---- state ----

    @property
    def kubernetes(self) -> str:
        """The version of Kubernetes."""
        return self.settings.kubernetes or build.version_of("kubernetes")

    @property
    def state_file(self) -> Path:
        """What the cluster was started with: settings, ports, owner."""
        return self.folder / "state.json"

    def state(self) -> dict[str, Any]:
        """The content of the state file."""
        return json.loads(self.state_file.read_text())

    def place(self) -> components.Place:
        """What the command lines need to know."""
        count = self.settings.nodes()
        lease_s = self.settings.lease_s or max(40, count // 5)
        return components.Place(self.folder, self.state()["ports"], self.kubernetes, self.settings.gates, lease_s)

    def processes(self) -> dict[str, int]:
        """Process ids by component, of those that run."""
        return processes.running(self.folder)

    def cost(self, name: str) -> tuple[float, int]:
        """CPU seconds and resident bytes of a component since its start. Raises `ClusterError` if it does not run."""
        return processes.cost(self.folder, name)


def names() -> list[str]:
    """Clusters that have a state, running or not."""
    return sorted(state.parent.name for state in clusters_folder().glob("*/state.json"))


def sweep() -> list[str]:
    """End the clusters whose owning process is gone (a test run that was killed); returns their names."""
    gone: list[str] = []
    for name in names():
        try:
            cluster = Cluster.open(name)
            owner = cluster.state().get("owner", "")
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if owner and owner != processes.identity(int(owner.split("@")[0])):
            cluster.down()
            gone.append(name)
    return gone


def _any_certificate() -> ssl.SSLContext:
    """Controller manager and scheduler sign their own certificates, new ones each time."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _settings_from(raw: dict[str, Any]) -> Settings:
    return msgspec.convert(raw, Settings)


def _is_ready(node: dict[str, Any]) -> bool:
    if any(t["key"].startswith("node.kubernetes.io/not-ready") for t in node["spec"].get("taints", ())):
        return False
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))


def say_on_stderr(line: str) -> None:
    """Progress for a person."""
    print(f"  {line}", file=sys.stderr, flush=True)
