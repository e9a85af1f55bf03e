"""Patterns of paths: which parts of a state a rule is about.

Owns: the one small language that `exclude` and `redact` share. It is that of the
paths that errors and `measure` show, so each of those is a pattern, with three
wildcards more:

    state.user.token        a field, or the item of a dict under that str; ``state.`` may be left out
    messages[4].image       the item at that place, or under that key: ``[4]``, ``['two words']``, ``[None]``
    messages[*].image       any one item, key or field; ``.*`` says the same
    *_token                 a name in which ``*`` stands for any characters
    **.api_key              at any depth, the top included

A namedtuple's items have names, a set's items have neither places nor keys, so
only ``[*]`` is about them. Invariant: a pattern is about parts, never about the
whole state. What happens to a part is not said here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cloudckpt.errors import InvalidInputError

Step: TypeAlias = Callable[[Any], bool]
"""Whether a key, a place or a field's name is meant."""

NO_KEY: Final = object()
"""The step to a part that has neither a key nor a place: an item of a set."""

_TOKEN: Final = re.compile(
    r"""\.?(?P<name>[^.\[\]]+)
      | \[(?P<key> \* | (?: [^\]'"] | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )+ )\]""",
    re.VERBOSE | re.DOTALL,
)
_ROOT: Final = re.compile(r"state(?=[.\[])")
_MEANING: Final = "a path is like messages[4].image, messages[*].image or **.api_key"


def _anything(_: Any) -> bool:
    return True


def _any_depth(_: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Pattern:
    """What is left of a pattern from some part of the state on.

    Attributes:
        text: The whole pattern as it was given.
        steps: What leads from here to the parts that are meant; empty where one is.
    """

    text: str
    steps: tuple[Step, ...]

    @property
    def is_met(self) -> bool:
        """Whether the part at hand is meant."""
        return not self.steps


def below(patterns: tuple[Pattern, ...], key: Any) -> tuple[Pattern, ...]:
    """Return what is left for the part under `key` of patterns that are not met."""
    found: list[Pattern] = []
    for pattern in patterns:
        steps = pattern.steps
        if steps[0] is _any_depth:
            if pattern not in found:  # the step before it may have led here, too
                found.append(pattern)
            steps = steps[1:]
        if steps[0](key):
            found.append(Pattern(pattern.text, steps[1:]))
    return tuple(found)


def parse(text: str) -> Pattern:
    """Return the pattern that `text` says.

    Raises:
        InvalidInputError: It is none, or it means the whole state.
    """
    root = _ROOT.match(text)
    rest = text[root.end() :] if root else text
    steps: list[Step] = []
    position = 0
    while position < len(rest):
        found = _TOKEN.match(rest, position)
        if found is None or (position == 0 and not root and found[0].startswith(".")):
            raise InvalidInputError(f"not a path: {_MEANING}", path=text, position=position)
        if position and found["name"] and not found[0].startswith("."):
            raise InvalidInputError(f"a dot is missing: {_MEANING}", path=text, position=position)
        step = _name(found["name"]) if found["name"] else _key(found["key"], text)
        if not (step is _any_depth and steps and steps[-1] is _any_depth):
            steps.append(step)
        position = found.end()
    if not steps or steps[-1] is _any_depth:
        raise InvalidInputError(f"the path names no part of the state: {_MEANING}", path=text)
    if text == "state":
        raise InvalidInputError(
            "the path names the whole state; a field of that name is state.state", path=text
        )
    return Pattern(text, tuple(steps))


def _name(name: str) -> Step:
    if name == "**":
        return _any_depth
    if name == "*":
        return _anything
    if "*" not in name:
        return _equal(name)
    match = re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL).fullmatch
    return lambda key: type(key) is str and match(key) is not None


def _key(source: str, text: str) -> Step:
    import ast

    if source == "*":
        return _anything
    try:
        wanted = ast.literal_eval(source.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise InvalidInputError(
            "what stands in brackets is a number, a str in quotes or another literal of Python, or *",
            path=text,
            got=source,
        ) from error
    if type(wanted) is int and wanted < 0:  # it would mean nothing, and so hide nothing
        raise InvalidInputError("places count from 0; all of them, and a key below 0, are [*]", path=text)
    return _equal(wanted)


def _equal(wanted: Any) -> Step:
    return lambda key: type(key) is type(wanted) and bool(key == wanted)
