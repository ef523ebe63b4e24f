"""`muster plan sandboxes`."""

from __future__ import annotations

from muster.cli.plan.from_question import plan_command
from muster.planning.plans.sandboxes import Sandboxes

command = plan_command(
    Sandboxes,
    "Hosts for concurrent sandboxes of untrusted code: memory, CPU, start rate, pod and API limits, GPU access.",
    (
        "muster plan sandboxes --sessions 50k --mix gvisor=1",
        "muster plan sandboxes --mix gvisor=0.8 --mix kata-qemu=0.2 --memory 256GB --cores 64",
        "muster plan sandboxes --working 2GB --length 5m --starts 20/s --burst 500",
    ),
)
