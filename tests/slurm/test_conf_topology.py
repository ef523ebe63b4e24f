"""topology.conf and topology.yaml as values."""

from __future__ import annotations

import pytest

from muster.errors import InputError
from muster.slurm.conf_topology import TopologyConf, read_topology_conf, read_topology_yaml

TREE = """
SwitchName=leaf1 Nodes=n[01-04]
switchname=leaf2 nodes=n[05-08] LinkSpeed=400
SwitchName=top Switches=leaf[1-2]   # the spine
"""
BLOCKS = "BlockName=b1 Nodes=n[01-18]\nBlockName=b2 Nodes=n[19-36]\nBlockSizes=18,36\n"


def topology(text: str) -> TopologyConf:
    return read_topology_conf("topology.conf", lambda path: text)


def test_a_tree_has_leaves_and_each_node_its_path() -> None:
    found = topology(TREE)
    assert found.kind == "tree"
    assert [(name, len(nodes)) for name, nodes in found.leaves] == [("leaf1", 4), ("leaf2", 4)]
    assert found.paths()["n05"] == ("top", "leaf2")


def test_blocks_have_sizes() -> None:
    found = topology(BLOCKS)
    assert (found.kind, found.block_sizes, found.paths()["n19"]) == ("block", (18, 36), ("b2",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2", "topology.conf:2: field 'BlockName': blocks stand beside"),
        ("SwitchName=a", "a has neither nodes nor switches"),
        ("SwitchName=b Nodes=n2\nSwitchName=a Nodes=n1 Switches=b", "a has nodes and switches"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]", "n1 is in a already; a node is in one leaf"),
        ("SwitchName=leaf1 Nodes=n1\nSwitchName=top Switches=leef1", "there is no switch leef1; did you mean leaf1?"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "a is above itself"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "a stands twice"),
        ("SwitchName=l Nodes=n1\nSwitchName=a Switches=l\nSwitchName=b Switches=l", "l is below a already"),
        ("BlockName=a", "a has no nodes"),
        ("BlockName=a Nodes=n1\nBlockSizes=big", "is 'big'; such as 18 or 4,16"),
        ("Nodes=n1", "a line begins with SwitchName, BlockName or BlockSizes"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        topology(text)
    assert said in str(error.value)


YAML = """
- topology: tree
  cluster_default: true
  tree:
    switches:
    - switch: top
      children: leaf[1-2]
    - {switch: leaf1, nodes: "n[01-04]"}
    - {switch: leaf2, nodes: "n[05-08]"}
- topology: nvl
  block:
    block_sizes: [4, 8]
    blocks:
    - {block: b1, nodes: "n[01-04]"}
    - {block: b2, nodes: "n[05-08]"}
- {topology: any, flat: true}
"""


def test_topology_yaml_has_several() -> None:
    tree, blocks, flat = read_topology_yaml("topology.yaml", lambda path: YAML)
    assert (tree.kind, tree.name, tree.default, tree.paths()["n08"]) == ("tree", "tree", True, ("top", "leaf2"))
    assert (blocks.kind, blocks.block_sizes, blocks.default) == ("block", (4, 8), False)
    assert (flat.kind, flat.leaves) == ("flat", ())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("children:", "childs:", "field '[0].tree[0].childs': is not known; did you mean children?"),
        ("  tree:", "  trees:", "'[0].trees': is not known; did you mean tree?"),
        ("block: b2", "block: b1", "b1 stands twice"),
        ("[4, 8]", "[four]", "field '[1].block.block_sizes': is no list of whole numbers"),
        ("flat: true", "cluster_default: true", "field '[2]': has not exactly one of tree, block and flat"),
        ("n[05-08]", "n[05-", "a bracket is not closed"),
        ("- topology: tree", "topology", "is no"),
    ],
)
def test_what_is_wrong_in_yaml_is_told_with_its_field(old: str, new: str, said: str) -> None:
    assert old in YAML
    with pytest.raises(InputError) as error:
        read_topology_yaml("topology.yaml", lambda path: YAML.replace(old, new))
    assert said in str(error.value)
    assert "topology.yaml" in str(error.value)
