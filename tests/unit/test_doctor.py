"""What the doctor finds by the contract alone, on stores with one fault each; and that it leaves nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cloudckpt import keys
from cloudckpt.errors import (
    AmbiguousError,
    ArchivedError,
    CloudckptError,
    PermissionDeniedError,
    PreconditionFailedError,
    StorageError,
    UnsupportedStoreError,
)
from cloudckpt.runner import drive
from cloudckpt.sealed import seal
from cloudckpt.storage.contract import Data, Page, Stored, Token
from cloudckpt.storage.findings import Finding, Level, Samples, warning
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.faults import Effect, Fault, FaultyStorage, Plan
from tests.unit.ignoring import IgnoresIfMatch, IgnoresIfNoneMatch
from tests.unit.visits import Limited, found, keys_of, levels, memory, visit

CHECKS = [
    "engine",
    "store",
    "write",
    "read",
    "missing-key",
    "list",
    "delete",
    "conditions",
    "verdict",
    "clock",
    "latency-put",
    "latency-get",
]


def test_a_sound_store_has_no_findings_but_good_ones_and_is_left_as_it_was() -> None:
    engine = memory()
    Store(lambda: engine).run("r").save({})
    before = {key: drive(engine.read(key)) for key in keys_of(engine)}
    report = visit(engine)
    assert [finding.check for finding in report.findings] == CHECKS
    assert report.count(Level.OK) == len(CHECKS)
    assert (report.url, report.engine, report.left) == (engine.url, "memory", ())
    assert {key: drive(engine.read(key)) for key in keys_of(engine)} == before


# ---- rights


def limited(*lacks: str) -> Limited:
    engine = memory(Limited)
    assert isinstance(engine, Limited)
    engine.lacks = frozenset(lacks)
    return engine


@pytest.mark.parametrize(
    ("lacks", "wrong", "advice"),
    [
        ("write", {"write": Level.FAULT}, "s3:PutObject"),
        ("read", {"read": Level.FAULT}, "s3:GetObject"),
        ("list", {"list": Level.FAULT, "missing-key": Level.FAULT}, "s3:ListBucket"),
        ("delete", {"delete": Level.WARNING}, "s3:DeleteObject"),
    ],
)
def test_each_right_is_told_apart_with_what_to_grant(
    lacks: str, wrong: dict[str, Level], advice: str
) -> None:
    report = visit(limited(lacks))
    told = levels(report)
    assert {check: level for check, level in told.items() if level in (Level.WARNING, Level.FAULT)} == wrong
    for check in wrong:
        assert advice in found(report, check).do
    assert told["verdict"] is (Level.UNKNOWN if lacks in ("read", "list") else Level.OK)
    assert lacks != "list" or "403 where 404 is meant" in found(report, "missing-key").found


def test_what_could_not_be_tried_is_unknown_and_not_well() -> None:
    """A check that passes since nothing was asked is worse than none."""
    told = levels(visit(limited("write")))
    dependent = ["read", "missing-key", "delete", "conditions", "clock", "latency-put", "latency-get"]
    assert {check: told[check] for check in dependent} == dict.fromkeys(dependent, Level.UNKNOWN)


def test_a_writer_that_may_not_delete_is_told_what_stays() -> None:
    """Its pace is taken on one key, so that a visit leaves four keys and not a dozen."""
    engine = limited("delete")
    report = visit(engine)
    assert sorted(report.left) == keys_of(engine) != []
    assert all(key.startswith(keys.PROBES) for key in report.left)
    assert len(report.left) <= 4
    assert found(report, "latency-put").facts["samples"] == 10


def test_a_right_is_asked_for_only_where_it_is_what_is_missing() -> None:
    class Retained(MemoryStorage):
        async def create(self, key: str, data: Data) -> Token:
            raise PermissionDeniedError("a policy forbids it; wait", kind="retained")

    assert found(visit(memory(Retained)), "write").do == "wait"


# ---- a store that can't be reached


@pytest.mark.parametrize(
    "error",
    [
        PermissionDeniedError("no usable credentials; set some", kind="no-credentials"),
        PermissionDeniedError("the clock differs too much; set it", kind="clock"),
        StorageError("the bucket does not exist; create it", kind="no-such-bucket"),
        AmbiguousError("the store can't be reached; check the endpoint", kind="unreachable"),
    ],
)
def test_a_store_that_gives_no_answer_is_one_fault_and_nothing_is_written(error: CloudckptError) -> None:
    calls: list[str] = []

    class Away(MemoryStorage):
        async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
            raise error

        async def create(self, key: str, data: Data) -> Token:
            calls.append(key)
            raise error

    report = visit(memory(Away))
    assert [finding.check for finding in report.findings] == ["engine", "store"]
    fault = found(report, "store")
    assert (fault.level, fault.facts["kind"]) == (Level.FAULT, error.kind)
    assert f"{fault.found}; {fault.do}" == error.message
    assert calls == []


def test_a_store_that_fails_once_in_passing_is_asked_again() -> None:
    faulty = FaultyStorage(memory(), Plan((Fault(0, Effect.LOST_REQUEST),)))
    assert levels(visit(faulty))["store"] is Level.OK


@pytest.mark.parametrize("effect", [Effect.LOST_REQUEST, Effect.LOST_ANSWER])
def test_a_failure_at_any_call_is_a_finding_and_leaves_nothing(effect: Effect) -> None:
    """The visit's own conditional writes included, which nobody may repeat."""
    clean = FaultyStorage(memory())
    visit(clean)
    for call in range(len(clean.calls)):
        engine = memory()
        report = visit(FaultyStorage(engine, Plan((Fault(call, effect),))))
        assert report.left == ()
        assert keys_of(engine) == [], f"call {call}"


def test_an_interrupted_visit_cleans_up() -> None:
    """Also the write that it interrupted, of which nobody knows whether it landed."""

    class InList(MemoryStorage):
        async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
            raise KeyboardInterrupt

    class InWrite(MemoryStorage):
        async def create(self, key: str, data: Data) -> Token:
            await super().create(key, data)
            raise KeyboardInterrupt

    for kind in (InList, InWrite):
        engine = memory(kind)
        with pytest.raises(KeyboardInterrupt):
            visit(engine)
        assert not engine._space.values


# ---- what the store answers


class IgnoresConditions(IgnoresIfNoneMatch, IgnoresIfMatch):
    pass


class Inverts(MemoryStorage):
    async def create(self, key: str, data: Data) -> Token:
        raise PreconditionFailedError("the condition of the write did not hold")


class Implements501(MemoryStorage):
    async def create(self, key: str, data: Data) -> Token:
        raise UnsupportedStoreError("the store does not implement what conditional writes need")


@pytest.mark.parametrize("kind", [IgnoresConditions, Inverts, Implements501])
def test_a_store_that_does_not_keep_conditions_is_a_fault(kind: type[MemoryStorage]) -> None:
    fault = found(visit(memory(kind)), "conditions")
    assert (fault.level, "docs/stores.md" in fault.do) == (Level.FAULT, True)
    if kind is IgnoresConditions:
        assert fault.facts["second_create_refused"] is False
        assert "not second create refused" in fault.found


def test_a_store_that_lost_its_conditions_is_told_against_its_own_verdict() -> None:
    """As behind a new gateway that drops headers: nobody probes a store twice."""
    sound = memory()
    Store(lambda: sound).run("r").save({})
    engine = IgnoresConditions(sound.url.removeprefix("memory://"))
    assert levels(visit(engine))["verdict"] is Level.WARNING


@pytest.mark.parametrize(
    ("document", "level", "text"),
    [
        (None, Level.OK, "none is kept yet"),
        (seal({"format": 1, "time": "2026-01-01T00:00:00+00:00"}), Level.OK, "2026-01-01"),
        (b"junk", Level.FAULT, "delete cloudckpt.json"),
        (seal({"format": 2}), Level.FAULT, "upgrade"),
        (seal({}), Level.FAULT, "upgrade"),
    ],
)
def test_the_kept_verdict_is_read(document: bytes | None, level: Level, text: str) -> None:
    engine = memory()
    if document is not None:
        drive(engine.create(keys.STORE_KEY, document))
    verdict = found(visit(engine), "verdict")
    assert verdict.level is level
    assert text in verdict.found + verdict.do


def test_a_pointer_in_a_cold_tier_is_a_fault() -> None:
    class Cold(MemoryStorage):
        async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
            if await super().read(key) is not None:
                raise ArchivedError("the object is in a cold tier; restore it first")
            return None

    fault = found(visit(memory(Cold)), "read")
    assert (fault.level, "storage class" in fault.do) == (Level.FAULT, True)


def test_a_stale_read_is_a_fault_and_a_stale_listing_a_warning() -> None:
    class Stale(MemoryStorage):
        async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
            return None

    class Lags(MemoryStorage):
        async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
            return Page((), None)

    assert levels(visit(memory(Stale)))["read"] is Level.FAULT
    assert levels(visit(memory(Lags)))["list"] is Level.WARNING


def test_a_delete_that_deletes_nothing_is_a_warning() -> None:
    class Keeps(MemoryStorage):
        async def delete(self, keys: Sequence[str]) -> None:
            pass

    assert levels(visit(memory(Keeps)))["delete"] is Level.WARNING


# ---- an engine's own findings


def test_an_engine_may_add_what_it_knows() -> None:
    asked: list[Samples] = []

    class Knows(MemoryStorage):
        async def inspect(self, samples: Samples) -> Sequence[Finding]:
            asked.append(samples)
            for key in (samples.pointer, samples.payload):
                assert key is not None
                assert await self.read(key) is not None
            return [warning("moon", "full", "wait")]

    report = visit(memory(Knows))
    assert report.findings[-1] == warning("moon", "full", "wait")
    assert len(asked) == 1


def test_an_engine_that_fails_to_tell_stops_no_visit() -> None:
    class Fails(MemoryStorage):
        async def inspect(self, samples: Samples) -> Sequence[Finding]:
            raise StorageError("the store refused the request", code="Nonsense")

    report = visit(memory(Fails))
    assert found(report, "settings").level is Level.UNKNOWN
    assert "Nonsense" in found(report, "settings").found


def test_an_engine_that_does_not_ask_for_settings_says_so() -> None:
    """Else a lifecycle rule that deletes everything would pass for no rule."""
    assert found(visit(FaultyStorage(memory())), "settings").level is Level.UNKNOWN
