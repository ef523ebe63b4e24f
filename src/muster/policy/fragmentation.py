"""How much of a node's free GPU is a fragment: no use to the pods that typically come.

Source of the measure: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent", USENIX ATC 2023. For a typical pod m and a node with free GPU T = sum of r_g:

    F(m) = T                            if m asks for no GPU, is not allowed on the node, or does not fit
    F(m) = sum of r_g over r_g < d_m    if it fits: what lies on devices too full for it

and the node's fragment is the mean of F over the typical pods. Typical pods are the distinct shapes without their
memory, the most frequent first, until 95 % of the pods are covered; memory is not part of the measure.
"""

from __future__ import annotations

# Numpy's stubs do not tell an element from an array where the number of axes is not known.
# pyright: reportArgumentType=false
from msgspec.structs import replace

from muster.kernels import (
    CONSTRAINT,
    CPU,
    FREE_CPU,
    FREE_MEMORY,
    GPU_MILLI,
    GPUS,
    MEMORY,
    Floats,
    Knowledge,
    NodeArrays,
    ShapeArrays,
    entry_kernel,
    kernel,
)
from muster.model.workload import PodShape, ShapeMix
from muster.policy.gpus import fitting_and_spoiled, free_milli
from muster.policy.sharing import fitting_and_kept, plain

NO_GPU_ASKED, WRONG_MODEL, LACK_OF_GPU, WRONG_SHAPE, LACK_OF_CPU, LACK_OF_MEMORY, LEFTOVER = range(7)
CAUSES = ("no_gpu_asked", "wrong_model", "lack_of_gpu", "wrong_shape", "lack_of_cpu", "lack_of_memory", "leftover")
"""Why free GPU is a fragment to a typical pod, in the order of the columns that `fragment_causes` fills.

``no_gpu_asked``: the pod is a CPU pod; ``wrong_model``: it is not allowed here; ``lack_of_gpu``: less GPU is free than
it asks for; ``wrong_shape``: enough in all, but not on single devices; ``lack_of_cpu`` and ``lack_of_memory``: the GPU
is there and the rest is not; ``leftover``: the pod fits, and this lies on devices too full for it.
"""

TYPICAL_SHARE = 0.95


def typical_shapes(mix: ShapeMix, with_memory: bool = False) -> tuple[tuple[PodShape, ...], tuple[float, ...]]:
    """The typical pods of a mix and their shares (summing to 1), as the paper's code picks them.

    Shapes are counted without memory; most frequent first, equals by larger cpu, then share, then count of GPUs.
    ``with_memory`` counts them with it, for measures that also tell lack of memory; the paper's and FGD's do not.
    """
    counted: dict[PodShape, int] = {}
    for shape, count in zip(mix.shapes, mix.counts, strict=True):
        bare = shape if with_memory or not shape.memory_bytes else replace(shape, memory_bytes=0)
        counted[bare] = counted.get(bare, 0) + count

    def rank(item: tuple[PodShape, int]) -> tuple[int, int, int, int, tuple[str, ...], int]:
        shape, count = item
        milli = shape.gpu_milli if shape.gpus else 0
        return count, shape.cpu_milli, milli, shape.gpus, shape.gpu_models, shape.memory_bytes

    covered = 0
    chosen: list[tuple[PodShape, int]] = []
    for shape, count in sorted(counted.items(), key=rank, reverse=True):
        if covered >= TYPICAL_SHARE * mix.pods:
            break
        covered += count
        chosen.append((shape, count))
    return tuple(shape for shape, _ in chosen), tuple(count / covered for _, count in chosen)


@kernel
def fragment_milli(node: int, nodes: NodeArrays, shapes: ShapeArrays, knowledge: Knowledge) -> float:
    """The node's fragment in milli GPU.

    The sum goes by seven groups that are added at the end, as the paper's code does: FGD cuts its score to an
    integer, and the last bit decides between 49 and 50.
    """
    lack_both = satisfied = lack_cpu = cpu_pod = cpu_pod_lack = no_access = 0.0
    total = free_milli(node, nodes)
    for index in range(knowledge.typical.shape[0]):
        share = knowledge.typical_share[index]
        shape = knowledge.typical[index]
        cpu_fits = nodes.table[node, FREE_CPU] >= shapes.table[shape, CPU]
        wanted = shapes.table[shape, GPUS]
        if wanted == 0:
            if cpu_fits:
                cpu_pod += share * total
            else:
                cpu_pod_lack += share * total
            continue
        if shapes.static_refusals[shapes.table[shape, CONSTRAINT], node] != 0:
            no_access += share * total
            continue
        milli = shapes.table[shape, GPU_MILLI]
        fitting, spoiled = fitting_and_spoiled(node, milli, nodes)
        if fitting >= wanted:
            if cpu_fits:
                satisfied += share * spoiled
            else:
                lack_cpu += share * total
        elif cpu_fits:
            satisfied += share * total
        else:
            lack_both += share * total
    return lack_both + satisfied + lack_cpu + cpu_pod + cpu_pod_lack + no_access


@entry_kernel
def fragment_causes(node: int, nodes: NodeArrays, shapes: ShapeArrays, knowledge: Knowledge, out: Floats) -> None:
    """Write the node's fragment by cause (milli GPU, the columns of CAUSES); the causes sum up to the fragment.

    Where typical shapes carry memory, lack of it counts too (then the sum is larger than `fragment_milli`).
    """
    out[:] = 0.0
    total = free_milli(node, nodes)
    if total == 0:
        return
    for index in range(knowledge.typical.shape[0]):
        share = knowledge.typical_share[index]
        shape = knowledge.typical[index]
        wanted = shapes.table[shape, GPUS]
        if wanted == 0:
            out[NO_GPU_ASKED] += share * total
            continue
        if shapes.static_refusals[shapes.table[shape, CONSTRAINT], node] != 0:
            out[WRONG_MODEL] += share * total
            continue
        milli = shapes.table[shape, GPU_MILLI]
        if plain(node, shape, nodes, shapes):
            fitting, spoiled = fitting_and_spoiled(node, milli, nodes)
        else:
            fitting, spoiled = fitting_and_kept(node, shape, nodes, shapes)
        if fitting < wanted:
            out[LACK_OF_GPU if total < wanted * milli else WRONG_SHAPE] += share * total
        elif nodes.table[node, FREE_CPU] < shapes.table[shape, CPU]:
            out[LACK_OF_CPU] += share * total
        elif nodes.table[node, FREE_MEMORY] < shapes.table[shape, MEMORY]:
            out[LACK_OF_MEMORY] += share * total
        else:
            out[LEFTOVER] += share * spoiled
