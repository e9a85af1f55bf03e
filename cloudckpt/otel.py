"""OpenTelemetry: spans for save, load and once, and metrics of what runs do. Needs the extra `otel`.

Owns: how events (`events.py`) become spans and metrics. Invariants: it only uses OpenTelemetry's
API, so what becomes of it is for the program's SDK to say, and without one it costs next to
nothing; a run's id is on spans only, since each value of a metric's attribute is a series of its own.

    import cloudckpt.otel

    cloudckpt.otel.instrument()
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cloudckpt import __version__, hooks
from cloudckpt.errors import UnsupportedStoreError, WaitingError
from cloudckpt.events import Acted, Acting, Conflicted, Event, Loaded, Resumed, Saved

NAME = "cloudckpt"


def instrument(*, tracer_provider: Any = None, meter_provider: Any = None) -> Callable[[], None]:
    """Tell OpenTelemetry what happens to runs from now on; return what ends that.

    Args:
        tracer_provider: By default the program's own.
        meter_provider: Likewise.

    Raises:
        UnsupportedStoreError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise UnsupportedStoreError('telemetry needs OpenTelemetry; pip install "cloudckpt[otel]"') from error
    tracer = trace.get_tracer(NAME, __version__, tracer_provider)
    meter = metrics.get_meter(NAME, __version__, meter_provider)
    return hooks.listen(_Telemetry(tracer, meter))


class _Telemetry:
    """A hook that speaks OpenTelemetry."""

    def __init__(self, tracer: Any, meter: Any) -> None:
        self._tracer = tracer
        self._saved = meter.create_counter(
            "cloudckpt.saved.bytes", unit="By", description="Bytes of checkpoints as stored"
        )
        self._loaded = meter.create_counter(
            "cloudckpt.loaded.bytes", unit="By", description="Bytes of checkpoints that were read"
        )
        self._took = meter.create_histogram(
            "cloudckpt.duration", unit="s", description="Time of a save or a load"
        )
        self._conflicts = meter.create_counter(
            "cloudckpt.conflicts", description="Commits that were refused, since another writer wrote"
        )
        self._resumed = meter.create_counter(
            "cloudckpt.resumed", description="Runs that went on from a checkpoint in another process"
        )
        self._lost = meter.create_counter(
            "cloudckpt.lost", description="Checkpoints that were damaged when an older one was loaded instead"
        )
        self._actions = meter.create_counter(
            "cloudckpt.actions", description="Calls of once, by how they ended"
        )
        self._open: dict[int, tuple[Any, Any]] = {}

    def __call__(self, event: Event) -> None:
        """Tell of an event."""
        match event:
            case Saved():
                self._done("save", event)
                self._saved.add(event.size)
            case Loaded():
                self._done("load", event)
                self._loaded.add(event.size)
                if event.lost:
                    self._lost.add(event.lost)
            case Acting():
                self._begin(event)
            case Acted():
                self._end(event)
            case Conflicted():
                self._conflicts.add(1, {"fenced": event.fenced})
            case Resumed():
                self._resumed.add(1)

    def _done(self, what: str, event: Saved | Loaded) -> None:
        """Make the span of what is over. Its parent is the caller's span, whose context came along."""
        self._took.record(event.seconds, {"operation": what})
        end = time.time_ns()
        span = self._tracer.start_span(
            f"cloudckpt.{what}",
            start_time=end - round(event.seconds * 1e9),
            attributes={
                "cloudckpt.run": event.run,
                "cloudckpt.seq": event.seq,
                "cloudckpt.bytes": event.size,
                **({} if event.step is None else {"cloudckpt.step": event.step}),
            },
        )
        span.end(end)

    def _begin(self, event: Acting) -> None:
        """Begin a span that is the parent of what the action does."""
        from opentelemetry import context, trace

        span = self._tracer.start_span(
            "cloudckpt.once", attributes={"cloudckpt.run": event.run, "cloudckpt.key": event.key}
        )
        self._open[id(event.call)] = span, context.attach(trace.set_span_in_context(span))

    def _end(self, event: Acted) -> None:
        from opentelemetry import context, trace

        found = self._open.pop(id(event.call), None)
        if found is None:  # it began before anybody listened
            return
        span, token = found
        outcome = _outcome(event)
        span.set_attribute("cloudckpt.outcome", outcome)
        if event.error is not None and outcome == "failed":
            span.record_exception(event.error)
            span.set_status(trace.Status(trace.StatusCode.ERROR, type(event.error).__name__))
        context.detach(token)
        span.end()
        self._actions.add(1, {"outcome": outcome})


def _outcome(event: Acted) -> str:
    if event.error is None:
        return "known" if event.known else "done"
    return "waiting" if isinstance(event.error, WaitingError) else "failed"
