"""OpenTelemetry, with its own SDK in memory: spans with the right parents, and metrics."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import cloudckpt
import cloudckpt.otel
from cloudckpt.errors import FencedError, WaitingError
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from tests.unit.machines import stores


@dataclass
class Telemetry:
    """What was exported."""

    provider: TracerProvider
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader
    end: Callable[[], None]

    @property
    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())

    def span(self, name: str) -> Any:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    @property
    def metrics(self) -> dict[str, dict[tuple[Any, ...], Any]]:
        """Values by name and attributes; of a histogram its count."""
        data = self.reader.get_metrics_data()
        found: dict[str, dict[tuple[Any, ...], Any]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] = {
                        tuple((point.attributes or {}).values()): getattr(point, "value", None)
                        or getattr(point, "count", 0)
                        for point in metric.data.data_points
                    }
        return found


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader])
    end = cloudckpt.otel.instrument(tracer_provider=provider, meter_provider=meters)
    yield Telemetry(provider, exporter, reader, end)
    end()
    provider.shutdown()
    meters.shutdown()


class Suspending(MemoryStorage):
    """An engine whose calls run on the IO thread."""

    blocking = False

    async def replace(self, key: str, data: Any, token: str) -> str:
        await asyncio.sleep(0)
        return await super().replace(key, data, token)


@pytest.mark.parametrize("kind", [MemoryStorage, Suspending])
def test_saves_and_loads_are_spans_below_the_callers(telemetry: Telemetry, kind: Any) -> None:
    """Also where they run on another thread: else each would be a trace of its own."""
    tracer = telemetry.provider.get_tracer("agent")
    store = Store(lambda: kind(f"otel-{kind.__name__}"), probed=True)
    with store, store.run("r") as run, tracer.start_as_current_span("step") as step:
        info = run.save({"step": 7})
        run.load()
    for name in ("cloudckpt.save", "cloudckpt.load"):
        span = telemetry.span(name)
        assert span.parent.span_id == step.get_span_context().span_id
        assert dict(span.attributes) == {
            "cloudckpt.run": "r",
            "cloudckpt.seq": 1,
            "cloudckpt.step": 7,
            "cloudckpt.bytes": info.size,
        }
        assert span.start_time <= span.end_time


def test_what_an_action_does_is_below_its_span(telemetry: Telemetry) -> None:
    tracer = telemetry.provider.get_tracer("agent")
    (store,) = stores(1)

    def pay() -> int:
        with tracer.start_as_current_span("http"):
            return 1

    with store.run("r") as run:
        run.once("pay", pay)
        run.save({})
    once = telemetry.span("cloudckpt.once")
    assert telemetry.span("cloudckpt.save").parent is None, "the action's span went on after it"
    assert telemetry.span("http").parent.span_id == once.context.span_id
    assert dict(once.attributes) == {
        "cloudckpt.run": "r",
        "cloudckpt.key": "pay",
        "cloudckpt.outcome": "done",
    }


def test_actions_side_by_side_keep_their_own_spans(telemetry: Telemetry) -> None:
    tracer = telemetry.provider.get_tracer("agent")
    (store,) = stores(1)

    async def call(name: str) -> str:
        await asyncio.sleep(0)
        with tracer.start_as_current_span(name):
            await asyncio.sleep(0)
        return name

    async def main() -> None:
        async with store.run("r") as run:
            await asyncio.gather(*(run.aonce(f"key {n}", call, f"http {n}") for n in range(5)))

    asyncio.run(main())
    once = {
        span.attributes["cloudckpt.key"]: span for span in telemetry.spans if span.name == "cloudckpt.once"
    }
    for n in range(5):
        assert telemetry.span(f"http {n}").parent.span_id == once[f"key {n}"].context.span_id


def test_an_action_that_fails_is_a_failed_span_and_a_question_is_none(telemetry: Telemetry) -> None:
    (store,) = stores(1)

    def fail() -> None:
        raise ZeroDivisionError("no")

    with store.run("r") as run:
        with pytest.raises(ZeroDivisionError):
            run.once("a", fail)
        with pytest.raises(WaitingError):
            run.once("a", fail, policy="ask")
    failed, waiting = [span for span in telemetry.spans if span.name == "cloudckpt.once"]
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.events[0].attributes["exception.type"] == "ZeroDivisionError"
    assert waiting.status.status_code is StatusCode.UNSET
    assert telemetry.metrics["cloudckpt.actions"] == {("failed",): 1, ("waiting",): 1}


def test_metrics_count_bytes_times_conflicts_and_resumes(telemetry: Telemetry) -> None:
    ours, theirs = stores()
    run = ours.run("r")
    size = run.save({"n": 1}).size
    theirs.run("r").save({"n": 2})
    with pytest.raises(FencedError):
        run.save({"n": 3})
    theirs.run("r").load()
    found = telemetry.metrics
    assert found["cloudckpt.saved.bytes"] == {(): 2 * size}
    assert found["cloudckpt.loaded.bytes"] == {(): size}
    assert found["cloudckpt.duration"] == {("save",): 2, ("load",): 1}
    assert found["cloudckpt.conflicts"] == {(True,): 1}
    assert found["cloudckpt.resumed"] == {(): 1}


def test_a_load_that_goes_back_counts_what_was_lost(telemetry: Telemetry) -> None:
    (store,) = stores(1)
    state = {"data": bytes(range(256)) * 400}
    with store.run("r") as run:
        run.save({**state, "n": 1})
        newest = run.save({"n": 2, **{f"k{n}": n * 7919 for n in range(20000)}})
    storage = store._core.storage
    from cloudckpt.testing.driver import by_hand

    (key,) = [row.key for row in by_hand(storage.list("objects/")).rows if f"/{newest.seq}-" in row.key]
    by_hand(storage.delete([key]))
    assert store.run("r").load(fallback=True)["n"] == 1
    assert telemetry.metrics["cloudckpt.lost"] == {(): 1}


def test_who_has_ended_it_gets_nothing_more(telemetry: Telemetry) -> None:
    telemetry.end()
    (store,) = stores(1)
    store.run("r").save({})
    assert telemetry.spans == []


def test_nothing_of_it_is_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys, cloudckpt; cloudckpt.open('memory://x').run('r').save({}); "
        "print('opentelemetry' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_opentelemetry_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import cloudckpt, cloudckpt.otel\n"
        "try: cloudckpt.otel.instrument()\n"
        "except cloudckpt.UnsupportedStoreError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "cloudckpt[otel]"' in done.stdout
