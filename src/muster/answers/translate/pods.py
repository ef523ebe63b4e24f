"""What a pod template runs, as shell: its command, environment, image and volumes; what Slurm has not is told of."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from muster.answers.translate.base import Mount, Remarks, dict_at, dicts_at, texts

_ANSWERED = frozenset((
    "containers", "initContainers", "volumes", "restartPolicy", "nodeSelector", "affinity", "tolerations",
    "activeDeadlineSeconds", "schedulerName", "schedulingGroup", "topologySpreadConstraints", "priority", "overhead",
    "resources", "terminationGracePeriodSeconds", "subdomain", "hostname", "hostNetwork", "dnsPolicy", "hostIPC",
    "priorityClassName", "setHostnameAsFQDN", "enableServiceLinks", "automountServiceAccountToken",
    "shareProcessNamespace", "nodeName", "schedulingGates", "runtimeClassName",
))  # fmt: skip
"""Fields of pods that become something, or that Slurm needs not."""
_POD_LOST = {
    "serviceAccountName": "jobs run as the user that submits",
    "securityContext": "jobs run as the user that submits",
    "imagePullSecrets": "put the registry's password into ~/.config/enroot/.credentials",
    "hostAliases": "names are those of the nodes",
    "ephemeralContainers": "a job has one container",
    "resourceClaims": "ask for GPUs by --gres",
    "preemptionPolicy": "who may stop whom is the QOS's affair",
}
_CONTAINER = frozenset((
    "name", "image", "command", "args", "env", "workingDir", "resources", "volumeMounts", "ports", "imagePullPolicy",
    "terminationMessagePath", "terminationMessagePolicy", "tty", "stdin",
))  # fmt: skip
_CONTAINER_LOST = {
    "envFrom": "export the variables in the script",
    "livenessProbe": "nothing looks whether it is alive: let the script end when it is not",
    "readinessProbe": "nothing waits until it is ready",
    "startupProbe": "nothing waits until it has started",
    "lifecycle": "use trap in the script",
    "securityContext": "jobs run as the user that submits",
}


class Runs(Struct):
    """What a pod runs.

    Attributes:
        image: of its container; empty: none.
        env: lines that export its variables.
        command: shell words, quoted; empty: the image's own.
        mounts: ``SOURCE:TARGET`` for pyxis.
        folder: working directory.
    """

    image: str = ""
    env: list[str] = field(default_factory=list[str])
    command: str = ""
    mounts: list[str] = field(default_factory=list[str])
    folder: str = ""


class PodRuns:
    """Reads pod templates of one object, whose name is that of its first pod's host."""

    def __init__(self, name: str, remarks: Remarks, lines: Mapping[str, int], volumes: tuple[Mount, ...]) -> None:
        self._name, self._remarks, self._lines = name, remarks, lines
        self._volumes = {mount.path.rstrip("/"): mount for mount in volumes}
        self._first = re.compile(
            rf"\b{re.escape(name)}(?:-[a-z0-9-]+?)?-0(?:-0)?(?:\.{re.escape(name)}[\w.-]*)?(?![\w-])"
        )

    def line(self, path: str) -> int | None:
        """The line at which a field stands, or the nearest one around it."""
        while path and path not in self._lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self._lines.get(path) if path else None

    def lost(self, path: str, text: str) -> None:
        """Tell of a field without counterpart."""
        self._remarks.lost(path, text, self.line(path))

    def note(self, field_: str, text: str) -> None:
        """Tell what became of a field."""
        self._remarks.note(field_, text, self.line(field_))

    def read(self, spec: Mapping[str, Any], where: str) -> Runs:
        """What the pods of a template run; ``where`` is the path of its spec."""
        for key in spec:
            if key not in _ANSWERED:
                self.lost(f"{where}.{key}", _POD_LOST.get(key, "has no counterpart in Slurm"))
        for key, what in (("restartPolicy", "Slurm does not start a container anew that ends"),):
            if spec.get(key) in ("Always", "OnFailure"):
                self.lost(f"{where}.{key}", what)
        if spec.get("priorityClassName"):
            self.lost(f"{where}.priorityClassName", "is a QOS there, if there is one: add #SBATCH --qos=NAME")
        containers = dicts_at(spec, "containers")
        for at, other in enumerate(containers[1:], 1):
            self.lost(
                f"{where}.containers[{at}]", f"{other.get('name')}: a job has one container; start it in the script"
            )
        for at, other in enumerate(dicts_at(spec, "initContainers")):
            self.lost(f"{where}.initContainers[{at}]", f"{other.get('name')}: do its work in the script, before srun")
        return self._container(containers[0], spec, f"{where}.containers[0]", where)

    def _container(self, found: Mapping[str, Any], spec: Mapping[str, Any], where: str, above: str) -> Runs:
        for key in found:
            if key not in _CONTAINER:
                self.lost(f"{where}.{key}", _CONTAINER_LOST.get(key, "has no counterpart in Slurm"))
        env = dicts_at(found, "env")
        names = {str(each.get("name")) for each in env}
        words = [*texts(found, "command"), *texts(found, "args")]
        runs = Runs(str(found.get("image") or ""), folder=str(found.get("workingDir") or ""))
        runs.env = list(self._exports(env, names, f"{where}.env"))
        runs.command = " ".join(self._quoted(word, names, f"{where}.command") for word in words)
        if not found.get("command"):
            runs.command = f"/entrypoint {runs.command}".strip() if runs.command else ""
            self.lost(f"{where}.command", "is not given: what the image runs by itself must be written into the script")
        runs.mounts = list(self._mounts(found, spec, where, above))
        return runs

    def _exports(self, env: Sequence[Mapping[str, Any]], names: set[str], where: str) -> Iterator[str]:
        for at, each in enumerate(env):
            name, source = str(each.get("name")), each.get("valueFrom")
            if name.startswith("MUSTER_") or name == "SLURM_RESTART_COUNT":
                continue  # of a translation from Slurm
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                self.lost(f"{where}[{at}]", f"{name} is no name that a shell can export: set it by env in the command")
                continue
            if source is None:
                yield f"export {name}={self._quoted(str(each.get('value') or ''), names, f'{where}[{at}]')}"
                continue
            path = str(dict_at(source, "fieldRef").get("fieldPath", ""))
            index = ("job-completion-index", "replica-index", "worker-index", "pod-index")
            known = {"metadata.name": "$SLURM_JOB_NAME-$SLURM_PROCID", "spec.nodeName": "$SLURMD_NODENAME",
                     "status.podIP": "$(hostname -i)", "status.hostIP": "$(hostname -i)"}  # fmt: skip
            if path in known:
                yield f'export {name}="{known[path]}"'
            elif any(word in path for word in index):
                yield f"export {name}=$SLURM_PROCID"
            else:
                kind = next(iter(source), "")
                self.lost(f"{where}[{at}]", f"{name} comes from a {kind}: export it in the script")

    def _quoted(self, word: str, names: set[str], where: str) -> str:
        """A word for the shell; ``$(NAME)`` of a variable is its value, the first pod's host name is the first node."""
        parts: list[str] = []
        for part in re.split(r"(\$\(\w+\))", word):
            if re.fullmatch(r"\$\(\w+\)", part) and part[2:-1] in {*names, "JOB_COMPLETION_INDEX"}:
                parts.append(f'"${part[2:-1]}"')
                continue
            done = 0
            for found in self._first.finditer(part):
                if found[0] == self._name:
                    continue
                parts += [_quote(part[done : found.start()]), '"$MASTER_ADDR"']
                done = found.end()
                self._remarks.note(where, f"{found[0]} is the first node there: $MASTER_ADDR", self.line(where))
            parts.append(_quote(part[done:]))
        return "".join(parts) or "''"

    def _mounts(self, found: Mapping[str, Any], spec: Mapping[str, Any], where: str, above: str) -> Iterator[str]:
        volumes = {str(each.get("name")): each for each in dicts_at(spec, "volumes")}
        for at, mount in enumerate(dicts_at(found, "volumeMounts")):
            path, volume = str(mount.get("mountPath")), volumes.get(str(mount.get("name")), {})
            given = self._volumes.get(path.rstrip("/"))
            read_only = ":ro" if mount.get("readOnly") else ""
            if given is not None:
                yield f"{given.host or path}:{path}{read_only}"
            elif "hostPath" in volume:
                yield f"{volume['hostPath'].get('path')}:{path}{read_only}"
            elif path == "/dev/shm" or path == "/muster":
                continue
            else:
                kind = next((key for key in volume if key != "name"), "volume")
                text = f"{path} is a {kind}: name its folder on the nodes by --volume {path}=host/FOLDER"
                self.lost(f"{where}.volumeMounts[{at}]", text)


def _quote(text: str) -> str:
    return shlex.quote(text) if text else ""
