"""A real Slurm on loopback, for tests, benchmarks and development.

The programs are Debian's packages (`slurmdev.packages`); `Slurm` starts them with a configuration of its own and GPUs
that are character devices without hardware, and ends them without a trace. `dev/slurm` is the same from a shell.
"""

from slurmdev.errors import SlurmError
from slurmdev.packages import missing
from slurmdev.settings import Settings
from slurmdev.slurm import Slurm, sweep

__all__ = ["Settings", "Slurm", "SlurmError", "missing", "sweep"]
