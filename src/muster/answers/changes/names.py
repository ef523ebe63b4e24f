"""What the words of a change name in a snapshot: nodes, domains, jobs, queues, flavors."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cached_property

from muster.answers.changes import grow
from muster.errors import InputError, near
from muster.model.queue import Queue
from muster.model.snapshot import Snapshot
from muster.slurm.hostlist import expand

ALL = "all"


class Names:
    """The names of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.nodes = snapshot.fleet.nodes
        self.topology = snapshot.fleet.topology

    @cached_property
    def node_names(self) -> dict[str, int]:
        """Node to its place in the fleet."""
        return {node.name: number for number, node in enumerate(self.nodes)}

    @cached_property
    def jobs(self) -> dict[str, str]:
        """All names by which a job may be called (its own, QUEUE/NAME, NAMESPACE/NAME) to its own."""
        known: dict[str, str] = {}
        workloads = [*self.snapshot.pending, *(each.workload for each in self.snapshot.running)]
        for each in workloads:
            known[f"{each.queue}/{each.name}"] = known[f"{each.namespace}/{each.name}"] = each.name
        return known | {each.name: each.name for each in workloads}

    @cached_property
    def queues(self) -> dict[str, Queue]:
        """Queues by name."""
        return {queue.name: queue for queue in self.snapshot.queues}

    @cached_property
    def flavors(self) -> tuple[str, ...]:
        """The flavors of nodes with GPUs, then those of quotas."""
        found = dict.fromkeys(node.flavor for node in self.nodes if node.devices)
        found.update(dict.fromkeys(quota.flavor for queue in self.snapshot.queues for quota in queue.quotas))
        return tuple(found)

    def job(self, asked: str) -> str:
        """The name of a job; raises `InputError` with near ones."""
        if asked in self.jobs:
            return self.jobs[asked]
        ended = "it has ended" if asked in self.snapshot.finished else None
        hint = ended or near(asked.rpartition("/")[2], list(dict.fromkeys(self.jobs.values())))
        raise InputError(f"there is no job {asked[:80]!r}", hint=hint or "`muster queue` lists what waits and runs")

    def queue(self, asked: str) -> Queue:
        """A queue by its name; raises `InputError` with near ones."""
        if asked in self.queues:
            return self.queues[asked]
        if not self.queues:
            raise InputError(f"there is no queue {asked[:60]!r}: the source has no queues, so no quota limits anything")
        hint = near(asked, list(self.queues)) or f"there are {_some(list(self.queues))}"
        raise InputError(f"there is no queue {asked[:60]!r}", hint=hint)

    def flavor(self, asked: str) -> str:
        """A flavor by its name; raises `InputError` with near ones."""
        if asked in self.flavors:
            return asked
        of_model = [flavor for flavor in self.flavors if flavor.partition("/")[0] == asked]
        if len(of_model) == 1:
            return of_model[0]
        hint = near(asked, self.flavors) or f"there are {_some(self.flavors)}"
        raise InputError(f"there is no flavor {asked[:60]!r}", hint=hint)

    def only_flavor(self, queue: Queue) -> str:
        """The flavor that is meant where none is named: the only one of the queue's quotas, or of the fleet."""
        choice = tuple(quota.flavor for quota in queue.quotas) or self.flavors
        if len(choice) != 1:
            raise InputError(f"which flavor is meant is not said; {queue.name} has {_some(choice)}")
        return choice[0]

    def node_set(self, words: Sequence[str]) -> tuple[str, ...]:
        """The nodes that words name, in the fleet's order.

        A word is a node, a hostlist (``gpu[01-16]``), a pattern (``gpu-1*``), a domain, or ``all``; a level makes the
        word after it the name, the list or the pattern of its domains (``block b3``).
        """
        if not words:
            raise InputError("no nodes are named", hint="such as gpu[01-16], gpu-1*, block b3 or all")
        found: set[str] = set()
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word not in self.node_names and word in self.topology.levels:
                if not rest:
                    raise InputError(f"which {word} is meant is not said", hint=f"such as {word} {self._example(word)}")
                found.update(self._in_domains(word, rest.pop(0)))
            elif word == ALL and word not in self.node_names:
                found.update(self.node_names)
            else:
                found.update(self._named(word))
        return tuple(sorted(found, key=self.node_names.__getitem__))

    def domain(self, level: str, name: str) -> str:
        """A domain of a level by its name; raises `InputError` with near ones."""
        at = grow.level_index(self.topology, level)
        if not any(grow.domain_of(node, at) == name for node in self.nodes):
            raise grow.unknown_domain(self.nodes, self.topology, level, name)
        return name

    def levels_of(self, text: str) -> str | None:
        """The level that a word names, in the singular or the plural; None if it is none."""
        singular = text.removesuffix("s").replace("-", "_")
        return next((each for each in self.topology.levels if text == each or singular == each), None)

    def largest_domain(self, level: str) -> str:
        """The domain with the most nodes, the first of those."""
        sizes: dict[str, int] = {}
        at = grow.level_index(self.topology, level)
        for node in self.nodes:
            name = grow.domain_of(node, at)
            if name:
                sizes[name] = sizes.get(name, 0) + 1
        if not sizes:
            raise InputError(f"no node stands in a {level}")
        return max(sizes, key=sizes.__getitem__)

    def _example(self, level: str) -> str:
        return self.largest_domain(level)

    def _in_domains(self, level: str, text: str) -> list[str]:
        at = self.topology.index(level)
        known = dict.fromkeys(grow.domain_of(node, at) for node in self.nodes)
        wanted = set(_matching(text, known))
        if not wanted:
            raise grow.unknown_domain(self.nodes, self.topology, level, text)
        for name in wanted - set(known):
            raise grow.unknown_domain(self.nodes, self.topology, level, name)
        return [node.name for node in self.nodes if grow.domain_of(node, at) in wanted]

    def _named(self, text: str) -> list[str]:
        names = _matching(text, self.node_names)
        missing = [name for name in names if name not in self.node_names]
        if names and not missing:
            return names
        inside = [node.name for node in self.nodes if text in node.topology]
        if inside:
            return inside
        wrong = missing[0] if missing else text
        more = f" (and {len(missing) - 1} more of {text[:40]})" if len(missing) > 1 else ""
        domains = dict.fromkeys(name for node in self.nodes for name in node.topology)
        hint = near(wrong, [*self.node_names, *domains])
        if hint is None and self.nodes:
            hint = f"they are called {self.nodes[0].name} to {self.nodes[-1].name}"
        raise InputError(f"there is no node {wrong[:80]!r}{more}", hint=hint)


def _matching(text: str, known: dict[str, int] | dict[str, None]) -> list[str]:
    """The names that a word means: itself, those of a pattern, or those of a hostlist."""
    if text in known:
        return [text]
    if "*" in text or "?" in text:
        return [name for name in known if fnmatchcase(name, text)]
    return list(expand(text))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
