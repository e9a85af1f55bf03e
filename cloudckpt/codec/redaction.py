"""What is left out of a state, and what is made unreadable, before it is encoded.

Owns: `Redacted`, and `Rules`, which takes a state and returns the one that is
saved. Invariants: the caller's state is never changed, and a part that no rule
touches is the caller's own, not a copy; without rules nothing is looked at. A
text or a key that a pattern matches is in the result nowhere that this module
can look: it does not decode what a state holds in encoded form (base64, a
compressed blob, an array of numbers).

An object of which a part is touched is returned as the `Record` that it would be
read as: the bytes are those of the object, and no constructor, validator or
frozen field stands in the way.
"""

from __future__ import annotations

import enum
import re
import sys
import types
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from cloudckpt.codec import faults, paths, registry, shapes, unknown
from cloudckpt.codec.kinds import Foreign, Shape
from cloudckpt.codec.paths import NO_KEY, Pattern
from cloudckpt.codec.records import Record
from cloudckpt.codec.wire import Unsupported
from cloudckpt.errors import InvalidInputError, SerializationError

SHOWN: Final = "[redacted]"
"""What stands in a text for what a pattern matched."""

TAG: Final = "cloudckpt.redacted"
"""The marker's schema name: a release without the marker reads a `Record` and saves it again."""


class RedactedType:
    """The class of `Redacted`, the one value that stands for what was redacted.

    It is false, so that ``state.key or ask_for_key()`` asks; it is no str, and equal to nothing else.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "Redacted"

    def __bool__(self) -> bool:
        return False

    def __copy__(self) -> RedactedType:
        return self

    def __deepcopy__(self, _: object) -> RedactedType:
        return self

    def __reduce__(self) -> str:
        return "Redacted"


Redacted: Final = RedactedType()

registry.register(TAG, to_fields=lambda _: {}, from_fields=lambda _: Redacted)(RedactedType)


Rule: TypeAlias = str | re.Pattern[str] | re.Pattern[bytes]
_Left: TypeAlias = tuple[Pattern, ...]

_GONE: Final = object()
_ATOMS: Final = frozenset({type(None), bool, int, float, complex, range, RedactedType})
_BLOBS: Final = (bytes, bytearray, memoryview)

_MAPPINGS: Final[dict[type, Callable[[Any, dict[Any, Any]], Any]]] = {
    dict: lambda _, items: items,
    OrderedDict: lambda _, items: OrderedDict(items),
    Counter: lambda _, items: Counter(items),
    defaultdict: lambda old, items: defaultdict(old.default_factory, items),
    types.MappingProxyType: lambda _, items: types.MappingProxyType(items),
    types.SimpleNamespace: lambda _, items: types.SimpleNamespace(**items),
}
_SEQUENCES: Final[dict[type, Callable[[Any, list[Any]], Any]]] = {
    list: lambda _, items: items,
    tuple: lambda _, items: tuple(items),
    set: lambda _, items: set(items),
    frozenset: lambda _, items: frozenset(items),
    deque: lambda old, items: deque(items, old.maxlen),
    ChainMap: lambda _, items: ChainMap(*items),
    slice: lambda _, items: slice(*items),
}


class Rules:
    """What to leave out and what to redact.

    Args:
        exclude: Paths of fields and of items of dicts that are not saved.
        redact: Paths of parts that come back as `Redacted`; and compiled regular expressions,
            whose matches in any str (or, of one for bytes, in any bytes) become ``[redacted]``.

    Attributes:
        redact: As it was given.

    Raises:
        InvalidInputError: One of them is none.
    """

    def __init__(self, exclude: Iterable[str] = (), redact: Iterable[Rule] = ()) -> None:
        self._exclude = tuple(paths.parse(_path(path)) for path in _listed("exclude", exclude))
        self.redact: tuple[Rule, ...] = tuple(_listed("redact", redact))
        expressions = [_expression(rule) for rule in self.redact if isinstance(rule, re.Pattern)]
        names = [_path(rule) for rule in self.redact if not isinstance(rule, re.Pattern)]
        self._redact = tuple(map(paths.parse, names))
        self._texts = [rule for rule in expressions if isinstance(rule.pattern, str)]
        self._blobs = [rule for rule in expressions if isinstance(rule.pattern, bytes)]
        self._looks_everywhere = bool(expressions)

    def apply(self, state: Any) -> Any:
        """Return the state to save; `state` itself when no rule touches it.

        Raises:
            InvalidInputError: A rule excludes what can't be missing.
            SerializationError: The state can't be carried, and so not be looked at.
        """
        try:
            return self._visit(state, self._exclude, self._redact)
        except InvalidInputError:
            raise
        except RecursionError as error:
            explained = faults.explain(state, error)
            if explained.paths:
                raise explained from error
            raise SerializationError(
                "the state is nested too deep to be redacted; raise Python's recursion limit",
                kind="too-deep",
            ) from error
        except Exception as error:
            raise faults.explain(state, error) from error

    def metadata(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return JSON values with the same parts redacted, all as text, since JSON has no marker."""
        found: dict[str, Any] = _without_marker(self._visit(values, (), self._redact))
        return found

    def tags(self, tags: tuple[str, ...]) -> tuple[str, ...]:
        """Return tags with what matches in them redacted, each once."""
        return tuple(dict.fromkeys(_replaced(tag, self._texts, SHOWN) for tag in tags))

    # ---- the walk

    def _visit(self, value: Any, exclude: _Left, redact: _Left) -> Any:
        cls = type(value)
        if cls in _ATOMS or not (exclude or redact or self._looks_everywhere):
            return value
        if cls is str:
            return _replaced(value, self._texts, SHOWN)
        if cls in _MAPPINGS:
            return self._mapping(value, exclude, redact)
        if cls in _SEQUENCES:
            return self._sequence(value, exclude, redact)
        if cls is Record:
            fields = self._fields(value.fields, exclude, redact, None)
            return value if fields is None else _record(value.tag, value.version, fields, value.unset)
        shape = _shape_of(value)
        return self._leaf(value) if shape is None else self._object(value, shape, exclude, redact)

    def _part(self, key: Any, value: Any, exclude: _Left, redact: _Left, cls: type | None) -> Any:
        """Return what becomes of a part of a `cls` (None: an object whose class is not at hand)."""
        exclude = paths.below(exclude, key) if exclude else ()
        redact = paths.below(redact, key) if redact else ()
        for pattern in exclude:
            if pattern.is_met:
                if cls is not dict and cls is not None:
                    _check_may_miss(cls, key, pattern)
                return _GONE
        if any(pattern.is_met for pattern in redact):
            return Redacted
        return self._visit(value, exclude, redact)

    def _mapping(self, value: Any, exclude: _Left, redact: _Left) -> Any:
        cls = type(value)
        items = value.__dict__ if cls is types.SimpleNamespace else value
        names = self._keys(items)
        found: dict[Any, Any] = {}
        changed = names is not None
        for key, item in items.items():
            new = self._part(key, item, exclude, redact, dict)
            changed = changed or new is not item
            if new is not _GONE:
                found[key if names is None else names[key]] = new
        return _MAPPINGS[cls](value, found) if changed else value

    def _keys(self, items: Mapping[Any, Any]) -> dict[Any, Any] | None:
        """Return the new name of every key, no two alike; None when they stay as they are."""
        if not self._looks_everywhere:
            return None
        names = {key: self._visit(key, (), ()) for key in items}
        changed = {key: name for key, name in names.items() if name is not key}
        if not changed:
            return None
        taken = {key for key in names if key not in changed}
        for key, name in changed.items():
            names[key] = _free(name, taken)
            taken.add(names[key])
        return names

    def _sequence(self, value: Any, exclude: _Left, redact: _Left) -> Any:
        cls = type(value)
        items: Iterable[Any] = value
        if cls is ChainMap:
            items = value.maps
        elif cls is slice:
            items = (value.start, value.stop, value.step)
        found, changed = [], False
        for place, item in enumerate(items):
            key = NO_KEY if cls in (set, frozenset) else place
            new = self._part(key, item, exclude, redact, cls)
            changed = changed or new is not item
            found.append(new)
        return _SEQUENCES[cls](value, found) if changed else value

    def _object(self, value: Any, shape: Shape, exclude: _Left, redact: _Left) -> Any:
        if shape.strays(value):
            return value  # the encoder refuses it, and says why
        old = {**shape.read(value), **unknown.kept(value)}
        fields = self._fields(old, exclude, redact, shape.cls)
        if fields is None:
            return value
        return _record(*registry.identity(shape.cls), fields, shape.unset(value))

    def _fields(
        self, fields: Mapping[str, Any], exclude: _Left, redact: _Left, cls: type | None
    ) -> dict[str, Any] | None:
        """Return the fields as they are saved, or None when they are what they were."""
        found = {name: self._part(name, item, exclude, redact, cls) for name, item in fields.items()}
        if all(found[name] is item for name, item in fields.items()):
            return None
        return {name: item for name, item in found.items() if item is not _GONE}

    def _leaf(self, value: Any) -> Any:
        if not self._looks_everywhere:
            return value
        if isinstance(value, _BLOBS):
            old = bytes(value)
            new = _replaced(old, self._blobs, SHOWN.encode())
            return value if new is old else (bytearray(new) if type(value) is bytearray else new)
        for text in _texts_in(value):
            expressions: list[Any] = self._texts if isinstance(text, str) else self._blobs
            if any(expression.search(text) for expression in expressions):
                return Redacted  # half of a path or of a table of texts would be no such thing any more
        return value


def _listed(name: str, rules: Iterable[Any]) -> list[Any]:
    if isinstance(rules, str | bytes | re.Pattern) or not isinstance(rules, Iterable):
        raise InvalidInputError(f"{name} must be a list or tuple", got=type(rules).__name__)
    return list(rules)


def _path(path: Any) -> str:
    if not isinstance(path, str):
        raise InvalidInputError(
            "a rule is a path such as **.api_key, or in redact a regular expression by re.compile",
            got=type(path).__name__,
        )
    return path


def _expression(expression: re.Pattern[Any]) -> re.Pattern[Any]:
    if expression.search(expression.pattern[:0]):
        raise InvalidInputError(
            "a regular expression that matches an empty text would redact between any two characters",
            pattern=expression.pattern,
        )
    return expression


def _replaced(text: Any, expressions: Iterable[re.Pattern[Any]], shown: Any) -> Any:
    """Return the text with what matches replaced; the text itself when nothing does."""
    for expression in expressions:
        new, count = expression.subn(shown, text)
        text = new if count else text
    return text


def _free(name: Any, taken: set[Any]) -> Any:
    """Return `name`, or where another key became the same, the name with a number."""
    if name not in taken:
        return name
    if type(name) is not str:
        raise InvalidInputError(
            "two keys of a dict are the same once they are redacted; keep secrets out of keys", key=name
        )
    number = 2
    while f"{name} ({number})" in taken:
        number += 1
    return f"{name} ({number})"


@lru_cache(1024)
def _check_may_miss(cls: type, key: Any, pattern: Pattern) -> None:
    """Refuse to exclude what a load can't do without: an item of a list, a field without a default."""
    if cls in _SEQUENCES:
        raise InvalidInputError(
            "only fields and items of dicts can be excluded; redact it, or exclude what is inside of it",
            kind="not-excludable",
            exclude=pattern.text,
            found_in=cls.__name__,
        )
    try:
        shape = shapes.shape_of(cls)
        if not isinstance(shape, Foreign) and shape is not None and shape.knows(key):
            shapes.check_excludable(cls, key)
    except Unsupported as unsupported:
        raise InvalidInputError(
            f"{unsupported.reason}; give it a default, or redact it",
            kind="not-excludable",
            exclude=pattern.text,
        ) from None


def _shape_of(value: Any) -> Shape | None:
    """Return the shape of an object whose fields are its own: not a member's, nor an `ExtType`'s."""
    msgpack = sys.modules.get("msgpack")
    if isinstance(value, enum.Enum) or (msgpack is not None and type(value) is msgpack.ExtType):
        return None
    return shapes.shape_of(type(value))


def _record(tag: str, version: int, fields: Mapping[str, Any], unset: Iterable[str]) -> Record:
    return Record(tag, version, fields, unset=tuple(name for name in unset if name in fields))


def _texts_in(value: Any) -> Iterator[str | bytes]:
    """Yield the texts in a single value that has some without being one."""
    pathlib, msgpack, numpy = (sys.modules.get(name) for name in ("pathlib", "msgpack", "numpy"))
    if pathlib is not None and isinstance(value, pathlib.PurePath):
        yield str(value)
    elif isinstance(value, re.Pattern):
        yield value.pattern
    elif msgpack is not None and type(value) is msgpack.ExtType:
        yield value.data
    elif numpy is not None and isinstance(value, numpy.ndarray | numpy.generic) and value.dtype.kind in "USV":
        pending = [value.tolist()]
        while pending:
            item = pending.pop()
            if isinstance(item, str | bytes):
                yield item
            elif isinstance(item, list | tuple):
                pending.extend(item)


def _without_marker(value: Any) -> Any:
    if value is Redacted:
        return SHOWN
    if type(value) is dict:
        return {key: _without_marker(item) for key, item in value.items()}
    return [_without_marker(item) for item in value] if type(value) is list else value
