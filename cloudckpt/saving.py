"""Saving a run's state.

Owns: what becomes of a state from `save` to a commit. Invariants: the state is taken when
`save` is called, so later changes to it are not saved; a save in cadence "step" pays
nothing for the others. When the others commit is in `paced.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from cloudckpt.codec.intake import Intake, Taken
from cloudckpt.core import Core
from cloudckpt.errors import InvalidInputError
from cloudckpt.labels import MAX_INT, check_metadata, check_tags
from cloudckpt.late import Late
from cloudckpt.measured import Size
from cloudckpt.model import CheckpointInfo, Entry, Manifest, describe
from cloudckpt.pace import STEP
from cloudckpt.paced import Asked, Paced

if TYPE_CHECKING:
    import logging
    import threading

    from cloudckpt import drafts
    from cloudckpt.codec import Encoded
    from cloudckpt.commit import RunWriter
    from cloudckpt.pending import Pending
    from cloudckpt.progress import Meter
else:  # a load needs none of them
    drafts = Late("cloudckpt.drafts")
    logging = Late("logging")


class Saving(Paced):
    """The part of `Run` that saves."""

    _core: Core
    _guard: threading.Lock
    _intake: Intake
    _fingerprint: Mapping[str, str] | None
    _meter: Meter | None

    def _claimed(self) -> RunWriter:
        raise NotImplementedError

    @overload
    def save(
        self,
        state: object,
        *,
        expect: int,
        step: int | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        explain: bool = False,
        milestone: bool = False,
    ) -> CheckpointInfo: ...
    @overload
    def save(
        self,
        state: object,
        *,
        step: int | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        expect: None = None,
        explain: bool = False,
        milestone: bool = False,
    ) -> CheckpointInfo | Pending: ...
    def save(
        self,
        state: object,
        *,
        step: int | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        expect: int | None = None,
        explain: bool = False,
        milestone: bool = False,
    ) -> CheckpointInfo | Pending:
        """Save the state. The first save becomes the run's writer.

        In cadence "step" it is durable when this returns. In "selective" so it is when it was due;
        else, and always in "background", a `Pending` is returned, which can be waited for. What a crash
        may cost then is said in `pace`. A later change of the state changes nothing in any of them.

        Args:
            state: A dataclass, pydantic model, msgspec struct, dict, list, bytes or other
                value that can be carried; taken before the call goes on.
            step: The caller's own count; by default `state.step` or `state["step"]`
                where that is a whole number.
            tags: Names on this checkpoint, which also keep it from expiring. No newer save takes its
                place, and it is due.
            metadata: Plain JSON values under str keys, nested in at most 50 levels.
            expect: Refuse unless the run's newest checkpoint is this seq (0: none yet). Such a
                save is durable when it returns, in every cadence.
            explain: Also measure the state as it is saved, into the answer's `measured`.
            milestone: It is due, and no newer save takes its place.

        Raises:
            SerializationError: The state can't be carried; names every path. Nothing was written.
            InvalidInputError: An argument is not usable, or (`kind` "too-large") the state is
                over the limit. Nothing was written.
            FencedError: Another process became the run's writer: stop.
            ConflictError: Somebody committed on top of what this writer knew: load, then decide.
            StaleStateError: `expect` is not the newest checkpoint. Nothing was written.
            OutcomeUnknownError: It may or may not have been saved; has the commit id.
            StorageError: The store failed; the run is as it was. Also one of these for an earlier save
                that was pending, once: this one was not taken then.
        """
        if self._pace is STEP or expect is not None:
            draft, measured = self._draft(state, step, tags, metadata, expect, explain=explain)
            with self._told(draft):
                return self._core.call(self._save(draft, measured))
        asked = self._taken(state, step, tags, metadata, explain=explain, keep=milestone)
        due = self._counted(asked)
        pending = self._offered(asked, start=due)
        return self._committed(pending.wait()) if due and self._is_selective else pending

    @overload
    def asave(
        self,
        state: object,
        *,
        expect: int,
        step: int | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        explain: bool = False,
        milestone: bool = False,
    ) -> Awaitable[CheckpointInfo]: ...
    @overload
    def asave(
        self,
        state: object,
        *,
        step: int | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        expect: None = None,
        explain: bool = False,
        milestone: bool = False,
    ) -> Awaitable[CheckpointInfo | Pending]: ...
    def asave(
        self,
        state: object,
        *,
        step: int | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        expect: int | None = None,
        explain: bool = False,
        milestone: bool = False,
    ) -> Awaitable[CheckpointInfo | Pending]:
        """`save`, to be awaited. The state is taken at the call, not at the await."""
        if self._pace is STEP or expect is not None:
            draft, measured = self._draft(state, step, tags, metadata, expect, explain=explain)
            return self._asave(draft, measured)
        return self._asave_asked(self._taken(state, step, tags, metadata, explain=explain, keep=milestone))

    async def _asave(self, draft: drafts.Draft, measured: Size | None) -> CheckpointInfo:
        # One whose caller is cancelled before it began never makes what nobody would await.
        with self._told(draft):
            return await self._core.acall(self._save(draft, measured))

    @contextmanager
    def _told(self, draft: drafts.Draft) -> Iterator[None]:
        """A save that its caller gives up may land all the same: the caller's next one continues it."""
        try:
            yield
        except Exception:
            raise
        except BaseException:
            if self._writer is not None:
                self._writer.untold(draft.commit)
            raise

    async def _asave_asked(self, asked: Asked) -> CheckpointInfo | Pending:
        due = self._counted(asked)
        pending = await self._aoffered(asked, start=due)
        return self._committed(await pending) if due and self._is_selective else pending

    def finish(self, state: object, *, failed: bool = False) -> CheckpointInfo:
        """Save the last state, and say that the run is done, so that who waits for it goes on.

        Durable when it returns, in every cadence.

        Args:
            state: The last one.
            failed: Whether it ends without its result: who waits for it is told so.

        Raises:
            CloudckptError: As `save`.
        """
        status = "failed" if failed else "done"
        if self._pace is STEP:
            draft, measured = self._draft(state, None, (), None, None, explain=False)
            with self._told(draft):
                return self._core.call(self._save(replace(draft, status=status), measured))
        return self._offered(self._taken(state, keep=True, status=status), start=True).wait()

    async def afinish(self, state: object, *, failed: bool = False) -> CheckpointInfo:
        """`finish`, awaited."""
        status = "failed" if failed else "done"
        if self._pace is STEP:
            draft, measured = self._draft(state, None, (), None, None, explain=False)
            return await self._asave(replace(draft, status=status), measured)
        return await (await self._aoffered(self._taken(state, keep=True, status=status), start=True))

    # ---- at once

    def _draft(
        self,
        state: object,
        step: int | None,
        tags: Iterable[str],
        metadata: Mapping[str, Any] | None,
        expect: int | None,
        *,
        explain: bool,
    ) -> tuple[drafts.Draft, Size | None]:
        self._claimed()
        draft = self._drafting(state, step, tags, metadata, expect=expect)
        taken = self._intake.take(state, explain=explain)
        self._warn(taken)
        return draft(taken.encoded), taken.measured

    def _draft_of(self, state: object) -> drafts.Draft:
        return self._draft(state, None, (), None, None, explain=False)[0]

    def _drafting(
        self,
        state: object,
        step: int | None,
        tags: Iterable[str],
        metadata: Mapping[str, Any] | None,
        *,
        expect: int | None = None,
        status: str | None = None,
    ) -> Callable[[Encoded], drafts.Draft]:
        tags, metadata = self._intake.labels(check_tags(tags), check_metadata(metadata))
        return partial(
            drafts.Draft,
            self._core.effects.new_id(),
            step=_step_of(state) if step is None else _whole("step", step),
            tags=tags,
            metadata=metadata,
            fingerprint=self._fingerprint,
            expect=None if expect is None else _whole("expect", expect),
            status=status,
            max_steps=None if self._meter is None else self._meter.most(state),
        )

    async def _save(self, draft: drafts.Draft, measured: Size | None) -> CheckpointInfo:
        return _described(*await self._claimed().save(draft), measured)

    def _warn(self, taken: Taken) -> None:
        if taken.warning is not None:
            logging.getLogger("cloudckpt").warning("the state of run=%r %s", self.id, taken.warning)

    # ---- later

    def _taken(
        self,
        state: object,
        step: int | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        *,
        keep: bool,
        explain: bool = False,
        status: str | None = None,
    ) -> Asked:
        writer = self._claimed()
        self._root.check_open()
        tags = tuple(tags)
        draft = self._drafting(state, step, tags, metadata, status=status)
        return Asked(
            writer,
            self._intake.capture(state, explain=explain),
            draft,
            keep=keep or bool(tags),
            final=status is not None,
        )

    async def _save_asked(self, asked: Asked) -> CheckpointInfo:
        taken: Taken = await self._root.effects.offload(asked.take)
        self._warn(taken)
        return _described(*await asked.writer.save(asked.draft(taken.encoded)), taken.measured)


def _described(manifest: Manifest, entry: Entry, measured: Size | None) -> CheckpointInfo:
    info = describe(manifest, entry)
    return info if measured is None else replace(info, measured=measured)


def _step_of(state: object) -> int | None:
    step = state.get("step") if isinstance(state, dict) else getattr(state, "step", None)
    return step if type(step) is int and 0 <= step <= MAX_INT else None


def _whole(name: str, value: int) -> int:
    if type(value) is not int or not 0 <= value <= MAX_INT:
        raise InvalidInputError(
            f"{name} must be a whole number from 0 to {MAX_INT}", got=type(value).__name__
        )
    return value
