"""When notebook servers take idle notebooks away, by default."""

from __future__ import annotations

HUB_IDLE_S, HUB_EVERY_S = 3600.0, 600.0
"""zero-to-jupyterhub: ``cull.timeout`` and ``cull.every``; on by default."""

KUBEFLOW_IDLE_MIN = 1440
"""Kubeflow: ``CULL_IDLE_TIME`` in minutes; ``ENABLE_CULLING`` is false by default."""

SOURCE = "notebook-culling"
"""Key in `muster.catalog.sources.SOURCES`."""
