"""How fast and in how much memory `muster doctor` reads a long log: `python benchmarks/doctor_log.py [MEGABYTES]`.

The log is made on the spot: kernel lines of a busy node, one in a thousand of them of the GPU's driver, one Xid at the
end. The target is 200 MB in 10 s and 300 MB of memory.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

NOISE = "[{at:>9}.114021] eth0: renamed from veth{at:07x}; br0: port 3(veth{at:07x}) entered blocking state\n"
DRIVER = "[{at:>9}.200114] nvidia-nvlink: link {at} of the node is up, state {at}\n"
LOST = "[  9999999.1] NVRM: Xid (PCI:0000:0f:00): 79, pid=4411, name=python3, GPU has fallen off the bus.\n"


def write(path: Path, megabytes: int) -> None:
    """The log."""
    with path.open("w") as out:
        at = 0
        while out.tell() < megabytes << 20:
            rows = [(NOISE if (at + one) % 1000 else DRIVER).format(at=at + one) for one in range(10_000)]
            out.write("".join(rows))
            at += 10_000
        out.write(LOST)


def main() -> None:
    """Measure, and say whether the target is met."""
    from muster.doctor.pile import read_pile
    from muster.doctor.verdict import judge

    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dmesg.log"
        write(path, megabytes)
        start = time.process_time()
        verdict = judge(read_pile([str(path)]))
        spent = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{megabytes} MB of log: {spent:.1f} s of CPU, {memory:.0f} MB of memory; found {verdict.findings[0].id}")
    print("target met" if spent <= 10 * megabytes / 200 and memory <= 300 else "target MISSED")


if __name__ == "__main__":
    main()
