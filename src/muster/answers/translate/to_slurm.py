"""Objects of Kubernetes as batch scripts of Slurm.

A pod becomes a node of the job where two do not fit on one, or where it matters on which node it stands; else a task.
What `muster fit` understands of the script is what it understands of the objects.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from muster.answers.specs.kubernetes import WITHOUT_PODS, read_objects
from muster.answers.specs.pods import inside
from muster.answers.translate.base import Mount, Remarks, Translation, dict_at, dicts_at, header
from muster.answers.translate.documents import manifests_text
from muster.answers.translate.kinds import ANSWERED, LOST, RAY, SERVICES, templates, train_job_pods
from muster.answers.translate.nodes import Conditions
from muster.answers.translate.pods import PodRuns, Runs
from muster.answers.translate.ray import ray_body
from muster.answers.translate.shapes import Component, components
from muster.answers.translate.stand_in import GPUS, stand_in_for_objects
from muster.errors import InputError
from muster.kube.declared import MIN_PARALLELISM
from muster.kube.owners import KUEUE_GROUP
from muster.model.snapshot import Snapshot
from muster.model.workload import Workload
from muster.slurm.sbatch_lines import lines_of, slurm_time
from muster.traces.document import Document, documents_in

NO_CONTAINER = "none"
_LEFT_OUT = ("Launcher", "submitter")
"""Roles whose work the batch script itself does."""


class Choices(Struct, frozen=True):
    """What is asked for beside the objects: ``image`` none: without containers; ``account`` instead of the queue."""

    image: str = ""
    account: str = ""
    partition: str = ""
    node_gpus: int = GPUS
    volumes: tuple[Mount, ...] = ()
    namespace: str = ""


def to_slurm(text: str, path: str, choices: Choices, snapshot: Snapshot | None = None) -> Translation:
    """Translate the objects of a file; each that makes pods is a script of its own.

    Raises:
        InputError: as `muster.answers.specs.kubernetes.read_objects`.
    """
    documents = [each for one in documents_in(text, path) for each in one.items()]
    world = snapshot or stand_in_for_objects([each.data for each in documents], choices.node_gpus)
    remarks = Remarks()
    beside = [each for each in documents if str(each.data.get("kind")) in WITHOUT_PODS]
    scripts: list[tuple[str, str]] = []
    kinds: dict[str, None] = {}
    grouped: list[Document] = []
    for document in documents:
        kind = str(document.data.get("kind"))
        if document in beside:
            if kind not in ("ConfigMap", "PodGroup") and not (kind == "Service" and _is_headless(document.data)):
                remarks.lost(f"{kind} {inside(document.data, 'metadata.name')}", "is no work, and has no counterpart",
                             document.line)  # fmt: skip
            continue
        own = Remarks()
        if document in grouped:
            continue  # a pod of a group that is written already
        group = _others_of_group(document, documents)
        grouped += group
        script = _Script(document, group, beside, path, choices, world, own)
        lines = script.lines()
        scripts.append((f"{script.name}.sbatch", "\n".join([lines[0], *header(path, own.all), *lines[1:]]) + "\n"))
        kinds[kind] = None
        for each in own.all:
            (remarks.lost if each.lost else remarks.note)(each.field, each.text, each.line)
    if not scripts:
        raise InputError("holds nothing that makes pods", file=path)
    return Translation(path, "slurm", " and ".join(kinds), scripts=tuple(scripts), remarks=remarks.all)


def _others_of_group(document: Document, documents: Sequence[Document]) -> list[Document]:
    """The other pods of a pod's group of Kueue."""

    def group(each: Document) -> str:
        labels = dict_at(each.data, "metadata.labels")
        return str(labels.get(KUEUE_GROUP) or "") if each.data.get("kind") == "Pod" else ""

    name = group(document)
    return [each for each in documents if each is not document and group(each) == name] if name else []


def _is_headless(data: dict[str, Any]) -> bool:
    return inside(data, "spec.clusterIP") == "None"


class _Script:
    """One object on its way to a script."""

    def __init__(
        self, document: Document, group: Sequence[Document], beside: Sequence[Document], path: str, choices: Choices,
        world: Snapshot, remarks: Remarks,
    ) -> None:  # fmt: skip
        self.document, self.path, self.choices, self.remarks = document, path, choices, remarks
        self.data, self.kind = document.data, str(document.data.get("kind"))
        self.beside = beside
        self.pods = train_job_pods(self.data, beside) if self.kind == "TrainJob" else self.data
        # as fit reads it, together with what stands beside it: runtimes, classes, pod groups, other pods of a group
        text = manifests_text([each.data for each in [document, *group, *beside]])
        specs = read_objects(text, path, world.fleet, dict(world.local_queues), choices.namespace)
        self.specs, self.world = specs, world
        self.workload: Workload = specs.workloads[0]
        self.name = self.workload.name.rpartition("/")[2]
        self.copies = len(specs.workloads)
        if self.copies > 1:
            self.name = self.name.removesuffix("-0")
        self.runs = PodRuns(self.name, remarks, document.lines, choices.volumes)
        self.templates = {each.role: each.path for each in templates(self.pods)}

    def lines(self) -> list[str]:
        """The script; its first line is ``#!``."""
        self._tell()
        for note in self.specs.notes:
            self.remarks.note(note.field, note.text)
        options = list(self._options())
        for option in options:
            if any(not letter.isprintable() for letter in option):  # a line end would begin a command
                what = f"{option.removeprefix('#SBATCH ')!r} holds a line end or another control character"
                raise InputError(what, file=self.path, line=self.document.line, hint="no option of Slurm can hold it")
        return ["#!/bin/bash", *options, "", *self._body()]

    def _tell(self) -> None:
        for key in dict_at(self.data, "spec"):
            if self.kind != "Pod" and key not in ANSWERED.get(
                self.kind, ("template", "jobTemplate", "replicas", "selector")
            ):
                if key == "backoffLimit" and not inside(self.data, "spec.backoffLimit"):
                    continue
                self.runs.lost(f"spec.{key}", LOST.get(key, "has no counterpart in Slurm"))
        if self.kind in SERVICES:
            what = "runs until it is deleted; a job ends at its time limit and is not started anew"
            self.runs.lost("kind", f"a {self.kind} {what}")
        if inside(self.data, "spec.suspend") and not self.workload.queue:
            self.remarks.note("spec.suspend", "is #SBATCH --hold; scontrol release lets it go")

    # -- options

    def _options(self) -> Iterator[str]:
        workload, choices = self.workload, self.choices
        yield f"#SBATCH --job-name={self.name}"
        account = choices.account or ("" if choices.partition else workload.queue)
        if account:
            yield f"#SBATCH --account={shlex.quote(account)}"
            if not choices.account:
                self.remarks.note("queue", f"{account} is taken as the account; --account or --partition names another")
        if choices.partition:
            yield f"#SBATCH --partition={shlex.quote(choices.partition)}"
        if workload.time_limit_s is not None:
            yield f"#SBATCH --time={slurm_time(workload.time_limit_s)}"
        else:
            self.remarks.note("time limit", "none is asked for, so the partition's default holds: add #SBATCH --time")
        tasks, at_once = self._array()
        if tasks > 1 and len(self.components()) > 1:
            what = f"{tasks} of it: a heterogeneous job cannot be an array, so submit the script {tasks} times"
            self.runs.lost("spec.replicas", what)
        elif tasks > 1:
            yield f"#SBATCH --array=0-{tasks - 1}" + (f"%{at_once}" if at_once < tasks else "")
        if inside(self.data, "spec.suspend") and not workload.queue:
            yield "#SBATCH --hold"
        rules = dicts_at(self.data, "spec.podFailurePolicy.rules")
        stops = any(rule.get("action") == "FailJob" and rule.get("onPodConditions") for rule in rules)
        yield "#SBATCH --no-requeue" if stops and self.kind == "Job" else "#SBATCH --requeue"
        folder = next((runs.folder for runs in self._all_runs().values() if runs.folder), "")
        if folder and self._is_own():
            yield f"#SBATCH --chdir={shlex.quote(folder)}"
        conditions = Conditions(self.world.fleet, self.runs)
        for number, each in enumerate(self.components()):
            if number:
                yield "#SBATCH hetjob"
            yield from (f"#SBATCH {option}" for option in each.options(conditions, self.pods, self.templates))

    def _array(self) -> tuple[int, int]:
        """Tasks of the array that the object is, and how many run at a time; 1: it is none."""
        if self.copies > 1:
            return self.copies, self.copies
        pods = sum(each.count for each in self.workload.pod_sets)
        completions = inside(self.data, "spec.completions")
        if self.kind != "Job" or not isinstance(completions, int):
            return 1, 1
        by_itself = dict_at(self.data, "metadata.annotations")
        if completions > pods or (completions > 1 and str(by_itself.get(MIN_PARALLELISM)) == "1"):
            return completions, pods
        return 1, 1

    def components(self) -> list[Component]:
        """The components of the job: pod sets of one shape are one."""
        sets = [each for each in self.workload.pod_sets if each.role not in _LEFT_OUT]
        for each in self.workload.pod_sets:
            if each.role in _LEFT_OUT:
                what = "the batch script does its work, on the first node"
                self.remarks.note(each.role, what)
        tasks, _ = self._array()
        alone = tasks > 1 and self.copies == 1
        return components(sets, self.workload.topology, self.world.fleet, self.runs, alone=alone)

    # -- commands

    def _all_runs(self) -> dict[str, Runs]:
        if not hasattr(self, "_read"):
            self._read: dict[str, Runs] = {
                role: self.runs.read(dict_at(self.pods, path), path)
                for role, path in self.templates.items()
                if isinstance(inside(self.pods, path), dict)
            }
        return self._read

    def _is_own(self) -> bool:
        return bool(self._own_script())

    def _own_script(self) -> str:
        """The commands of a script from which muster translate made the object."""
        names = {str(volume["configMap"].get("name")) for path in self.templates.values()
                 for volume in dicts_at(self.pods, f"{path}.volumes") if "configMap" in volume}  # fmt: skip
        for each in self.beside:
            files = dict_at(each.data, "data")
            mine = each.data.get("kind") == "ConfigMap" and inside(each.data, "metadata.name") in names
            if mine and "job" in files and "muster translate" in str(files.get("launch", "")):
                return str(files["job"])
        return ""

    def _body(self) -> Iterator[str]:
        own = self._own_script()
        if own:
            lines = lines_of(own)
            for runs in list(self._all_runs().values())[:1]:
                yield from runs.env
            yield from (line for line in lines[1:] if not re.match(r"#SBATCH(\s|$)", line))
            return
        runs = self._all_runs()
        if self.kind in RAY:
            yield from ray_body(self.data, runs, self.components(), self.choices.image)
            return
        yield 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
        yield f"export MASTER_PORT=${{MASTER_PORT:-{23456 if self.kind == 'PyTorchJob' else 29500}}}"
        launcher = runs.get("Launcher")
        if launcher is not None:
            yield from (*launcher.env, launcher.command)
            return
        found = self.components()
        for number, each in enumerate(found):
            yield ""
            yield from self._step(each, runs, number, len(found))
        if len(found) > 1:
            yield "wait"

    def _step(self, component: Component, runs: dict[str, Runs], number: int, of: int) -> Iterator[str]:
        """The srun that starts the pods of a component."""
        variable = f"pods_{number}" if of > 1 else "pods"
        inside_pod = list(self._commands_of_pods(component, runs, number))
        # the mark that ends them must be none of their lines, which a command of several lines brings along
        lines = {line for each in inside_pod for line in each.split("\n")}
        mark = next(each for each in ("POD", *(f"POD_{at}" for at in range(2, len(lines) + 3))) if each not in lines)
        yield f"read -r -d '' {variable} <<'{mark}' || true"
        yield from inside_pod
        yield mark
        each = next(runs[role] for role, _ in _roles(component, runs))
        options = [f"--het-group={number}"] if of > 1 else []
        options += container_options(each, self.choices.image)
        yield " ".join(["srun", *options, "bash", "-c", f'"${variable}"']) + (" &" if of > 1 else "")

    def _commands_of_pods(self, component: Component, runs: dict[str, Runs], number: int) -> Iterator[str]:
        """What each task of the step runs: the pod of its rank."""
        before = sum(each.pods.count for each in self.components()[:number])
        yield from self._ranks(before, sum(each.pods.count for each in self.components()) - component.pods.count)
        first = 0
        known = _roles(component, runs)
        for at, (role, count) in enumerate(known):
            each = runs[role]
            indent = "    " if len(known) > 1 else ""
            if len(known) > 1:
                begin = "if" if not at else "elif"
                yield f"{begin} ((SLURM_PROCID < {first + count})); then" if at < len(known) - 1 else "else"
                if self.kind in ("Job", "JobSet"):
                    yield f"    export JOB_COMPLETION_INDEX=$((SLURM_PROCID - {first}))"
            first += count
            yield from (f"{indent}{line}" for line in each.env)
            yield f"{indent}exec {each.command or 'true  # what the image runs by itself'}"
        if len(known) > 1:
            yield "fi"

    def _ranks(self, before: int, others: int) -> Iterator[str]:
        """The variables that the object's controller gives to pods.

        ``before``: pods of the components before this one, ``others``: of all other components.
        """
        tasks, _ = self._array()
        rank = f"$((SLURM_PROCID + {before}))" if before else "$SLURM_PROCID"
        size = f"$((SLURM_NTASKS + {others}))" if others else "$SLURM_NTASKS"
        if self.kind in ("Job", "JobSet", "CronJob"):
            index = "SLURM_ARRAY_TASK_ID" if tasks > 1 and self.copies == 1 else "SLURM_PROCID"
            yield f"export JOB_COMPLETION_INDEX=${index}"
        elif self.kind in ("PyTorchJob", "TrainJob"):
            each = inside(self.data, "spec.nprocPerNode") or inside(self.data, "spec.trainer.numProcPerNode")
            yield f"export RANK={rank} WORLD_SIZE={size}"
            yield f"export PET_NNODES={size} PET_NODE_RANK={rank}"
            yield "export PET_MASTER_ADDR=$MASTER_ADDR PET_MASTER_PORT=$MASTER_PORT"
            processes = shlex.quote(str(each or "auto"))
            yield f"export PET_RDZV_ENDPOINT=$MASTER_ADDR:$MASTER_PORT PET_NPROC_PER_NODE={processes}"
        elif self.kind == "LeaderWorkerSet":
            yield f"export LWS_LEADER_ADDRESS=$MASTER_ADDR LWS_GROUP_SIZE={size} LWS_WORKER_INDEX={rank}"


def _roles(component: Component, runs: dict[str, Runs]) -> list[tuple[str, int]]:
    """The roles of a component that run something, with their pods."""
    return [(role, count) for role, count in component.roles if role in runs] or [(next(iter(runs)), 1)]


def container_options(runs: Runs, image: str) -> list[str]:
    """Options of pyxis for what a pod runs; none where ``image`` is none."""
    named = image or runs.image
    if not named or named == NO_CONTAINER or named == "IMAGE-IS-NOT-SAID":
        return []
    host, slash, rest = named.partition("/")
    is_host = slash and ("." in host or ":" in host or host == "localhost")
    # what is given by hand may have variables of the shell in it, what stands in a file is what it is
    value = f"{host}#{rest}" if is_host else named
    is_plain = bool(image) or re.fullmatch(r"[\w.:/@#-]+", value, re.ASCII)
    found = [f"--container-image={value if is_plain else shlex.quote(value)}"]
    if runs.mounts:
        found.append(f"--container-mounts={shlex.quote(','.join(runs.mounts))}")
    if runs.folder:
        found.append(f"--container-workdir={shlex.quote(runs.folder)}")
    return found
