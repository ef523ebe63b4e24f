"""Writes read-only.yaml anew from the kinds that Muster reads: run it when a kind was entered in muster.kube.kinds."""

from __future__ import annotations

from pathlib import Path

import yaml

from muster.backends.kubernetes.rbac import read_only_objects
from muster.kube.kinds import STRUCTS

FILE = Path(__file__).with_name("read-only.yaml")
HEAD = """\
# What Muster needs to answer about a live cluster, and no more: it reads, and can change nothing.
#   kubectl apply -f read-only.yaml
#   kubectl config set-credentials muster --token="$(kubectl -n default create token muster-read-only --duration 8h)"
# Kinds that the cluster does not have do no harm here. Written by generate.py from muster.kube.kinds.
"""


def manifest() -> str:
    """The text of the file."""
    return HEAD + "---\n" + yaml.safe_dump_all(read_only_objects(STRUCTS), sort_keys=False, default_flow_style=None)


if __name__ == "__main__":
    FILE.write_text(manifest())
