"""Replies of language models as plain data, and the answers to their tool calls.

Owns: which shapes of a reply are known, the message that each becomes, and the
message that carries a tool's result back in the same vendor's form. Invariant:
what is returned or inserted is plain data (dict, list, str, int, float, bool,
None), a later change of the reply does not reach it, and no call id is lost.
It imports no SDK: a shape is known by its attributes or keys. It keeps no
state; `state.py` does.

Three forms of messages are written, the next call's own in each case:

  chat       OpenAI chat completions, and whoever speaks that form
  blocks     Anthropic messages: `content` is a list of typed blocks
  items      OpenAI Responses: `output` is a list of typed items
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

from cloudckpt.errors import InvalidInputError

Message: TypeAlias = dict[str, Any]
CallId: TypeAlias = str | int

ACCEPTED = (
    "an OpenAI chat completion or its message, an OpenAI response, an Anthropic message, "
    "or a dict or object with `content` and `tool_calls`"
)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that a reply made.

    Attributes:
        id: What `record` answers to.
        name: The tool's name, "" when the reply has none.
        arguments: As the vendor gives them: a JSON string (OpenAI) or a dict (Anthropic).
    """

    id: CallId
    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class Turn:
    """What one reply adds to a conversation.

    Attributes:
        messages: To append, in order: one, or one per item of a response.
        calls: The calls that wait for an answer.
        content: What the model said: the text, or the content itself when it is no text.
        ended: Whether the model asks for nothing more.
    """

    messages: list[Message]
    calls: tuple[Call, ...]
    content: Any
    ended: bool


def adapt(reply: Any) -> Turn:
    """Return what `reply` adds to a conversation.

    Raises:
        InvalidInputError: The shape is not known, a call has no id, or two calls share one.
    """
    choices = _get(reply, "choices")
    if _is_list(choices) and choices:
        reply = _get(choices[0], "message")
    content, tool_calls, output = (_get(reply, name) for name in ("content", "tool_calls", "output"))
    paused = False
    if _is_list(output) and output and all(_type_of(item) for item in output) and content is None:
        messages = [_item(plain(item)) for item in output]
        said = _text(part for message in messages for part in _list(message.get("content")))
    elif _is_blocks(content) and (not tool_calls or _has_tool_use(content)):
        messages = [{"role": "assistant", "content": [_without_nulls(block) for block in plain(content)]}]
        said = _text(messages[0]["content"])
        # Anthropic stops a long turn of its own tools so; it goes on when asked again.
        paused = _get(reply, "stop_reason") == "pause_turn"
    elif _has(reply, "content") or _has(reply, "tool_calls"):
        messages = [_chat_message(reply, content, tool_calls)]
        said = _said(messages[0]["content"], reply)
    else:
        raise _refuse(f"the reply has no known shape: pass {ACCEPTED}", type=type(reply).__name__)
    calls = tuple(_unanswered(messages))
    ids = [call.id for call in calls]
    if not all(_is_id(call_id) for call_id in ids):
        raise _refuse("a tool call of the reply has no id to answer to", ids=ids)
    if len(set(ids)) != len(ids):
        raise _refuse("two tool calls of the reply share an id: give each its own", ids=ids)
    return Turn(messages, calls, said, ended=not calls and not paused)


def calls_in(messages: list[Message]) -> dict[CallId, Call]:
    """Return the tool calls that the messages make, by id, in order."""
    made = (call for message in _list(messages) for call in _calls_of(message))
    return {call.id: call for call in made if _is_id(call.id)}


def answered_in(messages: list[Message]) -> set[CallId]:
    """Return the ids of the calls that the messages answer."""
    return {answer for message in _list(messages) for answer in _answers_of(message)}


def answer(messages: list[Message], call_id: CallId, result: Any) -> None:
    """Insert the message that carries a tool's result, where the vendor wants it.

    That is right behind the turn that made the call, whatever was appended
    since. When that turn is no longer among the messages (a conversation cut
    short), nothing is inserted: a vendor refuses an answer without its question.
    """
    made = next((i for i in reversed(range(len(messages))) if _makes(messages[i], call_id)), None)
    if made is None:
        return
    turn, after = messages[made], made + 1
    if "call_id" in turn:
        # A call of the vendor's own kinds (a shell's) wants its answer as structure.
        output = _as_text(result) if turn["type"] in _TEXT_CALLS else copy.deepcopy(result)
        messages.append({"type": f"{turn['type']}_output", "call_id": call_id, "output": output})
    elif "tool_calls" in turn:
        while after < len(messages) and messages[after].get("role") == "tool":
            after += 1
        messages.insert(after, {"role": "tool", "tool_call_id": call_id, "content": _as_text(result)})
    else:
        content = copy.deepcopy(result) if _is_result_blocks(result) else _as_text(result)
        block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        behind = messages[after] if after < len(messages) else {}
        if behind.get("role") == "user" and (known := _answers_of(behind)):
            behind["content"].insert(len(known), block)  # all answers to one turn share a message
        else:
            messages.insert(after, {"role": "user", "content": [block]})


def plain(value: Any, path: str = "reply") -> Any:
    """Return `value` as plain data of its own.

    SDK objects become what the API sent, other objects their public attributes.

    Raises:
        InvalidInputError: A value is none of these; the message has its path.
    """
    if value is None or isinstance(value, bool):
        return value
    for kind, bare in _LEAVES.items():
        if isinstance(value, kind):
            return bare(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{path}[{key!r}]") for key, item in value.items()}
    if _is_list(value) and not hasattr(value, "_asdict"):
        return [plain(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if hasattr(type(value), "model_dump"):
        # An SDK leaves out what the API did not send, and so must the next request.
        return value.model_dump(mode="json", by_alias=True, exclude_unset=_is_sdk(value), warnings=False)
    if names := _public_names(value):
        return {name: plain(getattr(value, name), f"{path}.{name}") for name in names}
    raise _refuse(f"{path}: {type(value).__name__} is not plain data; pass {ACCEPTED}")


_LEAVES: Mapping[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__int__, float: float.__float__}
"""Types of plain data, and what takes a subclass (an enum's member) down to its value."""


# ---- reading a reply


def _chat_message(reply: Any, content: Any, tool_calls: Any) -> Message:
    if tool_calls is not None and not _is_list(tool_calls):
        # A generator would be empty when the caller's loop comes to it.
        raise _refuse("tool_calls of a reply must be a list", type=type(tool_calls).__name__)
    if isinstance(_get(_get(reply, "function_call"), "name"), str):
        raise _refuse("function_call has no id to answer to: use tools and tool_calls")
    message: Message = {"role": "assistant", "content": plain(content)}
    if _is_sdk(reply) or (isinstance(reply, Mapping) and "role" in reply):
        # Vendors hang their own fields here (a chain of reasoning, a signature) and want them back.
        message |= {k: v for k, v in _without_nulls(plain(reply)).items() if k not in _OUTPUT_ONLY}
        if _get(_get(reply, "audio"), "id"):
            message["audio"] = {"id": _get(_get(reply, "audio"), "id")}
    if tool_calls:
        message["tool_calls"] = [_chat_call(call) for call in tool_calls]
    return message


_OUTPUT_ONLY = frozenset({"role", "tool_calls", "function_call", "annotations", "audio", "parsed"})
"""Fields of a chat reply that are rewritten, or that a request may not hold."""


def _chat_call(call: Any) -> Message:
    call_id = _get(call, "id")
    if _get(call, "custom") is not None and _type_of(call) == "custom":
        return {"id": call_id, "type": "custom", "custom": plain(_get(call, "custom"))}
    function = _get(call, "function")
    if function is not None and not isinstance(function, str) and not callable(function):
        name, arguments = _get(function, "name"), _get(function, "arguments")
        more = plain(call) if isinstance(call, Mapping) or _is_sdk(call) else {}
    else:
        name, more = _get(call, "name"), {}
        given = (_get(call, key) for key in ("arguments", "args", "input"))
        arguments = next((value for value in given if value is not None), None)
        if arguments is None:  # a call of the user's own making: what it has is what it asks for
            arguments = {
                key: _get(call, key) for key in _public_names(call) if key not in ("id", "type", "name")
            }
    arguments = _as_text({} if arguments is None else arguments)
    return {
        **more,
        "id": call_id,
        "type": "function",
        "function": {"name": name or "", "arguments": arguments},
    }


def _item(item: Message) -> Message:
    """Return an item of a response as the next request takes it."""
    item.pop("parsed_arguments", None)
    for part in _list(item.get("content")):
        part.pop("parsed", None)
    return _without_nulls(item)


def _without_nulls(fields: Message) -> Message:
    """Return what the API sent: a dump of an SDK object names all that it might have sent."""
    return {name: value for name, value in fields.items() if value is not None}


def _said(content: Any, reply: Any) -> Any:
    if _is_blocks(content):
        return _text(content)
    if content is not None:
        return content
    return _get(reply, "refusal") or _get(_get(reply, "audio"), "transcript") or ""


def _text(parts: Iterable[Mapping[str, Any]]) -> str:
    shown = (part.get("text") or part.get("refusal") for part in parts if part.get("type") in _TEXT_TYPES)
    return "".join(text for text in shown if text)


_TEXT_CALLS = ("function_call", "custom_tool_call")
_TEXT_TYPES = ("text", "output_text", "refusal")


# ---- reading messages, whoever wrote them: never trust a shape


def _calls_of(message: Message) -> Iterable[Call]:
    kind = str(message.get("type"))
    if kind in _TEXT_CALLS or (kind.endswith("_call") and message.get("call_id") is not None):
        yield _call(message.get("call_id"), message)
    for call in _list(message.get("tool_calls")):
        yield _call(
            call.get("id"), *(body for body in (call.get("function"), call.get("custom")) if body), call
        )
    if message.get("role") == "assistant":
        for block in _list(message.get("content")):
            if block.get("type") == "tool_use":
                yield _call(block.get("id"), block)


def _call(call_id: Any, *bodies: Any) -> Call:
    body = next(body for body in bodies if isinstance(body, dict))
    return Call(call_id, body.get("name", ""), body.get("arguments", body.get("input")))


def _answers_of(message: Message) -> list[CallId]:
    if message.get("role") == "tool":
        found = [message.get("tool_call_id")]
    elif str(message.get("type")).endswith("_output"):
        found = [message.get("call_id")]
    else:
        blocks = _list(message.get("content")) if message.get("role") == "user" else []
        found = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
    return [call_id for call_id in found if _is_id(call_id)]


def _unanswered(messages: list[Message]) -> Iterable[Call]:
    """Yield the calls that are for the caller: the vendor answers those of its own tools itself."""
    answered = answered_in(messages)
    return (call for message in messages for call in _calls_of(message) if call.id not in answered)


def _makes(message: Message, call_id: CallId) -> bool:
    return any(call.id == call_id for call in _calls_of(message))


# ---- small things


def _refuse(message: str, **facts: Any) -> InvalidInputError:
    return InvalidInputError(message, kind="reply", **facts)


def _as_text(result: Any) -> str:
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False, default=str)
    except (TypeError, ValueError):  # keys that JSON has not, or a cycle
        return str(result)


def _is_id(value: Any) -> TypeGuard[CallId]:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _has(value: Any, name: str) -> bool:
    return name in value if isinstance(value, Mapping) else hasattr(value, name)


def _type_of(value: Any) -> str | None:
    kind = _get(value, "type")
    return kind if isinstance(kind, str) else None


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


def _is_blocks(value: Any) -> bool:
    return _is_list(value) and all(_type_of(block) for block in value)


def _has_tool_use(content: Any) -> bool:
    return any(_type_of(block) == "tool_use" for block in content)


def _is_result_blocks(result: Any) -> bool:
    kinds = ("text", "image", "document", "search_result")
    return isinstance(result, list) and bool(result) and all(_type_of(block) in kinds for block in result)


def _is_sdk(value: Any) -> bool:
    return hasattr(type(value), "model_dump") and hasattr(type(value), "to_dict")


def _list(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _public_names(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return list(value)
    if dataclasses.is_dataclass(value):
        names: Iterable[str] = (field.name for field in dataclasses.fields(value))
    elif hasattr(value, "_fields"):
        names = value._fields
    else:
        slots = (getattr(cls, "__slots__", ()) for cls in type(value).__mro__)
        flat = (name for each in slots for name in ([each] if isinstance(each, str) else each))
        names = [*getattr(value, "__dict__", ()), *flat]
    return [name for name in names if not name.startswith("_") and hasattr(value, name)]
