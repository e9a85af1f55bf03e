"""`Checkpoint`: the ready-made state of an agent.

Owns: the fields that most agents need, what a reply of a model and a tool's
result do to them, and what makes a state consistent. Invariant: an inconsistent
state is neither saved nor returned by a load.

It adds nothing to the protocol: any other class is as good a state for `Run.save`.
How it is saved and loaded is `saved.py`'s, shapes of replies are `replies.py`'s.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Self

from cloudckpt import replies
from cloudckpt.codec import encode
from cloudckpt.errors import InvalidInputError
from cloudckpt.replies import Call, CallId, Message
from cloudckpt.saved import Consistency, Origin, Saved


@dataclass
class Checkpoint(Saved):
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
        self._check_made(call_id)
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

    def _check_made(self, call_id: CallId) -> None:
        if call_id not in self._made():
            raise InvalidInputError("no reply made this call: record the id of a tool call", call=call_id)

    def _open(self) -> frozenset[CallId]:
        return frozenset(self._made() - self.completed.keys())


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
