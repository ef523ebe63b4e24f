"""Builds the control plane's programs from their Go modules, once per program and version.

`make controlplane` calls `dev/cluster build`, which calls `build_all`. The modules are the folders of
``test/controlplane/``; what they build lies in ``$MUSTER_CONTROLPLANE_DIR`` (by default ``muster/controlplane`` in the
user's cache folder), one folder a program and version, beside a stamp of what it was built from. A Kubernetes version
without a folder of its own gets a module made after the newest.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.errors import ClusterError

MODULES = Path(__file__).resolve().parents[2] / "test" / "controlplane"
CORE = ("etcd", "kubernetes", "kwok", "helm", "crds")
CONTROLLERS = ("kueue", "jobset", "lws")
STAMP = ".built-from"
_TOOL = re.compile(r"^(?:tool |\t)(\S+/\S+)$", re.MULTILINE)
_VERSION = "k8s.io/component-base/version"


@dataclass(frozen=True, slots=True)
class Program:
    """One module that builds one or several programs."""

    name: str
    """The folder's name below the cache, and what `make controlplane` calls it."""
    module: str
    """The Go module that it is asked of."""
    files: tuple[str, ...]
    """Names of the programs, in the order of the module's ``tool`` lines."""
    data: tuple[tuple[str, str], ...] = ()
    """(folder in the Go module, folder beside the programs): YAML that goes with them."""


PROGRAMS = {
    p.name: p
    for p in (
        Program("etcd", "go.etcd.io/etcd/server/v3", ("etcd",)),
        Program(
            "kubernetes",
            "k8s.io/kubernetes",
            ("kube-apiserver", "kube-controller-manager", "kube-scheduler"),
        ),
        Program(
            "kwok",
            "sigs.k8s.io/kwok",
            ("kwok",),
            (
                ("kustomize/stage/node/fast", "stages"),
                ("kustomize/stage/node/heartbeat-with-lease", "stages"),
                ("kustomize/stage/pod/fast", "stages"),
            ),
        ),
        Program("helm", "helm.sh/helm/v4", ("helm",)),
        Program("kueue", "sigs.k8s.io/kueue", ("kueue",), (("config/components/webhook", "webhooks"),)),
        Program("jobset", "sigs.k8s.io/jobset", ("jobset",), (("config/components/webhook", "webhooks"),)),
        Program("lws", "sigs.k8s.io/lws", ("lws",), (("config/webhook", "webhooks"),)),
    )
}

CRDS = {
    "kueue": ("sigs.k8s.io/kueue", "0.17.0", "config/components/crd/bases"),
    "jobset": ("sigs.k8s.io/jobset", "0.11.1", "config/components/crd/bases"),
    "lws": ("sigs.k8s.io/lws", "0.8.0", "config/crd/bases"),
    "kuberay": ("github.com/ray-project/kuberay/ray-operator", "1.6.0", "config/crd/bases"),
    "trainer": ("github.com/kubeflow/trainer/v2", "2.2.0", "manifests/base/crds"),
    "training-operator": ("github.com/kubeflow/training-operator", "1.9.3", "manifests/base/crds"),
    "mpi-operator": ("github.com/kubeflow/mpi-operator", "0.8.0", "manifests/base"),
}
"""Sets of CRDs: Go module, its version, folder in it."""


def folder() -> Path:
    """Where built programs lie: ``$MUSTER_CONTROLPLANE_DIR``, else the user's cache folder."""
    if given := os.environ.get("MUSTER_CONTROLPLANE_DIR"):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "muster" / "controlplane"


def module_folder(name: str, kubernetes: str = "") -> Path:
    """The committed module of a program; for Kubernetes that of the wanted version, if there is one."""
    if name != "kubernetes" or not kubernetes:
        return MODULES / name
    for found in sorted(MODULES.glob("kubernetes*")):
        if version_in(found / "go.mod", "k8s.io/kubernetes") == kubernetes:
            return found
    return MODULES / f"kubernetes-{kubernetes}"


def version_in(go_mod: Path, module: str) -> str:
    """The version without its ``v`` at which ``go.mod`` requires a module; empty if it does not."""
    if not go_mod.exists():
        return ""
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} v(\S+)", go_mod.read_text(), re.MULTILINE)
    return found[1] if found else ""


def version_of(name: str, kubernetes: str = "") -> str:
    """The version that is built of a program."""
    if name == "kubernetes" and kubernetes:
        return kubernetes
    return version_in(MODULES / name / "go.mod", PROGRAMS[name].module)


def built(name: str, kubernetes: str = "") -> Path:
    """The folder of a built program. Raises `ClusterError`, with the command that builds it, where it is missing."""
    version = version_of(name, kubernetes)
    place = folder() / name / version
    if all((place / f).exists() for f in PROGRAMS[name].files) and (place / STAMP).exists():
        return place
    which = f" K8S={kubernetes}" if name == "kubernetes" and version != version_of("kubernetes") else ""
    which = f" WITH={name}" if name in CONTROLLERS else which
    raise ClusterError(
        f"{name} {version} is not built (looked in {place}); run `make controlplane{which}`, about ten minutes the "
        "first time, or set MUSTER_CONTROLPLANE_DIR to the folder that has it"
    )


def crds(name: str) -> Path:
    """The folder of a set of CRDs. Raises `ClusterError` where it is missing."""
    if name not in CRDS:
        raise ClusterError(f"there is no set of CRDs '{name}'; there are {', '.join(CRDS)}")
    place = folder() / "crds" / f"{name}-{CRDS[name][1]}"
    if not place.exists():
        raise ClusterError(f"the CRDs of {name} are not here (looked in {place}); run `make controlplane`")
    return place


def copy_crds() -> None:
    """Copy each set of CRDs out of its Go module, unless it is there."""
    for name, (module, version, inside) in CRDS.items():
        place = folder() / "crds" / f"{name}-{version}"
        if place.exists():
            continue
        told = _go(Path.home(), "mod", "download", "-json", f"{module}@v{version}")
        found = sorted((Path(json.loads(told)["Dir"]) / inside).glob("*.yaml"))
        found = [file for file in found if "kind: CustomResourceDefinition" in file.read_text()]
        if not found:
            raise ClusterError(f"{module} has no CRDs in {inside}; correct CRDS in dev/controlplane/build.py")
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".new-") as scratch:
            for file in found:
                shutil.copyfile(file, Path(scratch) / file.name)
            shutil.copytree(scratch, place)
            place.chmod(0o755)


def build(name: str, kubernetes: str = "", say: bool = True) -> Path:
    """Build one program unless its stamp says that it is there; returns its folder."""
    version = version_of(name, kubernetes)
    place = folder() / name / version
    place.parent.mkdir(parents=True, exist_ok=True)
    with _lock(place.parent / f".{version}.lock"):
        source = module_folder(name, version if name == "kubernetes" else "")
        if not source.exists():
            source = _made_module(version, place.parent / f"module-{version}")
        stamp = _stamp(name, source, version)
        if (place / STAMP).exists() and (place / STAMP).read_text() == stamp:
            return place
        if say:
            print(f"controlplane: building {name} {version} into {place}", file=sys.stderr, flush=True)
        started = time.monotonic()
        for left in place.parent.glob(f".{version}-*"):  # of a build that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{version}-") as scratch:
            _compile(name, source, version, Path(scratch))
            for part in PROGRAMS[name].data:
                _copy_data(source, PROGRAMS[name].module, part, Path(scratch))
            (Path(scratch) / STAMP).write_text(stamp)
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(scratch, place)
            place.chmod(0o755)
        if say:
            print(f"controlplane: {name} {version} built in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return place


def _compile(name: str, source: Path, version: str, into: Path) -> None:
    program = PROGRAMS[name]
    words = ["-trimpath", "-buildvcs=false", "-ldflags", _link_flags(name, version)]
    packages = _TOOL.findall((source / "go.mod").read_text())
    for package, file in zip(packages, program.files, strict=True):
        _go(source, "build", *words, "-o", str(into / file), package)


def _link_flags(name: str, version: str) -> str:
    if name != "kubernetes":
        return "-s -w"
    # without them the server reports v0.0.0, and clients choose the wrong API versions
    major, minor, *_ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return "-s -w " + " ".join(f"-X {_VERSION}.{key}={value}" for key, value in values.items())


def _stamp(name: str, source: Path, version: str) -> str:
    files = "".join(hashlib.sha256((source / f).read_bytes()).hexdigest() + "\n" for f in ("go.mod", "go.sum"))
    return f"{name} {version}\n{_link_flags(name, version)}\n{files}"


def _copy_data(source: Path, module: str, part: tuple[str, str], into: Path) -> None:
    root = Path(_go(source, "list", "-m", "-f", "{{.Dir}}", module).strip())
    (into / part[1]).mkdir(exist_ok=True)
    found = [f for f in sorted((root / part[0]).glob("*.yaml")) if f.name != "kustomization.yaml"]
    if not found:
        raise ClusterError(
            f"{module} has no YAML in {part[0]} any more; correct its entry in dev/controlplane/build.py"
        )
    for file in found:
        shutil.copyfile(file, into / part[1] / file.name)


def _made_module(version: str, into: Path) -> Path:
    """A module for a Kubernetes version that has none here, after the model of the newest; its sums are Go's own."""
    if not re.fullmatch(r"1\.\d+\.\d+", version):
        raise ClusterError(f"'{version}' is no Kubernetes version; write it in full, such as 1.34.4")
    into.mkdir(parents=True, exist_ok=True)
    model = MODULES / "kubernetes" / "go.mod"
    staging = re.findall(r"^\t(k8s\.io/\S+) => ", model.read_text(), re.MULTILINE)
    if int(version.split(".")[1]) < 37:
        staging = [s for s in staging if s not in ("k8s.io/streaming", "k8s.io/cri-streaming")]
    lines = "".join(f"\t{s} => {s} v0{version[1:]}\n" for s in staging)
    (into / "go.mod").write_text(f"module muster.test/kubernetes\n\ngo 1.24\n\nreplace (\n{lines})\n")
    (into / "go.sum").write_text("")
    _go(into, "get", "-tool", *(f"{p}@v{version}" for p in _TOOL.findall(model.read_text())))
    return into


def _go(source: Path, *words: str) -> str:
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        raise ClusterError("Go is not here; install Go 1.26 or newer, and put `go` in PATH")
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
    done = subprocess.run([go, *words], cwd=source, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-12:])
        raise ClusterError(f"`go {' '.join(words[:2])}` failed in {source}:\n{tail}")
    return done.stdout


@contextlib.contextmanager
def _lock(path: Path) -> Generator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build_all(names: Sequence[str], kubernetes: str = "") -> None:
    """Build programs and copy CRDs (``crds``), each unless it is there. Raises `ClusterError` for an unknown name."""
    for name in names:
        if name != "crds" and name not in PROGRAMS:
            raise ClusterError(f"there is no program '{name}'; there are {', '.join(PROGRAMS)}, crds")
    for name in names:
        if name == "crds":
            copy_crds()
        else:
            build(name, kubernetes)
