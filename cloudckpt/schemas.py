"""What an answer must be like.

Owns: the short forms of a schema, and how an answer is held against one. A whole JSON
Schema is for the package jsonschema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudckpt.errors import InvalidInputError

_TYPES: Mapping[Any, str] = {bool: "boolean", str: "string", int: "integer", float: "number"}
_CLASSES: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
}
_SHORT = ({"type"}, {"enum"})


def check_schema(schema: Any) -> dict[str, Any] | None:
    """Return a schema as JSON Schema: of a list of values, a type, or one as it is. None for anything.

    Raises:
        InvalidInputError: It is none of these, or jsonschema says that it is wrong or is missing.
    """
    if schema is None:
        return None
    if isinstance(schema, type) and schema in _TYPES:
        return {"type": _TYPES[schema]}
    if isinstance(schema, list | tuple) and schema:
        return {"enum": list(schema)}
    if not isinstance(schema, Mapping):
        raise InvalidInputError(
            "a schema is a list of the allowed values, one of bool, str, int, float, or a JSON Schema",
            got=schema,
        )
    found = dict(schema)
    if not _is_short(found):
        jsonschema = _jsonschema()
        try:
            jsonschema.validators.validator_for(found).check_schema(found)
        except jsonschema.SchemaError as error:
            raise InvalidInputError("this is no JSON Schema", why=error.message) from error
    return found


def check_answer(value: object, schema: Mapping[str, Any] | None) -> None:
    """Refuse an answer that is not as the schema says.

    Raises:
        InvalidInputError: Says what it must be.
    """
    if schema is None:
        return
    if _is_short(schema):
        allowed = schema.get("enum")
        if allowed is not None and not any(type(value) is type(one) and value == one for one in allowed):
            raise InvalidInputError(
                "the answer is not one of those that are allowed", got=value, allowed=allowed
            )
        name = schema.get("type")
        if name is not None and not _is_a(value, name):
            raise InvalidInputError(f"the answer must be of the type {name}", got=value)
        return
    jsonschema = _jsonschema()
    try:
        jsonschema.validate(value, dict(schema))
    except jsonschema.ValidationError as error:
        raise InvalidInputError(
            "the answer is not as the schema says", why=error.message, got=value
        ) from error


def _is_a(value: object, name: str) -> bool:
    return isinstance(value, _CLASSES[name]) and (name == "boolean" or not isinstance(value, bool))


def _is_short(schema: Mapping[str, Any]) -> bool:
    return set(schema) in _SHORT and ("type" not in schema or schema["type"] in _CLASSES)


def _jsonschema() -> Any:
    try:
        import jsonschema
    except ImportError as error:
        raise InvalidInputError(
            'a whole JSON Schema needs jsonschema; pip install "cloudckpt[schema]", or give a list of values '
            "or a type"
        ) from error
    return jsonschema
