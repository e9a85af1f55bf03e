"""The ready-made state by itself: what replies and results do to it, and what is wrong with one."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from cloudckpt.errors import InvalidInputError
from cloudckpt.replies import Call
from cloudckpt.state import Checkpoint, Origin


def asking(*ids: Any, content: str = "") -> SimpleNamespace:
    calls = [SimpleNamespace(id=call, name="look", arguments={"n": i}) for i, call in enumerate(ids)]
    return SimpleNamespace(content=content, tool_calls=calls)


def asked(*ids: Any) -> Checkpoint:
    state = Checkpoint.new("task")
    state.apply(asking(*ids))
    return state


@dataclasses.dataclass
class Grid:  # noqa: PLW1641 - nobody hashes it
    """As an array: the answer to == is no truth."""

    cells: list[int]

    def __eq__(self, other: object) -> Any:
        return Undecided()


class Undecided:
    def __bool__(self) -> bool:
        raise ValueError("the truth value of a grid is ambiguous")


# ---- new


@pytest.mark.parametrize(
    ("task", "content"),
    [
        ("write", "write"),
        ({"do": "écrire"}, '{"do": "écrire"}'),
        (b"raw", "b'raw'"),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        (None, "null"),
    ],
)
def test_the_conversation_begins_with_the_task(task: Any, content: str) -> None:
    state = Checkpoint.new(task)
    assert state.messages == [{"role": "user", "content": content}]
    assert state.task == task
    assert (state.step, state.done, state.result) == (0, False, None)


def test_own_messages_replace_the_first_one() -> None:
    """With a system prompt, the task is not to come twice."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}]
    state = Checkpoint.new("task", messages=messages, max_steps=3)
    assert (state.messages, state.max_steps) == (messages, 3)


def test_two_states_share_nothing() -> None:
    one, other = Checkpoint.new("a"), Checkpoint.new("a")
    one.notes.append(1)
    one.completed["c"] = 1
    assert (other.notes, other.completed) == ([], {})


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="nots"):
        Checkpoint.new("task", nots=[])


# ---- apply


def test_a_reply_without_calls_ends_the_run_with_its_content() -> None:
    state = Checkpoint.new("task")
    state.apply({"role": "assistant", "content": "bye"})
    assert (state.done, state.result) == (True, "bye")
    assert state.messages[-1] == {"role": "assistant", "content": "bye"}
    assert state.is_consistent()


def test_an_empty_last_reply_is_a_result() -> None:
    """A run that is done without a result could not be saved any more."""
    state = Checkpoint.new("task")
    state.apply({"role": "assistant", "content": None, "tool_calls": None})
    assert (state.done, state.result) == (True, "")
    assert state.is_consistent()


def test_a_reply_with_calls_goes_on() -> None:
    state = asked("a", "b")
    assert not state.done
    assert state.pending == (Call("a", "look", '{"n": 0}'), Call("b", "look", '{"n": 1}'))
    assert state.calls == {"a": "look", "b": "look"}


@pytest.mark.parametrize(
    "reply", ["text", asking("a"), asking("new", "new"), {"content": "", "tool_calls": [{}]}]
)
def test_a_refused_reply_changes_nothing(reply: Any) -> None:
    """An id that a later turn uses again would find the earlier one's result recorded."""
    state = asked("a")
    state.record("a", 1)
    before = copy.deepcopy(state)
    with pytest.raises(InvalidInputError):
        state.apply(reply)
    assert state == before


def test_a_run_that_has_ended_takes_no_reply_until_it_is_told_to_go_on() -> None:
    state = Checkpoint.new("task")
    state.apply({"content": "bye"})
    with pytest.raises(InvalidInputError, match="set done=False and result=None"):
        state.apply(asking("a"))
    state.done, state.result = False, None
    state.apply(asking("a"))
    assert state.is_consistent()


# ---- record


def test_a_result_is_kept_as_it_is_and_shown_as_text() -> None:
    state = asked("a", "b")
    state.record("a", {"rows": (1, 2)})
    state.record("b", "fine")
    assert state.completed == {"a": {"rows": (1, 2)}, "b": "fine"}
    assert [message["content"] for message in state.messages[-2:]] == ['{"rows": [1, 2]}', "fine"]
    assert state.is_completed("a")
    assert state.pending == ()


@pytest.mark.parametrize("result", [None, {"a": [1, 2]}, float("nan"), [float("nan")], Grid([1, 2])])
def test_recording_an_equal_result_again_changes_nothing(result: Any) -> None:
    """A tool that is run again gives the same; NaN, and arrays whose == has no truth, are no exception."""
    state = asked("a")
    state.record("a", result)
    messages = copy.deepcopy(state.messages)
    state.record("a", copy.deepcopy(result))
    assert state.messages == messages


def test_an_equal_result_in_another_order_changes_nothing() -> None:
    state = asked("a")
    state.record("a", {"x": 1, "y": 2})
    state.record("a", {"y": 2, "x": 1})
    assert len(state.messages) == 3


@pytest.mark.parametrize(
    ("first", "second"), [(1, 2), (1, True), (None, ""), ([1], (1,)), (Grid([1]), Grid([2]))]
)
def test_recording_another_result_is_refused(first: Any, second: Any) -> None:
    state = asked("a")
    state.record("a", first)
    with pytest.raises(InvalidInputError, match=r"another result.*call='a'"):
        state.record("a", second)
    assert state.completed["a"] is first


def test_a_call_that_nobody_made_is_refused() -> None:
    state = asked("a")
    with pytest.raises(InvalidInputError, match=r"no reply made this call.*call='ghost'"):
        state.record("ghost", 1)
    assert state.is_consistent()


def test_a_call_in_a_message_of_ones_own_can_be_recorded() -> None:
    """Whoever appends replies by hand, in the vendor's form, did make the call."""
    state = Checkpoint.new("task")
    state.messages.append(
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "x", "input": {}}]}
    )
    assert [call.id for call in state.pending] == ["t"]
    state.record("t", 1)
    assert state.messages[-1]["content"] == [{"type": "tool_result", "tool_use_id": "t", "content": "1"}]
    assert state.is_consistent()


def test_a_conversation_that_was_cut_short_stays_consistent() -> None:
    """Long runs drop old messages; what was completed then is still known, and was made."""
    state = asked("a", "b")
    state.record("a", 1)
    state.messages = state.messages[:1]
    assert state.is_consistent()
    state.record("b", 2)
    assert state.completed == {"a": 1, "b": 2}
    assert state.messages == [{"role": "user", "content": "task"}]


# ---- consistency


def broken(**fields: Any) -> Checkpoint:
    return Checkpoint.new("task", **fields)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (broken(completed={"ghost": 1}), "call 'ghost' was answered, but nobody made it"),
        (broken(messages=[{"role": "tool", "tool_call_id": "g", "content": ""}]), "call 'g' was answered"),
        (broken(done=True), "done without a result"),
        (broken(result="early"), "a result without done"),
        (broken(step=1, _origin=Origin("s", "r", 1, 1, step=2)), "step went backwards from 2 to 1"),
        (broken(step=-1), "step is not a whole number from 0"),
        (broken(step=1.0), "step is not a whole number from 0"),
        (broken(step=True), "step is not a whole number from 0"),
        (broken(max_steps=None), "max_steps is not a whole number from 0"),
        (broken(messages="hi"), "messages is not a list of dicts"),
        (broken(messages=[SimpleNamespace(role="user")]), "messages is not a list of dicts"),
        (broken(completed=[]), "completed is not a dict"),
        (broken(calls=None), "calls is not a dict"),
        (broken(done=1), "done is not a bool"),
    ],
)
def test_what_is_wrong_is_named(state: Checkpoint, problem: str) -> None:
    consistency = state.is_consistent()
    assert not consistency
    assert problem in str(consistency)
    assert any(problem in one for one in consistency.problems)


@pytest.mark.parametrize(
    "state",
    [
        broken(),
        broken(step=200, max_steps=100),
        broken(step=2, _origin=Origin("s", "r", 1, 1, step=2)),
        broken(done=True, result=0),
        broken(messages=[{}, {"role": "tool"}, {"role": "user", "content": [{"type": "tool_result"}, "x"]}]),
        broken(
            messages=[{"role": "assistant", "tool_calls": [{"id": [], "function": "f"}, 3, {}], "content": 7}]
        ),
        broken(plan="any", results=None, notes={"a": 1}),
    ],
)
def test_what_is_not_wrong_is_left_alone(state: Checkpoint) -> None:
    """A conversation is the user's, in whatever shape; only answers to nothing are wrong in it."""
    consistency = state.is_consistent()
    assert consistency
    assert (consistency.problems, str(consistency)) == ((), "consistent")


def test_several_problems_are_all_told() -> None:
    assert len(broken(completed={"a": 1, "b": 2}, done=True).is_consistent().problems) == 3


# ---- copies


def test_a_copy_remembers_where_it_came_from() -> None:
    """A copy that forgot could not be saved onto its own run."""
    state = Checkpoint.new("task", _origin=Origin("s", "r", 1, 1, 0))
    for other in (
        dataclasses.replace(state, step=1),
        copy.copy(state),
        copy.deepcopy(state),
        pickle.loads(pickle.dumps(state)),
    ):
        assert other._origin == state._origin


def test_where_it_came_from_is_neither_shown_nor_compared() -> None:
    state = Checkpoint.new("task", _origin=Origin("s", "r", 1, 1, 0))
    assert state == Checkpoint.new("task")
    assert "origin" not in repr(state)
