"""The configuration file of `muster scheduler`: versioned, strict, and every field has a default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct, field

from muster.engine.config import Config, config_of
from muster.errors import InputError, near
from muster.traces.files import read_bytes

API_VERSION, KIND = "config.muster.dev/v1alpha1", "SchedulerConfiguration"

Seconds = Annotated[float, Meta(gt=0, le=1e6)]
_Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
_Count = Annotated[int, Meta(ge=1, le=10_000)]


class LeaderElection(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which Lease says who leads.

    Attributes:
        enabled: without it, only one replica may run.
        namespace: where the Lease is.
        name: its name; schedulers that are not replicas of each other have different ones.
        duration_seconds: how long it holds without being renewed.
    """

    enabled: bool = True
    namespace: _Name = "muster-system"
    name: _Name = "muster-scheduler"
    duration_seconds: Annotated[float, Meta(ge=1, le=600)] = 15.0


class Telemetry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Traces by OpenTelemetry.

    Attributes:
        enabled: whether any are made; it needs the extra `telemetry`.
        endpoint: where they are sent, by OTLP over HTTP.
        service_name: the service's name in them.
        sample: the part of all cycles that is traced.
    """

    enabled: bool = False
    endpoint: Annotated[str, Meta(pattern=r"^https?://.+")] = "http://localhost:4318/v1/traces"
    service_name: Annotated[str, Meta(min_length=1, max_length=255)] = "muster-scheduler"
    sample: Annotated[float, Meta(ge=0, le=1)] = 1.0


class SchedulerSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a configuration file says.

    Attributes:
        scheduler_name: pods with this ``spec.schedulerName`` are scheduled.
        scheduling: settings of the engine by name, as `muster explain-config` lists them.
        leader_election: see `LeaderElection`.
        writes_at_once: how many requests that write are under way at a time.
        batch_milliseconds: after a change, so long more changes are waited for before a cycle.
        partial_timeout_seconds: a gang of which only some pods are bound is completed within this time, or stopped.
        volume_timeout_seconds: a gang that waits on its nodes for volumes that are being made gets others after this
            time.
        message_seconds: what a pod that waits is told is not changed more often.
        writes_of_messages_per_second: most conditions and events a second; bindings go first.
        events_of_bindings: whether each bound pod gets an event.
        usage_seconds: how often the use of each queue is written to its status.
        telemetry: see `Telemetry`.
        shadow: only log what it would do.
    """

    api_version: str = API_VERSION
    kind: str = KIND
    scheduler_name: _Name = "muster"
    scheduling: dict[str, Any] = field(default_factory=dict[str, Any])
    leader_election: LeaderElection = field(default_factory=LeaderElection)
    writes_at_once: _Count = 48
    batch_milliseconds: Annotated[float, Meta(ge=0, le=10_000)] = 20.0
    partial_timeout_seconds: Seconds = 60.0
    volume_timeout_seconds: Seconds = 600.0
    message_seconds: Seconds = 30.0
    writes_of_messages_per_second: Annotated[float, Meta(ge=0, le=10_000)] = 50.0
    events_of_bindings: bool = True
    usage_seconds: Seconds = 60.0
    telemetry: Telemetry = field(default_factory=Telemetry)
    shadow: bool = False

    @property
    def config(self) -> Config:
        """The engine's settings."""
        return config_of(self.scheduling)


def read_settings(path: str | Path | None) -> SchedulerSettings:
    """The settings of a file, the defaults for none; raises `InputError` with the field that is wrong."""
    if path is None:
        return SchedulerSettings()
    file = str(path)
    try:
        found = msgspec.yaml.decode(read_bytes(file))
    except msgspec.DecodeError as error:
        raise InputError(f"is not valid YAML ({str(error).splitlines()[0]})", file=file) from None
    if not isinstance(found, dict):
        raise InputError("is not a mapping", file=file, hint=f"it begins with apiVersion: {API_VERSION}")
    return settings_of(cast("dict[Any, Any]", found), file)


def settings_of(found: dict[Any, Any], file: str | None = None) -> SchedulerSettings:
    """The settings that a mapping says; raises `InputError`."""
    version, kind = found.get("apiVersion"), found.get("kind")
    if version != API_VERSION or kind != KIND:
        what = f"is {str(version)[:60]}, {str(kind)[:60]}" if version or kind else "is missing"
        raise InputError(what, file=file, field="apiVersion, kind", hint=f"this Muster reads {API_VERSION}, {KIND}")
    known = set(SchedulerSettings.__struct_encode_fields__)
    for name in found:
        if name not in known:
            hint = near(str(name), sorted(known)) or f"known are {', '.join(sorted(known))}"
            raise InputError("is not known", file=file, field=str(name)[:60], hint=hint)
    try:
        settings = msgspec.convert(found, SchedulerSettings)
        settings.config  # noqa: B018 - what is wrong with one is told now
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise InputError(what[0].lower() + what[1:], file=file, field=where.rstrip("`") or None) from None
    except InputError as error:
        raise InputError(error.what, file=file, field=f"scheduling.{error.field}", hint=error.hint) from None
    return settings


def printed(settings: SchedulerSettings) -> str:
    """The settings as a file."""
    return msgspec.yaml.encode(settings).decode()
