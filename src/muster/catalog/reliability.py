"""How often nodes of large GPU clusters fail, as published."""

from __future__ import annotations

from msgspec import Struct


class FailureRate(Struct, frozen=True):
    """Failures of nodes, of each 1,000 in a day, in one cluster.

    Attributes:
        cluster: its name, with the nodes that were counted.
        per_1000_node_days: the rate.
        source: key in `muster.catalog.sources.SOURCES`.
    """

    cluster: str
    per_1000_node_days: float
    source: str


FAILURE_RATES: tuple[FailureRate, ...] = (
    FailureRate("Meta RSC-1, 2,000 nodes of 8 A100", 6.5, "rsc"),
    FailureRate("Meta RSC-2, 1,000 nodes of 8 A100", 2.34, "rsc"),
    FailureRate("Llama 3 405B, 2,048 nodes of 8 H100", 3.79, "llama3-failures"),
    FailureRate("OPT-175B, 124 nodes of 8 A100", 14.0, "opt-logbook"),
)
"""Those that go by default stand first."""
