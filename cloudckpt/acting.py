"""Actions that are done once: a payment, an e-mail, a tool's call.

Owns: what becomes of an action that is done already, or of which nobody knows whether
it was done. Invariants: an action begins only after its intent was committed, by the
run's writer; its result is committed before it is returned; one that has a result is
never done again. Whether one that was in flight at a crash happened, no ledger can
know: the caller's policy decides, and by default it fails.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from cloudckpt.access import Access
from cloudckpt.calls import idempotency_key, key_of
from cloudckpt.codec import decode
from cloudckpt.core import Core
from cloudckpt.doing import Call, Keys
from cloudckpt.errors import CorruptCheckpointError, InFlightError, InvalidInputError
from cloudckpt.late import Late
from cloudckpt.ledger import ActionInfo, Begin, End, Past, action_info, newest_actions
from cloudckpt.model import Action, Manifest
from cloudckpt.twins import awaited, waits

if TYPE_CHECKING:
    from concurrent import futures

    from cloudckpt import pending
    from cloudckpt.codec.intake import Intake
    from cloudckpt.commit import RunWriter
else:  # who cancels nothing needs none
    futures = Late("concurrent.futures")
    pending = Late("cloudckpt.pending")

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Policy = Literal["fail", "retry", "ask"]


@dataclass(frozen=True, slots=True)
class InFlight:
    """An action that was begun, and of which nobody recorded the end.

    Attributes:
        run: The run's id.
        key: Its name in the run.
        arguments: sha256 of what it was called with, in hex.
        tries: How often it was begun.
        begun: When it was begun last, by that writer's clock.
        idempotency_key: What its function is handed on every try, see `Acting.once`.
    """

    run: str
    key: str
    arguments: str
    tries: int
    begun: datetime
    idempotency_key: str


@dataclass(frozen=True, slots=True)
class Happened:
    """What a `verify` returns when the action did happen: its result."""

    value: Any = None


class Acting:
    """The part of `Run` that does things once."""

    id: str
    _core: Core
    _writer: RunWriter | None
    _intake: Intake
    _past: Past | None
    _acting: Keys
    _closed: bool

    def _claimed(self) -> RunWriter:
        raise NotImplementedError

    @property
    def access(self) -> Access:
        """The run as the operations of this package have it."""
        raise NotImplementedError

    def once(
        self,
        key: str,
        fn: Callable[..., T],
        /,
        *args: Any,
        policy: Policy = "fail",
        verify: Callable[[InFlight], Happened | None] | None = None,
        **kwargs: Any,
    ) -> T:
        """Do something once in the life of the run, however often it is resumed; return its result.

        The intent is committed before `fn` is called, the result after it. Asked for again, also
        after a crash and on another machine, the recorded result is returned and `fn` is not called.
        What was in flight when its process died is handled by `verify`, or else by `policy`.

        A `fn` that takes an argument `idempotency_key` is handed one: the same on every try and machine,
        another one for every run and key; pass it on to whoever does the work.

        An exception of `fn` leaves the action in flight: nobody knows what it did before it failed.

        Args:
            key: Its name, unique in the run and the same whenever the same thing is meant:
                ``f"pay-{order.id}"``, the id of a tool's call.
            fn: What to do. Its arguments must be carriable: they are compared by digest.
            *args: Its arguments.
            policy: For one in flight: "fail" raises `InFlightError`; "retry" calls `fn` again, with the
                same idempotency key; "ask" waits for a person, as `wait`.
            verify: For one in flight: looks whether it happened; returns `Happened(result)`, or None
                when it did not, and then `fn` is called; anything else is refused.
            **kwargs: Its arguments by name.

        Raises:
            InFlightError: It may have happened.
            InvalidInputError: The key was used with other arguments, or is being done by another thread.
            WaitingError: Policy "ask", and nobody has answered yet.
            FencedError: Another process is the run's writer: nothing was done.
        """
        call = Call(key, fn, (args, kwargs), policy, run=self.id, intake=self._intake)
        if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(verify):
            raise InvalidInputError("this is a coroutine function; use `await run.aonce(...)`", key=key)
        if self._core.left:  # the result of this very action may be among it
            futures.wait(tuple(self._core.left))
        with self._acting.alone(key), call:
            found = self._core.call(self._found(call))
            if isinstance(found, InFlight) and verify is not None:
                found = _looked(key, verify(found))
            if isinstance(found, InFlight):
                found = self._core.call(self._decided(call, found))
            if isinstance(found, Happened):
                if not call.known:
                    self._core.see_through(self._ended(call, found.value))
                done: T = found.value
                return done
            self._core.call(self._begun(call))
            value = fn(*args, **kwargs, **call.extra)
            self._core.see_through(self._ended(call, value))
            return value

    async def aonce(
        self,
        key: str,
        fn: Callable[..., Awaitable[T]] | Callable[..., T],
        /,
        *args: Any,
        policy: Policy = "fail",
        verify: Callable[[InFlight], Any] | None = None,
        **kwargs: Any,
    ) -> T:
        """`once`, awaited; `fn` and `verify` may be coroutine functions. Several at a time share commits.

        Cancelled before `fn` has returned, the action is in flight if it was begun; after that, its
        result is recorded all the same.
        """
        call = Call(key, fn, (args, kwargs), policy, run=self.id, intake=self._intake)
        if self._core.left:  # the result of this very action may be among it
            await pending.until(tuple(self._core.left))
        with self._acting.alone(key), call:
            found = await self._core.acall(self._found(call))
            if isinstance(found, InFlight) and verify is not None:
                found = _looked(key, await _value(verify(found)))
            if isinstance(found, InFlight):
                found = await self._core.acall(self._decided(call, found))
            if isinstance(found, Happened):
                if not call.known:
                    await self._core.asee_through(self._ended(call, found.value))
                done: T = found.value
                return done
            await self._core.acall(self._begun(call))
            value: T = await _value(fn(*args, **kwargs, **call.extra))
            await self._core.asee_through(self._ended(call, value))
            return value

    @overload
    def step(self, fn: F, /) -> F: ...
    @overload
    def step(
        self,
        fn: None = None,
        /,
        *,
        key: Callable[..., str] | str | None = None,
        policy: Policy = "fail",
        verify: Callable[[InFlight], Any] | None = None,
    ) -> Callable[[F], F]: ...
    def step(
        self,
        fn: Any = None,
        /,
        *,
        key: Callable[..., str] | str | None = None,
        policy: Policy = "fail",
        verify: Callable[[InFlight], Any] | None = None,
    ) -> Any:
        """Make a function one whose calls are each done `once`: as ``@run.step`` or ``@run.step(key=...)``.

        Args:
            fn: The function, sync or async.
            key: A call's name: a str that is formatted with the arguments' names (``"pay-{order}"``), or a
                function of the arguments. By default the function's name with the digest of the arguments,
                so the same call twice in a run is one.
            policy: As in `once`.
            verify: As in `once`.
        """
        if fn is None:
            return lambda one: self._step(one, key, policy, verify)
        return self._step(fn, key, policy, verify)

    def _step(self, fn: Any, key: Any, policy: Policy, verify: Any) -> Any:
        if inspect.iscoroutinefunction(fn):

            @wraps(fn)
            async def acall(*args: Any, **kwargs: Any) -> Any:
                name = key_of(fn, key, args, kwargs)
                return await self.aonce(name, fn, *args, policy=policy, verify=verify, **kwargs)

            return acall

        @wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            name = key_of(fn, key, args, kwargs)
            return self.once(name, fn, *args, policy=policy, verify=verify, **kwargs)

        return call

    async def _in_flight(self) -> list[InFlight]:
        """Return the actions that were begun and have no result, oldest first; reads the manifest only."""
        base = await self.access.base()
        found = [one for one in base.manifest.actions if one.ended is None and one.question is None]
        return [_in_flight(self.id, action) for action in reversed(found)]

    in_flight = waits(_in_flight)
    ain_flight = awaited(_in_flight)

    async def _actions(self, *, limit: int | None = None) -> list[ActionInfo]:
        """Return what the run's ledger holds, newest first. Older ones cost a request per page of them.

        Args:
            limit: At most so many; no page is read that holds none of them.

        Raises:
            RunNotFoundError: There is no such run.
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidInputError("limit must be a whole number from 1, or None for all", got=limit)

        async def read(manifest: Manifest) -> list[Action]:
            return await newest_actions(self.access.pages, manifest, limit=limit)

        return [action_info(self.id, action) for action in await self.access.reading(read)]

    actions = waits(_actions)
    aactions = awaited(_actions)

    # ---- the steps of one

    async def _found(self, call: Call) -> Happened | InFlight | None:
        return await self._claimed().reading(lambda manifest: self._found_in(manifest, call))

    async def _found_in(self, manifest: Manifest, call: Call) -> Happened | InFlight | None:
        action = await self._action(manifest, call.key)
        if action is None:
            return None
        if action.arguments != call.digest:
            raise InvalidInputError(
                "this key was used with other arguments; an action's key must name what it is done with",
                kind="other-arguments",
                run=self.id,
                key=call.key,
                begun=action.begun.isoformat(timespec="seconds"),
            )
        call.attempt = action.attempt
        if action.ended is None:
            return _in_flight(self.id, action)
        call.known = call.recorded = True
        return Happened(await self._result(action, call.type))

    async def _action(self, manifest: Manifest, key: str) -> Action | None:
        for action in manifest.actions:
            if action.key == key:
                return action
        if self._past is None:
            self._past = Past(self.access.pages, self._core.effects)
        return await self._past.find(manifest, key)

    async def _result(self, action: Action, type_: Any) -> Any:
        data = action.result
        if data is None:
            extent = action.extents[0]
            stored = await self._core.storage.read(extent.key)
            if stored is None or hashlib.sha256(stored.data).hexdigest() != extent.digest:
                raise CorruptCheckpointError(
                    "the recorded result of an action is missing or damaged",
                    run=self.id,
                    key=extent.key,
                    action=action.key,
                )
            data = stored.data
        plain = decode(data)
        # None is what a person or a `verify` says of one that happened: it has no result to fit.
        return plain if type_ is None or plain is None else decode(data, type_)

    async def _decided(self, call: Call, found: InFlight) -> Happened | None:
        """Return what the policy says of an action in flight; None when it is to be done again."""
        if call.policy == "retry":
            return None
        if call.policy == "ask":
            return await self._asked_whether(call.key, found)
        raise InFlightError(
            "an action was begun and no result was recorded, so it may have happened; "
            "look whether it did (verify=), do it again with its idempotency key (policy='retry'), or ask "
            "(policy='ask')",
            run=self.id,
            key=call.key,
            arguments=found.arguments,
            begun=found.begun.isoformat(timespec="seconds"),
            tries=found.tries,
        )

    async def _asked_whether(self, key: str, found: InFlight) -> Happened | None:
        raise NotImplementedError

    async def _begun(self, call: Call) -> None:
        call.attempt, call.writer = self._core.effects.new_id(), self._claimed()
        await call.writer.record(Begin(call.key, call.digest, call.attempt))

    async def _ended(self, call: Call, value: Any) -> None:
        data = self._intake.result(value, f"the result of {call.key!r}, which was done,")
        # Who began it ends it, also when the run was closed meanwhile, as by another task's error.
        writer = call.writer if call.writer is not None and self._closed else self._claimed()
        await writer.record(End(call.key, call.attempt, data))
        call.known = True


def _looked(key: str, found: Any) -> Happened | InFlight | None:
    if found is None or isinstance(found, Happened | InFlight):
        return found
    # The likeliest is the bare result of an action that happened: nothing may be done on the strength of it.
    raise InvalidInputError(
        "verify must return Happened(result), or None when it did not happen; nothing was done",
        key=key,
        got=type(found).__name__,
    )


def _in_flight(run: str, action: Action) -> InFlight:
    key = idempotency_key(run, action.key)
    return InFlight(run, action.key, action.arguments, action.tries, action.begun, key)


async def _value(value: Any) -> Any:
    return await value if isinstance(value, Coroutine) or inspect.isawaitable(value) else value
