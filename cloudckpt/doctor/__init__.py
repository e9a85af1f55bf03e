"""Is this store fit, and is it set up well? Every check of `cloudckpt doctor`.

Owns: what is asked of a store, and what each answer means. It asks by the
contract, with keys of its own under `probe/` (`visit.py`), and then what the
contract does not know: of a bucket (`s3.py`), of a folder (`folder.py`), or by
the engine itself, if it is `Inspectable`. Invariants: it touches nothing of
anybody's; what it wrote is gone when it returns, as far as it may delete, and
what is left is in the report. It prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from cloudckpt.doctor.traces import TracedStorage
from cloudckpt.doctor.visit import Visit
from cloudckpt.effects import Effects
from cloudckpt.errors import CloudckptError
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.file import FileStorage
from cloudckpt.storage.findings import Finding, Inspectable, Level, Samples, not_looked_at
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.storage.obstore_engine import ObstoreStorage
from cloudckpt.storage.retry import RetryingStorage, RetryPolicy
from cloudckpt.storage.s3_requests import S3Requests

__all__ = ["Report", "examine"]

DEADLINE = 5.0
"""Seconds for which a request that failed in passing is tried again."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the doctor found.

    Attributes:
        url: The store.
        engine: The name of its engine.
        findings: One a check, in the order of reading.
        left: Keys that the doctor wrote and could not delete.
    """

    url: str
    engine: str
    findings: tuple[Finding, ...]
    left: tuple[str, ...]

    def count(self, level: Level) -> int:
        """Return how many findings have this level."""
        return sum(finding.level is level for finding in self.findings)


async def examine(engine: Storage, effects: Effects) -> Report:
    """Check a store. Writes a few keys of its own under `probe/`, and deletes them again.

    Args:
        engine: The store's engine, without wrappers.
        effects: Time and chance.
    """
    traced = TracedStorage(engine)
    storage = RetryingStorage(traced, RetryPolicy(deadline=DEADLINE), effects)
    tidy = _tidier(engine)
    try:
        findings = await Visit(traced, storage, effects, _inspection(engine)).findings()
    finally:
        left = await _forget(storage, sorted(traced.left))
        tidy(traced.touched)
    return Report(engine.url, findings[0].facts["engine"], tuple(findings), left)


async def _forget(storage: Storage, written: Sequence[str]) -> tuple[str, ...]:
    """Delete what may have been written; return what is left."""
    try:
        if written:
            await storage.delete(written)
    except CloudckptError:
        return tuple([key for key in written if await _is_there(storage, key)])
    return ()


async def _is_there(storage: Storage, key: str) -> bool:
    try:
        return await storage.read(key) is not None
    except CloudckptError:
        return True  # for all that can be told


def _inspection(engine: Storage) -> Callable[[Samples], Coroutine[Any, Any, Sequence[Finding]]]:
    """Return what asks the store beyond the contract.

    Engines of this package hold what a save needs and nothing more, so what the
    doctor alone asks is beside them; anybody else's engine brings its own.
    """
    if isinstance(engine, Inspectable):
        return engine.inspect
    if isinstance(engine, FileStorage):
        from cloudckpt.doctor.folder import inspect_folder

        return lambda _: inspect_folder(engine)
    if isinstance(engine, S3Requests):
        from cloudckpt.doctor.s3 import inspect_bucket

        return lambda samples: inspect_bucket(engine, samples)
    if isinstance(engine, ObstoreStorage) and engine.url.startswith("s3://"):
        from cloudckpt.doctor.s3 import inspect_bucket_of_obstore

        return lambda samples: inspect_bucket_of_obstore(engine, samples)
    return lambda _: _nothing_known(engine)


async def _nothing_known(engine: Storage) -> list[Finding]:
    if isinstance(engine, MemoryStorage):
        return []
    return [not_looked_at("this engine can't ask for the store's settings")]


def _tidier(engine: Storage) -> Callable[[set[str]], None]:
    """Return what removes the traces that deleted keys leave, as things stand now."""
    if isinstance(engine, FileStorage):
        from cloudckpt.doctor.folder import tidier

        return tidier(engine)
    return lambda _: None
