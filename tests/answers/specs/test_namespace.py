"""The namespace of ``-n``: of objects that say none, so that their LocalQueue is found."""

from __future__ import annotations

import pytest
from tests.answers.small import small_snapshot

from muster.answers.specs.kubernetes import read_objects

TEXT = """
apiVersion: batch/v1
kind: Job
metadata: {name: train%s, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: c, resources: {limits: {cpu: 1}}}]}
"""
QUEUES = {"a/main": "team-a", "b/main": "team-b"}


@pytest.mark.parametrize(
    ("said", "asked", "name", "queue"),
    [
        ("", "", "train", "main"),
        ("", "a", "a/train", "team-a"),
        (", namespace: b", "", "b/train", "team-b"),
        (", namespace: b", "a", "b/train", "team-b"),
    ],
)
def test_the_namespace_of_an_object(said: str, asked: str, name: str, queue: str) -> None:
    (work,) = read_objects(TEXT % said, "job.yaml", small_snapshot().fleet, QUEUES, asked).workloads
    assert (work.name, work.queue) == (name, queue)
