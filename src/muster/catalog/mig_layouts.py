"""Which MIG instances may stand together on one GPU, by their starts and not by adding up slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

from muster.catalog.gpu import Gpu
from muster.catalog.mig import MigProfile, MigTable, mig_table
from muster.errors import InputError

Layout = tuple[tuple[str, int], ...]
"""``(profile name, start in memory slices)`` of every instance, by start: as `muster.model.Device.mig_profiles`."""


class _Used:
    """What a layout takes: a bit per memory slice, compute slices, media engines, instances a profile."""

    def __init__(self, table: MigTable) -> None:
        self.table = table
        self.memory = 0
        self.compute = 0
        self.media = 0
        self.counts: Counter[str] = Counter()

    def why_not(self, profile: MigProfile, start: int) -> str:
        """What stands against an instance here; empty if nothing does."""
        table = self.table
        if start not in profile.starts:
            return f"may start at {', '.join(map(str, profile.starts))} only"
        if self.memory & _mask(profile, start):
            return "overlaps with another instance"
        if self.compute + profile.compute_slices > table.compute_slices:
            return f"needs more than the {table.compute_slices} compute slices"
        if self.media + profile.media_engines > table.media_engines:
            return f"needs more than the {table.media_engines} media engines"
        if self.counts[profile.name] >= profile.max_count:
            return f"is there {profile.max_count} times already, which is the most"
        return ""

    def take(self, profile: MigProfile, start: int, sign: int = 1) -> None:
        """Add (or with ``sign=-1`` remove) an instance."""
        self.memory ^= _mask(profile, start)
        self.compute += sign * profile.compute_slices
        self.media += sign * profile.media_engines
        self.counts[profile.name] += sign

    def starts(self, profile: MigProfile) -> tuple[int, ...]:
        """Where one more instance of ``profile`` may start."""
        return tuple(start for start in profile.starts if not self.why_not(profile, start))


def _mask(profile: MigProfile, start: int) -> int:
    return ((1 << profile.memory_slices) - 1) << start


def _used(table: MigTable, layout: Sequence[tuple[str, int]]) -> _Used:
    used = _Used(table)
    for name, start in layout:
        profile = table.profile(name)
        if reason := used.why_not(profile, start):
            raise InputError(f"{profile.name} at slice {start} {reason}")
        used.take(profile, start)
    return used


def check_layout(gpu: str | Gpu, layout: Sequence[tuple[str, int]]) -> Layout:
    """Return the layout in canonical order (by start) if the GPU can hold it.

    Raises:
        InputError: naming the first instance that cannot stand, and why.
    """
    table = mig_table(gpu)
    _used(table, layout)
    return tuple(sorted(((table.profile(name).name, start) for name, start in layout), key=lambda item: item[1]))


def can_add(gpu: str | Gpu, layout: Sequence[tuple[str, int]], profile: str) -> tuple[int, ...]:
    """Starts, in memory slices, at which one more ``profile`` fits beside ``layout``; empty: it does not fit.

    Raises:
        InputError: for an unknown profile, or a layout that the GPU cannot hold.
    """
    table = mig_table(gpu)
    return _used(table, layout).starts(table.profile(profile))


def room_for(gpu: str | Gpu, layout: Sequence[tuple[str, int]], profile: str) -> int:
    """How many more instances of ``profile`` fit beside ``layout``, all at once.

    Exact by taking the lowest start each time: starts of one profile are multiples of a step that is no smaller than
    its size, so its own places never overlap.
    """
    table = mig_table(gpu)
    used, wanted, count = _used(table, layout), table.profile(profile), 0
    while starts := used.starts(wanted):
        used.take(wanted, starts[0])
        count += 1
    return count


def legal_layouts(gpu: str | Gpu, *, variants: bool = False) -> tuple[Layout, ...]:
    """All maximal legal layouts: sets of ``(profile, start)`` to which no profile can be added.

    Canonical order: larger instances at lower starts first, then the profile's name; each layout by start.

    Args:
        gpu: the model, by any of its names.
        variants: count profiles that differ only in media or graphics engines (``+me``, ``-me``, ``+gfx``) as their
            own; without, only one profile a shape is used.
    """
    return _legal_layouts(mig_table(gpu), variants)


@cache
def _legal_layouts(table: MigTable, variants: bool) -> tuple[Layout, ...]:
    # Larger first, so that the depth-first search already yields the canonical order.
    profiles = sorted(
        (profile for profile in table.profiles if variants or not profile.variant),
        key=lambda profile: (-profile.memory_slices, -profile.compute_slices, profile.name),
    )
    found: list[Layout] = []
    used, chosen = _Used(table), list[tuple[str, int]]()

    def place_from(slice_: int) -> None:
        """Ideal: every subset of placements, kept if legal and maximal. Placements are chosen by rising start, so that
        each set is met once; a slice may also be left empty, and maximality is tested at the end."""
        if slice_ == table.memory_slices:
            if not any(used.starts(profile) for profile in profiles):
                found.append(tuple(chosen))
            return
        for profile in profiles:
            if not used.why_not(profile, slice_):
                used.take(profile, slice_)
                chosen.append((profile.name, slice_))
                place_from(slice_ + profile.memory_slices)
                chosen.pop()
                used.take(profile, slice_, -1)
        place_from(slice_ + 1)

    place_from(0)
    return tuple(found)
