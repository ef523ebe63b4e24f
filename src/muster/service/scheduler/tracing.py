"""Traces of what the scheduler does, by OpenTelemetry; off unless the configuration file says `telemetry.enabled`.

A trace is one cycle: the spans `cycle`, in it `refresh`, `plan` and `commit`, and one for each write that it decided
on, `bind`, `stop` or `volume`, until the server has answered.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from muster.errors import InputError
from muster.service.scheduler.settings import Telemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

INSTALL = "pip install 'muster-gpu[telemetry]'"


class Tracing(Protocol):
    """What makes spans; ``context`` is what a span of a later time belongs to."""

    def span(
        self, name: str, context: Any = None, **attributes: str | int | float
    ) -> AbstractContextManager[dict[str, Any]]:
        """A span around what is done inside; what is put into the mapping becomes attributes at its end."""
        ...

    def context(self) -> Any:
        """What is traced at the moment."""
        ...

    def end(self) -> None:
        """Send what has not been sent."""
        ...


class NoTracing:
    """Telemetry is off: nothing is kept."""

    @contextmanager
    def span(self, name: str, context: Any = None, **attributes: str | int | float) -> Generator[dict[str, Any]]:
        """Nothing."""
        yield {}

    def context(self) -> Any:
        """Nothing."""
        return None

    def end(self) -> None:
        """Nothing."""


class OpenTelemetry:
    """Spans of the OpenTelemetry SDK.

    Args:
        settings: see `Telemetry`.
        identity: which replica this is.
        exporter: where spans go; None: by OTLP over HTTP to ``settings.endpoint``.

    Raises:
        InputError: the packages are not installed.
    """

    def __init__(self, settings: Telemetry, identity: str, exporter: SpanExporter | None = None) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.context import get_current
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

            if exporter is None:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

                exporter = OTLPSpanExporter(endpoint=settings.endpoint)
        except ImportError as error:
            what = f"is on, and the package {error.name or 'opentelemetry'} is not installed"
            raise InputError(what, field="telemetry.enabled", hint=INSTALL) from None
        names = {"service.name": settings.service_name, "service.instance.id": identity}
        sampler = ParentBased(TraceIdRatioBased(settings.sample))
        self._provider = TracerProvider(sampler=sampler, resource=Resource.create(names), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("muster.scheduler")
        self._trace, self._current = trace, get_current

    @contextmanager
    def span(self, name: str, context: Any = None, **attributes: str | int | float) -> Generator[dict[str, Any]]:
        """A span around what is done inside; what is put into the mapping becomes attributes at its end."""
        told: dict[str, Any] = {}
        with self._tracer.start_as_current_span(name, context=context, attributes=attributes) as span:
            try:
                yield told
            finally:
                span.set_attributes(told)

    def context(self) -> Any:
        """What is traced at the moment."""
        return self._current()

    def end(self) -> None:
        """Send what has not been sent."""
        self._provider.shutdown()


def tracing_of(settings: Telemetry, identity: str) -> Tracing:
    """What traces as a configuration says; raises `InputError` where it is on and the packages are absent."""
    return OpenTelemetry(settings, identity) if settings.enabled else NoTracing()
