"""Quota arithmetic: scenario tables worked by hand, and properties of random trees and histories.

Amounts in the tables are whole GPUs of one flavor. A step is ``+queue n`` (charged), ``-queue n`` (taken back) or
``queue n? REASON`` (asked; ``ok`` fits). After each step the line says what every queue may still use.
"""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.engine.quota import UNLIMITED, Borrower, QuotaTree, check_queues, quota_warnings
from muster.errors import InputError, StateError
from muster.model.queue import Queue, Quota
from muster.model.reasons import Reason

FLAVOR = "H100/reserved"


def queues_of(text: str) -> tuple[Queue, ...]:
    """Read ``name parent nominal borrow lend``; ``-`` is none, ``?`` for nominal states no quota at all."""
    queues: list[Queue] = []
    for line in text.strip().splitlines():
        name, parent, nominal, borrow, lend = line.split()
        limits = [None if word == "-" else int(word) * 1000 for word in (borrow, lend)]
        quotas = () if nominal == "?" else (Quota(FLAVOR, int(nominal) * 1000, *limits),)
        queues.append(Queue(name, "" if parent == "-" else parent, quotas=quotas))
    return tuple(queues)


def play(tree: QuotaTree, rounds: str) -> None:
    for line in rounds.strip().splitlines():
        step, _, after = line.partition("|")
        words = step.split()
        if words and words[0][0] in "+-":
            act = tree.charge if words[0][0] == "+" else tree.refund
            act(words[0][1:], FLAVOR, int(words[1]) * 1000)
        elif words:
            queue, asked, expected = words
            found = tree.fits(queue, FLAVOR, int(asked.rstrip("?")) * 1000)
            assert (found.name if found else "ok") == expected, line
        for queue, free in re.findall(r"(\S+) (-?\d+)", after):
            assert tree.available(queue, FLAVOR) == int(free) * 1000, f"{queue} after {line.strip()!r}"


# name, the tree (name parent nominal borrow lend), the rounds
SCENARIOS = [
    (
        "two teams share what the other leaves (Kueue's documentation: 9 and 12)",
        """
        ab - 0 - -
        a ab 9 - -
        b ab 12 - -
        """,
        """
                    | a 21 b 21 ab 21
        a 21? ok
        a 22? OVER_QUOTA
        +a 9        | a 12 b 12
        +a 5        | a 7 b 7
        b 8? QUOTA
        +b 7        | a 0 b 0
        -a 5        | a 5 b 5
        -b 7        | a 12 b 12
        -a 9        | a 21 b 21
        """,
    ),
    (
        "a borrowing limit of 1: ten for a, and b is as before",
        """
        ab - 0 - -
        a ab 9 1 -
        b ab 12 - -
        """,
        """
                    | a 10 b 21
        a 11? OVER_QUOTA
        +a 10       | a 0 b 11
        a 1? QUOTA
        """,
    ),
    (
        "a lending limit of 1: b keeps eleven to itself",
        """
        ab - 0 - -
        a ab 9 - -
        b ab 12 - 1
        """,
        """
                    | a 10 b 21
        +a 10       | a 0 b 11
        +b 11       | a 0 b 0
        -a 10       | a 10 b 10
        +b 1        | a 9 b 9
        +b 9        | a 0 b 0
        a 1? QUOTA
        -b 21       | a 10 b 21
        """,
    ),
    (
        "a lending limit of 0 is a private quota",
        """
        ab - 0 - -
        a ab 4 - 0
        b ab 4 - 0
        """,
        """
                    | a 4 b 4
        +a 4        | a 0 b 4
        a 1? QUOTA
        a 5? OVER_QUOTA
        """,
    ),
    (
        "the cohort's own nominal quota is a pool on top of its children's",
        """
        pool - 12 - -
        a pool 0 - -
        b pool 3 - -
        """,
        """
                    | a 15 b 15
        +a 12       | a 3 b 3
        +b 3        | a 0 b 0
        """,
    ),
    (
        "a team without a quota of its own is limited by its department only",
        """
        dept - 8 - -
        a dept ? - -
        b dept ? - -
        """,
        """
                    | a 8 b 8
        +a 5        | a 3 b 3
        b 4? QUOTA
        b 9? OVER_QUOTA
        """,
    ),
    (
        "a flavor that nobody on the path has cannot be used, not even where a sibling has it",
        """
        org - ? - -
        a org 8 - -
        b org ? - -
        """,
        """
                    | a 8 b 0
        b 1? NO_FLAVOR
        b 0? ok
        nobody 1? UNKNOWN_QUEUE
        """,
    ),
    (
        "limits of an inner queue hold for all below it together",
        """
        org - 0 - -
        left org 0 4 6
        l1 left 10 - -
        l2 left 10 - -
        right org 20 - -
        """,
        # left's subtree is 20, it keeps 14, lends 6 and borrows 4: l1 can have 24, right 20 + 6
        """
                    | l1 24 l2 24 right 26 left 24
        +l1 24      | l1 0 l2 0 right 16
        right 17? QUOTA
        -l1 24      | l1 24
        +right 26   | l1 14 l2 14 right 0
        +l1 14      | l1 0 l2 0 right 0
        """,
    ),
    (
        "what runs is charged even above its quota, and what is then available is negative",
        """
        ab - 0 - -
        a ab 4 0 -
        b ab 4 - -
        """,
        """
        +a 6        | a -2 b 2
        a 1? QUOTA
        -a 6        | a 4 b 8
        """,
    ),
]


@pytest.mark.parametrize(("tree", "rounds"), [case[1:] for case in SCENARIOS], ids=[case[0] for case in SCENARIOS])
def test_scenario(tree: str, rounds: str) -> None:
    play(QuotaTree(queues_of(tree)), rounds)


ORG = """
org - 0 - -
research org 0 - -
llm research 16 - -
vision research 8 - -
product org 0 - -
ads product 8 - 4
"""


def test_who_holds_what_and_from_whom_it_can_be_taken_back() -> None:
    tree = QuotaTree(queues_of(ORG))
    tree.charge("vision", FLAVOR, 20_000)
    tree.charge("ads", FLAVOR, 4_000)
    # vision holds 12 more than its 8. llm's 16 lie idle, but only 4 of 24 in research and 4 that ads lends are free.
    holds = tree.who_holds("llm", FLAVOR)
    assert (holds.nominal_milli, holds.used_milli, holds.borrowed_milli) == (16_000, 0, 0)
    assert holds.available_milli == 8_000
    assert holds.lent_milli == 8_000
    assert holds.borrowers == (Borrower("vision", 12_000),)
    assert (holds.cohort, holds.cohort_free_milli, holds.limited_by) == ("research", 8_000, "org")
    assert holds.describe() == (
        "llm uses 0 of 16 nominal GPUs (H100/reserved); 0 of at most 12 are borrowed, 8 more may be used now; "
        "8 are lent (vision 12)"
    )
    # ads keeps 4 of its 8 for itself, and the 4 that it may lend are free. To take from vision is not its right:
    # research as a whole holds 20 of its 24.
    assert tree.who_holds("ads", FLAVOR).lent_milli == 0
    assert tree.borrowers("ads", FLAVOR) == ()
    tree.charge("llm", FLAVOR, 8_000)
    assert tree.borrowers("ads", FLAVOR) == (Borrower("vision", 4_000),)
    assert tree.who_holds("ads", FLAVOR).lent_milli == 4_000
    with pytest.raises(StateError, match="does not exist"):
        tree.who_holds("nobody", FLAVOR)


def test_a_limit_is_named_where_it_is() -> None:
    tree = QuotaTree(queues_of("ab - 0 - -\na ab 4 2 -\nb ab 9 - -"))
    assert tree.who_holds("a", FLAVOR).limited_by == "a"
    tree.charge("b", FLAVOR, 9_000)
    assert tree.who_holds("a", FLAVOR).limited_by == "ab"


def test_a_loan_has_a_level() -> None:
    tree = QuotaTree(queues_of(ORG))
    levels = [(milli, tree.borrow_level("vision", FLAVOR, milli * 1000)) for milli in (8, 9, 24, 25, 28, 99)]
    assert levels == [(8, 0), (9, 1), (24, 1), (25, 2), (28, 2), (99, 2)]
    assert not tree.would_borrow("vision", FLAVOR, 8_000)
    assert tree.would_borrow("vision", FLAVOR, 8_001)
    tree.charge("vision", FLAVOR, 9_000)
    assert tree.borrowed("vision", FLAVOR) == 1_000
    assert tree.borrowed("research", FLAVOR) == 0


def test_without_queues_nothing_is_limited() -> None:
    tree = QuotaTree(())
    tree.charge("any", FLAVOR, 5)
    assert tree.fits("any", FLAVOR, 10**9) is None
    assert tree.available("any", FLAVOR) == tree.potential("any", FLAVOR) == UNLIMITED


def test_work_of_a_queue_that_is_gone_counts_against_nothing() -> None:
    tree = QuotaTree(queues_of("a - 4 - -"))
    tree.charge("gone", FLAVOR, 4_000)
    tree.charge("a", "other", 4_000)
    assert tree.available("a", FLAVOR) == 4_000
    assert tree.available("gone", FLAVOR) == tree.potential("a", "other") == 0
    assert tree.borrow_level("gone", FLAVOR, 1) == 0
    assert tree.borrowers("gone", FLAVOR) == ()


def test_more_than_was_charged_cannot_be_taken_back() -> None:
    tree = QuotaTree(queues_of("ab - 4 - -\na ab 4 - -"))
    tree.charge("a", FLAVOR, 1_000)
    with pytest.raises(StateError, match="1000 milli are charged to queue 'a'"):
        tree.refund("a", FLAVOR, 1_001)
    with pytest.raises(StateError):
        tree.refund("ab", FLAVOR, 1)
    with pytest.raises(StateError):
        tree.charge("a", FLAVOR, -1)


def test_a_copy_goes_its_own_way() -> None:
    tree = QuotaTree(queues_of("a - 4 - -"))
    twin = tree.copy()
    twin.charge("a", FLAVOR, 4_000)
    assert (tree.available("a", FLAVOR), twin.available("a", FLAVOR)) == (4_000, 0)


def quota(nominal: int = 0, borrow: int | None = None, lend: int | None = None) -> tuple[Quota, ...]:
    return (Quota(FLAVOR, nominal, borrow, lend),)


REFUSED = [
    ((Queue("a"), Queue("a")), "field 'queues[1].name': 'a' is already the name of queues[0]"),
    ((Queue(""),), "field 'queues[0].name': is empty; give the queue a name"),
    ((Queue("a", "x"),), "field 'queues[0].parent': there is no queue 'x'; a root's parent is empty"),
    ((Queue("a", "a"),), "field 'queues[0].parent': is part of a cycle: a -> a"),
    (
        (Queue("r"), Queue("x", "a"), Queue("a", "b"), Queue("b", "c"), Queue("c", "a")),
        "field 'queues[2].parent': is part of a cycle: a -> b -> c -> a",
    ),
    ((Queue("a", weight=0),), "field 'queues[0].weight': is 0; a number above 0"),
    ((Queue("a", weight=float("nan")),), "field 'queues[0].weight': is nan; a number above 0"),
    ((Queue("a", min_runtime_s=-1),), "field 'queues[0].min_runtime_s': is -1; seconds, 0 or more"),
    ((Queue("a", max_running_milli=-1),), "field 'queues[0].max_running_milli': is negative (-1)"),
    ((Queue("a", quotas=quota(-1)),), "field 'queues[0].quotas[0].nominal_milli': is negative (-1)"),
    (
        (Queue("a", quotas=quota(2**53)),),
        "field 'queues[0].quotas[0].nominal_milli': is absurdly large (9007199254740992)",
    ),
    (
        (Queue("a", quotas=quota(1) + quota(2)),),
        "field 'queues[0].quotas[1].flavor': 'H100/reserved' has a quota twice in 'a'; one quota for each flavor",
    ),
    (
        (Queue("r"), Queue("a", "r", quotas=quota(5, lend=6))),
        "field 'queues[1].quotas[0].lending_limit_milli': 6 is more than there is to lend (5); "
        "at most the nominal quota, and what the queues below lend",
    ),
    (
        (Queue("a", quotas=quota(5, borrow=1)),),
        "field 'queues[0].quotas[0].borrowing_limit_milli': queue 'a' has no parent to borrow from; "
        "leave it out, or give the queue a parent",
    ),
]


@pytest.mark.parametrize(("queues", "message"), REFUSED, ids=[case[1] for case in REFUSED])
def test_refused(queues: tuple[Queue, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_queues(queues)
    assert str(caught.value) == message
    with pytest.raises(InputError):
        QuotaTree(queues)


def test_an_inner_queue_may_lend_what_its_children_lend_to_it() -> None:
    check_queues((Queue("r"), Queue("a", "r", quotas=quota(1, lend=4)), Queue("b", "a", quotas=quota(5, lend=3))))
    check_queues((Queue("alone", quotas=quota(5, borrow=0, lend=5)),))


def test_quotas_that_cannot_be_kept() -> None:
    queues = queues_of("ab - 0 - -\na ab 9 - -\nb ab 12 - -")
    assert quota_warnings(queues, {FLAVOR: 21_000}) == ()
    found = quota_warnings(queues, {FLAVOR: 10_500, "T4/spot": 8_000})
    assert [(warning.queue, warning.text) for warning in found] == [
        (
            "",
            "quotas of H100/reserved add up to 21 GPUs; 10.5 are there and healthy, so 10.5 are promised twice",
        ),
        ("b", "b is promised 12 GPUs of H100/reserved, more than the 10.5 that are there and healthy"),
        ("", "no queue has a quota of T4/spot: its 8 GPUs can be used by nobody"),
    ]
    assert [warning.text for warning in quota_warnings(queues, {})] == [
        "no healthy GPU is H100/reserved, but a, b hold a quota of it"
    ]
    assert quota_warnings((), {FLAVOR: 8_000}) == ()


# Properties. The specification is recursive and slow on purpose; it is Kueue's, word by word.


@st.composite
def trees(draw: st.DrawFn) -> tuple[Queue, ...]:
    """Up to ten queues of two flavors in one or more trees, each after its parent, with limits that are legal."""
    count = draw(st.integers(1, 10))
    parents = [draw(st.integers(-1, number - 1)) for number in range(count)]
    lendable: dict[tuple[int, str], int] = {}
    queues: list[Queue] = []
    for number in reversed(range(count)):
        quotas: list[Quota] = []
        for flavor in ("x", "y"):
            below = sum(lendable[child, flavor] for child in range(number + 1, count) if parents[child] == number)
            lendable[number, flavor] = below
            if draw(st.integers(0, 4)):
                nominal = draw(st.integers(0, 9))
                lend = draw(st.none() | st.integers(0, nominal + below))
                borrow = draw(st.none() | st.integers(0, 9)) if parents[number] >= 0 else None
                quotas.append(Quota(flavor, nominal, borrow, lend))
                lendable[number, flavor] = nominal + below if lend is None else lend
        parent = f"q{parents[number]}" if parents[number] >= 0 else ""
        queues.append(Queue(f"q{number}", parent, quotas=tuple(quotas)))
    return tuple(draw(st.permutations(queues)))


class Specification:
    """Recursive definitions over what each queue itself was charged."""

    def __init__(self, queues: tuple[Queue, ...], flavor: str) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.quota = {
            queue.name: next((quota for quota in queue.quotas if quota.flavor == flavor), Quota(flavor, 0))
            for queue in queues
        }
        self.own = dict.fromkeys(self.queues, 0)
        self.children = {name: [queue.name for queue in queues if queue.parent == name] for name in self.queues}

    def below(self, name: str) -> set[str]:
        return {name}.union(*(self.below(child) for child in self.children[name]))

    def root(self, name: str) -> str:
        parent = self.queues[name].parent
        return self.root(parent) if parent else name

    def subtree(self, name: str) -> int:
        return self.quota[name].nominal_milli + sum(
            self.subtree(child) - self.local(child) for child in self.children[name]
        )

    def local(self, name: str) -> int:
        limit = self.quota[name].lending_limit_milli
        return 0 if limit is None else max(0, self.subtree(name) - limit)

    def used(self, name: str) -> int:
        return self.own[name] + sum(max(0, self.used(child) - self.local(child)) for child in self.children[name])

    def available(self, name: str, empty: bool = False) -> int:
        used = 0 if empty else self.used(name)
        parent, local, limit = self.queues[name].parent, self.local(name), self.quota[name].borrowing_limit_milli
        if not parent:
            return self.subtree(name) - used
        from_parent = self.available(parent, empty)
        if limit is not None:
            from_parent = min(from_parent, self.subtree(name) - local - max(0, used - local) + limit)
        return max(0, local - used) + from_parent

    def total(self, names: set[str]) -> tuple[int, int]:
        """What they use, and their nominal quotas."""
        return sum(self.own[name] for name in names), sum(self.quota[name].nominal_milli for name in names)

    def check_allowed(self) -> None:
        """What must hold as long as each charge was allowed."""
        for name in self.queues:
            root, below = self.below(self.root(name)), self.below(name)
            used, nominal = self.total(root)
            assert used <= nominal
            limits = self.quota[name]
            if limits.lending_limit_milli is not None:
                others_use, others_own = self.total(root - below)
                assert others_use - others_own <= limits.lending_limit_milli
            if limits.borrowing_limit_milli is not None:
                assert self.used(name) - self.subtree(name) <= limits.borrowing_limit_milli
                within_use, within_own = self.total(below)
                assert within_use - within_own <= limits.borrowing_limit_milli
            assert self.own[name] <= self.available(name, empty=True)


def numbers(tree: QuotaTree) -> list[tuple[int, int, int]]:
    return [
        (tree.used(queue.name, flavor), tree.available(queue.name, flavor), tree.borrowed(queue.name, flavor))
        for queue in tree.queues
        for flavor in ("x", "y")
    ]


@given(trees(), st.integers(0, 2**32), st.booleans())
def test_random_histories(queues: tuple[Queue, ...], seed: int, strict: bool) -> None:
    tree, rng = QuotaTree(queues), random.Random(seed)
    specs = {flavor: Specification(queues, flavor) for flavor in ("x", "y")}
    fresh = numbers(tree)
    history: list[tuple[str, str, int]] = []
    for _ in range(15):
        name, flavor, milli = rng.choice(queues).name, rng.choice("xy"), rng.randint(1, 6)
        spec = specs[flavor]
        if history and rng.random() < 0.3:
            name, flavor, milli = history.pop(rng.randrange(len(history)))
            spec = specs[flavor]
            tree.refund(name, flavor, milli)
            spec.own[name] -= milli
        else:
            reason = tree.fits(name, flavor, milli)
            stated = flavor in tree.flavors and reason is not Reason.NO_FLAVOR
            if stated:
                potential, available = spec.available(name, empty=True), spec.available(name)
                expected = Reason.OVER_QUOTA if milli > potential else Reason.QUOTA if milli > available else None
                assert reason is expected
                assert tree.potential(name, flavor) == potential
                assert tree.who_holds(name, flavor).available_milli == max(0, available)
                level = tree.borrow_level(name, flavor, milli)
                assert (level > 0) == (spec.queues[name].parent != "" and spec.used(name) + milli > spec.subtree(name))
            if reason is not None and (strict or flavor not in tree.flavors):
                continue
            before = numbers(tree)
            tree.charge(name, flavor, milli)
            twin = tree.copy()
            twin.refund(name, flavor, milli)
            assert numbers(twin) == before
            spec.own[name] += milli
            history.append((name, flavor, milli))
        assert [tree.used(queue.name, flavor) for queue in queues] == [spec.used(queue.name) for queue in queues]
        for queue in rng.sample(queues, 1):
            for borrower in tree.borrowers(queue.name, flavor):
                assert 0 < borrower.milli <= spec.own[borrower.queue]
                assert borrower.queue not in spec.below(queue.name)
        if strict:
            spec.check_allowed()
    rng.shuffle(history)
    for name, flavor, milli in history:
        tree.refund(name, flavor, milli)
    assert numbers(tree) == fresh


@given(trees(), st.integers(0, 2**32))
def test_taking_back_what_was_lent_makes_a_nominal_quota_whole(queues: tuple[Queue, ...], seed: int) -> None:
    """However full the tree is: with the borrowers' excess gone, a queue has its own quota."""
    tree, rng = QuotaTree(queues), random.Random(seed)
    for _ in range(60):
        name, milli = rng.choice(queues).name, rng.randint(1, 6)
        if tree.fits(name, "x", milli) is None:
            tree.charge(name, "x", milli)
    for queue in queues:
        if any(other.parent == queue.name for other in queues):
            continue
        trial = tree.copy()
        while lent := trial.who_holds(queue.name, "x").lent_milli:
            borrowers = trial.borrowers(queue.name, "x")
            assert borrowers, (queue.name, lent)
            trial.refund(borrowers[0].queue, "x", min(lent, borrowers[0].milli))
        assert trial.available(queue.name, "x") >= trial.nominal(queue.name, "x") - trial.used(queue.name, "x")
