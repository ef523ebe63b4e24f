"""Masks of MIG placements say the same as the rules of slices, engines and counts, on every layout of every model."""

from __future__ import annotations

import pytest

from muster.catalog.mig import MIG_TABLES, MigTable
from muster.catalog.mig_layouts import can_add
from muster.catalog.mig_placements import mig_placements, table_number, table_of


@pytest.mark.parametrize("table", MIG_TABLES, ids=lambda table: table.gpus[0])
def test_masks_without_a_common_bit_are_the_legal_layouts(table: MigTable) -> None:
    """Each set of placements is reached by adding one to a legal set; those met before are not met again."""
    gpu, places = table.gpus[0], mig_placements(table)
    seen: set[frozenset[int]] = set()
    todo = [frozenset[int]()]
    checked = 0
    while todo:
        chosen = todo.pop()
        layout = [(places[at].profile, places[at].start) for at in sorted(chosen)]
        used = sum(places[at].mask for at in chosen)
        legal = {profile.name: can_add(gpu, layout, profile.name) for profile in table.profiles}
        for at, place in enumerate(places):
            fits = place.start in legal[place.profile]
            assert fits == (place.mask & used == 0), (layout, place)
            more = chosen | {at}
            if fits and more not in seen and len(seen) < 800:
                seen.add(more)
                todo.append(more)
        checked += 1
    assert checked > 50


@pytest.mark.parametrize("table", MIG_TABLES, ids=lambda table: table.gpus[0])
def test_what_stands_together_costs_at_most_the_gpu(table: MigTable) -> None:
    """A price by memory slices adds up: the whole is 1000, and no layout can exceed it."""
    places = mig_placements(table)
    assert max(place.gpu_milli for place in places) == 1000
    for place in places:
        assert place.gpu_milli * table.memory_slices == 1000 * place.memory_slices
        assert place.gpu_milli == 1000 * (place.mask & 0xFF).bit_count() // table.memory_slices


def test_tables_are_found_by_any_name() -> None:
    table = table_of("NVIDIA-H100-80GB-HBM3")
    assert table is not None
    assert "H100-SXM5-80GB" in table.gpus
    assert MIG_TABLES[table_number(table) - 1] is table
    assert table_of("T4") is None
    assert table_of("no such GPU") is None
