"""What pulls images by default, and how much of an image is read: facts with their sources."""

from __future__ import annotations

DOWNLOADS = 3
"""Layers of one image that containerd downloads at once (``max_concurrent_downloads``). Source ``containerd-pull``."""

UNPACKS = 1
"""Layers that containerd unpacks at once (``max_concurrent_unpacks``). Source ``containerd-pull``."""

PULL_SOURCE = "containerd-pull"

SOCI_CONNECTIONS = 10
"""Connections of one image in SOCI's parallel mode, chunks of 8 to 16 MB. Source ``soci-parallel``."""

SOCI_UNPACKS = 10
"""Layers that it unpacks at once. Source ``soci-parallel``."""

SOCI_SOURCE = "soci-parallel"

READ_AT_START = 0.064
"""Share of an ordinary image that is read at its start; wrong for images with weights. Source ``slacker``."""

READ_SOURCE = "slacker"
