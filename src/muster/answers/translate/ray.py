"""Ray clusters as steps of a Slurm job: the head on the first node, workers on the others, then the job's command.

Source: docs.ray.io, "Deploying on Slurm".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muster.answers.specs.pods import inside
from muster.answers.translate.pods import Runs
from muster.answers.translate.shapes import Component

PORT = 6379


def ray_body(
    data: Mapping[str, Any], runs: Mapping[str, Runs], components: Sequence[Component], image: str
) -> Iterator[str]:
    """The commands of the script."""
    from muster.answers.translate.to_slurm import container_options

    several = len(components) > 1
    nodelist = "SLURM_JOB_NODELIST_HET_GROUP_0" if several else "SLURM_JOB_NODELIST"
    yield f'head=$(scontrol show hostnames "${nodelist}" | head -n 1)'
    yield f"export RAY_ADDRESS=$head:{PORT}"
    head = runs["head"]
    yield from head.env
    yield ""
    for number, component in enumerate(components):
        for role, count in component.roles:
            first = role == "head"
            mine = runs.get(role, head)
            start = f"--head --port={PORT}" if first else "--address=$RAY_ADDRESS"
            own = [f"--het-group={number}"] if several else []
            own += [f"--nodes={count}", f"--ntasks={count}"] if component.by_node else [f"--ntasks={count}"]
            if not several:
                own.append("--nodelist=$head" if first else "--exclude=$head")
            gpus = component.pods.shape.gpus
            cpus = max(1, -(-component.pods.shape.cpu_milli // 1000))
            words = ["srun", "--overlap", *own, *container_options(mine, image), f"ray start {start} --block",
                     f"--num-cpus={cpus}", f"--num-gpus={gpus}", "&"]  # fmt: skip
            yield " ".join(words)
            if first:
                yield "sleep 15  # until the head listens"
    yield ""
    command = str(inside(data, "spec.entrypoint") or "")
    if command:
        own = ["--het-group=0"] if several else ["--nodelist=$head"]
        words = ["srun", "--overlap", *own, "--nodes=1", "--ntasks=1", *container_options(head, image), "bash", "-c"]
        yield " ".join(words) + " " + _quoted(f"exec {command}")
    else:
        yield "wait"


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)
