"""All objects of a cluster as they are, of a live one or of a dump, for answers about the objects themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from muster.answers.live import is_live, read_objects
from muster.errors import InputError
from muster.traces.files import dump_files
from muster.traces.kubectl import read_objects as read_dump

if TYPE_CHECKING:
    from muster.kube.world import World

_DUMP = "kubectl:"


class Objects(NamedTuple):
    """A cluster's objects, and the server's version where it was told."""

    world: World
    version: str = ""


def open_world(source: str, warn: Callable[[str], None]) -> Objects:
    """Read a source: ``kubernetes:CONTEXT``, or a dump, with or without ``kubectl:`` before it: a file, some, a folder.

    Raises:
        InputError: it is another source, or cannot be read.
        ClusterError: the cluster is not reached, or refuses what is needed.
    """
    if is_live(source):
        found = read_objects(source, warn)
        return Objects(found.world, found.version)
    path = source.removeprefix(_DUMP)
    files = dump_files(path)
    if not source.startswith(_DUMP) and not all(each.endswith((".json", ".json.gz")) for each in files):
        hint = "kubectl get nodes,pods,resourceslices,deviceclasses -A -o json, or --context NAME"
        raise InputError("this answer needs the objects of a cluster, not a snapshot", field="--from", hint=hint)
    return Objects(read_dump(path)[0])
