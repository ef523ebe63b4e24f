"""The Helm chart as the real helm renders it, for tests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy" / "helm" / "muster"
NAMESPACE = "gpu-system"
Documents = list[dict[str, Any]]


class Helm:
    """Calls helm; no file of the user's is read or written.

    Args:
        program: what `make controlplane` built.
        home: a folder for what helm keeps.
        kubeconfig: the cluster that releases go to; None: none, charts are only rendered.
    """

    def __init__(self, program: Path, home: Path, kubeconfig: Path | None = None) -> None:
        self._program, self._kubeconfig = program, kubeconfig
        kept = {f"HELM_{what}_HOME": str(home) for what in ("CACHE", "CONFIG", "DATA")}
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(home), **kept}

    def on(self, kubeconfig: Path) -> Helm:
        """The same for releases on a cluster."""
        return Helm(self._program, Path(self._environment["HOME"]), kubeconfig)

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """One call."""
        line = [str(self._program), *map(str, words)]
        if self._kubeconfig is not None:
            line += ["--kubeconfig", str(self._kubeconfig)]
        return subprocess.run(line, env=self._environment, capture_output=True, text=True, timeout=180, check=False)

    def render(self, values: Path, namespace: str = NAMESPACE) -> Documents:
        """The objects that a release with these values would have; raises RuntimeError with what helm says."""
        done = self.run("template", "muster", CHART, "--namespace", namespace, *options(values))
        if done.returncode:
            raise RuntimeError(done.stderr)
        return [each for each in yaml.safe_load_all(done.stdout) if each]


def options(values: Mapping[str, Any] | Path) -> list[str]:
    """The options that give values: a file, or ``{"a.b": 1}``."""
    if isinstance(values, Path):
        return ["--values", str(values)]
    return [word for key, value in values.items() for word in ("--set-json", f"{key}={json.dumps(value)}")]


def of_kind(documents: Sequence[dict[str, Any]], kind: str) -> Documents:
    """Those of one kind."""
    return [each for each in documents if each["kind"] == kind]


def one(documents: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The only one of a kind."""
    (found,) = of_kind(documents, kind)
    return found


def pod_of(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The spec of the Deployment's pods."""
    return one(documents, "Deployment")["spec"]["template"]["spec"]
