"""Two calls of one coroutine method: one that waits, one that is awaited.

Owns: how a method of `Run` or `Store` that is written once becomes both. For a method
that has overloads, both are written out in its class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from cloudckpt.core import Core

P = ParamSpec("P")
T = TypeVar("T")


class HasCore(Protocol):
    """What drives the coroutines of an object."""

    _core: Core


S = TypeVar("S", bound=HasCore)


def waits(
    work: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], T]:
    """Return the method as a call that waits for it."""

    def call(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        return self._core.call(work(self, *args, **options))

    return _named(call, work, "")


def awaited(
    work: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return the method as a call to be awaited, on any loop."""

    async def call(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._core.acall(work(self, *args, **options))

    return _named(call, work, "a")


C = TypeVar("C", bound=Callable[..., Any])


def _named(call: C, work: Callable[..., Any], prefix: str) -> C:
    functools.update_wrapper(call, work)
    call.__name__ = prefix + work.__name__.lstrip("_")
    call.__qualname__ = f"{work.__qualname__.rpartition('.')[0]}.{call.__name__}"
    return call
