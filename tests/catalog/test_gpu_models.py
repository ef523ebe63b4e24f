"""GPU models: golden values, names, and a source for every fact."""

from __future__ import annotations

import pytest

from muster.catalog import (
    FACTS,
    GPUS,
    LINKS,
    MIG_TABLES,
    SOURCES,
    bringup,
    cold_starts,
    cuda,
    find_gpu,
    find_link,
    images,
    mps,
    near_names,
    notebooks,
    sandboxes,
    xids,
)
from muster.catalog.names import normalized
from muster.catalog.reliability import FAILURE_RATES
from muster.catalog.training import (
    GEMMS,
    HOPS,
    TRAINING_PART_SOURCE,
    WIDTH_A_LAYER_SOURCE,
    hop_latency_s,
    training_tflops,
    usual_shape,
)
from muster.errors import InputError

GIB = 2**30

WANTED = [
    *("P100", "V100M16", "V100M32", "T4", "A10", "A10G", "A30", "A40", "L4", "L40", "L40S"),
    *("A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIe-40GB", "A100-PCIe-80GB", "A800"),
    *("H100-SXM5-80GB", "H100-PCIe-80GB", "H100-NVL-94GB", "H800", "H20", "H200"),
    *("B200", "B300", "GB200", "GB300", "RTX PRO 6000", "MI250X", "MI300X", "MI325X", "MI355X", "Gaudi3", "G2", "G3"),
]


@pytest.mark.parametrize("name", WANTED)
def test_the_models_that_users_have_are_there(name):
    assert find_gpu(name) in GPUS


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_every_fact_has_a_source_and_only_facts_have_one(gpu):
    known = {field for field in FACTS if getattr(gpu, field) is not None}
    assert set(dict(gpu.sources)) == known
    assert all(key in SOURCES for _, key in gpu.sources)


def test_every_link_and_mig_table_has_a_source():
    assert all(link.source in SOURCES for link in LINKS)
    for table in MIG_TABLES:
        assert table.names_source in SOURCES
        assert table.placement_source in SOURCES
        assert table.sm_source in SOURCES
        assert table.reset_source in SOURCES
        has_memory = any(profile.memory_mib is not None for profile in table.profiles)
        assert (table.memory_source in SOURCES) == has_memory


def test_each_source_is_used_and_has_a_date():
    used = {key for gpu in GPUS for _, key in gpu.sources} | {link.source for link in LINKS}
    for table in MIG_TABLES:
        used |= {table.names_source, table.placement_source, table.sm_source, table.reset_source}
        used |= {table.memory_source} - {None}
    used |= {each.source for each in (*HOPS, *GEMMS, *FAILURE_RATES)} | {TRAINING_PART_SOURCE, WIDTH_A_LAYER_SOURCE}
    used |= {mps.SOURCE, cuda.SOURCE, sandboxes.SOURCE, "upgrade-docs"}
    used |= {*cold_starts.SOURCE_KEYS, notebooks.SOURCE}
    used |= {images.PULL_SOURCE, images.SOCI_SOURCE, images.READ_SOURCE, bringup.SOURCE}
    used |= {xid.source for xid in xids.XIDS} | set(xids.SOURCES_OF.values())
    assert used == set(SOURCES)
    assert all(source.title and any(part.isdigit() for part in source.date) for source in SOURCES.values())


def test_no_two_models_share_a_name():
    names = [normalized(name) for gpu in GPUS for name in {gpu.name, *gpu.aliases}]
    spellings = {gpu.name: {normalized(name) for name in (gpu.name, *gpu.aliases)} for gpu in GPUS}
    assert sum(len(own) for own in spellings.values()) == len(set(names))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM5-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA-H100-80GB-HBM3-SHARED", "H100-SXM5-80GB"),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "H100-SXM5-80GB"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "A100-SXM4-40GB"),
        ("NVIDIA-A100-80GB-PCIe", "A100-PCIe-80GB"),
        ("NVIDIA-H100-PCIe", "H100-PCIe-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("Tesla-V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("Tesla-T4", "T4-PCIe-16GB"),
        ("NVIDIA-B300-SXM6-AC", "B300-SXM6-269GB"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "RTX-PRO-6000-96GB"),
        ("AMD_Instinct_MI300X_OAM", "MI300X-OAM-192GB"),
        ("gpu-series-1", "spot-series-1"),
        ("  h100 ", "H100-SXM5-80GB"),
        ("V100M16", "V100-SXM2-16GB"),
        ("a100", "A100-SXM4-80GB"),
    ],
)
def test_names_of_nvidia_smi_labels_and_traces_are_understood(name, wanted):
    assert find_gpu(name).name == wanted


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_canonical_names_and_aliases_find_their_model(gpu):
    for name in (gpu.name, *gpu.aliases, gpu.name.lower(), f"NVIDIA-{gpu.name}".replace("-", " ")):
        assert find_gpu(name) is gpu


def test_an_unknown_model_is_one_line_with_near_names():
    with pytest.raises(InputError) as caught:
        find_gpu("A100-SXM")
    text = str(caught.value)
    assert text.startswith("unknown GPU model 'A100-SXM'; did you mean A100-SXM4-40GB or A100-SXM4-80GB")
    assert "\n" not in text


def test_nothing_near_points_to_the_list():
    assert near_names("zzz") == ()
    with pytest.raises(InputError, match="muster catalog gpus"):
        find_gpu("zzz")
    with pytest.raises(InputError):
        find_gpu("")


# Golden values: shared facts of 2026-11-30, node-layer (B1, F1) and economics (H).
@pytest.mark.parametrize(
    ("name", "link_gb_per_s"),
    [("P100", 0), ("V100", 150), ("A100", 300), ("H100", 450), ("H200", 450), ("B200", 900), ("GB200", 900),
     ("MI300X", 448), ("MI355X", 535.5), ("Gaudi3", 600), ("H800", 200), ("A800", 200)],
)  # fmt: skip
def test_link_rate_between_gpus(name, link_gb_per_s):
    assert find_gpu(name).link_gb_per_s == link_gb_per_s


@pytest.mark.parametrize(("name", "watts"), [("H100", 700), ("B200", 1000), ("A100", 400), ("T4", 70), ("B300", 1100)])
def test_power_limit(name, watts):
    assert find_gpu(name).power_w == watts


@pytest.mark.parametrize(
    ("name", "capability"),
    [("P100", "6.0"), ("V100", "7.0"), ("T4", "7.5"), ("A100", "8.0"), ("A10", "8.6"), ("L40S", "8.9"), ("H100", "9.0"),
     ("B200", "10.0"), ("B300", "10.3"), ("RTX PRO 6000", "12.0"), ("MI300X", None), ("G2", None)],
)  # fmt: skip
def test_compute_capability(name, capability):
    assert find_gpu(name).compute_capability == capability


def test_memory_is_in_bytes():
    assert find_gpu("H100").memory_bytes == 80 * GIB
    assert find_gpu("H200").memory_bytes == 144384 * 2**20
    assert find_gpu("G2").memory_bytes is None


def test_mig_capable_models_are_those_with_a_table():
    assert {gpu.name for gpu in GPUS if gpu.mig_capable} == {name for table in MIG_TABLES for name in table.gpus}


@pytest.mark.parametrize(
    ("name", "gb_per_s"),
    [("NVLink 1", 80), ("NVLink 2", 150), ("NVLink 3", 300), ("NVLink 4", 450), ("NVLink 5", 900), ("NVLink 6", 1800),
     ("PCIe 4.0 x16", 31), ("PCIe 5.0 x16", 63), ("PCIe 6.0 x16", 121), ("InfiniBand HDR 4x", 25),
     ("InfiniBand NDR 4x", 50), ("InfiniBand XDR 4x", 100), ("ConnectX-7", 50), ("ConnectX-8", 100), ("DGX H100", 400),
     ("DGX B300", 800), ("AWS P4d", 50), ("AWS P5, P5e", 400), ("AWS P5en", 400), ("AWS P6-B200", 400),
     ("AWS P6-B300", 800), ("GCP A3 High", 100), ("GCP A3 Mega", 200), ("TPU7x ICI", 600)],
)  # fmt: skip
def test_link_rates(name, gb_per_s):
    assert find_link(name).gb_per_s == gb_per_s


def test_ports_follow_their_line_rate():
    for link in LINKS:
        count, _, rate = link.made_of.removesuffix(" Gb/s").rpartition(" x ")
        if link.made_of.endswith(" Gb/s"):
            assert link.gb_per_s == int(count or 1) * float(rate.replace(",", "")) / 8


def test_achieved_parts_of_the_nominal_rate():
    fractions = {link.name: link.fraction for link in LINKS if link.kind == "measured"}
    assert fractions["all-reduce 8 A100"] == pytest.approx(0.783, abs=0.001)
    assert fractions["all-reduce 8 H200"] == pytest.approx(0.816, abs=0.001)
    assert fractions["all-reduce 8 B200"] == pytest.approx(0.823, abs=0.001)
    assert fractions["all-reduce 4 x 8 B200"] == pytest.approx(0.73)
    assert find_link("NVLink 4").fraction is None


def test_link_names_are_unique():
    assert len({link.name for link in LINKS}) == len(LINKS)


def test_hops_and_what_training_reaches():
    assert (hop_latency_s("NVLink"), hop_latency_s("network")) == (1.9e-6, 4.0e-6)
    assert all(hop.low_s < hop.latency_s < hop.high_s for hop in HOPS)
    assert (training_tflops("H100"), training_tflops("B200"), training_tflops("T4")) == (397, 872.5, None)
    with pytest.raises(InputError):
        training_tflops("H1OO")


@pytest.mark.parametrize(
    ("parameters", "layers", "width"), [(8e9, 34, 4352), (70e9, 71, 9088), (175e9, 96, 12288), (405e9, 127, 16256)]
)
def test_the_shape_of_a_usual_model(parameters, layers, width):
    """GPT-3 has 96 layers of 12,288; Llama 3 405B has 126 of 16,384."""
    assert usual_shape(parameters) == (layers, width)
    assert 12 * layers * width**2 == pytest.approx(parameters, rel=0.05)
