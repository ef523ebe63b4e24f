"""slurm.conf, gres.conf and cgroup.conf as values, as the manual says that they are read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InputError
from muster.slurm.conf import Gres, SlurmConf, gres_of, read_slurm_conf
from muster.slurm.conf_gres import read_cgroup_conf, read_gres_conf
from muster.slurm.conf_keys import CGROUP, CGROUP_GONE, GONE, NODE, PARTITION, SCHEDULER_OPTIONS, SLURM
from muster.slurm.conf_lines import Setting, read_lines


def files(**texts: str) -> Callable[[str], str]:
    """Files beside each other; ``_`` in a name is a dot."""
    named = {f"etc/{name.replace('_', '.')}": text for name, text in texts.items()}

    def read(path: str) -> str:
        path = path.removeprefix("./")
        if path not in named:
            raise InputError("does not exist", file=path)
        return named[path]

    return read


def conf(text: str, **others: str) -> SlurmConf:
    return read_slurm_conf("etc/slurm.conf", files(slurm_conf=text, **others))


NODES = """
NodeName=DEFAULT CPUs=96 RealMemory=1000000 State=UNKNOWN   # of all below
NodeName=gpu[01-16] Gres=gpu:h100:8 Feature=h100,nvlink
NodeName=DEFAULT CPUs=32
nodename=cpu[1-4],login realmemory=64000 CoresPerSocket=16 Sockets=2
"""


def test_a_default_line_holds_for_the_lines_after_it() -> None:
    gpu, cpu = conf(NODES).nodes
    assert (gpu.cpus, gpu.memory_mib, gpu.features, gpu.gres_count("gpu")) == (96, 1000000, ("h100", "nvlink"), 8)
    assert (cpu.cpus, cpu.memory_mib, cpu.names) == (32, 64000, ("cpu1", "cpu2", "cpu3", "cpu4", "login"))
    assert gpu.names[::15] == ("gpu01", "gpu16")
    assert cpu.settings.text("State") == "UNKNOWN"  # of the first DEFAULT line, which the second only adds to


@pytest.mark.parametrize(
    ("line", "cpus", "cores"),
    [
        ("CPUs=96", 96, 96),
        ("Procs=96 ThreadsPerCore=2", 96, 48),
        ("Sockets=2 CoresPerSocket=48 ThreadsPerCore=2", 192, 96),
        ("Boards=2 SocketsPerBoard=2 CoresPerSocket=8", 32, 32),
        ("CPUs=96 Sockets=2 CoresPerSocket=48 ThreadsPerCore=2", 96, 96),
        ("RealMemory=1", 1, 1),
    ],
)
def test_cpus_and_cores_of_a_node(line: str, cpus: int, cores: int) -> None:
    node = conf(f"NodeName=a {line}").nodes[0]
    assert (node.cpus, node.cores) == (cpus, cores)


def test_partitions_have_the_nodes_that_lists_node_sets_and_all_mean() -> None:
    found = conf(
        NODES
        + """
        NodeSet=fast Feature=h100
        NodeSet=odd Nodes=cpu[1,3]
        PartitionName=DEFAULT MaxTime=2-0 State=UP
        PartitionName=train Nodes=fast Default=YES DefaultTime=60
        PartitionName=mixed Nodes=odd,gpu02 MaxTime=UNLIMITED
        PartitionName=all Nodes=ALL
        PartitionName=empty
        """
    )
    nodes = {each.name: each.nodes for each in found.partitions}
    assert nodes["train"] == tuple(f"gpu{number:02d}" for number in range(1, 17))
    assert nodes["mixed"] == ("cpu1", "cpu3", "gpu02")
    assert len(nodes["all"]) == 21
    assert nodes["empty"] == ()
    train, mixed = found.partitions[:2]
    assert (train.max_time_s, train.default_time_s, mixed.max_time_s) == (172800, 3600, None)
    assert found.default_partition == train


def test_comments_continuation_quotes_blanks_around_the_sign_and_escapes() -> None:
    found = conf(
        "ClusterName = prod # the name\nSchedulerParameters=bf_window=4320,\\\n  \\  # goes on\nbf_continue\n".replace(
            ",\\\n  \\  # goes on\n", ","
        )
        + 'NodeName=a Reason="for a while" \\\n   CPUs=4\n#NodeName=b\nSlurmUser=sl\\#urm\n'
    )
    assert found.settings.text("clustername") == "prod"
    assert found.settings.options("SchedulerParameters") == {"bf_window": "4320", "bf_continue": ""}
    assert found.nodes[0].settings.text("Reason") == "for a while"
    assert (found.nodes[0].cpus, found.nodes[0].entry.line) == (4, 3)
    assert found.settings.text("SlurmUser") == "sl#urm"


def test_included_files_are_read_where_they_stand_with_the_clusters_name() -> None:
    text = "ClusterName=Prod\nInclude nodes.conf\ninclude %c.conf\nPartitionName=p Nodes=b"
    found = conf(text, nodes_conf="NodeName=a", prod_conf="NodeName=b")
    assert [each.entry.where for each in found.nodes] == ["etc/nodes.conf:1", "etc/prod.conf:1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ClusterName prod", "etc/slurm.conf:1: 'ClusterName prod' is no key=value; such as ClusterName=prod"),
        ('ClusterName=prod "x', "quote a value that has blanks"),
        ("Include gone.conf", "etc/slurm.conf:1: includes gone.conf, which does not exist"),
        ("Include slurm.conf", "do they include each other?"),
        ("NodeName=gpu[01-", "field 'NodeName': a bracket is not closed"),
        ("NodeName=gpu[16-01]", "runs backwards in 'gpu[16-01]'; write 01-16"),
        ("NodeName=a\nNodeName=b,a", "etc/slurm.conf:2: field 'NodeName': node a stands at etc/slurm.conf:1 already"),
        ("NodeName=gpu[1-2]\n\nPartitionName=p Nodes=gpu[1-3]",
         "etc/slurm.conf:3: field 'Nodes': no NodeName line has gpu3; did you mean gpu"),
        ("NodeName=a\nPartitionName=p Nodes=a\nPartitionName=p Nodes=a", "p stands at etc/slurm.conf:2 already"),
        ("NodeSet=x", "x has no nodes; give it Feature= or Nodes="),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        conf(text)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("NodeName=a CPUs=many", "cpus", "etc/slurm.conf:1: field 'CPUs': is 'many'; a whole number"),
        ("NodeName=a Gres=gpu:h100:x:y", "gres", "'gpu:h100:x:y' is no resource; such as gpu:h100:8"),
        ("NodeName=a RealMemory=64G", "memory_mib", "field 'RealMemory': is '64G'"),
    ],
)
def test_a_value_that_is_none_is_told_when_it_is_asked_for(text: str, key: str, said: str) -> None:
    node = conf(text).nodes[0]
    with pytest.raises(InputError) as error:
        getattr(node, key)
    assert said in str(error.value)


def test_a_misspelt_key_is_told_with_near_names_and_the_rest_is_read() -> None:
    found = conf("ShedulerType=sched/backfill\nNodeName=a RealMemry=5\nPartitionName=p Nodes=a DefMemPreGPU=1")
    assert [(each.setting.key, each.setting.line, each.among) for each in found.unknown] == [
        ("ShedulerType", 1, "slurm.conf"), ("RealMemry", 2, "NodeName lines"),
        ("DefMemPreGPU", 3, "PartitionName lines"),
    ]  # fmt: skip
    hints = [each.hint for each in found.unknown]
    assert "SchedulerType" in hints[0]
    assert "RealMemory" in hints[1]
    assert "DefMemPerGPU" in hints[2]


def test_the_last_of_a_setting_counts_and_the_earlier_is_told_but_hosts_add_up() -> None:
    found = conf("SlurmctldHost=a\nSlurmctldHost=b(10.0.0.2)\nTreeWidth=16\ntreewidth=32")
    assert [each.value for each in found.hosts] == ["a", "b(10.0.0.2)"]
    assert found.settings.integer("TreeWidth", 0) == 32
    assert [(each.value, each.line) for each in found.twice] == [("16", 3)]


def test_gres_of_a_node() -> None:
    text = "gpu:h100:8(S:0-1),gpu:2,gres/nic:mlx:no_consume:4,craynetwork,shard:1K"
    assert gres_of(Setting("Gres", text)) == (
        Gres("gpu", "h100", 8), Gres("gpu", "", 2), Gres("nic", "mlx", 4), Gres("craynetwork", "", 1),
        Gres("shard", "", 1024),
    )  # fmt: skip


@given(st.text("abgpu0129:,=()[]-._ KM", max_size=24))
def test_no_text_of_a_gres_is_a_traceback(text: str) -> None:
    told = ""
    try:
        assert all(each.count >= 0 for each in gres_of(Setting("Gres", text, "f", 1)))
    except InputError as error:
        told = str(error)
    assert not told or told.startswith("f:1: field 'Gres'")


@given(st.text('abN=# \\"\n\t[]0-9,', max_size=60))
def test_no_text_is_a_traceback(text: str) -> None:
    told = ""
    try:
        for line in read_lines("f", lambda path: text):
            assert line.pairs
    except InputError as error:
        told = str(error)
    assert not told or told.startswith("f:")


def test_lines_of_gres_conf() -> None:
    found = read_gres_conf(
        "etc/gres.conf",
        files(
            gres_conf="AutoDetect=off\nNodeName=gpu[01-02] Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-23\n"
            "NodeName=gpu[01-02] Name=gpu Type=h100 File=/dev/nvidia[4-7] Cores=24-47 Links=-1,0,0,0\n"
            "NodeName=gpu03 AutoDetect=nvml\nName=nic Count=2\nName=shard Count=1K File=/dev/nvidia0"
        ),
    )
    assert [(each.name, each.count) for each in found.lines] == [
        ("", None), ("gpu", 4), ("gpu", 4), ("", None), ("nic", 2), ("shard", 1024),
    ]  # fmt: skip
    assert [each.name for each in found.of_node("gpu01")] == ["gpu", "gpu", "nic", "shard"]
    assert [each.name for each in found.of_node("gpu03")] == ["nic", "shard"]
    assert found.lines[2].files == tuple(f"/dev/nvidia{number}" for number in range(4, 8))
    assert found.lines[2].cores == tuple(range(24, 48))
    assert (found.detects("gpu01"), found.detects("gpu03"), found.auto_detect) == (False, True, "off")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("AutoDetect=nvlm", "etc/gres.conf:1: field 'AutoDetect': is 'nvlm'; one of nvml"),
        ("Name=gpu File=/dev/nvidia[0-", "field 'File': a bracket is not closed"),
        ("Name=gpu Cores=7-0", "field 'Cores': is '7-0'; such as 0-47"),
        ("Name=gpu Count=eight", "field 'Count': is 'eight'; a whole number"),
        ("Type=h100", "field 'Type': the line names no resource; add Name=gpu"),
    ],
)
def test_what_is_wrong_in_gres_conf_is_told(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        read_gres_conf("etc/gres.conf", files(gres_conf=text))
    assert said in str(error.value)


def test_cgroup_conf() -> None:
    found = read_cgroup_conf("etc/cgroup.conf", files(cgroup_conf="constraindevices=yes\nConstrainRamSpace=no\nX=1"))
    assert found.constrains_devices
    assert not found.settings.flag("ConstrainRAMSpace", default=True)
    assert [each.setting.key for each in found.unknown] == ["X"]


def test_the_tables_name_keys_that_are_known() -> None:
    assert set(GONE) <= set(SLURM.names)
    for keys in (SLURM, NODE, PARTITION):
        assert len(set(map(str.lower, keys.names))) == len(keys.names)
    assert set(CGROUP_GONE) <= set(CGROUP.names)
    assert len(set(SCHEDULER_OPTIONS)) == len(SCHEDULER_OPTIONS)
