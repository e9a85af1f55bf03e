"""Trying again: what, how often, how fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudckpt.effects import Effects
from cloudckpt.errors import (
    AmbiguousError,
    CloudckptError,
    PermissionDeniedError,
    PreconditionFailedError,
    StorageError,
    ThrottledError,
)
from cloudckpt.runner import make_runner
from cloudckpt.storage.answers import UNSENT
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.storage.retry import RetryingStorage, RetryPolicy, within
from cloudckpt.testing.driver import by_hand
from tests.protocol.scripted import OwnTime


def effects(time: OwnTime, *, most: bool = True) -> Effects:
    """Return effects on a clock of the test's own, which always draw the longest wait, or the shortest."""
    from dataclasses import replace

    real = make_runner(blocking=True, clock=time).effects
    return replace(real, clock=time, sleep=time.sleep, uniform=lambda low, high: high if most else low)


class Failing(MemoryStorage):
    """Fails its next calls, whatever they are."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        super().__init__(f"failing-{id(self)}")
        self._space.values.clear()
        self.errors = list(errors)
        self.calls = 0

    async def read(self, *args: Any, **options: Any) -> Any:
        return await self._call(super().read(*args, **options))

    async def create(self, *args: Any) -> Any:
        return await self._call(super().create(*args))

    async def replace(self, *args: Any) -> Any:
        return await self._call(super().replace(*args))

    async def put(self, *args: Any) -> Any:
        return await self._call(super().put(*args))

    async def list(self, *args: Any, **options: Any) -> Any:
        return await self._call(super().list(*args, **options))

    async def delete(self, *args: Any) -> Any:
        return await self._call(super().delete(*args))

    async def _call(self, work: Any) -> Any:
        self.calls += 1
        if self.errors:
            work.close()
            raise self.errors.pop(0)
        return await work


REPEATABLE: dict[str, Callable[[RetryingStorage], Any]] = {
    "read": lambda storage: storage.read("k"),
    "put": lambda storage: storage.put("k", b"v"),
    "list": lambda storage: storage.list("k"),
    "delete": lambda storage: storage.delete(["k"]),
}
CONDITIONAL: dict[str, Callable[[RetryingStorage], Any]] = {
    "create": lambda storage: storage.create("k", b"v"),
    "replace": lambda storage: storage.replace("k", b"v", "token"),
}
PASSING = [AmbiguousError("?"), ThrottledError("slow down")]


@pytest.mark.parametrize("op", REPEATABLE)
def test_what_is_safe_to_send_twice_is_sent_again(op: str) -> None:
    inner = Failing(PASSING * 2)
    by_hand(REPEATABLE[op](RetryingStorage(inner, RetryPolicy(), effects(OwnTime()))))
    assert inner.calls == 5


@pytest.mark.parametrize("op", CONDITIONAL)
@pytest.mark.parametrize("error", [*PASSING, PreconditionFailedError("stale")])
def test_a_conditional_write_is_never_sent_again(op: str, error: CloudckptError) -> None:
    """Its second answer could be about the first; only the protocol can tell the two apart."""
    inner = Failing([error])
    with pytest.raises(type(error)):
        by_hand(CONDITIONAL[op](RetryingStorage(inner, RetryPolicy(), effects(OwnTime()))))
    assert inner.calls == 1


@pytest.mark.parametrize("op", REPEATABLE)
@pytest.mark.parametrize("error", [PermissionDeniedError("no"), StorageError("no such bucket")])
def test_what_another_try_cannot_cure_is_raised_at_once(op: str, error: CloudckptError) -> None:
    inner = Failing([error])
    with pytest.raises(type(error)):
        by_hand(REPEATABLE[op](RetryingStorage(inner, RetryPolicy(), effects(OwnTime()))))
    assert inner.calls == 1


@pytest.mark.parametrize("landed", [True, False])
def test_a_put_that_landed_unanswered_and_is_denied_the_second_time_was_made(landed: bool) -> None:
    """A role that may create and not delete may be refused an overwrite before a condition is looked at."""

    class Denying(MemoryStorage):
        puts = 0

        async def put(self, key: str, data: Any) -> None:
            self.puts += 1
            if self.puts > 1:
                raise PermissionDeniedError("may not overwrite")
            if landed:
                await super().put(key, data)
            raise AmbiguousError("the answer got lost")

    inner = Denying(f"denying-{landed}")
    put = RetryingStorage(inner, RetryPolicy(), effects(OwnTime())).put("k", b"v")
    if landed:
        by_hand(put)
    else:
        with pytest.raises(PermissionDeniedError):
            by_hand(put)
    assert inner.puts == 2


def test_it_gives_up_at_the_deadline_with_the_last_error() -> None:
    time = OwnTime()
    inner = Failing([ThrottledError("first"), *[AmbiguousError("later")] * 1000])
    with pytest.raises(AmbiguousError):
        by_hand(RetryingStorage(inner, RetryPolicy(deadline=60.0), effects(time)).read("k"))
    assert 50.0 < time.seconds <= 60.0
    assert 10 < inner.calls < 40, "the waits grow, so that a store in trouble is left in peace"


def test_without_patience_nothing_is_tried_again() -> None:
    inner = Failing([AmbiguousError("?")])
    with pytest.raises(AmbiguousError):
        by_hand(RetryingStorage(inner, RetryPolicy(deadline=0.0), effects(OwnTime())).read("k"))
    assert inner.calls == 1


@given(st.integers(1, 10**6))
def test_a_wait_is_anywhere_from_nothing_to_its_bound(attempt: int) -> None:
    """Clients that failed together must not come back together; nor may the bound overflow."""
    policy = RetryPolicy(first=0.05, most=5.0)
    assert policy.delay(attempt, effects(OwnTime(), most=False)) == 0.0
    assert policy.delay(attempt, effects(OwnTime())) == min(5.0, 0.05 * 2.0 ** min(attempt - 1, 30))


@pytest.mark.parametrize("op", [*REPEATABLE, *CONDITIONAL])
def test_what_was_not_sent_is_sent_again_whatever_it_is(op: str) -> None:
    """Without credentials nothing is sent, so not even a conditional write is in doubt."""
    inner = Failing([PermissionDeniedError("not now", kind=UNSENT)] * 3)
    if op == "replace":
        inner._space.values.clear()
    call = {**REPEATABLE, "create": CONDITIONAL["create"]}.get(op)
    storage = RetryingStorage(inner, RetryPolicy(), effects(OwnTime()))
    if call is None:
        token = by_hand(MemoryStorage.create(inner, "k", b"v"))
        by_hand(storage.replace("k", b"w", token))
    else:
        by_hand(call(storage))
    assert inner.calls == 4


def test_the_requests_of_one_call_share_its_deadline() -> None:
    """Else a save with three requests could take three times as long as its caller allows."""
    time, policy = OwnTime(), RetryPolicy(deadline=60.0)
    own = effects(time)
    inner = Failing([])
    storage = RetryingStorage(inner, policy, own)
    with within(policy, own):
        for _ in range(3):
            inner.errors = [AmbiguousError("?")] * 1000
            with pytest.raises(AmbiguousError):
                by_hand(storage.read("k"))
        assert 50.0 < time.seconds <= 60.0
    with pytest.raises(AmbiguousError):
        by_hand(storage.read("k"))
    assert time.seconds > 110.0, "the next call has a deadline of its own"


@pytest.mark.parametrize(("deadline", "patience"), [(0.0, 1.0), (2.0, 1.0), (60.0, 20.0), (3600.0, 60.0)])
def test_one_request_is_not_waited_for_until_the_deadline(deadline: float, patience: float) -> None:
    """Its connection may be dead and the store well: there must be time to ask on another one."""
    assert RetryPolicy(deadline=deadline).patience == patience
