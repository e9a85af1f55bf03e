"""What some engines can do beside the contract, reached through the wrappers around them.

Owns: the way from a wrapped storage to its engine. Invariant: a call that is made this
way gets what each wrapper gives to a call of the contract (it is tried again, delayed,
made to fail), so it must be safe to send twice. What there is beside the contract is in
`versions.py` and `cold.py`; an engine need have none of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

from cloudckpt.storage.contract import Storage

T = TypeVar("T")


@runtime_checkable
class Wrapper(Protocol):
    """A storage around another one. One that is not of this kind hides what its engine has beside."""

    inner: Storage

    async def around(self, op: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call that is safe to send twice, as the wrapper makes those of the contract.

        Args:
            op: The method's name.
            key: What it is about.
            call: Makes it.
        """
        ...


class Reach:
    """From a storage through its wrappers to its engine.

    Attributes:
        engine: The innermost storage.
    """

    def __init__(self, storage: Storage) -> None:
        self._wrappers: list[Wrapper] = []
        while isinstance(storage, Wrapper):
            self._wrappers.append(storage)
            storage = storage.inner
        self.engine = storage

    async def call(self, op: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call of the engine's through all wrappers."""
        for wrapper in reversed(self._wrappers):
            call = partial(wrapper.around, op, key, call)
        return await call()
