"""Which nodes a pod may use, and beside whom: affinities, spread constraints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.errors import InputError
from muster.kube.affinity import OPERATORS, expression_fault, selects, shown, term_takes
from muster.kube.objects import Expression, PodSpec
from muster.model.fleet import Node
from muster.model.workload import TopologyRequest

if TYPE_CHECKING:
    from muster.answers.specs.pods import PodReader


def node_conditions(reader: PodReader, pod: PodSpec, where: str) -> dict[str, str]:
    """A label that stands for the required node affinity of a pod; what is only preferred is told of."""
    asked = pod.affinity and pod.affinity.node_affinity
    if not asked:
        return {}
    if asked.preferred_during_scheduling_ignored_during_execution:
        reader.note(
            f"{where}.affinity.nodeAffinity", "preferred nodes are left out: they do not decide whether it fits"
        )
    required = asked.required_during_scheduling_ignored_during_execution
    if required is None:
        return {}
    terms = required.node_selector_terms or []
    at = f"{where}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    for number, term in enumerate(terms):
        for name, expressions in (
            ("matchExpressions", term.match_expressions), ("matchFields", term.match_fields),
        ):  # fmt: skip
            for index, each in enumerate(expressions or ()):
                _check(reader, each, f"{at}[{number}].{name}[{index}]")
    places = reader.places

    def allows(node: Node) -> bool:
        labels = places.labels(node)
        return any(term_takes(term, labels, node.name) for term in terms)

    mark = places.mark(f"node affinity {' or '.join(map(shown, terms))}", allows)
    if not any(map(allows, places.nodes)):
        reader.note(f"{where}.affinity.nodeAffinity", "no node meets it")
    return mark


def _check(reader: PodReader, each: Expression, at: str) -> None:
    wrong = expression_fault(each)
    if wrong is not None:
        field, what = wrong
        hint = f"one of {', '.join(OPERATORS)}" if field == "operator" else None
        raise reader.document.error(f"{at}.{field}", what, hint)


def _level(reader: PodReader, key: str, where: str) -> str:
    try:
        return reader.places.level(key)
    except InputError as error:
        raise reader.document.error(where, error.what, error.hint) from None


def affinities(
    reader: PodReader, pod: PodSpec, where: str, labels: Mapping[str, str], topology: TopologyRequest | None
) -> TopologyRequest | None:
    """The request with what the pods ask for of each other: in one domain, or one a domain.

    Raises:
        InputError: they ask for it of other pods, whose labels a snapshot does not hold.
    """
    asked = pod.affinity
    for name, kind in (
        ("podAffinity", asked and asked.pod_affinity), ("podAntiAffinity", asked and asked.pod_anti_affinity),
    ):  # fmt: skip
        if not kind:
            continue
        at = f"{where}.affinity.{name}"
        if kind.preferred_during_scheduling_ignored_during_execution:
            reader.note(at, "what is preferred is left out: it does not decide whether it fits")
        for number, term in enumerate(kind.required_during_scheduling_ignored_during_execution or ()):
            path = f"{at}.requiredDuringSchedulingIgnoredDuringExecution[{number}]"
            if not selects(term.label_selector, labels):
                what = "selects other pods than these; their labels are not in a snapshot, so it cannot be told"
                raise reader.document.error(path, what, "it may keep pods off nodes that look free")
            level = _level(reader, term.topology_key, f"{path}.topologyKey")
            now = topology or TopologyRequest()
            taken = now.required if name == "podAffinity" else now.spread
            if taken not in ("", level):
                raise reader.document.error(path, f"asks for {level} beside {taken}", "one level can be asked for")
            topology = replace(now, required=level) if name == "podAffinity" else replace(now, spread=level, at_most=1)
    return topology


def spread_over(
    reader: PodReader, pod: PodSpec, where: str, labels: Mapping[str, str], count: int,
    topology: TopologyRequest | None,
) -> TopologyRequest | None:  # fmt: skip
    """The request with the pods dealt out over the domains of a level, as topologySpreadConstraints ask for.

    Raises:
        InputError: two levels, or a constraint that counts other pods.
    """
    for number, each in enumerate(pod.topology_spread_constraints or ()):
        path = f"{where}.topologySpreadConstraints[{number}]"
        if each.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
            hint = "DoNotSchedule or ScheduleAnyway"
            raise reader.document.error(f"{path}.whenUnsatisfiable", f"is {each.when_unsatisfiable[:20]!r}", hint)
        if each.max_skew < 1:
            raise reader.document.error(f"{path}.maxSkew", f"is {each.max_skew}", "1 or more")
        must = each.when_unsatisfiable == "DoNotSchedule"
        if not selects(each.label_selector, labels):
            if must:
                what = "counts other pods than these; their labels are not in a snapshot, so it cannot be told"
                raise reader.document.error(path, what, "ScheduleAnyway would leave the answer as it is")
            reader.note(path, "is left out: it counts other pods, and does not decide whether it fits")
            continue
        level = _level(reader, each.topology_key, f"{path}.topologyKey")
        now = topology or TopologyRequest()
        if now.spread not in ("", level) or (now.required and not now.segment and must):
            if must:
                other = now.spread or f"one {now.required}"
                raise reader.document.error(path, f"spreads over {level} beside {other}", "one level can be asked for")
            reader.note(path, f"is left out beside {now.spread or now.required}")
            continue
        domains = reader.places.domains(level)
        most = -(-count // max(1, domains)) + each.max_skew - 1 if must else 0
        if must:
            reader.note(path, f"counts as at most {most} of {count} pods in one of {domains:,} {level}s, dealt evenly")
        topology = replace(
            now, spread=level, at_most=min(most, now.at_most) if most and now.at_most else most or now.at_most
        )
    return topology
