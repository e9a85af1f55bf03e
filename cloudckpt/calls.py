"""What can be told of a call before it is made: its name, and what its function takes and returns.

Owns: the names of actions that a caller does not name, and idempotency keys. Invariant: the
same call has the same name on every machine and in every try. Pure; it calls nothing.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from cloudckpt import keys
from cloudckpt.errors import InvalidInputError

MAX_KEY = 512
"""Characters of an action's key."""


def check_key(key: str) -> str:
    """Return `key` if it can be the name of an action or a question.

    Raises:
        InvalidInputError: It is no str, empty, too long, or does not come back from JSON as it is.
    """
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY:
        raise InvalidInputError(f"an action's key must be a str of 1 to {MAX_KEY} characters", got=key)
    return keys.check_text(key, "key")


def made_of(text: str) -> str:
    """Return a key that is made of a text of any length: two texts never have the same."""
    if len(text) <= MAX_KEY:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[: MAX_KEY - len(digest) - 1]}#{digest}"


def idempotency_key(run: str, key: str) -> str:
    """Return what an action's function hands on: 32 hex digits, by the run's id and the action's key."""
    return hashlib.sha256(f"{keys.encode_run(run)}\n{key}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def parameters_of(fn: Any) -> Any:
    """Return the names of what a function takes."""
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError):  # some built-in functions have none
        return ()


def type_of(fn: Any) -> Any:
    """Return the hint of what a function returns, so that a recorded result comes back as that; or None."""
    try:
        hint = get_type_hints(fn).get("return")
    except (NameError, TypeError, AttributeError):  # a hint that can't be looked up is as good as none
        return None
    if get_origin(hint) in (Awaitable, Coroutine):  # its call is awaited
        hint = get_args(hint)[-1]
    return None if hint in (Any, type(None)) or isinstance(hint, TypeVar) else hint


def key_of(fn: Any, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the name of a call of a step: see `Acting.step`."""
    if callable(key):
        return str(key(*args, **kwargs))
    if isinstance(key, str):
        bound = inspect.signature(fn).bind_partial(*args, **kwargs)
        bound.apply_defaults()
        return key.format(**bound.arguments)
    from cloudckpt.codec import encode

    digest = encode([list(args), dict(sorted(kwargs.items()))]).encoded_digest
    return f"{fn.__module__}.{fn.__qualname__}:{digest[:16]}"
