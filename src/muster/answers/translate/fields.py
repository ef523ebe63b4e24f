"""Options of sbatch that say how a job runs, and not where: each as fields of pods and lines of the launcher."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from muster.answers.translate.base import Mount, Remarks
from muster.answers.translate.options import LOST, OF_THE_COMMAND
from muster.slurm.sbatch_lines import Option, mebibytes

_PATTERN = {
    "%x": "$SLURM_JOB_NAME", "%j": "$SLURM_JOB_ID", "%J": "$SLURM_JOB_ID", "%A": "$SLURM_ARRAY_JOB_ID",
    "%a": "$SLURM_ARRAY_TASK_ID", "%N": "$(hostname)", "%n": "$SLURM_NODEID", "%u": "${USER:-root}", "%t": "0",
    "%s": "batch", "%%": "%",
}  # fmt: skip
_IMAGE = re.compile(r"(?:docker://)?(?:([\w.:-]+)#)?([\w./-]+(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?)")


class Fields:
    """Reads the options of the first component, which hold for the job as a whole."""

    def __init__(self, options: dict[str, Option], remarks: Remarks, volumes: tuple[Mount, ...]) -> None:
        self.options, self.remarks, self.volumes = options, remarks, volumes

    def _value(self, name: str) -> str:
        option = self.options.get(name)
        return option.value if option is not None else ""

    def tell(self, option: Option) -> None:
        """Tell of an option that has no counterpart."""
        if option.name in LOST:
            self.remarks.lost(option.written, LOST[option.name], option.line)
        elif option.name in OF_THE_COMMAND:
            self.remarks.note(option.written, "steers the command sbatch, and not the job", option.line)
        elif option.name == "dependency":
            self.remarks.lost(option.written, _after(option.value), option.line)
        elif option.name == "qos":
            text = f"{option.value} is a priority class here, if there is one: --priority-class NAME"
            self.remarks.lost(option.written, text, option.line)
        elif option.name == "gpu-bind" and option.value not in ("none", "closest"):
            text = "each rank sees all GPUs of its pod; --gpus-per-task gives each its own"
            self.remarks.lost(option.written, text, option.line)
        elif option.name == "gres":
            parts = (part.strip() for part in re.sub(r"\([^)]*\)", "", option.value).split(","))
            for part in parts:
                if not part.startswith(("gpu", "gres/gpu", "gres:gpu", "mps", "none")):
                    text = f"{part} is a resource of your device plugin here: add it to the pods' resources by hand"
                    self.remarks.lost(option.written, text, option.line)

    def job_name(self, path: str) -> str:
        """The job's name, else that of the file."""
        return self._value("job-name") or path.rpartition("/")[2].partition(".")[0] or "job"

    def annotations(self) -> dict[str, str]:
        """Of the object."""
        return {"muster.dev/comment": self._value("comment")} if self._value("comment") else {}

    @property
    def folder(self) -> str:
        """The working directory; empty: the image's."""
        return self._value("container-workdir") or self._value("chdir")

    def env(self) -> list[dict[str, Any]]:
        """Variables that --export names."""
        found: list[dict[str, Any]] = []
        option = self.options.get("export")
        for part in option.value.split(",") if option is not None else ():
            name, equals, value = part.strip().partition("=")
            if equals:
                found.append({"name": name, "value": value})
            elif option is not None and name not in ("ALL", "NONE", "NIL", ""):
                text = f"{name} is taken from the shell that submits; say {name}=VALUE"
                self.remarks.lost(option.written, text, option.line)
        return found

    def pod(self) -> dict[str, Any]:
        """Fields of each pod."""
        signal = self._signal()
        return {"terminationGracePeriodSeconds": signal[1]} if signal else {}

    def _signal(self) -> tuple[str, int, bool] | None:
        option = self.options.get("signal")
        if option is None:
            return None
        found = re.fullmatch(r"(?:([RB]+):)?(?:SIG)?(\w+)(?:@(\d{1,6}))?", option.value, re.IGNORECASE)
        if found is None:
            self.remarks.lost(option.written, f"is {option.value[:40]!r}, which is not read", option.line)
            return None
        before_s = int(found[3] or 60)
        text = f"comes at the limit, and the pod is killed {before_s} s later; Slurm sends it {before_s} s before"
        self.remarks.note(option.written, text, option.line)
        return found[2].upper(), before_s, "B" in (found[1] or "").upper()

    def lines(self, *, run_is_shell: bool) -> Iterator[str]:
        """Lines of the launcher before the script."""
        if self._value("umask"):
            yield f"umask {shlex.quote(self._value('umask'))}"
        signal = self._signal()
        if signal and run_is_shell:
            name, _, batch = signal
            whom = "$$" if batch else "$(jobs -p)"
            yield f"trap 'kill -s {name} {whom}' TERM"
        for name, stream in (("output", "1" if "error" in self.options else "all"), ("error", "2")):
            yield from self._output(name, stream)

    def _output(self, name: str, stream: str) -> Iterator[str]:
        option = self.options.get(name)
        if option is None:
            return
        path = option.value if option.value.startswith("/") else f"{self.folder or ''}/{option.value}".lstrip()
        if path == "/dev/null":
            yield f"exec {'>' if stream != '2' else '2>'}/dev/null{' 2>&1' if stream == 'all' else ''}"
        elif not any(path.startswith(mount.path.rstrip("/") + "/") for mount in self.volumes):
            text = "is on no volume (--volume mounts one): kubectl logs has it while the pods are there"
            self.remarks.lost(option.written, text, option.line)
        else:
            literal = re.sub(r'(["$`\\])', r"\\\1", path)  # Slurm knows %j and its like, and no variables
            shell = re.sub(r"%\d*([xjJAaNnutsh%])", lambda found: _PATTERN.get(f"%{found[1]}", found[0]), literal)
            log = f'>(tee -a "{shell}"{" >&2" if stream == "2" else ""})'
            yield f"exec {'2' if stream == '2' else ''}> {log}{' 2>&1' if stream == 'all' else ''}"
            self.remarks.note(option.written, "all pods write to the file, and to kubectl logs", option.line)

    def disk_bytes(self, options: dict[str, Option]) -> int:
        """Local disk of a pod."""
        option = options.get("tmp")
        if option is None:
            return 0
        try:
            return mebibytes(option.value)
        except ValueError:
            self.remarks.lost(option.written, f"is {option.value[:40]!r}, which is not read", option.line)
            return 0

    def distribution(self, options: dict[str, Option]) -> str:
        """How ranks go to nodes: block or cyclic."""
        option = options.get("distribution")
        if option is None:
            return "block"
        way = re.split(r"[:,]", option.value.casefold())[0]
        if way not in ("block", "cyclic", "*"):
            self.remarks.lost(option.written, f"{way}: ranks go to the pods in blocks", option.line)
        return "cyclic" if way == "cyclic" else "block"

    def image(self, of_steps: Sequence[str]) -> str:
        """The image that the script names for pyxis; empty: none that a registry has."""
        option = self.options.get("container-image")
        named = [option.value] if option is not None else list(dict.fromkeys(of_steps))
        if len(named) > 1:
            self.remarks.lost("srun --container-image", f"steps name {len(named)} images, and a pod has one: the first")
        if not named:
            self.remarks.lost("image", "no image is named: give --image IMAGE")
            return ""
        found = _IMAGE.fullmatch(named[0])
        if found is None or named[0].endswith(".sqsh"):
            text = f"{named[0]} is a file, and no image of a registry: give --image IMAGE"
            self.remarks.lost("--container-image", text, option and option.line)
            return ""
        return f"{found[1]}/{found[2]}" if found[1] else found[2]

    def mounts(self, of_steps: Sequence[str]) -> None:
        """Tell of mounts of pyxis for which no volume is given."""
        option = self.options.get("container-mounts")
        for text in [*([option.value] if option is not None else []), *of_steps]:
            for part in text.split(","):
                target = [*part.split(":"), part][1] if ":" in part else part
                if not any(target == mount.path or target.startswith(f"{mount.path}/") for mount in self.volumes):
                    given = f"--volume {target}=pvc/CLAIM, or =host{part.split(':')[0]}"
                    what = f"{part} is a folder of the node: give {given}"
                    self.remarks.lost("--container-mounts", what, option and option.line)


def _after(value: str) -> str:
    if value == "singleton":
        return "nothing keeps jobs of one name apart in time"
    jobs = re.findall(r":(\w+)", value)
    waited = f"kubectl wait --for=condition=complete job/{jobs[0]}" if jobs else "kubectl wait"
    return f"the cluster keeps no order of jobs: apply it after {waited} (JobSets: --for=condition=completed)"
