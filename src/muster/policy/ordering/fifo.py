"""fifo: arrival only. All ranks are equal, so that age decides within a priority class."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from muster.policy.ordering.protocol import FixedStanding, OrderingView, Standing, claims_of


class Fifo(Struct, frozen=True):
    """First in, first out."""

    name: ClassVar[str] = "fifo"

    def standing(self, view: OrderingView) -> Standing:
        """The empty rank for everybody."""
        return FixedStanding(dict.fromkeys(claims_of(view), ()))
