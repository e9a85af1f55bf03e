"""Pauses: a question to a person, or the end of another run, that a run waits for.

Owns: a question's life in the ledger. Invariants: state and question are committed
together, so a run that waits can be resumed anywhere; an answer counts once; what was
answered is answered for good, so approving one thing never does another again. A
waiting run needs no process. What becomes of a question in the ledger is in `questions.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudckpt import keys, questions
from cloudckpt.access import Edit
from cloudckpt.acting import Acting, Happened, InFlight
from cloudckpt.calls import check_key, made_of
from cloudckpt.codec import decode
from cloudckpt.curated import who
from cloudckpt.entries import time_in
from cloudckpt.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    RunDeletedError,
    RunNotFoundError,
    WaitingError,
)
from cloudckpt.labels import check_metadata
from cloudckpt.leases import seconds as check_seconds
from cloudckpt.ledger import Begin, End, newest_actions
from cloudckpt.load import load
from cloudckpt.model import Action, Manifest
from cloudckpt.schemas import check_answer, check_schema
from cloudckpt.twins import awaited, waits

if TYPE_CHECKING:
    from cloudckpt.drafts import Draft

ENDED = ("done", "failed", "deleted")
"""Statuses of a run in which nothing comes of it any more."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a run waits for.

    Attributes:
        run: The run's id.
        key: Its name in the run.
        token: What `Run.answer` takes.
        prompt: What is asked.
        schema: What an answer must be like, as JSON Schema; None for anything.
        child: Id of the run whose end is waited for, instead of an answer.
        asked: When, by the store's clock; by the writer's where that is not known.
        expires: When it expires, by the store's clock, or None.
    """

    run: str
    key: str
    token: str
    prompt: str
    schema: Mapping[str, Any] | None
    child: str | None
    asked: datetime
    expires: datetime | None


Look = Callable[[], Coroutine[Any, Any, Happened | WaitingError]]
"""Looks once whether what is waited for is there."""


class Asking(Acting):
    """The part of `Run` that waits."""

    def wait(
        self,
        prompt: str,
        *,
        key: str | None = None,
        state: object = None,
        schema: Any = None,
        expires: float | timedelta | None = None,
        poll: float | None = None,
    ) -> Any:
        """Return the answer to a question; without one, commit state and question, and raise `WaitingError`.

        The process may end then, and nothing runs until somebody answers: `Run.answer` on any machine,
        or ``cloudckpt answer``. The run resumed after that comes here again and gets the answer.

        Args:
            prompt: What is asked.
            key: The question's name, unique in the run; by default made of the prompt, so the
                same prompt again is the same question.
            state: Saved in the same commit, where one is given.
            schema: What the answer must be like: a list of the allowed values, a type (`bool`, `str`,
                `int`, `float`), or a JSON Schema (needs the package jsonschema). None for anything.
            expires: Seconds, or a timedelta, after which it counts as unanswered for good.
            poll: Look again so often, in seconds, instead of raising.

        Raises:
            WaitingError: There is no answer yet; has the token. With `kind` "expired": it expired.
            InvalidInputError: An argument is not usable.
        """
        poll = check_seconds("poll", poll)
        return self._polled(self._asking(prompt, key, state, schema, expires), poll)

    async def await_answer(
        self,
        prompt: str,
        *,
        key: str | None = None,
        state: object = None,
        schema: Any = None,
        expires: float | timedelta | None = None,
        poll: float | None = None,
    ) -> Any:
        """`wait`, awaited."""
        poll = check_seconds("poll", poll)
        return await self._apolled(self._asking(prompt, key, state, schema, expires), poll)

    def _draft_of(self, state: object) -> Draft:
        raise NotImplementedError

    def _asking(
        self, prompt: str, key: str | None, state: object, schema: Any, expires: float | timedelta | None
    ) -> Look:
        ask = self._question(prompt, key, schema, expires)
        drafts = iter(() if state is None else (self._draft_of(state),))  # the first look saves it
        return lambda: self._asked(ask, next(drafts, None))

    # Each look is a call of its own, and so is the wait between two: a call's deadline is not for
    # all of them, and who waits can be cancelled.

    def _polled(self, look: Look, poll: float | None) -> Any:
        while isinstance(found := self._core.call(look()), WaitingError):
            if poll is None or found.kind is not None:
                raise found
            self._core.pause(poll)
        return found.value

    async def _apolled(self, look: Look, poll: float | None) -> Any:
        while isinstance(found := await self._core.acall(look()), WaitingError):
            if poll is None or found.kind is not None:
                raise found
            await self._core.apause(poll)
        return found.value

    def _question(
        self, prompt: str, key: str | None, schema: Any, expires: float | timedelta | None
    ) -> Begin:
        if not isinstance(prompt, str) or not prompt.strip():
            raise InvalidInputError("say what is asked: a person will read it", got=prompt)
        seconds = expires.total_seconds() if isinstance(expires, timedelta) else expires
        if seconds is not None and (not isinstance(seconds, int | float) or not 0 < seconds < 1e11):
            raise InvalidInputError("expires must be a timedelta or a number of seconds, over 0", got=expires)
        question = check_metadata({"prompt": prompt, "schema": check_schema(schema), "expires": seconds})
        digest = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
        key = check_key(f"ask:{digest[:16]}" if key is None else key)
        return Begin(key, digest, self._core.effects.new_id(), question)

    async def _asked(self, ask: Begin, draft: Draft | None) -> Happened | WaitingError:
        """Return the answer, or why there is none; asks if nobody has asked yet."""
        writer = self._claimed()
        await writer.become()
        base = await writer.reread()
        action = await self._action(base.manifest, ask.key)
        if action is None:
            ask = await questions.dated(self.access, ask)
            if draft is None:
                asked = await writer.record(ask)
            else:
                asked, _ = await writer.save(replace(draft, notes=(*draft.notes, ask)))
            # Another thread may have been faster to ask it: there is one token to a question.
            action = questions.named(asked, ask.key)
            return self._waiting(ask.key, action.attempt if action else ask.attempt, ask.question or {})
        if action.arguments != ask.arguments:
            raise InvalidInputError(
                "this key was used for another question; a question's key must name what is asked",
                kind="other-arguments",
                run=self.id,
                key=ask.key,
            )
        if action.ended is None:
            if draft is not None:
                await writer.save(draft)
            if await questions.has_expired(self.access, action):
                base, action = await questions.expire(self.access, action, self._nothing())
                await writer.adopt(base)
        if questions.is_expired(action):
            return self._expired(action)
        if action.ended is not None:
            return Happened(await self._result(action, None))
        return self._waiting(action.key, action.attempt, action.question or {})

    def _nothing(self) -> bytes:
        return self._intake.result(None, "nothing")

    def _waiting(self, key: str, token: str, question: Mapping[str, Any]) -> WaitingError:
        return WaitingError(
            "the run waits for an answer; this process may end, resume the run when it was given "
            "(`cloudckpt answer`, or store.run(id).answer(token, value))",
            token=token,
            run=self.id,
            key=key,
            prompt=question.get("prompt"),
            child=question.get("child"),
        )

    def _expired(self, action: Action) -> WaitingError:
        question = action.question or {}
        error = self._waiting(action.key, action.attempt, question)
        error.kind = "expired"
        error.message = "the question expired without an answer; ask under another key, or go on without"
        when = questions.due(question)
        error.facts["expired"] = when and when.isoformat(timespec="seconds")
        return error

    # ---- answering

    async def _answer(self, token: str, value: object, *, by: str | None = None) -> Question:
        """Answer what the run waits for; an answer counts once. Needs no writer, on any machine.

        Args:
            token: The question's, from `WaitingError`, `Run.questions` or ``cloudckpt waiting``.
            value: The answer; must be as the question's schema says.
            by: Who answers; by default this user on this host.

        Raises:
            ConflictError: It was answered before; says by whom and when (`kind` "answered").
            InvalidInputError: The answer is not as the schema says, the question has expired, or it is
                the end of another run that is waited for.
            NotFoundError: The run has no such question.
        """
        data = self._intake.result(value, "the answer")
        whose = who(by)
        now = self._core.effects.clock.now()
        found: list[Action] = []

        async def edit(manifest: Manifest) -> Edit | None:
            action = questions.asked_by(manifest.actions, token)
            if action is None:  # an open one is always in the manifest
                every = await newest_actions(self.access.pages, manifest, limit=None)
                action = questions.asked_by(every, token)
            if action is None:
                raise NotFoundError(
                    "the run has no such question; look at its questions", run=self.id, token=token
                )
            question = action.question or {}
            if question.get("child") is not None:
                raise InvalidInputError(
                    "the run waits for the end of another run, which no answer can take the place of",
                    run=self.id,
                    child=question["child"],
                )
            if action.ended is None:
                check_answer(value, question.get("schema"))
            if await questions.has_expired(self.access, action):
                raise InvalidInputError(
                    "the question has expired", kind="expired", run=self.id, key=action.key
                )
            if action.ended is not None:
                if found and action.result == data and action.by == whose and action.ended == now:
                    return None  # our own, whose answer got lost
                raise ConflictError(
                    "the question was answered already",
                    kind="answered",
                    run=self.id,
                    key=action.key,
                    by=action.by,
                    when=action.ended.isoformat(timespec="seconds"),
                )
            found[:] = [action]
            return questions.with_action(
                manifest, action.key, lambda one: replace(one, ended=now, by=whose, result=data)
            )

        base, _ = await self.access.amend(edit)
        if self._writer is not None:
            await self._writer.adopt(base)
        return _question_of(self.id, found[0])

    answer = waits(_answer)
    aanswer = awaited(_answer)

    async def _questions(self) -> list[Question]:
        """Return what the run waits for, oldest first; reads the manifest only."""
        base = await self.access.base()
        return [
            _question_of(self.id, action)
            for action in reversed(base.manifest.actions)
            if action.question is not None and action.ended is None
        ]

    questions = waits(_questions)
    aquestions = awaited(_questions)

    # ---- other runs

    def wait_for(self, run_id: str, *, poll: float | None = None) -> Any:
        """Return the last state of another run of the store, once it has ended by `finish`.

        Args:
            run_id: The other run, which need not have begun.
            poll: Look again so often, in seconds, instead of raising.

        Raises:
            WaitingError: It has not ended; the run's status is "waiting" meanwhile. With `kind`
                "failed": it ended by ``finish(..., failed=True)``.
            RunDeletedError: It was deleted.
            InvalidInputError: It is this run, which would wait for ever.
        """
        poll = check_seconds("poll", poll)
        return self._polled(self._looking_for(run_id), poll)

    async def await_for(self, run_id: str, *, poll: float | None = None) -> Any:
        """`wait_for`, awaited."""
        poll = check_seconds("poll", poll)
        return await self._apolled(self._looking_for(run_id), poll)

    def _looking_for(self, run_id: str) -> Look:
        if run_id == self.id:
            raise InvalidInputError("a run can't wait for its own end; name the other run", run=run_id)
        key = made_of(f"run:{keys.check_run_id(run_id)}")
        question = {"prompt": f"the end of run {run_id}", "child": run_id}
        digest = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()
        ask = Begin(key, digest, self._core.effects.new_id(), question)

        async def look() -> Happened | WaitingError:
            action = await self._claimed().reading(lambda manifest: self._action(manifest, key))
            status = await self._status_of(run_id)
            if status in ENDED:
                return Happened(await self._child_ended(run_id, status, action))
            if action is None:
                await self._claimed().record(ask)
            return self._waiting(key, action.attempt if action else ask.attempt, question)

        return look

    async def _status_of(self, run_id: str) -> str | None:
        try:
            return (await self._core.access(run_id).base(deleted=True)).manifest.status
        except RunNotFoundError:
            return None

    async def _child_ended(self, run_id: str, status: str, action: Action | None) -> Any:
        if action is not None and action.ended is None:
            end = End(action.key, action.attempt, self._intake.result(status, "the end of a run"))
            await self._claimed().record(end)
        if status == "deleted":
            raise RunDeletedError("the run that was waited for was deleted", run=run_id)
        if status == "failed":
            raise WaitingError(
                "the run that was waited for has failed", kind="failed", run=self.id, child=run_id
            )
        loaded = await load(self._core.storage, self._core.effects, run_id)
        return None if loaded is None else decode(loaded.data)

    # ---- actions in flight

    async def _asked_whether(self, key: str, found: InFlight) -> Happened | None:
        prompt = (
            f"Action {key!r} of run {self.id!r} was begun at {found.begun:%Y-%m-%d %H:%M:%S} UTC, "
            "and no result was recorded. Did it happen?"
        )
        ask = self._question(prompt, made_of(f"{key}?{found.tries}"), bool, None)
        answer = await self._asked(ask, None)
        if isinstance(answer, WaitingError):
            raise answer
        return Happened() if answer.value else None


def _question_of(run: str, action: Action) -> Question:
    question = action.question or {}
    asked = time_in(question["asked"]) if "asked" in question else action.begun
    seconds = question.get("expires")
    return Question(
        run=run,
        key=action.key,
        token=action.attempt,
        prompt=question.get("prompt", ""),
        schema=question.get("schema"),
        child=question.get("child"),
        asked=asked,
        expires=None if seconds is None else asked + timedelta(seconds=seconds),
    )
