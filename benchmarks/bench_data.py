"""Where the benchmarks find the public traces, which are not in the repository."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HOW_TO_GET = """\
The public traces are not in the repository. Put them into a folder DATA, and give it (or set MUSTER_DATA):
  DATA/openb/nodes.csv, pods_*.csv       github.com/alibaba/clusterdata, cluster-trace-gpu-v2023
  DATA/openb/published_allocation.csv    github.com/hkust-adsl/kubernetes-scheduler-simulator, its results
  DATA/jobs/philly_sia.csv               github.com/siasosp23/artifacts, its Philly trace
  DATA/jobs/RICC-2010-2.swf.gz           www.cs.huji.ac.il/labs/parallel/workload"""


def default_data() -> Path:
    """``$MUSTER_DATA``, else the folder beside the checkout."""
    return Path(os.environ.get("MUSTER_DATA") or "../shared/data")


def need(*paths: Path) -> None:
    """End with exit code 2, and a word on where to get the data, if one of the files is not there."""
    for path in paths:
        if not path.exists():
            print(f"{Path(sys.argv[0]).name}: {path} is not there.\n{HOW_TO_GET}", file=sys.stderr)
            sys.exit(2)
