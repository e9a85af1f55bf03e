"""`Checkpoint`: the ready-made state of an agent, and where it is saved by default.

Owns: the fields that most agents need, what a reply of a model and a tool's
result do to them, what makes a state consistent, and which run handle of this
process a state is saved through. Invariants: an inconsistent state is neither
saved nor returned by a load; a state is saved only onto the checkpoint that it
was loaded from or last saved as, so two copies of it never mix; of two loads of
a run, in one process or in two, the later one can save.

It adds nothing to the protocol: all goes through `Store` and `Run`, and any
other class is as good a state for `Run.save`. Shapes of replies are `replies.py`'s.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from cloudckpt import replies
from cloudckpt.codec import encode
from cloudckpt.errors import (
    DataError,
    FencedError,
    InvalidInputError,
    OutcomeUnknownError,
    StaleStateError,
)
from cloudckpt.held import Held, default_store, process
from cloudckpt.model import CheckpointInfo
from cloudckpt.replies import Call, CallId, Message
from cloudckpt.store import Store

INCONSISTENT = "inconsistent-state"
"""`kind` of the error about a state that is not consistent."""


@dataclass(frozen=True, slots=True)
class Consistency:
    """What is wrong with a state. True when nothing is; `str` lists the problems."""

    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        return "; ".join(self.problems) or "consistent"


@dataclass(frozen=True, slots=True)
class Origin:
    """Which checkpoint a state was loaded from or last saved as.

    Attributes:
        store: The store's URL.
        run: The run's id.
        seq: The run's newest checkpoint then, 0 for none.
        epoch: The writer's number then: the higher one was loaded later.
        step: The state's step then.
    """

    store: str
    run: str
    seq: int
    epoch: int
    step: int


@dataclass
class Checkpoint:
    """The state of an agent that works in steps. Subclass it to add fields.

    A subclass may be a dataclass with fields of its own (with defaults), or a
    plain class; `load` on the subclass builds the subclass.

    Attributes:
        task: What the agent is to do; any value that can be carried.
        messages: The conversation, in the form of the vendor whose replies were applied.
        step: Steps done. Yours to count.
        max_steps: Where to stop.
        plan, results, notes: Yours; nothing here reads them.
        completed: Result of each answered tool call, by call id.
        done: Whether the run has ended.
        result: What it ended with; None until then.
        calls: Name of the tool of each call ever made, by call id. It keeps a
            conversation that you cut short consistent with `completed`.
    """

    task: Any
    messages: list[Message] = field(default_factory=list)
    step: int = 0
    max_steps: int = 100
    plan: list[Any] = field(default_factory=list)
    completed: dict[CallId, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    notes: list[Any] = field(default_factory=list)
    done: bool = False
    result: Any = None
    calls: dict[CallId, str] = field(default_factory=dict, kw_only=True)
    _origin: Origin | None = field(
        default=None, kw_only=True, repr=False, compare=False, metadata={"cloudckpt": "exclude"}
    )

    # ---- the agent's work

    @classmethod
    def new(cls, task: Any, **fields: Any) -> Self:
        """Return the state of a run that has not begun.

        Args:
            task: What to do. The conversation starts with it as the user's
                message: as it is when it is a str, else as JSON, or as
                ``str(task)`` where JSON can't show it.
            **fields: Other fields; `messages` here replaces the one message.
        """
        if "messages" not in fields:
            fields["messages"] = [{"role": "user", "content": _shown(task)}]
        return cls(task=task, **fields)

    def apply(self, reply: Any) -> None:
        """Append a model's reply to `messages`; one without tool calls ends the run.

        The text of that last reply is the result, or its content as it is when
        that is no text.

        Args:
            reply: An OpenAI chat completion or its message, an OpenAI response,
                an Anthropic message, or a dict or object with `content` and
                `tool_calls`. A tool call has an `id`, and a name and arguments
                at itself or at its `function`.

        Raises:
            InvalidInputError: The shape is not known, a call has no id or one
                that was used before, or the run has ended. Nothing was applied.
        """
        if self.done:
            raise InvalidInputError("the run has ended: set done=False and result=None to go on with it")
        turn = replies.adapt(reply)
        used = self._made()
        for call in turn.calls:
            if call.id in used:
                raise InvalidInputError(
                    "the reply uses the id of an earlier call: give each its own", call=call.id
                )
        self.messages.extend(turn.messages)
        self.calls.update({call.id: call.name for call in turn.calls})
        if turn.ended:
            self.done, self.result = True, turn.content

    def record(self, call_id: CallId, result: Any) -> None:
        """Note the result of a tool call, and append it to `messages` for the model.

        Safe to call again with an equal result. `completed` has the result as it
        is; the message has it as text (JSON, or ``str`` where JSON can't show it).

        Raises:
            InvalidInputError: No reply made the call, or it was recorded with another result.
        """
        if call_id in self.completed:
            if _equal(self.completed[call_id], result):
                return
            raise InvalidInputError("the call was recorded with another result before", call=call_id)
        if call_id not in self._made():
            raise InvalidInputError("no reply made this call: record the id of a tool call", call=call_id)
        self.completed[call_id] = result
        replies.answer(self.messages, call_id, result)

    def is_completed(self, call_id: CallId) -> bool:
        """Return whether the result of a call was recorded."""
        return call_id in self.completed

    @property
    def pending(self) -> tuple[Call, ...]:
        """The calls that wait for a `record`, oldest first."""
        return tuple(
            call for call in replies.calls_in(self.messages).values() if call.id not in self.completed
        )

    def is_consistent(self) -> Consistency:
        """Return what is wrong with the state, if anything. Checked on every load and save."""
        problems = [f"{name} is not {what}" for name, what, holds in self._types() if not holds]
        if problems:
            return Consistency(tuple(problems))
        answered = replies.answered_in(self.messages) | self.completed.keys()
        problems += [f"call {call!r} was answered, but nobody made it" for call in answered - self._made()]
        if self._origin is not None and self.step < self._origin.step:
            problems.append(f"step went backwards from {self._origin.step} to {self.step}")
        if self.done and self.result is None:
            problems.append("done without a result")
        if not self.done and self.result is not None:
            problems.append("a result without done")
        return Consistency(tuple(sorted(problems)))

    def _types(self) -> list[tuple[str, str, bool]]:
        is_messages = isinstance(self.messages, list) and all(isinstance(one, dict) for one in self.messages)
        return [
            ("messages", "a list of dicts", is_messages),
            ("step", "a whole number from 0", _is_count(self.step)),
            ("max_steps", "a whole number from 0", _is_count(self.max_steps)),
            ("completed", "a dict", isinstance(self.completed, dict)),
            ("calls", "a dict", isinstance(self.calls, dict)),
            ("done", "a bool", isinstance(self.done, bool)),
        ]

    def _made(self) -> set[CallId]:
        return self.calls.keys() | replies.calls_in(self.messages).keys()

    # ---- load and save

    @classmethod
    def load(cls, run_id: str, *, store: Store | None = None, fallback: bool = False) -> Self | None:
        """Return the run's newest state and become its writer; None when it has none yet.

        An older process of the run, and an older load in this one, can no longer save.

        Args:
            run_id: The run.
            store: Where; by default `default_store()`.
            fallback: Go back to the newest intact checkpoint when the newest is damaged.

        Raises:
            DataError: What is stored is damaged, or not a consistent state of this class.
        """
        held = Held.new(store or default_store(), run_id)
        held.run.acquire()
        return cls._loaded(held, held.run.load(cls, fallback=fallback))

    @classmethod
    async def aload(cls, run_id: str, *, store: Store | None = None, fallback: bool = False) -> Self | None:
        """`load`, awaited."""
        held = Held.new(store or default_store(), run_id)
        await held.run.aacquire()
        return cls._loaded(held, await held.run.aload(cls, fallback=fallback))

    @classmethod
    def _loaded(cls, held: Held, state: Self | None) -> Self | None:
        run = held.run
        held = process.hold(replace(held, epoch=run.epoch or 0))
        if state is None:
            return None
        consistency = state.is_consistent()
        if not consistency:
            message = f"the saved state is not consistent: {consistency}"
            raise DataError(message, kind=INCONSISTENT, run=run.id, seq=run.head)
        state._origin = Origin(held.store.url, run.id, run.head or 0, held.epoch, state.step)
        return state

    def save(self, run_id: str, *, store: Store | None = None) -> CheckpointInfo:
        """Save the state as the run's next checkpoint; durable when it returns.

        After an `OutcomeUnknownError`, saving again is safe.

        Raises:
            InvalidInputError: The state is not consistent.
            StaleStateError: The run has checkpoints that this state does not continue.
            FencedError: The run was loaded again since, here or elsewhere.
            SerializationError: The state holds values that can't be carried.
        """
        held, seq = self._base(run_id, store or default_store())
        with _explained(held):
            info = held.run.save(self, step=self.step, expect=seq)
        return self._saved(held, info)

    def asave(self, run_id: str, *, store: Store | None = None) -> Awaitable[CheckpointInfo]:
        """`save`, to be awaited. The state is encoded at the call, not at the await."""
        held, seq = self._base(run_id, store or default_store())
        return self._asaved(held, held.run.asave(self, step=self.step, expect=seq))

    async def _asaved(self, held: Held, saving: Awaitable[CheckpointInfo]) -> CheckpointInfo:
        with _explained(held):
            info = await saving
        return self._saved(held, info)

    def _base(self, run_id: str, store: Store) -> tuple[Held, int]:
        """Return what to save through, and the seq that must be the run's newest."""
        consistency = self.is_consistent()
        if not consistency:
            raise InvalidInputError(
                f"the state is not consistent: {consistency}", kind=INCONSISTENT, run=run_id
            )
        held, origin = process.held(store, run_id), self._origin
        if origin is None or (origin.store, origin.run) != (store.url, run_id):
            return held or Held.new(store, run_id), 0
        if held is None or held.epoch < origin.epoch:  # the state was handed over by another process
            held = Held.new(store, run_id, origin.epoch)
        elif held.epoch > origin.epoch:
            raise FencedError("the run was loaded again since: go on with the state of that load", run=run_id)
        return held, origin.seq

    def _saved(self, held: Held, info: CheckpointInfo) -> CheckpointInfo:
        process.hold(replace(held, epoch=info.epoch))
        self._origin = Origin(held.store.url, info.run, info.seq, info.epoch, info.step or 0)
        return info


@contextmanager
def _explained(held: Held) -> Iterator[None]:
    """Say what to do about a state that may not be saved, and keep what a second try needs."""
    try:
        yield
    except OutcomeUnknownError:
        process.hold(held)  # its run knows its own commit again, should that have happened
        raise
    except StaleStateError as error:
        message = (
            "the run has checkpoints that this state does not continue: go on from "
            "`Checkpoint.load(run_id)`, fork by saving under another run id, or delete the run first"
        )
        raise StaleStateError(message, **error.facts) from error


# ---- small things


def _shown(task: Any) -> str:
    if isinstance(task, str):
        return task
    try:
        return json.dumps(task, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(task)


def _equal(one: Any, other: Any) -> bool:
    try:
        same = type(one) is type(other) and bool(one == other)
    except ValueError:  # an array has no one truth; its bytes tell
        same = False
    return same or encode(one).encoded_digest == encode(other).encoded_digest


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
