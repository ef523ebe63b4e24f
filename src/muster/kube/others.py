"""What pods ask of other pods: to be with them, apart from them, or spread evenly; and the pods that stand somewhere.

A rule is decided on as kube-scheduler does it (kubernetes pkg/scheduler/framework/plugins: interpodaffinity,
podtopologyspread): by how many pods it selects on each node, counted as pods come and go. Rules of pods that are alike
are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from muster.engine.state import tolerates
from muster.kube.affinity import selects, term_takes
from muster.kube.kinds import NAMESPACES, NODES
from muster.kube.nodes import HOST_LABEL
from muster.kube.objects import (
    Expression,
    KubeNamespace,
    KubeNode,
    KubePod,
    PodSpec,
    PodTerm,
    Selector,
    Spread,
)
from muster.kube.world import World
from muster.model.fleet import Taint
from muster.model.workload import Toleration

ENDED = ("Succeeded", "Failed")
_json = msgspec.json.Encoder()


Selection = tuple[frozenset[str] | None, Selector | None, Selector | None]


class Group(Struct, eq=False):
    """Pods that a rule selects, and how many of them stand on each node.

    Attributes:
        key: the same for the same selection.
        selectors: of each selection namespaces (None: all), a selector of further ones by their labels, and of pods.
        bears: pods are counted that keep such pods away, instead of those pods themselves.
        leaving: whether pods that are being deleted count.
        nodes: how many stand on each node.
        version: another one after each change.
    """

    key: str
    selectors: tuple[Selection, ...]
    bears: bool = False
    leaving: bool = True
    nodes: dict[str, int] = field(default_factory=dict[str, int])
    version: int = 0

    @property
    def words(self) -> str:
        """The pods, in words."""
        return " and ".join(shown(selector) for _, _, selector in self.selectors)


def shown(selector: Selector | None) -> str:
    """A label selector in words, such as ``app=web and tier In (a, b)``."""
    if selector is None:
        return "nothing"
    parts = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    for each in selector.match_expressions or ():
        parts.append(f"{each.key} {each.operator}" + (f" ({', '.join(each.values)})" if each.values else ""))
    return " and ".join(parts) or "any labels"


def nodes_with(keys: Iterable[str], what: str) -> str:
    """The nodes of whose domains by topology keys something is so."""
    names = [key.rpartition("/")[2] for key in keys if key != HOST_LABEL]
    return f"nodes whose {' and '.join(names)} has {what}" if names else f"nodes with {what}"


def merged(selector: Selector | None, pod: KubePod, more: Iterable[str], fewer: Iterable[str] = ()) -> Selector | None:
    """A selector with the pod's own values of some labels (``fewer``: without them), as the server merges them."""
    labels = pod.metadata.labels or {}
    extra = [Expression(key, "In", [labels[key]]) for key in more if key in labels]
    extra += [Expression(key, "NotIn", [labels[key]]) for key in fewer if key in labels]
    if selector is None or not extra:
        return selector
    known = list(selector.match_expressions or ())
    return Selector(selector.match_labels, known + [each for each in extra if each not in known])


def required(pod: KubePod) -> tuple[list[PodTerm], list[PodTerm], list[Spread]]:
    """What a pod requires: to be with others, apart from others, spread."""
    spec = pod.spec
    both = (spec.affinity and spec.affinity.pod_affinity, spec.affinity and spec.affinity.pod_anti_affinity)
    beside, apart = (
        list((each.required_during_scheduling_ignored_during_execution if each else None) or ()) for each in both
    )
    spread = [each for each in spec.topology_spread_constraints or () if each.when_unsatisfiable == "DoNotSchedule"]
    return beside, apart, spread


class Others:
    """The pods that stand, and the groups of them that rules count.

    Args:
        world: for labels of namespaces and nodes.

    Attributes:
        changed: whether some group is counted otherwise than when this was last set to False.
        new_apart: rules by which pods keep others away that were met since this was last cleared.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._standing: dict[str, KubePod] = {}
        self._groups: dict[str, Group] = {}
        self._by_label: dict[tuple[str, str], list[Group]] = {}
        self._any: list[Group] = []
        self._keepers: dict[tuple[str, str] | None, list[tuple[Group, str]]] = {}
        self._counted: dict[str, tuple[str, list[Group]]] = {}
        self.changed = False
        self.new_apart: list[Group] = []

    # -- pods

    def put(self, key: str, pod: KubePod | None) -> None:
        """A pod, by a key of its own, stands on its node, has none, or is gone."""
        alive = pod is not None and pod.status.phase not in ENDED
        away = self._keeps_away(pod) if alive and pod is not None and pod.spec.affinity is not None else []
        if key in self._counted:
            node, groups = self._counted.pop(key)
            for group in groups:
                self._count(group, node, -1)
        if pod is None or not alive or not pod.spec.node_name:
            self._standing.pop(key, None)
            return
        self._standing[key] = pod
        if self._groups:
            self._enter(key, pod, [*(each for each in self._candidates(pod) if self.takes(each, pod)), *away])

    def keep(self, keys: Iterable[str]) -> None:
        """Only these pods are there yet."""
        for key in self._standing.keys() - set(keys):
            self.put(key, None)

    def _candidates(self, pod: KubePod) -> Iterator[Group]:
        yield from self._any
        for pair in (pod.metadata.labels or {}).items():
            yield from self._by_label.get(pair, ())

    def _enter(self, key: str, pod: KubePod, groups: list[Group]) -> None:
        if groups:
            node = pod.spec.node_name or ""
            self._counted.setdefault(key, (node, []))[1].extend(groups)
            for group in groups:
                self._count(group, node, 1)

    def _count(self, group: Group, node: str, by: int) -> None:
        left = group.nodes.get(node, 0) + by
        if left:
            group.nodes[node] = left
        else:
            group.nodes.pop(node, None)
        group.version += 1
        self.changed = True

    def takes(self, group: Group, pod: KubePod) -> bool:
        """Whether a pod is of a group."""
        return (group.leaving or pod.metadata.deletion_timestamp is None) and self.selected(group, pod)

    def selected(self, group: Group, pod: KubePod) -> bool:
        """Whether a pod has the labels, and is in a namespace, that a group is of."""
        labels = pod.metadata.labels or {}
        return all(
            selects(selector, labels) and self._in_space(pod.metadata.namespace, spaces, chosen)
            for spaces, chosen, selector in group.selectors
        )

    def _in_space(self, namespace: str, spaces: frozenset[str] | None, chosen: Selector | None) -> bool:
        if spaces is None or namespace in spaces:
            return True
        if chosen is None:
            return False
        found = self._world.of(NAMESPACES, KubeNamespace).get(namespace)
        return found is not None and selects(chosen, found.metadata.labels or {})

    def by_namespace(self) -> bool:
        """Whether any group goes by labels of namespaces."""
        return any(chosen is not None for group in self._groups.values() for _, chosen, _ in group.selectors)

    # -- groups

    def of_term(self, term: PodTerm, pod: KubePod) -> Group:
        """The pods that a term of a pod's affinity selects."""
        selector = merged(term.label_selector, pod, term.match_label_keys or (), term.mismatch_label_keys or ())
        spaces, chosen = frozenset(term.namespaces or ()), term.namespace_selector
        if not spaces and chosen is None:
            spaces = frozenset((pod.metadata.namespace,))
        if chosen is not None and not chosen.match_labels and not chosen.match_expressions:
            return self.group(((None, None, selector),))
        return self.group(((spaces, chosen, selector),))

    def group(
        self,
        selectors: tuple[Selection, ...],
        *,
        leaving: bool = True,
    ) -> Group:
        """The group of the pods that all of some selections take."""
        parts = [(sorted(spaces) if spaces is not None else None, chosen, sel) for spaces, chosen, sel in selectors]
        key = f"{'' if leaving else '-'}{_json.encode(parts).decode()}"
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = Group(key, selectors, leaving=leaving)
            pair = _pair(found)
            if pair is not None:
                self._by_label.setdefault(pair, []).append(found)
            else:
                self._any.append(found)
            for each, pod in self._standing.items():
                if self.takes(found, pod):
                    self._enter(each, pod, [found])
        return found

    def _keeps_away(self, pod: KubePod) -> list[Group]:
        """The groups of pods that keep others away as this one does: one for each of its terms."""
        groups: list[Group] = []
        for term in required(pod)[1]:
            told = self.of_term(term, pod)
            key = f"*{term.topology_key} {told.key}"
            found = self._groups.get(key)
            if found is None:
                found = self._groups[key] = Group(key, told.selectors, bears=True)
                self._keepers.setdefault(_pair(found), []).append((found, term.topology_key))
                self.new_apart.append(found)
            groups.append(found)
        return groups

    def kept_from(self, pod: KubePod) -> list[tuple[Group, str]]:
        """The rules of others that keep this pod away, with the topology key of each."""
        if not self._keepers:
            return []
        pairs = (None, *(pod.metadata.labels or {}).items())
        return [each for pair in pairs for each in self._keepers.get(pair, ()) if self.selected(each[0], pod)]

    def domains(self, group: Group, key: str) -> dict[str, int]:
        """How many pods of a group stand in each domain of a topology key."""
        nodes = self._world.of(NODES, KubeNode)
        found: dict[str, int] = {}
        for name, count in group.nodes.items():
            node = nodes.get(name)
            value = (node.metadata.labels or {}).get(key) if node is not None else None
            if value is not None:
                found[value] = found.get(value, 0) + count
        return found


def _pair(group: Group) -> tuple[str, str] | None:
    """A label that all pods of a group have; None where none is sure."""
    for _, _, selector in group.selectors:
        for pair in ((selector and selector.match_labels) or {}).items():
            return pair
    return None


class Rule(Struct, eq=False):
    """A condition on nodes that depends on which pods stand where.

    Attributes:
        key: the same for rules that are the same.
        words: the nodes that it takes.
        groups: what it counts.
        takes: whether a node of some labels and a name is meant, as pods stand now.
    """

    key: str
    words: str
    groups: tuple[Group, ...]
    takes: Callable[[Mapping[str, str], str], bool]

    @property
    def version(self) -> int:
        """Another one after each change of what it counts."""
        return sum(group.version for group in self.groups)


class Rules:
    """The rules of pods.

    Args:
        world: for nodes.
        others: the pods that stand.
    """

    def __init__(self, world: World, others: Others) -> None:
        self._world, self._others = world, others
        self._known: dict[str, Rule] = {}

    def of(self, pod: KubePod, mates: Iterable[KubePod] = ()) -> list[Rule]:
        """The rules that a pod's node must meet; ``mates`` are the other pods of its gang, which come with it."""
        beside, apart, spread = required(pod)
        found: list[Rule] = []
        if beside and (rule := self._beside(pod, beside, mates)) is not None:
            found.append(rule)
        found += [self._apart(pod, term) for term in apart]
        found += [self._spread(pod, each, spread) for each in spread]
        found += [self._kept(group, key) for group, key in self._others.kept_from(pod)]
        return found

    def _rule(self, key: str, make: Callable[[], Rule]) -> Rule:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = make()
        return found

    def _beside(self, pod: KubePod, terms: list[PodTerm], mates: Iterable[KubePod]) -> Rule | None:
        """With pods that all terms select, in a domain of each; the first of those that select themselves may go first.

        None where pods of the gang itself are meant, and not this one: they come together.
        """
        others = self._others
        group = others.group(tuple(each for term in terms for each in others.of_term(term, pod).selectors))
        keys = tuple(term.topology_key for term in terms)
        own = others.selected(group, pod)
        if not own and any(others.selected(group, mate) for mate in mates):
            return None

        def takes(labels: Mapping[str, str], name: str) -> bool:
            if any(key not in labels for key in keys):
                return False
            domains = [known(key) for key in keys]
            if not any(domains):
                return own
            return all(found.get(labels[key], 0) > 0 for key, found in zip(keys, domains, strict=True))

        known = _Counts(others, group)
        words = nodes_with(keys, f"a pod of {group.words}")
        return self._rule(
            f"with {own} {keys} {group.key}", lambda: Rule(f"{own}{keys}{group.key}", words, (group,), takes)
        )

    def _apart(self, pod: KubePod, term: PodTerm) -> Rule:
        group, key = self._others.of_term(term, pod), term.topology_key
        words = nodes_with([key], f"no pod of {group.words}")
        return self._rule(f"apart {key} {group.key}", lambda: self._none_of(f"a{key}{group.key}", words, group, key))

    def _kept(self, group: Group, key: str) -> Rule:
        words = nodes_with([key], f"no pod that keeps those of {group.words} away")
        return self._rule(f"kept {key} {group.key}", lambda: self._none_of(f"k{key}{group.key}", words, group, key))

    def _none_of(self, name: str, words: str, group: Group, key: str) -> Rule:
        known = _Counts(self._others, group)
        return Rule(name, words, (group,), lambda labels, _: key not in labels or not known(key).get(labels[key], 0))

    def _spread(self, pod: KubePod, asked: Spread, all_of_it: list[Spread]) -> Rule:
        """At most ``maxSkew`` more pods in its domain than in the one with the fewest that the pod may use."""
        others, key = self._others, asked.topology_key
        selector = merged(asked.label_selector, pod, asked.match_label_keys or ())
        group = others.group(((frozenset((pod.metadata.namespace,)), None, selector),), leaving=False)
        own = int(others.selected(group, pod))
        keys = tuple(each.topology_key for each in all_of_it)
        eligible = _Eligible(pod.spec, asked, keys)
        counts = _SpreadCounts(self._world, group, key, eligible)

        def takes(labels: Mapping[str, str], name: str) -> bool:
            if key not in labels:
                return False
            found = counts()
            least = min(found.values(), default=0)
            if asked.min_domains and len(found) < asked.min_domains:
                least = 0
            return found.get(labels[key], 0) + own - least <= asked.max_skew

        words = nodes_with(
            [key], f"at most {asked.max_skew} more pods of {group.words}, with it, than the one with least"
        )
        name = f"spread {own} {asked.max_skew} {asked.min_domains} {key} {eligible.key} {group.key}"
        return self._rule(name, lambda: Rule(name, words, (group,), takes))

    def needs_namespaces(self, rules: list[Rule]) -> bool:
        """Whether rules go by labels of namespaces, and these are not known."""
        if self._world.holds(NAMESPACES):
            return False
        return any(chosen is not None for rule in rules for group in rule.groups for _, chosen, _ in group.selectors)

    # -- of a gang

    def refuses(self, pods: list[tuple[str, KubePod]], nodes: Mapping[str, KubeNode]) -> str:
        """Why pods, each with its key and bound to its node, cannot stand there one after the other; empty: they can.

        What was entered of them stays entered where they can, and is taken out where not.
        """
        left = list(pods)
        done: list[str] = []
        why = ""
        while left:
            stuck: list[tuple[str, KubePod]] = []
            for key, pod in left:
                node = nodes[pod.spec.node_name or ""]
                labels, name = node.metadata.labels or {}, node.metadata.name
                refused = next((rule for rule in self.of(pod) if not rule.takes(labels, name)), None)
                if refused is None:
                    self._others.put(key, pod)
                    done.append(key)
                else:
                    why = f"pod {pod.metadata.name} needs {refused.words}, which {name} is not"
                    stuck.append((key, pod))
            if len(stuck) == len(left):
                for key in done:
                    self._others.put(key, None)
                return why
            left = stuck
        return ""

    def concern(self, pod: KubePod) -> bool:
        """Whether any rule holds for a pod."""
        spec = pod.spec
        return bool(spec.affinity or spec.topology_spread_constraints) or bool(self._others.kept_from(pod))


class _Counts:
    """How many pods of a group stand in each domain of a key, kept while nothing changes."""

    def __init__(self, others: Others, group: Group) -> None:
        self._others, self._group = others, group
        self._known: dict[str, tuple[int, dict[str, int]]] = {}

    def __call__(self, key: str) -> dict[str, int]:
        version, found = self._known.get(key, (-1, {}))
        if version != self._group.version:
            found = self._others.domains(self._group, key)
            self._known[key] = self._group.version, found
        return found


class _Eligible:
    """The nodes over which a pod is spread: those that bear all keys, and that it may use, as the constraint says."""

    def __init__(self, spec: PodSpec, asked: Spread, keys: tuple[str, ...]) -> None:
        self._keys = keys
        by_affinity = (asked.node_affinity_policy or "Honor") == "Honor"
        self._selector = (spec.node_selector or {}) if by_affinity else {}
        affinity = spec.affinity and spec.affinity.node_affinity if by_affinity else None
        needs = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        self._terms = needs.node_selector_terms if needs is not None else None
        by_taints = asked.node_taints_policy == "Honor"
        self._tolerations: list[Toleration] | None = None
        if by_taints:
            self._tolerations = [
                Toleration(each.key or "", each.operator or "Equal", each.value or "", each.effect or "")
                for each in spec.tolerations or ()
            ]
        parts: list[Any] = [keys, self._selector, self._terms, spec.tolerations if by_taints else None]
        self.key = _json.encode(parts).decode()

    def takes(self, node: KubeNode) -> bool:
        """Whether a node is one of them."""
        labels = node.metadata.labels or {}
        if any(key not in labels for key in self._keys):
            return False
        if any(labels.get(key) != value for key, value in self._selector.items()):
            return False
        terms = self._terms
        if terms is not None and not any(term_takes(term, labels, node.metadata.name) for term in terms):
            return False
        if self._tolerations is None:
            return True
        hard = (each for each in node.spec.taints or () if each.effect != "PreferNoSchedule")
        taints = (Taint(each.key, each.value or "", each.effect) for each in hard)
        return all(any(tolerates(each, taint) for each in self._tolerations) for taint in taints)


class _SpreadCounts:
    """How many pods of a group stand in each domain that counts, with none in it, too."""

    def __init__(self, world: World, group: Group, key: str, eligible: _Eligible) -> None:
        self._world, self._group, self._key, self._eligible = world, group, key, eligible
        self._revision = -1
        self._domain: dict[str, str] = {}
        self._known: tuple[int, dict[str, int]] = (-1, {})

    def __call__(self) -> dict[str, int]:
        revision = self._world.revision(NODES)
        if revision != self._revision:
            nodes = self._world.of(NODES, KubeNode)
            self._domain = {
                name: (node.metadata.labels or {})[self._key]
                for name, node in nodes.items() if self._eligible.takes(node)
            }  # fmt: skip
            self._revision, self._known = revision, (-1, {})
        version, found = self._known
        if version != self._group.version:
            found = dict.fromkeys(self._domain.values(), 0)
            for name, count in self._group.nodes.items():
                if name in self._domain:
                    found[self._domain[name]] += count
            self._known = self._group.version, found
        return found
