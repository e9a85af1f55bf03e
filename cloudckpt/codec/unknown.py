"""Fields that a class doesn't know, kept beside its instance.

Owns: where they are kept between load and save. Invariant: an instance that
was built from a record with more fields than its class has is saved with all
of them, so that an old worker in a rolling deploy doesn't strip a newer one's.
A copy by `copy.copy` keeps them where the instance has a `__dict__`; one by
`dataclasses.replace` is a new object and does not.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

from cloudckpt.errors import SchemaError

ATTRIBUTE: Final = "_cloudckpt_unknown"

# By identity: an instance may be unhashable, and equal ones have their own fields.
_aside: dict[int, tuple[weakref.ref[Any], dict[str, Any]]] = {}


def keep(instance: object, fields: dict[str, Any]) -> None:
    """Remember `fields` for as long as `instance` lives.

    Raises:
        SchemaError: The class leaves no place to keep them.
    """
    attributes = getattr(instance, "__dict__", None)
    if attributes is not None:
        attributes[ATTRIBUTE] = fields
        return
    number = id(instance)
    try:
        reference = weakref.ref(instance, lambda _: _aside.pop(number, None))
    except TypeError as error:
        raise SchemaError(
            "a newer version of the class saved fields that this one doesn't know, and its slots "
            "leave no place to keep them; declare the fields, or allow weak references "
            "(weakref_slot=True, weakref=True)",
            kind="unknown-fields",
            type=type(instance).__qualname__,
            fields=sorted(fields),
        ) from error
    _aside[number] = reference, fields


def kept(instance: object) -> dict[str, Any]:
    """Return what `keep` was given for this instance, or an empty dict."""
    attributes = getattr(instance, "__dict__", None)
    if attributes is not None:
        found: dict[str, Any] = attributes.get(ATTRIBUTE) or {}
        return found
    entry = _aside.get(id(instance))
    return {} if entry is None else entry[1]
