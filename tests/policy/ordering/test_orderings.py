"""Ordering policies: published values, scenarios worked by hand, and what is promised of every policy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InputError
from muster.model.queue import Queue
from muster.model.snapshot import Usage
from muster.model.workload import PodShape, Workload, single_pod
from muster.policy.ordering.decay import decay, decayed_use
from muster.policy.ordering.decayed_fair_share import DecayedFairShare
from muster.policy.ordering.drf import DominantResourceFairness
from muster.policy.ordering.protocol import Claim, Held, OrderingView, pending_key
from muster.policy.ordering.registry import DEFAULT_ORDERING, ORDERINGS, find_ordering
from muster.policy.ordering.slurm_classic import SlurmClassic
from muster.policy.ordering.slurm_fair_tree import SlurmFairTree

DAY_S = 86400.0


def view_of(queues: str, use: str = "", held: str = "", capacity: dict[str, int] | None = None) -> OrderingView:
    """``queues``: ``name parent weight, ...``; ``use``: ``queue/user GPU-seconds, ...``; ``held``: in GPUs."""

    def items(text: str) -> list[list[str]]:
        return [item.split() for item in text.split(",") if item.strip()]

    tree = tuple(Queue(name, "" if parent == "-" else parent, float(w)) for name, parent, w in items(queues))
    used = [(*claim.split("/"), float(amount)) for claim, amount in items(use)]
    runs = [(*claim.split("/"), int(float(amount) * 1000)) for claim, amount in items(held)]
    return OrderingView(
        tree,
        claimants=tuple({(queue, user): None for queue, user, _ in [*used, *runs]}),
        usage=tuple(Usage(*use) for use in used if use[2]),
        held=tuple(Held(queue, user, "H100", milli) for queue, user, milli in runs if milli),
        capacity_milli={"H100": 100_000} if capacity is None else capacity,
    )


def order(ranks: dict[Claim, tuple[float, ...]]) -> str:
    """``a = b < c``: the users, the first one first; users of the same rank by name."""
    text, last = "", None
    for claim, rank in sorted(ranks.items(), key=lambda item: (item[1], item[0][1])):
        text += ("" if last is None else " = " if rank == last else " < ") + claim[1]
        last = rank
    return text


# Slurm, classic: the example of its documentation, exactly as printed there. Use is stated as a part of the machine.

EXAMPLE = view_of("A - 40, B A 30, C A 10, D - 60, E D 25, F D 35", "B/u1 0.2, C/u2 0.25, C/u3 0, E/u4 0.25, F/u5 0")


def test_slurm_classic_golden_values() -> None:
    found = SlurmClassic(total_gpu_s=1).factors(EXAMPLE)
    assert [f"{found[claim]:.6f}" for claim in sorted(found, key=lambda claim: claim[1])] == [
        "0.408479",
        "0.022097",
        "0.125000",
        "0.500000",
        "0.749154",
    ]


def test_slurm_classic_takes_a_single_root_for_slurms_root_account() -> None:
    rooted = view_of(
        "root - 7, A root 40, B A 30, C A 10, D root 60, E D 25, F D 35",
        "B/u1 0.2, C/u2 0.25, C/u3 0, E/u4 0.25, F/u5 0",
    )
    policy = SlurmClassic(total_gpu_s=1)
    assert policy.standing(rooted).ranks() == policy.standing(EXAMPLE).ranks()


def test_slurm_classic_counts_use_as_a_part_of_all_use() -> None:
    view = view_of("A - 1, B - 1", "A/a 30, B/b 10")
    assert SlurmClassic().factors(view) == {("A", "a"): 2**-1.5, ("B", "b"): 2**-0.5}
    assert SlurmClassic(dampening=2).factors(view)["A", "a"] == pytest.approx(2**-0.75)
    assert SlurmClassic().factors(view_of("A - 1", "A/a 0")) == {("A", "a"): 1.0}


def test_slurm_classic_orders_where_the_factor_would_be_zero() -> None:
    view = view_of("A - 1, B - 1000000", "A/a 30, A/z 40, B/b 10")
    assert SlurmClassic().factors(view)["A", "a"] == 0
    assert order(SlurmClassic().standing(view).ranks()) == "b < a < z"


# Slurm, Fair Tree. Level fair share LF = S / U, written beside each line.

FAIR_TREE = [
    (
        "a whole account is ahead of a worse one: A's LF is .5/.4 = 1.25, B's .5/.6 = .83",
        "A - 1, B - 1",
        "A/a1 39, A/a2 1, B/b1 59, B/b2 1",
        "a2 < a1 < b2 < b1",
        {"a2": 1.0, "a1": 0.75, "b2": 0.5, "b1": 0.25},
    ),
    (
        "shares decide at each level: A 3/4 / 3/4 = 1 as B 1/4 / 1/4, merged; within A u1 1/2 / 2/3, u2 1/2 / 1/3",
        "A - 3, B - 1",
        "A/u1 2, A/u2 1, B/u3 1",
        "u2 < u3 < u1",  # u2 1.5, u3 1, u1 0.75
        {"u2": 1.0, "u3": 2 / 3, "u1": 1 / 3},
    ),
    (
        "rule 1: sibling users of the same LF share a rank, and the next is as far behind as they are many",
        "A - 1",
        "A/u1 5, A/u2 5, A/u3 9",
        "u1 = u2 < u3",
        {"u1": 1.0, "u2": 1.0, "u3": 1 / 3},
    ),
    (
        "rule 1 without any use: all are first",
        "A - 1, B - 5",
        "A/u1 0, B/u2 0, B/u3 0",
        "u1 = u2 = u3",
        {"u1": 1.0, "u2": 1.0, "u3": 1.0},
    ),
    (
        "rule 2: u has LF 1/2 / 1/2 = 1 as its sibling queue B has, so it shares the rank of b1, B's first",
        "A - 1, B A 1",
        "A/u 10, B/b1 2, B/b2 8",
        "b1 = u < b2",
        {"u": 1.0, "b1": 1.0, "b2": 1 / 3},
    ),
    (
        "rule 2, and B's first user is one queue further down",
        "A - 1, B A 1, C B 1",
        "A/u 10, C/c1 2, C/c2 8",
        "c1 = u < c2",
        {"u": 1.0, "c1": 1.0, "c2": 1 / 3},
    ),
    (
        "rule 3: A and B tie, so their users are sorted together: a1 .5/.2, b1 .5/.4, b2 .5/.6, a2 .5/.8",
        "A - 1, B - 1",
        "A/a1 2, A/a2 8, B/b1 4, B/b2 6",
        "a1 < b1 < b2 < a2",
        {"a1": 1.0, "b1": 0.75, "b2": 0.5, "a2": 0.25},
    ),
    (
        "rules 3 and 1: users of merged queues tie",
        "A - 1, B - 1",
        "A/a1 5, A/a2 5, B/b1 5, B/b2 5",
        "a1 = a2 = b1 = b2",
        {"a1": 1.0, "b2": 1.0},
    ),
    (
        "queues without users neither rank nor break a tie; their shares count: B 1/3 / 1/2, C 1/3 / 1/2",
        "A - 1, B - 1, C - 1",
        "B/b 5, C/c 5",
        "b = c",
        {"b": 1.0, "c": 1.0},
    ),
]


@pytest.mark.parametrize(
    ("queues", "use", "expected", "factors"), [case[1:] for case in FAIR_TREE], ids=[case[0] for case in FAIR_TREE]
)
def test_slurm_fair_tree(queues: str, use: str, expected: str, factors: dict[str, float]) -> None:
    policy, view = SlurmFairTree(), view_of(queues, use)
    assert order(policy.standing(view).ranks()) == expected
    found = {user: factor for (_, user), factor in policy.factors(view).items()}
    assert {user: found[user] for user in factors} == pytest.approx(factors)


# Dominant resource fairness


def fill(view: OrderingView, asks: dict[Claim, dict[str, int]]) -> dict[Claim, int]:
    """Progressive filling: the first in the order gets one more task, while one fits."""
    counts = dict.fromkeys(asks, 0)
    free = dict(view.capacity_milli)
    view = OrderingView(view.queues, tuple(asks), capacity_milli=view.capacity_milli)
    standing = DominantResourceFairness().standing(view)
    while fitting := [c for c, ask in asks.items() if all(free[f] >= milli for f, milli in ask.items())]:
        first = min(fitting, key=lambda c: (standing.rank(c), c))
        counts[first] += 1
        for flavor, milli in asks[first].items():
            free[flavor] -= milli
            standing.hold(first, flavor, milli)
    return counts


def test_drf_fills_as_in_the_paper() -> None:
    """Ghodsi et al., section 4.1: 9 CPUs and 18 GB; A asks for (1, 4), B for (3, 1): three tasks and two."""
    view = OrderingView(capacity_milli={"cpu": 9, "memory": 18})
    asks = {("", "A"): {"cpu": 1, "memory": 4}, ("", "B"): {"cpu": 3, "memory": 1}}
    assert fill(view, asks) == {("", "A"): 3, ("", "B"): 2}


def test_drf_is_weighted_down_the_tree() -> None:
    view = view_of("org - 1, left org 3, right org 1, l1 left 1, l2 left 1", capacity={"H100": 80})
    asks = {(queue, "u"): {"H100": 1} for queue in ("l1", "l2", "right")}
    assert fill(view, asks) == {("l1", "u"): 30, ("l2", "u"): 30, ("right", "u"): 20}


def test_drf_compares_where_ancestors_first_differ() -> None:
    # l1 holds nothing, but left as a whole holds more than right.
    view = view_of("left - 1, right - 1, l1 left 1, l2 left 1", held="l1/a 0, l2/b 6, right/c 5")
    assert order(DominantResourceFairness().standing(view).ranks()) == "c < a < b"


def test_drf_takes_the_scarcer_flavor() -> None:
    view = view_of("x - 1, y - 1")
    held = (Held("x", "a", "H100", 4_000), Held("y", "b", "T4", 10_000))
    capacity = {"H100": 8_000, "T4": 100_000}
    ranks = DominantResourceFairness().standing(OrderingView(view.queues, (), (), held, capacity)).ranks()
    assert ranks == {("x", "a"): (1.0, 0.5), ("y", "b"): (0.2, 0.1)}


# Muster's fair share


def test_fair_share_adds_past_and_present_as_parts_of_the_fleet() -> None:
    half_life = DAY_S
    always = decayed_use(100, 50 * DAY_S, half_life)  # the whole fleet, for long
    view = view_of("A - 1, B - 1", f"A/a {always * 0.1}, B/b 0", "A/a 10, B/b 0")
    assert DecayedFairShare(half_life).standing(view).ranks() == {("A", "a"): (0.4, 0.2), ("B", "b"): (0.0, 0.0)}


def test_fair_share_lets_the_past_fade() -> None:
    """a used 100 GPU-days a week ago, b 60 just now: with a half-life of a week a counts 50 and is first."""
    then, now = 100 * DAY_S, 60 * DAY_S
    view = view_of("A - 1, B - 1", f"A/a {decay(then, 7 * DAY_S, 7 * DAY_S)}, B/b {now}")
    assert order(DecayedFairShare().standing(view).ranks()) == "a < b"
    assert order(DecayedFairShare().standing(view_of("A - 2, B - 1", f"A/a {then}, B/b {now}")).ranks()) == "a < b"


def test_fair_share_with_a_clean_past_does_not_take_everything() -> None:
    """b has never run and a has; by what b is given now it falls behind, before any of it has become past."""
    past = decayed_use(10, 7 * DAY_S, 7 * DAY_S)
    orders = [
        order(DecayedFairShare().standing(view_of("A - 1, B - 1", f"A/a {past}", f"A/a 0, B/b {held}")).ranks())
        for held in (4, 6)
    ]
    assert orders == ["b < a", "a < b"]


# Decay


def test_decay_halves() -> None:
    assert decay(8.0, 3 * DAY_S, DAY_S) == 1.0
    assert decay(8.0, 5.0, math.inf) == 8.0
    assert decayed_use(2, 10, math.inf) == 20
    assert decayed_use(2, 1e9, 100) == pytest.approx(200 / math.log(2))
    with pytest.raises(InputError, match="half_life_s"):
        decay(1.0, 1.0, 0.0)


@given(st.floats(0, 1e4), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1, 1e6))
def test_use_in_two_parts_is_use_in_one(gpus: float, first: float, second: float, half_life: float) -> None:
    parts = decay(decayed_use(gpus, first, half_life), second, half_life) + decayed_use(gpus, second, half_life)
    assert parts == pytest.approx(decayed_use(gpus, first + second, half_life), rel=1e-9, abs=1e-9)


# Promised of every policy


@st.composite
def views(draw: st.DrawFn, leaves: bool = False) -> OrderingView:
    """Up to seven queues in one or more trees, and up to six users; ``leaves``: users only where no queue is below."""
    count = draw(st.integers(0, 7))
    weights = [draw(st.sampled_from([0.5, 1.0, 2.0, 3.0])) for _ in range(count)]
    parents = [draw(st.integers(-1, number - 1)) for number in range(count)]
    queues = tuple(Queue(f"q{n}", f"q{parents[n]}" if parents[n] >= 0 else "", weights[n]) for n in range(count))
    homes = st.sampled_from([n for n in range(count) if not leaves or n not in parents] or [0])
    claims = tuple((f"q{draw(homes)}", user) for user in sorted(draw(st.sets(st.sampled_from("abcdef")))))
    amounts = st.sampled_from([0.0, 1.0, 2.0, 3.0, 1e4, 1e6])
    usage = tuple(Usage(*claim, amount) for claim in claims if (amount := draw(amounts)))
    held = tuple(
        Held(*claim, flavor, milli) for claim in claims for flavor in ("x", "y") if (milli := draw(st.integers(0, 4)))
    )
    return OrderingView(queues, claims, usage, held, {"x": 10_000, "y": 7_000})


POLICIES = [entry.make() for entry in ORDERINGS.values()]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
class TestEveryPolicy:
    @given(view=views(), data=st.data())
    def test_the_order_of_the_view_does_not_matter(self, policy, view: OrderingView, data: st.DataObject) -> None:
        ranks = policy.standing(view).ranks()
        assert set(ranks) == set(view.claimants)
        assert len({len(rank) for rank in ranks.values()}) <= 1
        shuffled = OrderingView(
            *(
                tuple(data.draw(st.permutations(list(items))))
                for items in (view.queues, view.claimants, view.usage, view.held)
            ),
            capacity_milli=view.capacity_milli,
        )
        assert policy.standing(shuffled).ranks() == ranks

    @given(view=views(leaves=True), factor=st.sampled_from([0.25, 2.0, 1024.0, 3.0, 0.1]))
    def test_a_common_factor_of_all_weights_changes_nothing(self, policy, view: OrderingView, factor: float) -> None:
        scaled = tuple(Queue(queue.name, queue.parent, queue.weight * factor) for queue in view.queues)
        other = OrderingView(scaled, view.claimants, view.usage, view.held, view.capacity_milli)
        before, after = policy.standing(view).ranks(), policy.standing(other).ranks()
        assert before.keys() == after.keys()
        for claim, rank in before.items():
            assert after[claim] == pytest.approx(rank, rel=1e-9)

    @given(view=views(), data=st.data())
    def test_more_use_never_moves_a_user_ahead(self, policy, view: OrderingView, data: st.DataObject) -> None:
        if not view.claimants:
            return
        claim = data.draw(st.sampled_from(view.claimants))
        usage, held = view.usage, view.held
        if data.draw(st.booleans()):
            usage = (*usage, Usage(*claim, data.draw(st.sampled_from([0.5, 1.0, 7.0, 1e5]))))
        else:
            held = (*held, Held(*claim, data.draw(st.sampled_from("xy")), data.draw(st.integers(1, 5))))
        before = policy.standing(view).ranks()
        after = policy.standing(OrderingView(view.queues, view.claimants, usage, held, view.capacity_milli)).ranks()
        for other in before:
            if before[claim] > before[other]:
                assert after[claim] > after[other]
            elif before[claim] == before[other]:
                assert after[claim] >= after[other]

    @given(view=views(), data=st.data())
    def test_to_hold_step_by_step_is_to_hold_at_once(self, policy, view: OrderingView, data: st.DataObject) -> None:
        standing = policy.standing(OrderingView(view.queues, view.claimants, view.usage, (), view.capacity_milli))
        before = standing.ranks()
        for held in data.draw(st.permutations(list(view.held))):
            standing.hold((held.queue, held.user), held.flavor, held.milli)
        assert standing.ranks() == policy.standing(view).ranks()
        assert {claim: standing.rank(claim) for claim in before} == standing.ranks()
        for held in view.held:
            standing.hold((held.queue, held.user), held.flavor, -held.milli)
        assert standing.ranks() == before
        with pytest.raises(KeyError):
            standing.rank(("nowhere", "nobody"))

    def test_without_queues_users_are_compared(self, policy) -> None:
        view = OrderingView(claimants=(("", "a"), ("", "b")), usage=(Usage("", "b", 5.0),))
        ranks = policy.standing(view).ranks()
        assert ranks["", "a"] <= ranks["", "b"]
        assert policy.standing(OrderingView()).ranks() == {}

    def test_a_cycle_is_refused(self, policy) -> None:
        if policy.name == "fifo":  # it does not look at the tree
            return
        with pytest.raises(InputError, match="cycle"):
            policy.standing(OrderingView((Queue("a", "b"), Queue("b", "a")))).ranks()


def test_pending_work_is_sorted_by_priority_then_rank_then_age() -> None:
    def work(name: str, user: str, submitted_s: float, priority: int = 0) -> Workload:
        pod = single_pod(name, PodShape(gpus=1), submitted_s)
        return Workload(name, pod.pod_sets, submitted_s, queue="q", user=user, priority=priority)

    pending = [
        work("d", "b", 1),
        work("c", "a", 9),
        work("b", "a", 3),
        work("a", "a", 3),
        work("e", "b", 5, priority=1),
    ]
    view = view_of("q - 1", "q/a 1, q/b 2")

    def names(policy: str) -> str:
        ranks = find_ordering(policy).standing(view).ranks()
        return "".join(work.name for work in sorted(pending, key=lambda work: pending_key(work, ranks)))

    assert names("fair-share") == "eabcd"
    assert names("fifo") == "edabc"


def test_names() -> None:
    assert list(ORDERINGS) == ["fifo", "drf", "fair-share", "slurm-classic", "slurm-fair-tree"]
    assert [find_ordering(name).name for name in ORDERINGS] == list(ORDERINGS)
    assert DEFAULT_ORDERING == "fair-share"
    with pytest.raises(InputError) as caught:
        find_ordering("slurm-fairtree")
    assert str(caught.value) == (
        "field 'order': unknown order 'slurm-fairtree'; did you mean slurm-fair-tree or slurm-classic? "
        "known: fifo, drf, fair-share, slurm-classic, slurm-fair-tree"
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: DecayedFairShare(0),
        lambda: DecayedFairShare(math.inf),
        lambda: SlurmClassic(dampening=0),
        lambda: SlurmClassic(total_gpu_s=0),
    ],
)
def test_parameters_that_make_no_sense_are_refused(make) -> None:
    with pytest.raises(InputError):
        make()
