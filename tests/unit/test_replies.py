"""Replies of models as plain data: the shapes of the SDKs, imitated without them."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest

from cloudckpt.errors import InvalidInputError
from cloudckpt.replies import Call, adapt, answer, answered_in, calls_in, plain


class SdkModel(pydantic.BaseModel):
    """As both SDKs' base: unknown fields stay, and `to_dict` is what the API sent."""

    model_config = pydantic.ConfigDict(extra="allow")

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class Function(SdkModel):
    name: str
    arguments: str
    parsed_arguments: Any = None


class ToolCall(SdkModel):
    id: str
    type: str = "function"
    function: Function


class ChatMessage(SdkModel):
    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: Any = None
    function_call: Any = None
    tool_calls: list[ToolCall] | None = None


class Caller(SdkModel):
    kind: str
    tool_id: str | None = None


class Block(SdkModel):
    type: str
    caller: Caller | None = None


class Message(SdkModel):
    """Anthropic's."""

    id: str = "msg_1"
    type: str = "message"
    role: str = "assistant"
    content: list[Block]
    stop_reason: str | None = "end_turn"


def completion(message: ChatMessage) -> SimpleNamespace:
    return SimpleNamespace(id="chatcmpl-1", choices=[SimpleNamespace(message=message, finish_reason="stop")])


CHAT = ChatMessage.model_validate(
    {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "reasoning_content": "hm",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "look", "arguments": '{"at": null}', "parsed_arguments": {"at": None}},
                "extra_content": {"signature": "s"},
            }
        ],
    }
)
BLOCKS = Message.model_validate(
    {
        "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Looking.", "citations": None},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": None}},
            {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}, "caller": {"kind": "direct"}},
        ],
    }
)


@pytest.mark.parametrize("reply", [completion(CHAT), CHAT, {"choices": [{"message": CHAT.model_dump()}]}])
def test_a_chat_completion_becomes_the_message_that_the_next_request_takes(reply: Any) -> None:
    """The vendor's own fields must come back (a signature is checked), output-only ones must not."""
    turn = adapt(reply)
    function = {"name": "look", "arguments": '{"at": null}'}
    call = {"id": "call_1", "type": "function", "function": function, "extra_content": {"signature": "s"}}
    message = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]}
    assert turn.messages == [message]
    assert turn.calls == (Call("call_1", "look", '{"at": null}'),)
    assert not turn.ended


@pytest.mark.parametrize("reply", [BLOCKS, BLOCKS.model_dump(exclude_unset=True), BLOCKS.to_dict()])
def test_an_anthropic_message_keeps_every_block_in_order(reply: Any) -> None:
    """A changed or missing thinking block is refused by the API, and so is a field that it never sent.

    Nulls inside an input are data.
    """
    turn = adapt(reply)
    (message,) = turn.messages
    assert message == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": None}},
            {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}, "caller": {"kind": "direct"}},
        ],
    }
    assert [call.id for call in turn.calls] == ["toolu_1", "toolu_2"]
    assert turn.content == "Looking."


def test_a_wrapper_that_shows_the_calls_of_blocks_keeps_the_blocks() -> None:
    """A loop over `reply.tool_calls` needs a wrapper around Anthropic's message."""
    calls = [SimpleNamespace(id=b.id, name=b.name, arguments=b.input) for b in BLOCKS.content[2:]]  # type: ignore[attr-defined]
    turn = adapt(SimpleNamespace(content=BLOCKS.content, tool_calls=calls))
    assert [block["type"] for block in turn.messages[0]["content"]] == [
        "thinking",
        "text",
        "tool_use",
        "tool_use",
    ]


def test_a_response_becomes_one_message_an_item() -> None:
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "look",
            "arguments": "{}",
            "parsed_arguments": {},
        },
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "shell_call", "id": "sh_1", "call_id": "call_2", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "call_2", "output": []},
    ]
    turn = adapt(SimpleNamespace(output=output))
    assert [message["type"] for message in turn.messages] == [item["type"] for item in output]
    assert [set(message) for message in turn.messages[:2]] == [
        {"type", "id", "summary"},
        {"type", "call_id", "name", "arguments"},
    ]
    assert turn.calls == (Call("call_1", "look", "{}"),)  # the vendor ran the other two itself
    answer(turn.messages, "call_1", {"n": 1})
    assert turn.messages[-1] == {"type": "function_call_output", "call_id": "call_1", "output": '{"n": 1}'}
    last: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "bye", "parsed": 1}],
    }
    ended = adapt(SimpleNamespace(output=[last]))
    assert (ended.ended, ended.content) == (True, "bye")
    assert ended.messages[0]["content"] == [{"type": "output_text", "text": "bye"}]


@dataclass
class Given:
    id: str
    name: str
    arguments: Any


class Slotted:
    __slots__ = ("id", "n", "name")

    def __init__(self) -> None:
        self.id, self.name, self.n = "c1", "look", 3


class Classy:
    id = "c1"
    name = "look"
    arguments = "{}"


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ({"id": "c1", "name": "look", "arguments": {"n": 3}}, {"n": 3}),
        ({"id": "c1", "name": "look", "args": {"n": 3}, "type": "tool_call"}, {"n": 3}),
        ({"id": "c1", "function": {"name": "look", "arguments": {"n": 3}}}, {"n": 3}),
        (SimpleNamespace(id="c1", function=SimpleNamespace(name="look", arguments='{"n": 3}')), {"n": 3}),
        (Given("c1", "look", {"n": 3}), {"n": 3}),
        (SimpleNamespace(id="c1", name="look", n=3, run=print), None),
        (Slotted(), {"n": 3}),
        (Classy(), {}),
    ],
)
def test_a_call_of_any_make_becomes_a_chat_call(call: Any, arguments: Any) -> None:
    turn = adapt(SimpleNamespace(content="Looking.", tool_calls=(call,)))
    (made,) = turn.messages[0]["tool_calls"]
    assert (made["id"], made["function"]["name"]) == ("c1", "look")
    if arguments is not None:
        assert json.loads(made["function"]["arguments"]) == arguments
    assert json.loads(json.dumps(turn.messages)) == turn.messages


def test_a_call_without_a_name_keeps_its_id_and_what_it_has() -> None:
    turn = adapt({"content": None, "tool_calls": [{"id": 7, "tool": "look"}]})
    assert turn.calls == (Call(7, "", '{"tool": "look"}'),)


def test_a_wrapper_gives_content_and_calls_and_no_more() -> None:
    """Usage or a raw response beside them is not the message's: the next request would be refused."""
    turn = adapt({"content": "hi", "tool_calls": [], "usage": {"tokens": 3}, "raw": object()})
    assert turn.messages == [{"role": "assistant", "content": "hi"}]


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        (completion(ChatMessage(content="bye")), "bye"),
        (completion(ChatMessage(refusal="I can't.")), "I can't."),
        (ChatMessage(audio={"id": "a1", "data": "...", "transcript": "bye"}), "bye"),
        (Message(content=[Block(type="text", text="by"), Block(type="text", text="e")]), "bye"),  # type: ignore[call-arg]
        (Message(content=[]), ""),
        ({"content": "bye"}, "bye"),
        ({"content": None, "tool_calls": None}, ""),
        (SimpleNamespace(content={"answer": 42}, tool_calls=[]), {"answer": 42}),
    ],
)
def test_a_reply_without_calls_ends_with_its_content(reply: Any, content: Any) -> None:
    turn = adapt(reply)
    assert turn.ended
    assert turn.content == content


def test_spoken_words_come_back_as_their_id_only() -> None:
    turn = adapt(ChatMessage(audio={"id": "a1", "data": "...", "transcript": "bye"}))
    assert turn.messages == [{"role": "assistant", "content": None, "audio": {"id": "a1"}}]


def test_a_paused_turn_is_no_end() -> None:
    """Anthropic stops a long turn of its own tools in the middle and goes on when asked again."""
    assert not adapt(Message(content=[Block(type="server_tool_use")], stop_reason="pause_turn")).ended


@pytest.mark.parametrize(
    "reply", [None, "text", b"bytes", 3, [], {}, SimpleNamespace(choices=[]), {"text": "hi"}]
)
def test_an_unknown_shape_is_refused_with_what_is_accepted(reply: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"OpenAI chat completion.*Anthropic message.*`tool_calls`"):
        adapt(reply)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({"content": "", "tool_calls": [{"name": "look"}]}, "no id"),
        ({"content": "", "tool_calls": [{"id": "", "name": "look"}]}, "no id"),
        ({"content": "", "tool_calls": [{"id": "c"}, {"id": "c"}]}, "share an id"),
        ({"content": "", "tool_calls": iter([{"id": "c"}])}, "must be a list"),
        ({"content": "", "function_call": {"name": "look", "arguments": "{}"}}, "function_call has no id"),
        ({"content": [object()], "tool_calls": None}, r"reply\[0\]: object is not plain data"),
    ],
)
def test_a_reply_that_would_lose_something_is_refused(reply: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        adapt(reply)


def test_a_later_change_of_the_reply_does_not_reach_the_message() -> None:
    reply = {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "tool_calls": []}
    turn = adapt(reply)
    reply["content"][0]["text"] = "changed"  # type: ignore[index]
    assert turn.messages[0]["content"][0]["text"] == "hi"


def test_plain_takes_subclasses_down_to_their_value() -> None:
    """An enum's member that is a str would travel as a type of its own."""

    class Colour(str, enum.Enum):  # noqa: UP042 - the older way, whose str() is not the value
        RED = "red"

    made = plain({"c": Colour.RED, 1: (True, 2.5, None)})
    assert made == {"c": "red", "1": [True, 2.5, None]}
    assert type(made["c"]) is str


# ---- answers


def chat_turn(*ids: str) -> dict[str, Any]:
    calls = [
        {"id": call, "type": "function", "function": {"name": "look", "arguments": "{}"}} for call in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def test_answers_stand_behind_their_turn_whatever_came_since() -> None:
    """OpenAI refuses a turn whose answers do not follow it at once."""
    messages = [chat_turn("a", "b"), {"role": "user", "content": "hurry"}]
    answer(messages, "a", "one")
    answer(messages, "b", {"n": 2})
    assert messages[1:] == [
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": '{"n": 2}'},
        {"role": "user", "content": "hurry"},
    ]
    assert answered_in(messages) == {"a", "b"}


def test_answers_to_one_turn_of_blocks_share_a_message_and_stand_first_in_it() -> None:
    """Anthropic wants all results of a turn in the next message, before any text."""
    messages = adapt(BLOCKS).messages
    answer(messages, "toolu_1", "one")
    messages[1]["content"].append({"type": "text", "text": "hurry"})
    image = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "..."}}]
    answer(messages, "toolu_2", image)
    assert messages[1:] == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": image},
                {"type": "text", "text": "hurry"},
            ],
        }
    ]


def test_answers_to_two_turns_of_blocks_do_not_mix() -> None:
    first, second = (
        adapt(BLOCKS).messages[0],
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t3"}]},
    )
    messages = [first, second]
    answer(messages, "toolu_1", "one")
    answer(messages, "t3", "three")
    assert [message["role"] for message in messages] == ["assistant", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("result", "text"), [(None, "null"), ({(1, 2): 3}, "{(1, 2): 3}"), ("ü", "ü"), (["ü"], '["ü"]')]
)
def test_a_result_is_shown_as_text(result: Any, text: str) -> None:
    messages = [chat_turn("a")]
    answer(messages, "a", result)
    assert messages[1]["content"] == text


def test_an_answer_to_a_turn_that_was_cut_off_is_not_shown() -> None:
    messages = [chat_turn("a")]
    answer(messages, "gone", "late")
    assert messages == [chat_turn("a")]


def test_messages_of_other_makes_are_read_over() -> None:
    """The conversation is the user's: system messages, their own shapes, even no dicts."""
    odd = {"role": "assistant", "content": 3, "tool_calls": [{"id": []}, {"function": "f"}, 3]}
    results = {
        "role": "user",
        "content": [{"type": "tool_result"}, {"type": "tool_result", "tool_use_id": {}}],
    }
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, "text", odd, results, chat_turn("a")]
    assert list(calls_in(messages)) == ["a"]
    assert answered_in(messages) == set()
