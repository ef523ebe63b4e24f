"""A batch script of Slurm as objects of Kubernetes.

A pod is what the job has of one node, as `muster fit` reads it, and the pods start together. Each runs the script, in
which srun is a function that starts the ranks of its own node; see `muster.answers.translate.launcher`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from muster.answers.specs.sbatch import Batch, Component, read_components
from muster.answers.translate import launcher, manifests
from muster.answers.translate.base import Mount, Remarks, Translation
from muster.answers.translate.body import Body, interpreter, is_secret, is_shell, read_body, secrets
from muster.answers.translate.fields import Fields
from muster.answers.translate.launcher import Group, Hosts, Launch
from muster.answers.translate.manifests import Gang, Part, Whole
from muster.answers.translate.options import LOST
from muster.answers.translate.stand_in import CPUS, GPUS, MEMORY_GIB, stand_in
from muster.answers.translate.where import Where
from muster.errors import InputError
from muster.model.snapshot import Snapshot
from muster.model.workload import PodSet, Workload
from muster.slurm.pods import PARTS
from muster.slurm.sbatch_lines import Option, array_indexes, gpus_of, lines_of, read_script

KINDS = ("job", "jobset", "pytorchjob")
GANGS = ("kueue", "podgroup", "muster", "none")
MOST_OBJECTS = 100
"""Most objects of an array whose tasks have several pods each."""


class Choices(Struct, frozen=True):
    """What is asked for beside the script.

    Attributes:
        kind: one of KINDS; empty: a Job where it has one pod a task, else a JobSet.
        gang: one of GANGS; empty: Kueue where a queue is known, else Kubernetes' own pod groups.
        queue: instead of the script's account or partition.
        image: instead of the script's.
        priority_class: of the pods, or with Kueue of the workload.
        node_gpus: GPUs of a node, where no fleet is named.
        volumes: what the pods mount.
    """

    kind: str = ""
    gang: str = ""
    queue: str = ""
    image: str = ""
    namespace: str = ""
    priority_class: str = ""
    node_gpus: int = GPUS
    volumes: tuple[Mount, ...] = ()


def to_kubernetes(text: str, path: str, choices: Choices, snapshot: Snapshot | None = None) -> Translation:
    """Translate a batch script.

    Args:
        text: the script.
        path: what it is called.
        choices: what is asked for beside it.
        snapshot: whose fleet tells labels, features and GPU types; None: a stand-in that has what the script names.

    Raises:
        InputError: the script makes no sense to Slurm, or asks for what is not read, with its line; or the kind of
            object that is asked for cannot do it.
    """
    return _Maker(text, path, choices, snapshot).translation()


class _Maker:
    def __init__(self, text: str, path: str, choices: Choices, snapshot: Snapshot | None) -> None:
        self.path, self.choices = path, choices
        self.remarks = Remarks()
        self.assumed = snapshot is None
        world = snapshot or stand_in(read_script(text, path).components, choices.node_gpus)
        self.text = text
        self.batch = self._together(text, world)
        self.first = {option.name: option for option in self.batch.script.components[0]}
        self.fields = Fields(self.first, self.remarks, choices.volumes)
        self.where = Where(world.fleet, self.remarks, assumed=self.assumed)
        self.workload: Workload = self.batch.specs.workloads[0]
        self.tasks, self.at_once = self._array()
        self.parts_of = [
            [(name, pods) for name, pods in zip(_names(number, component), component.pod_sets, strict=True)]
            for number, component in enumerate(self.batch.components)
        ]
        self.pods = sum(pods.count for component in self.batch.components for pods in component.pod_sets)
        self.name = _dns(self.fields.job_name(path), 40)
        self.gang = self._gang()
        self.kind = self._kind()
        if self.gang.by == "podgroup" and self.kind != "job":
            self.gang = self._without_groups()

    # -- what it is

    def _together(self, text: str, world: Snapshot) -> Batch:
        """The script as it is read; GPUs that Slurm may scatter are put on as few nodes as hold them.

        One process sees the GPUs of its pod only, so that scattered ones would be of no use to it.
        """
        batch = read_components(text, self.path, world)
        lines = lines_of(text)
        most = max((node.healthy_gpus for node in world.fleet), default=1)
        for component, options in zip(batch.components, batch.script.components, strict=True):
            asked = component.asked
            if not asked.total or asked.per_task or not any(each.role.endswith(PARTS) for each in component.pod_sets):
                continue
            option = next(each for each in reversed(options) if each.name == "gpus")
            nodes = next(n for n in range(-(-asked.total // most), asked.total + 1) if asked.total % n == 0)
            lines[option.line - 1] += f" --nodes={nodes} --gpus-per-node={asked.total // nodes}"
            self.remarks.note(
                option.written,
                f"without --nodes Slurm may scatter the {asked.total} GPUs over {asked.total} nodes; here they are on "
                f"{nodes}, as processes see the GPUs of their own pod only",
                option.line,
            )
        if lines == lines_of(text):
            return batch
        return read_components("\n".join(lines), self.path, world)

    def _array(self) -> tuple[tuple[int, ...], int]:
        option = self.first.get("array")
        if option is None:
            return (), 0
        tasks, most = array_indexes(option.value)
        return tasks, min(len(tasks), most or len(tasks))

    def _kind(self) -> str:
        several = sum(len(each) for each in self.parts_of) > 1
        native = self.gang.by == "podgroup"
        kind = self.choices.kind or ("jobset" if several or (self.pods > 1 and not native) else "job")
        if any(pods.min_count is not None for each in self.parts_of for _, pods in each):
            if kind == "jobset" and not several and not self.choices.kind:
                kind = "job"
            elif kind != "job":
                option = self.first.get("nodes")
                text = f"a {kind} has no least number of pods: all must start"
                self.remarks.lost("--nodes", text, option and option.line)
        if several and kind != "jobset":
            what = f"its pods are of {sum(len(each) for each in self.parts_of)} shapes"
            raise InputError(what, file=self.path, field="--as", hint="jobset has an entry for each")
        if self.tasks and self.pods == 1 and kind == "pytorchjob":
            raise InputError("an array of tasks", file=self.path, field="--as", hint="job runs them by their index")
        return kind

    @property
    def by_index(self) -> bool:
        """Whether the tasks of the array are the pods of one Job."""
        return bool(self.tasks) and self.pods == 1 and self.kind == "job"

    # -- the whole

    def translation(self) -> Translation:
        """All of it."""
        options = [each for component in self.batch.script.components for each in component]
        for option in options:
            self.fields.tell(option)
        told = {each.written for each in options if each.name in (*LOST, "partition", "array")}
        for note in self.batch.specs.notes:
            if note.field not in told and "snapshot" not in note.text:
                self.remarks.note(note.field, note.text, note.line)
        if self.assumed and ({"exclusive"} & set(self.first) or self._whole_memory()):
            size = f"{self.choices.node_gpus} GPUs, {CPUS} CPUs and {MEMORY_GIB} GiB"
            self.remarks.note("whole nodes", f"are taken to have {size}; --from names a fleet that tells")
        body = read_body(self.text, self.remarks, components=len(self.parts_of), nodes=self.pods)
        self._tell_body(body)
        self._tell_secrets()
        image = self.choices.image or self.fields.image(body.images)
        self.fields.mounts(body.mounts)
        whole = self._whole()
        files = {"launch": launcher.launcher(self._launch()), "job": self._job(body)}
        objects: list[dict[str, Any]] = [manifests.scripts(whole, files)]
        if self.tasks and not self.by_index:
            objects += self._objects_of_tasks(whole, image)
        else:
            objects += self._objects(whole, image, whole.name, None)
        return Translation(
            self.path, "kubernetes", {"job": "Job", "jobset": "JobSet", "pytorchjob": "PyTorchJob"}[self.kind],
            tuple(objects), remarks=self.remarks.all,
        )  # fmt: skip

    def _whole_memory(self) -> bool:
        return any(component.asked.memory == 0 for component in self.batch.components)

    def _tell_secrets(self) -> None:
        """Whoever may read ConfigMaps and Jobs of the namespace sees what only its owner's script had."""
        found = list(secrets(self.text))
        option = self.first.get("export")
        if option is not None:
            pairs = (part.strip().partition("=") for part in option.value.split(","))
            found += [(name, option.line) for name, _, value in pairs if is_secret(name, value)]
        for name, line in found:
            what = "its value is in the manifests, which others can read: take it out, and name a Secret by envFrom"
            self.remarks.note(name, what, line)

    def _tell_body(self, body: Body) -> None:
        if self.pods > 1 and not body.steps:
            self.remarks.note(
                "srun",
                f"is not called: Slurm runs the script on the first node only, here each of {self.pods} pods does",
            )
        elif body.once:
            shown = ", ".join(map(str, body.once[:8])) + (" ..." if len(body.once) > 8 else "")
            text = f"line{'s' if len(body.once) > 1 else ''} {shown} run once on Slurm, and in each of {self.pods} pods"
            self.remarks.note("script", f"{text} here; guard by [ $SLURM_NODEID = 0 ] what must run once")

    def _job(self, body: Body) -> str:
        """The script as the pods run it: #SBATCH lines stay, as they tell what was asked for."""
        return body.text if body.text.endswith("\n") else f"{body.text}\n"

    def _whole(self) -> Whole:
        gang = self.gang
        limit = self.workload.time_limit_s
        several_tasks = self.by_index
        held = "hold" in self.first
        if held and gang.by == "kueue" and gang.queue:
            self.remarks.lost("--hold", "Kueue lets a suspended job go; set spec.active of its Workload to false",
                              self.first["hold"].line)  # fmt: skip
        least = None
        if self.kind == "job":
            least = self.parts_of[0][0][1].min_count
        labels: dict[str, str] = {}
        if self.choices.priority_class and gang.by == "kueue":
            labels["kueue.x-k8s.io/priority-class"] = self.choices.priority_class
        if limit is not None and gang.by != "kueue" and not several_tasks and self.pods > 1:
            self.remarks.note("--time", "counts from each pod's start, as a Job's would count while it waits")
        return Whole(
            self.name, self.choices.namespace, labels, self.fields.annotations(), gang,
            None if limit is None else int(limit),
            limit_of_pods=several_tasks or not (gang.by == "kueue" and gang.queue),
            requeue="no-requeue" not in self.first, suspend=held and gang.by != "kueue", least=least,
            tasks=len(self.tasks) if self.by_index else 0, tasks_at_once=self.at_once if self.by_index else 0,
        )  # fmt: skip

    def _gang(self) -> Gang:
        own = self.first.get("account") or self.first.get("partition")
        queue = self.choices.queue or (_dns(own.value.partition(",")[0], 63) if own else "")
        by = self.choices.gang or ("kueue" if queue else "podgroup")
        if by == "kueue" and not queue:
            raise InputError("needs a queue, and the script names no account or partition", field="--gang",
                             hint="give --queue LOCALQUEUE")  # fmt: skip
        if by in ("podgroup", "none"):
            for option in (self.first.get("account"), self.first.get("partition")):
                if option is not None:
                    self.remarks.lost(
                        option.written, "Kubernetes' own scheduler has no queues: --gang kueue", option.line
                    )
            return Gang(by)
        if own is not None and not self.choices.queue:
            self.remarks.note(own.written, f"is taken as the queue {queue}", own.line)
        other = self.first.get("partition") if own is self.first.get("account") else None
        if other is not None:
            self.remarks.note(other.written, "is left out beside the account: flavors of the queue say which nodes",
                              other.line)  # fmt: skip
        return Gang(by, queue)

    def _without_groups(self) -> Gang:
        """The pod templates of other kinds have no field schedulingGroup: their CRDs refuse it."""
        if self.choices.gang:
            what = f"the CRD of a {self.kind} knows no schedulingGroup, so its pods cannot be of a PodGroup"
            raise InputError(
                what, file=self.path, field="--gang", hint="--queue LOCALQUEUE has Kueue start them together"
            )
        if self.pods > 1:
            self.remarks.lost("gang", "its pods start one by one: --queue LOCALQUEUE has Kueue start them together")
        return Gang("none")

    # -- objects

    def _objects_of_tasks(self, whole: Whole, image: str) -> list[dict[str, Any]]:
        if len(self.tasks) > MOST_OBJECTS:
            what = f"{len(self.tasks):,} tasks of {self.pods} pods each need an object each"
            raise InputError(what, file=self.path, line=self.first["array"].line, field="--array",
                             hint=f"at most {MOST_OBJECTS}")  # fmt: skip
        if self.at_once < len(self.tasks):
            self.remarks.lost("--array", f"%{self.at_once}: all tasks are there at once; the queue's quota limits them",
                              self.first["array"].line)  # fmt: skip
        found: list[dict[str, Any]] = []
        for task in self.tasks:
            found += self._objects(whole, image, f"{self.name}-{task}", task)
        return found

    def _objects(self, whole: Whole, image: str, name: str, task: int | None) -> list[dict[str, Any]]:
        mine = replace(whole, name=name)
        several = self.pods > 1
        found: list[dict[str, Any]] = []
        made: list[tuple[Part, dict[str, Any]]] = []
        for number, sets in enumerate(self.parts_of):
            first = 0
            for set_name, pods in sets:
                part = self._part(number, set_name, pods, first, task)
                first += pods.count
                subdomain = name if several and self.kind == "job" else ""
                pod = manifests.template(mine, part, self.fields.volumes, image, subdomain)
                pod["spec"]["volumes"][0]["configMap"]["name"] = f"{whole.name}-script"
                made.append((part, pod))
        if self.choices.priority_class and whole.gang.by != "kueue":
            for _, pod in made:
                pod["spec"]["priorityClassName"] = self.choices.priority_class
        if whole.gang.by == "podgroup" and several:
            key = self.workload.topology.required if self.workload.topology else ""
            segment = self.workload.topology.segment if self.workload.topology else 0
            found.append(manifests.pod_group(mine, self.pods, self.where.level(key) if key and not segment else ""))
        elif whole.gang.by == "podgroup":
            for _, pod in made:
                pod["spec"].pop("schedulingGroup")
        if self.kind == "jobset":
            found.append(manifests.job_set(mine, made))
        elif self.kind == "pytorchjob":
            found.append(self._pytorch(mine, *made[0]))
        else:
            if several:
                found.append(manifests.service(mine))
                if whole.requeue:
                    text = "a Job replaces a pod that was lost, and the others go on: --as jobset starts all anew"
                    self.remarks.note("--requeue", text)
            found.append(manifests.job(mine, *made[0]))
        return found

    def _pytorch(self, whole: Whole, part: Part, pod: dict[str, Any]) -> dict[str, Any]:
        """A master and workers; the number of a pod in its role is a label, and the master is node 0."""
        import copy

        roles: list[tuple[str, int, dict[str, Any]]] = []
        for role, count, first in (("Master", 1, 0), ("Worker", part.pods.count - 1, 1)):
            mine = copy.deepcopy(pod)
            container = mine["spec"]["containers"][0]
            container["name"] = "pytorch"
            index = {"fieldRef": {"fieldPath": f"metadata.labels['{manifests.REPLICA_INDEX}']"}}
            container["env"] += [
                {"name": "JOB_COMPLETION_INDEX", "valueFrom": index}, {"name": launcher.FIRST, "value": str(first)},
            ]  # fmt: skip
            mine["spec"].pop("restartPolicy")
            if count:
                roles.append((role, count, mine))
        if "no-requeue" not in self.first:
            self.remarks.lost("--requeue", "a PyTorchJob that loses a node fails: --as jobset starts it anew")
        return manifests.pytorch_job(whole, roles)

    def _part(self, number: int, name: str, pods: PodSet, first: int, task: int | None) -> Part:
        options = {option.name: option for option in self.batch.script.components[number]}
        component = self.batch.components[number]
        env: list[dict[str, Any]] = [
            {"name": launcher.NAME, "value": self.name if task is None else f"{self.name}-{task}"}
        ]
        if len(self.parts_of) > 1:
            env.append({"name": launcher.GROUP, "value": str(number)})
        if first:
            env.append({"name": launcher.FIRST, "value": str(first)})
        if task is not None:
            env.append({"name": launcher.TASK, "value": str(task)})
        if self.kind == "jobset":
            path = f"metadata.labels['{manifests.RESTARTS}']"
            env.append({"name": "SLURM_RESTART_COUNT", "valueFrom": {"fieldRef": {"fieldPath": path}}})
        env += self.fields.env()
        annotations = manifests.topology_of(self.workload.topology, self.pods, self.where.level)
        resource = self.where.resource(pods.shape.gpu_models)
        if pods.shape.shares_gpu:
            annotations["gpu-fraction"] = f"{pods.shape.gpu_milli / 1000:g}"
            option = options["gres"]
            self.remarks.note(option.written, "a share of a GPU is asked for as KAI and Muster read it (gpu-fraction)",
                              option.line)  # fmt: skip
        container: dict[str, Any] = {"env": env}
        if self.fields.folder:
            container["workingDir"] = self.fields.folder
        container["resources"] = manifests.resources(pods, resource, self.fields.disk_bytes(options))
        spec: dict[str, Any] = {**self.fields.pod(), **self.where.affinity(options, self._types(component, options))}
        if pods.shape.gpus:
            spec["tolerations"] = [{"key": resource, "operator": "Exists", "effect": "NoSchedule"}]
        return Part(name, pods, {**spec, "container": container}, annotations)

    def _types(self, component: Component, options: dict[str, Option]) -> tuple[str, ...]:
        """The GPU models that a component must have."""
        named = any(gpus_of(options[each].value)[0] for each in ("gpus", "gpus-per-node", "gpus-per-task")
                    if each in options)  # fmt: skip
        return component.asked.models if named or "gres" in options else ()

    # -- what the pods run

    def _launch(self) -> Launch:
        groups = tuple(self._group(number) for number in range(len(self.parts_of)))
        words = interpreter(self.text)
        run = "set +u\n. /muster/job" if is_shell(words) else f"exec {' '.join(words)} /muster/job"
        if is_shell(words) and "-l" in words:
            run = f". /etc/profile\n{run}"
        lines = tuple(self.fields.lines(run_is_shell=is_shell(words)))
        name = self.fields.job_name(self.path)
        job_id = 100_000 + crc32(name.encode()) % 900_000
        return Launch(name, job_id, groups, self.tasks, self.by_index, lines, run)

    def _group(self, number: int) -> Group:
        component = self.batch.components[number]
        options = {option.name: option for option in self.batch.script.components[number]}
        hosts = tuple(self._hosts(name, pods) for name, pods in self.parts_of[number])
        if self.kind == "pytorchjob":
            name, count = f"${launcher.NAME}", self.pods
            hosts = (Hosts(f"{name}-master-", "", 1), Hosts(f"{name}-worker-", "", count - 1))[: 2 if count > 1 else 1]
        nodes = sum(pods.count for _, pods in self.parts_of[number])
        tasks = _tasks(component, nodes)
        env = {"SLURM_CPUS_PER_TASK": options["cpus-per-task"].value} if "cpus-per-task" in options else {}
        gpus = {pods.shape.gpus for _, pods in self.parts_of[number]}
        if len(gpus) == 1 and gpus != {0}:
            env["SLURM_GPUS_ON_NODE"] = env["SLURM_GPUS_PER_NODE"] = str(gpus.pop())
        if component.asked.tasks_per_node:
            env["SLURM_NTASKS_PER_NODE"] = str(component.asked.tasks_per_node)
        for name, option in (("SLURM_JOB_PARTITION", "partition"), ("SLURM_JOB_ACCOUNT", "account")):
            if option in options:
                env[name] = options[option].value
        way = self.fields.distribution(options)
        given = component.asked.tasks is not None or component.asked.tasks_per_node is not None
        return Group(
            hosts, tasks, component.asked.per_task, given, way == "cyclic" and tasks % nodes == 0, tuple(env.items())
        )

    def _hosts(self, name: str, pods: PodSet) -> Hosts:
        if self.pods == 1:
            return Hosts("", "", 1)
        own = f"${launcher.NAME}"
        if self.kind == "job":
            return Hosts(f"{own}-", f".{own}", pods.count)
        return Hosts(f"{own}-{name}-0-", f".{own}", pods.count)


def _tasks(component: Component, nodes: int) -> int:
    """Ranks that srun starts by itself."""
    asked = component.asked
    if any(each.role.endswith(PARTS) for each in component.pod_sets):
        return nodes
    if asked.tasks is not None:
        return asked.tasks
    if asked.tasks_per_node:
        return asked.tasks_per_node * nodes
    gpus = sum(each.count * each.shape.gpus for each in component.pod_sets)
    if asked.tasks_per_gpu:
        return asked.tasks_per_gpu * gpus
    if asked.per_task and asked.total:
        return asked.total // asked.per_task
    return nodes


def _names(number: int, component: Component) -> Sequence[str]:
    return [_dns(each.role.removesuffix(f" {PARTS}"), 20) for each in component.pod_sets]


def _dns(text: str, most: int) -> str:
    """A name as Kubernetes takes it: lower case letters, digits and dashes, beginning with a letter."""
    found = re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-")[:most].strip("-")
    return found if found[:1].isalpha() else f"job-{found}".strip("-")
