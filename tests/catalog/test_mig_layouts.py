"""MIG: the table of slices, and which instances may stand together."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.catalog import MIG_TABLES, can_add, check_layout, find_gpu, legal_layouts, mig_table, room_for
from muster.errors import InputError

GPUS = sorted(name for table in MIG_TABLES for name in table.gpus)
LARGE = [table.gpus[0] for table in MIG_TABLES if table.memory_slices == 8]

# nvidia-smi mig -lgipp (A100, H100, H100 NVL alike): id, starts, size, most instances.
LGIPP = {
    19: ((0, 1, 2, 3, 4, 5, 6), 1, 7),
    20: ((0, 1, 2, 3, 4, 5, 6), 1, 1),
    15: ((0, 2, 4, 6), 2, 4),
    14: ((0, 2, 4), 2, 3),
    9: ((0, 4), 4, 2),
    5: ((0,), 4, 1),
    0: ((0,), 8, 1),
}


def profile_of(gpu: str, compute: int, memory: int) -> str:
    """Name of the plain profile with these slices."""
    table = mig_table(gpu)
    (name,) = [
        profile.name
        for profile in table.profiles
        if (profile.compute_slices, profile.memory_slices) == (compute, memory) and not profile.variant
    ]
    return name


@pytest.mark.parametrize("gpu", ["A100-SXM4-40GB", "A100-PCIe-80GB", "H100", "H100 NVL", "H800"])
def test_starts_are_those_that_nvidia_smi_prints(gpu):
    profiles = {profile.profile_id: profile for profile in mig_table(gpu).profiles}
    assert {key: (p.starts, p.memory_slices, p.max_count) for key, p in profiles.items()} == LGIPP


def test_a30_as_nvidia_smi_prints_it():
    profiles = {p.profile_id: (p.starts, p.memory_slices, p.max_count) for p in mig_table("A30").profiles}
    four, two = (0, 1, 2, 3), (0, 2)
    assert profiles == {14: (four, 1, 4), 21: (four, 1, 1), 5: (two, 2, 2), 6: (two, 2, 1), 0: ((0,), 4, 1)}


# Golden memory: shared facts B1.
@pytest.mark.parametrize(
    ("gpu", "profile", "mib"),
    [("A100-40GB", "1g.5gb", 4864), ("A100-40GB", "1g.10gb", 9856), ("A100-40GB", "3g.20gb", 19968),
     ("A100-40GB", "7g.40gb", 40192), ("A100-80GB", "1g.10gb", 9856), ("A100-80GB", "1g.20gb", 19968),
     ("A100-80GB", "3g.40gb", 40192), ("A100-80GB", "7g.80gb", 80384), ("H100", "1g.10gb", 10240),
     ("H100", "1g.20gb", 20480), ("H100", "3g.40gb", 40960), ("H100", "7g.80gb", 81920), ("H200", "1g.18gb", 18432),
     ("H200", "1g.35gb", 35840), ("H200", "3g.71gb", 72704), ("H200", "7g.141gb", 144384), ("B200", "1g.23gb", 23040),
     ("B200", "1g.45gb", 46080), ("B200", "3g.90gb", 92160), ("B200", "7g.180gb", 184320)],
)  # fmt: skip
def test_memory_of_a_profile(gpu, profile, mib):
    assert mig_table(gpu).profile(profile).memory_mib == mib


@pytest.mark.parametrize(
    ("gpu", "names"),
    [
        ("H100 NVL", "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb"),
        ("B300", "1g.34gb 1g.34gb+me 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb"),
        ("GB200", "1g.23gb 1g.23gb+me 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb"),
        ("GB300", "1g.35gb 1g.35gb+me 1g.70gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb"),
    ],
)
def test_names_on_newer_boards(gpu, names):
    assert " ".join(profile.name for profile in mig_table(gpu).profiles) == names


@pytest.mark.parametrize("gpu", LARGE)
def test_two_3g_leave_no_room_although_a_compute_slice_is_free(gpu):
    three = profile_of(gpu, 3, 4)
    both = ((three, 0), (three, 4))
    for profile in mig_table(gpu).profiles:
        assert can_add(gpu, both, profile.name) == ()


@pytest.mark.parametrize("gpu", LARGE)
def test_room_after_one_3g_depends_on_its_start(gpu):
    three, one = profile_of(gpu, 3, 4), profile_of(gpu, 1, 1)
    assert room_for(gpu, ((three, 0),), one) == 3
    assert room_for(gpu, ((three, 4),), one) == 4
    assert can_add(gpu, ((three, 0),), one) == (4, 5, 6)
    assert can_add(gpu, ((three, 4),), one) == (0, 1, 2, 3)


@pytest.mark.parametrize("gpu", LARGE)
def test_full_mixes(gpu):
    two, three, four = profile_of(gpu, 2, 2), profile_of(gpu, 3, 4), profile_of(gpu, 4, 4)
    for full in (((four, 0), (three, 4)), ((two, 0), (two, 2), (three, 4))):
        assert full in legal_layouts(gpu)
        assert all(can_add(gpu, full, profile.name) == () for profile in mig_table(gpu).profiles)


def test_the_operators_balanced_mix_is_legal():
    for gpu, mix in {
        "H100": (("2g.20gb", 0), ("1g.10gb", 2), ("1g.10gb", 3), ("3g.40gb", 4)),
        "RTX PRO 6000": (("2g.48gb", 0), ("1g.24gb", 2), ("1g.24gb", 3)),
        "A30": (("2g.12gb", 0), ("1g.6gb", 2), ("1g.6gb", 3)),
    }.items():
        assert mix in legal_layouts(gpu)


@pytest.mark.parametrize("gpu", GPUS)
def test_most_instances_of_one_profile_is_what_the_table_says(gpu):
    for profile in mig_table(gpu).profiles:
        assert room_for(gpu, (), profile.name) == profile.max_count


@pytest.mark.parametrize("gpu", LARGE)
def test_without_the_double_memory_profile_there_are_the_19_known_layouts(gpu):
    # 4g, 3g or two pairs (2g or 1g+1g each) on the left; 3g, or one such pair and 1g, on the right; or 7g alone.
    double = profile_of(gpu, 1, 2)
    plain = [layout for layout in legal_layouts(gpu) if all(name != double for name, _ in layout)]
    assert len(plain) == (1 + 1 + 2 * 2) * (1 + 2) + 1 == 19
    assert len(legal_layouts(gpu)) == (1 + 1 + 3 * 3) * (1 + 3 * 2) + 1 == 78


@pytest.mark.parametrize("gpu", ["A30", "RTX PRO 6000"])
def test_four_slices_give_five_layouts(gpu):
    sizes = [tuple(mig_table(gpu).profile(name).memory_slices for name, _ in found) for found in legal_layouts(gpu)]
    assert sizes == [(4,), (2, 2), (2, 1, 1), (1, 1, 2), (1, 1, 1, 1)]


@pytest.mark.parametrize("gpu", ["A30", "A100-40GB", "H100"])
@pytest.mark.parametrize("variants", [False, True])
def test_layouts_are_all_legal_maximal_and_found_by_brute_force_too(gpu, variants):
    table = mig_table(gpu)
    names = [profile.name for profile in table.profiles if variants or not profile.variant]
    found = legal_layouts(gpu, variants=variants)
    assert len(set(found)) == len(found)
    for layout in found:
        assert check_layout(gpu, layout) == layout
        assert not any(can_add(gpu, layout, name) for name in names)
    if gpu == "A30":
        places = [(name, start) for name in names for start in table.profile(name).starts]
        legal = set()
        for count in range(1, table.memory_slices + 1):
            for chosen in combinations(places, count):
                try:
                    legal.add(frozenset(check_layout(gpu, chosen)))
                except InputError:
                    continue
        maximal = {layout for layout in legal if not any(layout < other for other in legal)}
        assert {frozenset(layout) for layout in found} == maximal


def test_layouts_are_in_canonical_order():
    found = legal_layouts("H100")
    assert found[:3] == (
        (("7g.80gb", 0),),
        (("4g.40gb", 0), ("3g.40gb", 4)),
        (("4g.40gb", 0), ("2g.20gb", 4), ("1g.20gb", 6)),
    )
    assert found[-1] == tuple(("1g.10gb", start) for start in range(7))


def test_media_engines_limit_rtx_pro_6000():
    all_media = (("1g.24gb+me.all", 0),)
    assert can_add("RTX PRO 6000", all_media, "1g.24gb") == ()
    assert can_add("RTX PRO 6000", all_media, "1g.24gb-me") == (1, 2, 3)
    assert can_add("RTX PRO 6000", all_media, "2g.48gb-me") == (2,)


@given(gpu=st.sampled_from(GPUS), data=st.data())
def test_whatever_is_added_where_can_add_says_stays_legal(gpu, data):
    """Random growth: each step is legal, slices add up, the end is maximal, and order does not matter."""
    table, layout = mig_table(gpu), ()
    while True:
        free = [(p.name, start) for p in table.profiles for start in can_add(gpu, layout, p.name)]
        if not free:
            break
        layout = (*layout, data.draw(st.sampled_from(free)))
        taken = [slice_ for name, start in layout for slice_ in range(start, start + table.profile(name).memory_slices)]
        assert len(taken) == len(set(taken))
        assert max(taken) < table.memory_slices
        assert sum(table.profile(name).compute_slices for name, _ in layout) <= table.compute_slices
    canonical = check_layout(gpu, data.draw(st.permutations(layout)))
    assert canonical == check_layout(gpu, layout)
    if not any(table.profile(name).variant for name, _ in layout):
        assert canonical in legal_layouts(gpu)


@given(gpu=st.sampled_from(GPUS), data=st.data())
def test_a_place_that_can_add_does_not_name_is_refused(gpu, data):
    table = mig_table(gpu)
    layout = data.draw(st.sampled_from(legal_layouts(gpu)))[: data.draw(st.integers(0, 3))]
    profile = data.draw(st.sampled_from(table.profiles))
    start = data.draw(st.integers(0, table.memory_slices))
    fits = start in can_add(gpu, layout, profile.name)
    if fits:
        assert (profile.name, start) in check_layout(gpu, (*layout, (profile.name, start)))
    else:
        with pytest.raises(InputError):
            check_layout(gpu, (*layout, (profile.name, start)))


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ((("3g.40gb", 2),), "3g.40gb at slice 2 may start at 0, 4 only"),
        ((("3g.40gb", 0), ("1g.10gb", 3)), "1g.10gb at slice 3 overlaps with another instance"),
        ((("1g.10gb+me", 0), ("1g.10gb+me", 1)), "is there 1 times already"),
        ((("9g.90gb", 0),), "no MIG profile '9g.90gb'; it has 1g.10gb, "),
    ],
)
def test_a_refused_layout_says_why(layout, why):
    with pytest.raises(InputError, match=why.replace("+", r"\+")):
        check_layout("H100", layout)


def test_profile_names_as_kubernetes_writes_them():
    table = mig_table("H100")
    for name in ("3g.40gb", "nvidia.com/mig-3g.40gb", "MIG 3g.40gb"):
        assert table.profile(name).name == "3g.40gb"
    assert table.profile("nvidia.com/mig-1g.10gb.me").name == "1g.10gb+me"


def test_a_model_without_mig_is_refused_in_one_line():
    assert find_gpu("L4").mig_capable is False
    with pytest.raises(InputError, match="L4-PCIe-24GB cannot be split by MIG"):
        mig_table("L4")
