"""Reads a spec, whatever it is."""

from __future__ import annotations

import sys

from muster.answers.specs.base import Specs
from muster.errors import InputError
from muster.model.snapshot import Snapshot
from muster.traces.files import decode_text, read_bytes


def read_specs(path: str, snapshot: Snapshot, namespace: str = "") -> Specs:
    """The gangs of a file: Kubernetes objects (YAML or JSON), or an sbatch script; ``-`` is the standard input.

    Args:
        path: the file.
        snapshot: of the cluster that it is asked of; its fleet tells what labels, features and GPU types mean.
        namespace: of objects that say none themselves.

    Raises:
        InputError: with file, line and field.
    """
    if path == "-":
        path, data = "standard input", sys.stdin.buffer.read()
        if not data.strip():
            raise InputError("is empty", file=path, hint="kubectl get job NAME -o yaml | muster fit -")
    else:
        data = read_bytes(path)
    return specs_of(decode_text(data, path), path, snapshot, namespace)


def specs_of(text: str, path: str, snapshot: Snapshot, namespace: str = "") -> Specs:
    """As `read_specs`, of what ``path`` holds."""
    if text.startswith("#!") or (not _looks_like_yaml(text) and "#SBATCH" in text):
        from muster.answers.specs.sbatch import read_batch

        return read_batch(text, path, snapshot)
    from muster.answers.specs.kubernetes import read_objects

    return read_objects(text, path, snapshot.fleet, dict(snapshot.local_queues), namespace)


def _looks_like_yaml(text: str) -> bool:
    return any(line.startswith(("apiVersion:", "kind:", "{", "---")) for line in text.splitlines())
