"""Who has had how much: the ranks of queues and users, kept between cycles."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from muster.engine.config import Config
from muster.engine.pending import Claim
from muster.model.queue import Queue
from muster.model.snapshot import Usage
from muster.policy.ordering.decay import decay, decayed_use
from muster.policy.ordering.decayed_fair_share import DecayedFairShare
from muster.policy.ordering.protocol import Held, OrderingView, Rank, Standing
from muster.policy.ordering.registry import find_ordering


class Shares:
    """Keeps what each user of each queue holds and has used, and asks the ordering policy for ranks.

    What runs now counts at once. The use of the past is brought up to date every ``config.usage_period_s``, as
    Slurm's PriorityCalcPeriod does: decay alone hardly moves an order, and the whole tree is computed anew for it.
    """

    def __init__(
        self, queues: tuple[Queue, ...], capacity_milli: Mapping[str, int], config: Config, now_s: float
    ) -> None:
        policy = find_ordering(config.ordering)
        self._policy = (
            replace(policy, half_life_s=config.half_life_s) if isinstance(policy, DecayedFairShare) else policy
        )
        self._queues = queues
        self._capacity = dict(capacity_milli)
        self._config = config
        self._used: dict[Claim, float] = {}
        self._held: dict[Claim, dict[str, int]] = {}
        self._counted_s: dict[Claim, float] = {}
        self._now_s = self._computed_s = now_s
        self._standing: Standing | None = None

    def copy(self) -> Shares:
        """An independent copy."""
        twin = object.__new__(Shares)
        twin.__dict__.update(self.__dict__)
        twin._used, twin._counted_s = dict(self._used), dict(self._counted_s)
        twin._held = {claim: dict(held) for claim, held in self._held.items()}
        twin._standing = None
        return twin

    def add_past(self, claim: Claim, gpu_s: float) -> None:
        """Use of the past, decayed to now, in GPU-seconds."""
        self._count(claim)
        self._used[claim] += gpu_s
        self._standing = None

    def know(self, claim: Claim) -> None:
        """Somebody has work: there must be a rank."""
        if claim not in self._counted_s:
            self._count(claim)
            self._standing = None

    def set_capacity(self, capacity_milli: Mapping[str, int]) -> None:
        """There is more or less of a flavor now."""
        if self._capacity != capacity_milli:
            self._capacity = dict(capacity_milli)
            self._standing = None

    def advance(self, now_s: float) -> None:
        """Go on to a time."""
        self._now_s = max(self._now_s, now_s)
        if self._now_s - self._computed_s >= self._config.usage_period_s:
            self._standing = None

    def hold(self, claim: Claim, flavor: str, milli: int, now_s: float) -> None:
        """Somebody holds ``milli`` more of a flavor from ``now_s`` on; negative: less."""
        self.advance(now_s)
        self.know(claim)
        self._count(claim)
        held = self._held.setdefault(claim, {})
        held[flavor] = held.get(flavor, 0) + milli
        if self._standing is not None:
            self._standing.hold(claim, flavor, milli)

    def rank(self, claim: Claim) -> Rank:
        """Smaller goes first."""
        return self._up_to_date().rank(claim)

    def usage(self, now_s: float) -> tuple[Usage, ...]:
        """What each user of each queue has used up to now, decayed."""
        self.advance(now_s)
        for claim in list(self._counted_s):
            self._count(claim)
        return tuple(Usage(queue, user, gpu_s) for (queue, user), gpu_s in self._used.items() if gpu_s)

    def _up_to_date(self) -> Standing:
        if self._standing is None:
            usage = self.usage(self._now_s)
            held = tuple(
                Held(queue, user, flavor, milli)
                for (queue, user), flavors in self._held.items()
                for flavor, milli in flavors.items()
                if milli
            )
            view = OrderingView(self._queues, tuple(self._counted_s), usage, held, self._capacity)
            self._standing = self._policy.standing(view)
            self._computed_s = self._now_s
        return self._standing

    def _count(self, claim: Claim) -> None:
        """Bring the use of one claim up to now."""
        since_s = self._counted_s.get(claim, self._now_s)
        seconds = self._now_s - since_s
        half_life_s = self._config.half_life_s
        gpus = sum(self._held.get(claim, {}).values()) / 1000.0
        self._used[claim] = decay(self._used.get(claim, 0.0), seconds, half_life_s) + decayed_use(
            gpus, seconds, half_life_s
        )
        self._counted_s[claim] = self._now_s
