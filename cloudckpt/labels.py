"""What a caller may write beside a state: metadata, notes and tags. Pure.

Owns: which values come back from JSON, in any language, as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cloudckpt.errors import InvalidInputError
from cloudckpt.keys import check_text

MAX_TAG = 128
"""Characters of a tag."""

MAX_LEVELS = 50
"""Levels of lists and objects in metadata: the strictest of the usual JSON readers go no deeper than 64."""

MAX_INT = 2**63 - 1
"""Largest whole number in a manifest, either way from zero: other languages' JSON reads no more."""


def check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of `metadata` that comes back from JSON as it is.

    Raises:
        InvalidInputError: A key is no str, or a value is not plain JSON or too deep; names the path.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidInputError("metadata must be a mapping", got=type(metadata).__name__)
    return _checked_items(metadata, "metadata", MAX_LEVELS)


def _checked_items(items: Mapping[Any, Any], path: str, levels: int) -> dict[str, Any]:
    return {_check_key(key, path): _checked(item, f"{path}.{key}", levels) for key, item in items.items()}


def _check_key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise InvalidInputError("keys of metadata must be str", path=path, got=type(key).__name__)
    return check_text(key, path)


def _checked(value: Any, path: str, levels: int) -> Any:
    """Return a copy of a value; `levels` is how many it may have."""
    if value is None or type(value) is bool:
        return value
    if type(value) is str:
        return check_text(value, path)
    if type(value) is int:
        if abs(value) > MAX_INT:
            raise InvalidInputError(
                "metadata can't hold a whole number over 64 bits; make it a str", path=path
            )
        return value
    if type(value) is float:
        if value - value != 0:  # NaN and the infinities, which JSON lacks
            raise InvalidInputError("metadata can't hold a float that is not finite", path=path)
        return value
    if type(value) in (list, dict) and not levels:
        # How deep an interpreter can go by itself differs: 3.12 wrote what 3.11 could not read again.
        raise InvalidInputError(
            f"metadata is nested in more than {MAX_LEVELS} levels, or holds itself; put it in the state",
            path=path,
        )
    if type(value) is list:
        return [_checked(item, f"{path}[{i}]", levels - 1) for i, item in enumerate(value)]
    if type(value) is dict:
        return _checked_items(value, path, levels - 1)
    raise InvalidInputError(
        "metadata holds plain JSON values only; put the rest in the state",
        path=path,
        got=type(value).__name__,
    )


def check_words(text: str, name: str) -> str:
    """Return what a person says, or is called, if it comes back from JSON as it is.

    Raises:
        InvalidInputError: It is no str, such as a number of a user: make it one.
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"{name} must be a str", got=text)
    return check_text(text, name)


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags, each once.

    Raises:
        InvalidInputError: They are no list, or one is no str that can be a tag.
    """
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise InvalidInputError("tags must be a list or tuple of str", got=tags)
    found = list(tags)
    for tag in found:
        if not isinstance(tag, str) or not 0 < len(tag) <= MAX_TAG:
            raise InvalidInputError(f"a tag must be a str of 1 to {MAX_TAG} characters", got=tag)
        check_text(tag, "tags")
    return tuple(dict.fromkeys(found))
