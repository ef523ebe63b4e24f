"""What of a claim the engine's model has: whole GPUs of some models, a MIG instance, or a share of GPUs.

The rest (constraints across devices, NICs, GPUs that a selector picks by number) is noted; nodes that could never give
a claim its devices are left out by a condition of their own, and which devices it gets is decided by `allocate`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from muster.catalog.mig_placements import mig_milli, table_of
from muster.errors import InputError
from muster.kube.dra.amounts import share_of
from muster.kube.dra.gpus import INSTANCE, PASSTHROUGH, WHOLE, is_gpu_driver, kind_of, model_of, text_of
from muster.kube.dra.objects import ALL, Exactly, KubeDraClaim, nanos
from muster.kube.dra.pools import Offered, Pool
from muster.kube.dra.requests import Matcher, Refusal
from muster.model.fleet import WHOLE_GPU_MILLI

APPROXIMATE = "the engine plans with {}; which devices it gets is decided when it is placed"


class Demand(Struct, frozen=True):
    """The GPUs of a request or of a pod, as a `muster.model.PodShape` has them; ``notes`` is what it cannot say."""

    gpus: int = 0
    gpu_milli: int = WHOLE_GPU_MILLI
    models: tuple[str, ...] = ()
    mig_profile: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whole GPUs only."""
        return self.gpu_milli == WHOLE_GPU_MILLI and not self.mig_profile


class Fleet:
    """All GPUs that drivers publish, as requests are matched with them."""

    def __init__(self, pools: Sequence[Pool], matcher: Matcher) -> None:
        self._matcher = matcher
        self._devices = [
            device
            for pool in pools
            if pool.usable and is_gpu_driver(pool.driver)
            for device in pool.devices
            if kind_of(device) != PASSTHROUGH
        ]
        self._whole = Counter(model_of(device) for device in self._devices if kind_of(device) == WHOLE)

    def __len__(self) -> int:
        return len(self._devices)

    def demand(self, claim: KubeDraClaim) -> Demand:
        """What a claim asks for."""
        found = [
            self._prioritized([self._one(name, asked, claim) for name, asked in request.alternatives])
            for request in claim.spec.devices.requests or ()
        ]
        return together(found)

    def _prioritized(self, options: Sequence[Demand]) -> Demand:
        """Of a prioritized list the first that there are devices for; whole GPUs of several models are one choice."""
        there = [option for option in options if option.gpus] or list(options[:1])
        if len(there) == 1:
            return there[0]
        first = there[0]
        if all(option.is_whole and option.gpus == first.gpus for option in there):
            models = {model for option in there for model in option.models}
            every = any(not option.models for option in there)
            return Demand(first.gpus, models=() if every else tuple(sorted(models)), notes=first.notes)
        return Demand(*_fields(first), (*first.notes, APPROXIMATE.format("the first of its alternatives")))

    def _one(self, name: str, asked: Exactly, claim: KubeDraClaim) -> Demand:
        """One request, or one of its alternatives."""
        if asked.admin_access:
            return Demand()
        where = f"claim {claim.metadata.name}, request {name}"
        requests = (asked.capacity.requests if asked.capacity else None) or {}
        try:
            matched = [
                (device, share)
                for device in self._devices
                if self._matcher.matches(device, asked, where)
                and (share := share_of(device.device, requests)) is not None
            ]
        except Refusal:
            return Demand()
        devices = [device for device, _ in matched]
        if not devices:
            return Demand()
        kinds = {kind_of(device) for device in devices}
        count, notes = asked.count, list[str]()
        if asked.allocation_mode == ALL:
            counts = Counter(Counter(device.pool for device in devices).values())
            count = max(counts, key=lambda each: (counts[each], each))
            if len(counts) > 1:
                notes.append(APPROXIMATE.format(f"{count} devices, though some nodes have another number of them"))
        if kinds == {INSTANCE}:
            return self._instance(devices, count, notes)
        if INSTANCE in kinds:
            notes.append(APPROXIMATE.format("whole GPUs, though MIG instances would do"))
        models = self._models(devices, notes)
        if any(device.shared for device in devices):
            milli = max(_share_milli(device, share) for device, share in matched)
            return Demand(count, milli, models, notes=tuple(notes))
        return Demand(count, WHOLE_GPU_MILLI, models, notes=tuple(notes))

    def _models(self, devices: Sequence[Offered], notes: list[str]) -> tuple[str, ...]:
        """The models that are asked for; none where all there are would do."""
        matched = Counter(model_of(device) for device in devices if kind_of(device) == WHOLE)
        some = sorted(model for model, count in matched.items() if count < self._whole[model])
        if some:
            notes.append(APPROXIMATE.format(f"any {some[0]}, though only some of them would do"))
        return tuple(sorted(matched)) if len(matched) < len(self._whole) else ()

    def _instance(self, devices: Sequence[Offered], count: int, notes: list[str]) -> Demand:
        profiles: dict[str, None] = {}
        for device in devices:
            table = table_of(model_of(device))
            if table is not None:
                try:
                    profiles[table.profile(text_of(device, "profile")).name] = None
                except InputError:
                    continue
        if not profiles:
            return Demand(notes=("asks for MIG instances that are not known: they are not counted",))
        if len(profiles) > 1 or count > 1:
            notes.append(APPROXIMATE.format(f"one MIG instance {next(iter(profiles))}"))
        profile = next(iter(profiles))
        milli = mig_milli(profile, sorted({model_of(device) for device in devices}))
        return Demand(1, milli, (), profile, tuple(notes))


def _fields(of: Demand) -> tuple[int, int, tuple[str, ...], str]:
    return of.gpus, of.gpu_milli, of.models, of.mig_profile


def _share_milli(device: Offered, share: dict[str, str | int | float]) -> int:
    """The largest part of a capacity that a share takes, in thousandths, rounded up; at least 1."""
    capacities = device.device.capacity or {}
    parts = [
        -(-1000 * nanos(amount) // total) for name, amount in share.items() if (total := nanos(capacities[name].value))
    ]
    return min(max((1, *parts)), WHOLE_GPU_MILLI)


def together(parts: Sequence[Demand]) -> Demand:
    """What several requests ask for in all. Instances and shares beside other GPUs are counted as whole ones."""
    asked = [part for part in parts if part.gpus]
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    models = tuple(sorted({model for part in asked for model in part.models}))
    if any(not part.models for part in asked):
        models = ()
    if len(asked) == 1:
        return Demand(*_fields(asked[0]), notes)
    gpus = sum(part.gpus for part in asked)
    if all(part.is_whole for part in asked):
        return Demand(gpus, models=models, notes=notes)
    if len({(part.gpu_milli, part.mig_profile) for part in asked}) == 1 and not asked[0].mig_profile:
        return Demand(gpus, asked[0].gpu_milli, models, notes=notes)
    return Demand(gpus, models=models, notes=(*notes, APPROXIMATE.format(f"{gpus} whole GPUs")))
