"""MIG profiles: which slices each takes, where it may start, how many fit. Units are slices, memory in MiB.

A GPU has compute slices and memory slices (7 and 8 on the large boards, 4 and 4 on A30 and RTX PRO 6000). A profile
takes some of each; its start is counted in **memory slices**. The simplified placements of go-nvml's mock (3g takes 3
memory slices there) are not those of the hardware and are not used.
"""

from __future__ import annotations

from msgspec import Struct

from muster.catalog.gpu import Gpu
from muster.catalog.names import find_gpu
from muster.errors import InputError


class MigProfile(Struct, frozen=True):
    """One MIG profile of one GPU model.

    Attributes:
        name: as Kubernetes and nvidia-smi write it, such as ``3g.40gb`` or ``1g.10gb+me``.
        compute_slices: compute slices that it takes.
        memory_slices: memory slices that it takes, from its start on.
        starts: memory slices at which it may start.
        max_count: how many the GPU holds at most.
        memory_mib: memory of one instance, MiB; None where no source says it.
        profile_id: nvidia-smi's id of the profile; None where it was not read.
        media_engines: NVDEC engines that it takes, where they limit what may stand together; else 0.
        variant: takes the same slices as another profile and differs in media or graphics engines only.
    """

    name: str
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    max_count: int
    memory_mib: int | None = None
    profile_id: int | None = None
    media_engines: int = 0
    variant: bool = False


class MigTable(Struct, frozen=True):
    """The profiles of GPU models that are split alike.

    Attributes:
        gpus: canonical names of the models.
        compute_slices, memory_slices: slices of the whole GPU.
        profiles: smallest first.
        names_source, placement_source, memory_source, sm_source, reset_source: keys in
            `muster.catalog.sources.SOURCES` of names and counts, starts, memory, ``sm_per_slice``, ``reset_to_toggle``.
        sm_per_slice: streaming multiprocessors of a compute slice; None where not known.
        media_engines: NVDEC engines of the GPU, where they limit what may stand together; else 0.
        reset_to_toggle: whether switching MIG mode on or off resets the GPU; None where not known.
        note: what to know before relying on a number.
    """

    gpus: tuple[str, ...]
    compute_slices: int
    memory_slices: int
    profiles: tuple[MigProfile, ...]
    names_source: str
    placement_source: str
    memory_source: str | None = None
    sm_per_slice: int | None = None
    media_engines: int = 0
    reset_to_toggle: bool | None = None
    note: str = ""
    sm_source: str = "go-nvml"
    reset_source: str = "mig-toggle"

    def profile(self, name: str) -> MigProfile:
        """The profile called ``name`` (``MIG 3g.40gb`` and ``mig-3g.40gb`` are understood too).

        Raises:
            InputError: for a profile that this GPU does not have, with those that it has.
        """
        wanted = name.strip().casefold().removeprefix("nvidia.com/").removeprefix("mig-").removeprefix("mig ")
        for profile in self.profiles:
            if profile.name == wanted or profile.name.replace("+", ".") == wanted:
                return profile
        names = ", ".join(profile.name for profile in self.profiles)
        raise InputError(f"this GPU has no MIG profile '{name}'", hint=f"it has {names}")


def _seven(memory: tuple[str, str, str, str], mib: tuple[int | None, ...], ids: bool) -> tuple[MigProfile, ...]:
    """The seven profiles of a GPU of 7 compute and 8 memory slices.

    Args:
        memory: what the names say for 1, 2, 4 and 8 memory slices, such as ``("10gb", "20gb", "40gb", "80gb")``.
        mib: memory in MiB for 1, 2, 4 and 8 memory slices.
        ids: whether nvidia-smi's profile ids were read on this board.
    """
    one, two, four, eight = memory
    mib1, mib2, mib4, mib8 = mib
    rows = (
        (f"1g.{one}", 1, 1, (0, 1, 2, 3, 4, 5, 6), 7, mib1, 19),
        (f"1g.{one}+me", 1, 1, (0, 1, 2, 3, 4, 5, 6), 1, mib1, 20),
        (f"1g.{two}", 1, 2, (0, 2, 4, 6), 4, mib2, 15),
        (f"2g.{two}", 2, 2, (0, 2, 4), 3, mib2, 14),
        (f"3g.{four}", 3, 4, (0, 4), 2, mib4, 9),
        (f"4g.{four}", 4, 4, (0,), 1, mib4, 5),
        (f"7g.{eight}", 7, 8, (0,), 1, mib8, 0),
    )
    return tuple(MigProfile(*row[:6], row[6] if ids else None, variant="+" in row[0]) for row in rows)


_UNKNOWN = (None, None, None, None)

_A30 = (
    MigProfile("1g.6gb", 1, 1, (0, 1, 2, 3), 4, 5952, 14),
    MigProfile("1g.6gb+me", 1, 1, (0, 1, 2, 3), 1, 5952, 21, variant=True),
    MigProfile("2g.12gb", 2, 2, (0, 2), 2, 11968, 5),
    MigProfile("2g.12gb+me", 2, 2, (0, 2), 1, 11968, 6, variant=True),
    MigProfile("4g.24gb", 4, 4, (0,), 1, 24064, 0),
)

_RTX_PRO_6000 = (
    MigProfile("1g.24gb", 1, 1, (0, 1, 2, 3), 4, 24192, 14, media_engines=1),
    MigProfile("1g.24gb+gfx", 1, 1, (0, 1, 2, 3), 4, 24192, 47, media_engines=1, variant=True),
    MigProfile("1g.24gb+me", 1, 1, (0, 1, 2, 3), 1, 24192, 21, media_engines=1, variant=True),
    MigProfile("1g.24gb+me.all", 1, 1, (0, 1, 2, 3), 1, 24192, 65, media_engines=4, variant=True),
    MigProfile("1g.24gb-me", 1, 1, (0, 1, 2, 3), 4, 24192, 67, variant=True),
    MigProfile("2g.48gb", 2, 2, (0, 2), 2, 48512, 5, media_engines=2),
    MigProfile("2g.48gb+gfx", 2, 2, (0, 2), 2, 48512, 35, media_engines=2, variant=True),
    MigProfile("2g.48gb+me.all", 2, 2, (0, 2), 1, 48512, 64, media_engines=4, variant=True),
    MigProfile("2g.48gb-me", 2, 2, (0, 2), 2, 48512, 66, variant=True),
    MigProfile("4g.96gb", 4, 4, (0,), 1, 97280, 0, media_engines=4),
    MigProfile("4g.96gb+gfx", 4, 4, (0,), 1, 97280, 32, media_engines=4, variant=True),
)

_SAME_GEOMETRY = "Placements are those of the other boards with 7 compute and 8 memory slices."
_FROM_GIB = "MiB are read from GiB with two decimals, to the next 32 MiB."
_H100_MIB = "nvidia-smi shows up to 4 % less (3g.40gb: 39.50 GiB)."

MIG_TABLES: tuple[MigTable, ...] = (
    MigTable(("A30-PCIe-24GB",), 4, 4, _A30, "mig-profiles", "mig-lgipp-a30", "mig-lgipp-a30", 14, note=_FROM_GIB),
    MigTable(
        ("A100-PCIe-40GB", "A100-SXM4-40GB"),
        7,
        8,
        _seven(("5gb", "10gb", "20gb", "40gb"), (4864, 9856, 19968, 40192), True),
        "mig-profiles",
        "mig-lgipp",
        "go-nvml",
        14,
        reset_to_toggle=True,
    ),
    MigTable(
        ("A100-PCIe-80GB", "A100-SXM4-80GB", "A800-SXM4-80GB"),
        7,
        8,
        _seven(("10gb", "20gb", "40gb", "80gb"), (9856, 19968, 40192, 80384), True),
        "mig-profiles",
        "mig-lgipp",
        "go-nvml",
        14,
        reset_to_toggle=True,
    ),
    MigTable(
        ("H100-PCIe-80GB", "H100-SXM5-80GB", "H800-SXM5-80GB"),
        7,
        8,
        _seven(("10gb", "20gb", "40gb", "80gb"), (10240, 20480, 40960, 81920), True),
        "mig-profiles",
        "mig-lgipp",
        "test-infra",
        16,
        reset_to_toggle=False,
        note=_H100_MIB,
    ),
    MigTable(
        ("H100-NVL-94GB",),
        7,
        8,
        _seven(("12gb", "24gb", "47gb", "94gb"), _UNKNOWN, True),
        "mig-profiles",
        "mig-lgipp",
        None,
        16,
        reset_to_toggle=False,
    ),
    MigTable(
        ("H20-SXM5-96GB",),
        7,
        8,
        _seven(("12gb", "24gb", "48gb", "96gb"), _UNKNOWN, False),
        "mig-operator",
        "mig-profiles",
        reset_to_toggle=False,
        note=_SAME_GEOMETRY,
    ),
    MigTable(
        ("H200-SXM5-141GB",),
        7,
        8,
        _seven(("18gb", "35gb", "71gb", "141gb"), (18432, 35840, 72704, 144384), False),
        "mig-profiles",
        "mig-profiles",
        "go-nvml",
        16,
        reset_to_toggle=False,
        note=_SAME_GEOMETRY,
    ),
    MigTable(
        ("B200-SXM6-180GB",),
        7,
        8,
        _seven(("23gb", "45gb", "90gb", "180gb"), (23040, 46080, 92160, 184320), False),
        "mig-profiles",
        "test-infra",
        "test-infra",
        18,
        reset_to_toggle=False,
        note="Another table gives 1g.23gb 23,552 MiB.",
    ),
    MigTable(
        ("B300-SXM6-269GB",),
        7,
        8,
        _seven(("34gb", "67gb", "135gb", "269gb"), _UNKNOWN, False),
        "mig-operator",
        "test-infra",
        reset_to_toggle=False,
        note=_SAME_GEOMETRY,
    ),
    MigTable(
        ("GB200-186GB",),
        7,
        8,
        _seven(("23gb", "47gb", "93gb", "186gb"), (23808, 47616, 95232, 190464), False),
        "mig-operator",
        "test-infra",
        "test-infra",
        18,
        reset_to_toggle=False,
        sm_source="test-infra",
    ),
    MigTable(
        ("GB300-278GB",),
        7,
        8,
        _seven(("35gb", "70gb", "139gb", "278gb"), (35584, 71168, 142336, 284672), False),
        "mig-operator",
        "test-infra",
        "test-infra",
        18,
        reset_to_toggle=False,
        sm_source="test-infra",
        note="NVIDIA's guide has no GB300 table; NVIDIA's mock gives these.",
    ),
    MigTable(
        ("RTX-PRO-6000-96GB",),
        4,
        4,
        _RTX_PRO_6000,
        "mig-profiles",
        "mig-rtx",
        "mig-rtx",
        media_engines=4,
        note=_FROM_GIB,
    ),
)
"""One table a family of models that are split alike."""

_BY_GPU = {name: table for table in MIG_TABLES for name in table.gpus}


def mig_table(gpu: str | Gpu) -> MigTable:
    """The MIG profiles of a GPU model, by any of its names.

    Raises:
        InputError: for an unknown model, and for one that cannot be split.
    """
    model = gpu if isinstance(gpu, Gpu) else find_gpu(gpu)
    table = _BY_GPU.get(model.name)
    if table is None:
        raise InputError(f"{model.name} cannot be split by MIG", hint="'muster catalog mig' lists the models that can")
    return table
