"""The fleet's state under random assigns, releases and nested trials, against a model of plain dictionaries."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from muster.engine.state import Allocation, FleetState, Trial
from muster.errors import CapacityError
from muster.model.fleet import Device, Fleet, Node
from muster.model.workload import PodShape

GPUS, CPU, MEMORY, PODS = (3, 2, 0), (9, 6, 12), (20, 20, 40), (0, 2, 3)
SHAPES = (
    PodShape(1, 1), PodShape(5, 30), PodShape(1, 2, 1), PodShape(2, 9, 1, 300), PodShape(0, 0, 1, 700),
    PodShape(3, 5, 2), PodShape(1, 1, 2, 400), PodShape(7, 1, 3),
)  # fmt: skip


class StateMachine(RuleBasedStateMachine):
    """``model``: the pods that run as (node, shape, devices); ``open``: the trials with what ran before each."""

    def __init__(self) -> None:
        super().__init__()
        nodes = (
            Node(f"n{at}", CPU[at], MEMORY[at], tuple(Device(i, "A") for i in range(gpus)), max_pods=PODS[at])
            for at, gpus in enumerate(GPUS)
        )
        self.state = FleetState(Fleet(tuple(nodes)))
        self.model: list[tuple[int, int, int]] = []
        self.open: list[tuple[AbstractContextManager[Trial], Trial, list[tuple[int, int, int]]]] = []

    def free(self, node: int) -> tuple[int, int, list[int]]:
        """Free CPU, memory and milli of each device by the model."""
        cpu, memory, gpus = CPU[node], MEMORY[node], [1000] * GPUS[node]
        for place, number, devices in self.model:
            shape = SHAPES[number]
            if place == node:
                cpu, memory = cpu - shape.cpu_milli, memory - shape.memory_bytes
                gpus = [left - (devices >> at & 1) * shape.gpu_milli for at, left in enumerate(gpus)]
        return cpu, memory, gpus

    @rule(node=st.integers(0, 2), number=st.integers(0, len(SHAPES) - 1), devices=st.integers(0, 7))
    def assign(self, node: int, number: int, devices: int) -> None:
        shape = SHAPES[number]
        cpu, memory, gpus = self.free(node)
        named = [at for at in range(3) if devices >> at & 1]
        fits = (
            (not PODS[node] or sum(place == node for place, _, _ in self.model) < PODS[node])
            and shape.cpu_milli <= cpu
            and shape.memory_bytes <= memory
            and len(named) == shape.gpus
            and all(at < len(gpus) and gpus[at] >= shape.gpu_milli for at in named)
        )
        allocation = Allocation(node, self.state.shape_id(shape), devices)
        if fits:
            self.state.assign(allocation)
            self.model.append((node, number, devices))
        else:
            with pytest.raises(CapacityError):
                self.state.assign(allocation)

    @precondition(lambda self: bool(self.model))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        node, number, devices = self.model.pop(data.draw(st.integers(0, len(self.model) - 1)))
        self.state.release(Allocation(node, self.state.shape_id(SHAPES[number]), devices))

    @precondition(lambda self: len(self.open) < 3)
    @rule()
    def begin(self) -> None:
        trial = self.state.trial()
        self.open.append((trial, trial.__enter__(), list(self.model)))

    @precondition(lambda self: bool(self.open))
    @rule(how=st.sampled_from(["keep", "undo", "fail", "keep and fail"]))
    def end(self, how: str) -> None:
        trial, handle, before = self.open.pop()
        if how.startswith("keep"):
            handle.keep()
        if how.endswith("fail"):
            assert not trial.__exit__(KeyError, KeyError("in the trial"), None)
        else:
            trial.__exit__(None, None, None)
        if how != "keep":
            self.model = before

    @invariant()
    def state_is_the_model(self) -> None:
        ids = [self.state.shape_id(SHAPES[number]) for _, number, _ in self.model]
        self.state.validate([Allocation(one[0], shape, one[2]) for one, shape in zip(self.model, ids, strict=True)])
        pods = Counter(node for node, _, _ in self.model)
        for node in range(3):
            cpu, memory, gpus = self.free(node)
            assert (self.state.nodes.cpu_free[node], self.state.nodes.memory_free[node]) == (cpu, memory)
            assert self.state.nodes.gpu_free[node].tolist() == gpus + [0] * (3 - len(gpus))
            assert self.state.nodes.pods[node] == pods[node]


StateMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestState = StateMachine.TestCase
