"""What differs between two states, by path.

Owns: `diff`. Invariants: of two loaded states it finds nothing exactly when both would be
saved as the same bytes, so ``1``, ``True`` and ``1.0`` differ, and so does another order
of a dict's keys; neither state is changed. Lists are compared place by place, without looking for
what moved. It asks no store.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cloudckpt.codec import views
from cloudckpt.codec.encoding import pack

KINDS: Final = ("added", "removed", "changed", "reordered", "details")

_PLAIN: Final = frozenset({type(None), bool, int, str, bytes})
_Pairs: TypeAlias = "list[tuple[str, Any, Any]]"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between an older and a newer state.

    Attributes:
        path: Where, such as ``state.messages[4].role``; ``state.seen[*]`` for an item of a set.
        kind: "added" or "removed" (a field, a key, a place at a list's end, an item of a set),
            "changed" (another value or another type), "reordered" (the keys that both dicts
            have, in another order), or "details" (what a value is besides its parts, such as
            the version of a record or the `maxlen` of a deque).
        old: The older value; None for what was added.
        new: The newer value; None for what was removed.
    """

    path: str
    kind: str
    old: Any
    new: Any


def diff(old: object, new: object) -> list[Change]:
    """Return what differs; empty when nothing does.

    What a value lost and gained comes first, then what changed in its parts, in the older one's order.

    Args:
        old: A state as `Run.load` returns it, or any value that can be saved.
        new: Another.

    Raises:
        SerializationError: One of them holds what can't be carried.
    """
    found: list[Change] = []
    pending: _Pairs = [("state", old, new)]
    while pending:
        path, before, after = pending.pop()
        changes, below = _compare(path, before, after)
        found += changes
        pending += reversed(below)
    return found


def _compare(path: str, old: Any, new: Any) -> tuple[list[Change], _Pairs]:
    """Return how two values differ by themselves, and the pairs of parts to go on with."""
    if old is new and type(old) in _PLAIN:
        return [], []
    if type(old) is type(new):
        items, others = views.items_of(old), views.items_of(new)
        if items is not None and others is not None:
            return _by_key(path, items, others, _details(path, old, new))
        places, more = views.places_of(old), views.places_of(new)
        if places is not None and more is not None:
            return _by_place(path, places, more, _details(path, old, new))
        if type(old) in views.SETS:
            return list(_members(path, old, new)), []
    fields, theirs = views.fields_of(old), views.fields_of(new)
    if fields is not None and theirs is not None and fields.tag == theirs.tag:
        besides = [(fields.version, theirs.version, "version"), (fields.unset, theirs.unset, "unset")]
        details = [Change(path, "details", {w: a}, {w: b}) for a, b, w in besides if a != b]
        return _by_key(path, fields.values, theirs.values, details)
    return ([] if _same(old, new) else [Change(path, "changed", old, new)]), []


def _same(old: Any, new: Any) -> bool:
    if type(old) is not type(new):
        return False
    return bool(old == new) if type(old) in _PLAIN else _bytes(old) == _bytes(new)


def _bytes(value: Any) -> tuple[bytes, bytes]:
    packed = pack(value)
    return bytes(packed.value), bytes(packed.aside)


def _identity(key: Any) -> Any:
    """Return what tells a key from every other one, also 1 from True; no bytes equal a str."""
    return key if type(key) is str else _bytes(key)


def _by_key(
    path: str, old: Mapping[Any, Any], new: Mapping[Any, Any], found: list[Change]
) -> tuple[list[Change], _Pairs]:
    before = {_identity(key): key for key in old}
    after = {_identity(key): key for key in new}
    pairs: _Pairs = []
    for name, key in before.items():
        where = path + views.suffix_of(key)
        if name in after:
            pairs.append((where, old[key], new[after[name]]))
        else:
            found.append(Change(where, "removed", old[key], None))
    found += (
        Change(path + views.suffix_of(key), "added", None, new[key])
        for name, key in after.items()
        if name not in before
    )
    ours, theirs = ([name for name in one if name in before and name in after] for one in (before, after))
    if ours != theirs:
        keys = [before[name] for name in ours], [after[name] for name in theirs]
        found.append(Change(path, "reordered", *keys))
    return found, pairs


def _by_place(
    path: str, old: Sequence[Any], new: Sequence[Any], found: list[Change]
) -> tuple[list[Change], _Pairs]:
    both = min(len(old), len(new))
    found += (Change(f"{path}[{place}]", "removed", old[place], None) for place in range(both, len(old)))
    found += (Change(f"{path}[{place}]", "added", None, new[place]) for place in range(both, len(new)))
    return found, [(f"{path}[{place}]", old[place], new[place]) for place in range(both)]


def _members(path: str, old: Any, new: Any) -> Iterator[Change]:
    before, after = ({_identity(item): item for item in one} for one in (old, new))
    yield from (Change(f"{path}[*]", "removed", before[n], None) for n in before if n not in after)
    yield from (Change(f"{path}[*]", "added", None, after[n]) for n in after if n not in before)


def _details(path: str, old: Any, new: Any) -> list[Change]:
    if type(old) is deque and old.maxlen != new.maxlen:
        return [Change(path, "details", {"maxlen": old.maxlen}, {"maxlen": new.maxlen})]
    if type(old) is defaultdict and old.default_factory is not new.default_factory:
        names = [getattr(one.default_factory, "__name__", None) for one in (old, new)]
        return [Change(path, "details", {"default_factory": names[0]}, {"default_factory": names[1]})]
    return []
