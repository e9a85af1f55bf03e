"""What decides an agent's next step besides its state, as a few digests. Pure.

Owns: how tools, prompt and code become a fingerprint, and what is said when two
differ. A run that pauses for weeks comes back to other code; then somebody
should know before the next step is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from cloudckpt.errors import InvalidInputError, SchemaError

OnChange: TypeAlias = Literal["report", "strict", "ignore"]
"""What a load does about another fingerprint."""

_HEX = 16


def fingerprint(**parts: object) -> dict[str, str]:
    """Return a fingerprint of what decides the next step.

    Args:
        **parts: What it is made of, such as ``tools={"search": schema, ...}``, ``prompt=text``,
            ``code="1.4.2"``. Any value that a state may hold. A mapping under str keys counts
            by its items, so that a difference is told as ``tools.search``.

    Returns:
        Names to 16 hex digits each: equal for equal values, on every machine.

    Raises:
        SerializationError: A part can't be carried by a state either.
    """
    found: dict[str, str] = {}
    for name, value in parts.items():
        if isinstance(value, Mapping) and value and all(isinstance(key, str) for key in value):
            found |= {f"{name}.{key}": _digest(item) for key, item in value.items()}
        else:
            found[name] = _digest(value)
    return dict(sorted(found.items()))


def _digest(value: object) -> str:
    from cloudckpt.codec import encode  # a run that loads has no fingerprint to make

    return encode(_ordered(value)).encoded_digest[:_HEX]


def _ordered(value: object) -> object:
    """Return `value` with its plain dicts in order of their keys, which decides no step."""
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {key: _ordered(value[key]) for key in sorted(value)}
    if type(value) in (list, tuple):
        return [_ordered(item) for item in value]  # type: ignore[attr-defined]  # just looked
    return value


def check_fingerprint(value: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return a copy of what `fingerprint` returned.

    Raises:
        InvalidInputError: It is no mapping of str to str.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(
        isinstance(key, str) and isinstance(item, str) for key, item in value.items()
    ):
        raise InvalidInputError(
            "a fingerprint is what cloudckpt.fingerprint() returns: a mapping of str to str"
        )
    return dict(value)


def changes(saved: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Say what differs: ``tools.search changed``, ``tools.fetch added``, ``prompt removed``."""
    return [
        f"{name} {'added' if name not in saved else 'removed' if name not in now else 'changed'}"
        for name in sorted({*saved, *now})
        if saved.get(name) != now.get(name)
    ]


def check_on_change(value: OnChange) -> None:
    """Raise InvalidInputError when it is none of the words."""
    if value not in get_args(OnChange):
        raise InvalidInputError(f"fingerprint must be one of {get_args(OnChange)}", got=value)


def compare(
    saved: Mapping[str, str] | None,
    now: Mapping[str, str] | None,
    on_change: OnChange,
    *,
    run: str,
    seq: int,
) -> str | None:
    """Return what to report about a checkpoint of other code; None when there is nothing to say.

    Raises:
        SchemaError: It differs, and `on_change` is "strict".
    """
    found = [] if now is None or on_change == "ignore" else changes(saved or {}, now)
    if not found:
        return None
    if on_change == "strict":
        raise SchemaError(
            "the checkpoint was saved under another fingerprint; go on with the code that saved it, or "
            'load with fingerprint="report"',
            kind="fingerprint",
            run=run,
            seq=seq,
            changes=found,
        )
    return f"seq={seq} of run={run!r} was saved under another fingerprint: {', '.join(found)}"
