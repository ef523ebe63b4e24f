"""`muster plan image`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.image import Image

command = plan_command(
    Image,
    "How long an image takes to arrive on a node, or on a whole fleet at once, layer by layer; what binds, and what "
    "would make it shorter.",
    (
        "crane manifest --platform linux/amd64 IMAGE > m.json; muster plan image --from m.json",
        "muster plan image --layer a:size=9GB --layer b:size=1GB,cached=yes --nodes 1",
        "muster plan image --nodes 256 --registry 40Gb/s --connections 10 --unpacks 8",
        "muster plan image --disk 125MiB/s --unpack 250MB/s",
    ),
    data=(Data("--from", "FILE", "An image manifest, or docker history as JSON.", "image.layers_of"),),
    notes="A layer is name:size=4.5GB,unpacked=9GB,changes=5%,cached=yes, the lowest first; size as it is\n"
    "sent, changes: share of builds that change it.",
)
