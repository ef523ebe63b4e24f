"""MIG instances as bit masks: two may stand together on a GPU if and only if their masks have no bit in common.

Bits 0 to 7 are the memory slices. Memory alone does not tell all: some profiles may be there once only, and on some
boards media engines run out first. Such limits get bits of their own from bit 8 on, so that one test covers every rule
of `muster.catalog.mig_layouts`; tests compare the two on all layouts of all models. Compute slices need none: on every
board instances that share no memory slice have enough of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from msgspec import Struct

from muster.catalog.mig import MIG_TABLES, MigProfile, MigTable, mig_table
from muster.errors import InputError

MEMORY_BITS = 8
MASK_BITS = 16
MOST_PLACEMENTS = 40
"""No GPU has more ways to place an instance."""


class MigPlacement(Struct, frozen=True):
    """One way to place an instance on a GPU.

    Attributes:
        profile: its canonical name.
        start: the memory slice at which it starts.
        memory_slices: how many it takes.
        mask: what it takes, as above.
        gpu_milli: its share of the GPU's memory slices, in thousandths: what it costs.
        variant: it takes the slices of another profile and differs in media or graphics engines only.
    """

    profile: str
    start: int
    memory_slices: int
    mask: int
    gpu_milli: int
    variant: bool


@cache
def mig_placements(table: MigTable) -> tuple[MigPlacement, ...]:
    """All ways to place an instance on a GPU, by profile as the table lists them and then by start."""
    placements: list[MigPlacement] = []
    once = MEMORY_BITS + table.media_engines
    for profile in table.profiles:
        limit = 0
        if profile.max_count < len(profile.starts) and not _takes_all_media(table, profile):
            assert profile.max_count == 1
            assert once < MASK_BITS
            limit = 1 << once
            once += 1
        for start in profile.starts:
            memory = (1 << profile.memory_slices) - 1 << start
            mask = memory | _media(table, profile, start) | limit
            milli = 1000 * profile.memory_slices // table.memory_slices
            placements.append(MigPlacement(profile.name, start, profile.memory_slices, mask, milli, profile.variant))
    assert len(placements) <= MOST_PLACEMENTS
    return tuple(placements)


def _takes_all_media(table: MigTable, profile: MigProfile) -> bool:
    return 0 < table.media_engines == profile.media_engines


def _media(table: MigTable, profile: MigProfile, start: int) -> int:
    """Media engines as bits: those beside the profile's own memory slices, unless it takes all."""
    if _takes_all_media(table, profile):
        return (1 << table.media_engines) - 1 << MEMORY_BITS
    assert profile.media_engines <= profile.memory_slices
    return (1 << profile.media_engines) - 1 << MEMORY_BITS + start


def table_of(model: str) -> MigTable | None:
    """The MIG profiles of a model by any of its names; None for one that is not known or cannot be split."""
    try:
        return mig_table(model)
    except InputError:
        return None


def mig_milli(profile: str, models: Iterable[str]) -> int:
    """What an instance costs on GPUs of some models, in thousandths of a GPU: its share of the memory slices.

    Where a profile of this name is larger on one model than on another, the larger. 0: none of them has it.
    """
    most = 0
    for table in filter(None, map(table_of, models)):
        try:
            name = table.profile(profile).name
        except InputError:
            continue
        most = max(most, *(place.gpu_milli for place in mig_placements(table) if place.profile == name))
    return most


def table_number(table: MigTable) -> int:
    """The place of a table in `MIG_TABLES`, counted from 1."""
    return 1 + MIG_TABLES.index(table)
