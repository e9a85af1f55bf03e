"""Does this store keep its conditions? Asked once, before the first commit on it.

Owns: `cloudckpt.json`, which holds the verdict. Invariant: no run is created on
a store that was not seen to refuse what it must refuse. It is not read on the
way of a load or a save: a manifest that exists was written after a probe.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any

from cloudckpt import keys
from cloudckpt.effects import Effects, gather
from cloudckpt.errors import (
    AmbiguousError,
    CorruptCheckpointError,
    PermissionDeniedError,
    PreconditionFailedError,
    StorageError,
    ThrottledError,
    UnsupportedFormatError,
    UnsupportedStoreError,
)
from cloudckpt.model import FORMAT_VERSION
from cloudckpt.sealed import seal, unseal
from cloudckpt.storage.contract import Storage, Token
from cloudckpt.storage.retry import is_over

RACERS = 4
PATIENCE = 8
TRIES = 3
"""An answer that was lost can make a sound store look broken; each try has keys of its own."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the probe saw; each True is as it must be."""

    second_create_refused: bool
    stale_replace_refused: bool
    replace_of_missing_refused: bool
    one_winner_of_a_race: bool

    @property
    def faults(self) -> list[str]:
        """The names of what the store did wrong."""
        return [name for name, right in asdict(self).items() if not right]


async def ensure_probed(storage: Storage, effects: Effects) -> None:
    """Probe the store, unless its verdict is there.

    Raises:
        UnsupportedStoreError: It ignores or races conditions.
        UnsupportedFormatError: A newer release made this store.
        CorruptCheckpointError: Its `cloudckpt.json` is damaged.
    """
    stored = await storage.read(keys.STORE_KEY)
    if stored is not None:
        _check_store(stored.data)
        return
    verdict = await probe(storage, effects)
    if verdict.faults:
        raise UnsupportedStoreError(
            "the store does not keep conditional writes, so two writers could overwrite each other; "
            "use a store that does, see docs/stores.md",
            url=storage.url,
            found=[f"not {name}" for name in verdict.faults],
        )
    try:
        await storage.create(
            keys.STORE_KEY,
            seal(
                {
                    "format": FORMAT_VERSION,
                    "probe": asdict(verdict),
                    "time": effects.clock.now().isoformat(timespec="seconds"),
                }
            ),
        )
    except (PreconditionFailedError, AmbiguousError, ThrottledError):
        return  # another client wrote its verdict first, or the next new run asks again


def _check_store(data: bytes) -> None:
    try:
        document = unseal(data)
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(
            "the store's own document is damaged; delete this key, and the next new run writes it again",
            key=keys.STORE_KEY,
            why=error.message,
        ) from error
    version = document.get("format")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise UnsupportedFormatError(
            "the store has a newer format than this release writes; upgrade cloudckpt",
            format=version,
            known=FORMAT_VERSION,
        )


async def probe(storage: Storage, effects: Effects) -> Verdict:
    """Try what the protocol relies on, on keys of its own, and delete them again."""
    for last in (False,) * (TRIES - 1) + (True,):
        key = f"{keys.PROBES}{effects.new_id()}"
        try:
            verdict = await _probe(storage, effects, key)
        except (AmbiguousError, PreconditionFailedError, ThrottledError):
            if last or is_over(effects):
                raise
            continue
        finally:
            await _forget(storage, [key, _missing(key)])
        if not verdict.faults or last:
            return verdict
    raise AssertionError("unreachable")


async def _probe(storage: Storage, effects: Effects, key: str) -> Verdict:
    patient = _Patient(storage, effects)
    first = await patient.create(key, b"first")
    second_create = await _refused(patient.create(key, b"second"))
    created = await patient.read(key)  # again: where the second create was not refused, it moved on
    first = created.token if created else first
    second = await patient.replace(key, b"replaced", first)
    stale = await _refused(patient.replace(key, b"stale", first))
    missing = await _refused(patient.replace(_missing(key), b"nothing", second))
    current = await patient.read(key)
    token = current.token if current else second
    return Verdict(second_create, stale, missing, await _race(patient, effects, key, token))


def _missing(key: str) -> str:
    return f"{key}-missing"


class _Patient:
    """The three calls of a probe; a store that asks to slow down is asked again, slower.

    Google allows one write a second to one name (its page on quotas), and a probe makes several.
    """

    def __init__(self, storage: Storage, effects: Effects) -> None:
        self._storage = storage
        self._effects = effects
        self.read = storage.read

    async def create(self, key: str, data: bytes) -> Token:
        return await self._again(lambda: self._storage.create(key, data))

    async def replace(self, key: str, data: bytes, token: Token) -> Token:
        return await self._again(lambda: self._storage.replace(key, data, token))

    async def _again(self, call: Callable[[], Coroutine[Any, Any, Token]]) -> Token:
        for _ in range(PATIENCE):
            try:
                return await call()
            except ThrottledError:
                if is_over(self._effects):
                    raise
                await self._effects.sleep(self._effects.uniform(1.0, 2.0))
        return await call()


async def _refused(write: Coroutine[Any, Any, Token]) -> bool:
    try:
        await write
    except PreconditionFailedError:
        return True
    return False


async def _race(storage: _Patient, effects: Effects, key: str, token: Token) -> bool:
    """Replace one version from several sides at once; exactly one must win, and its value stay."""

    def racer(number: int) -> Callable[[], Coroutine[Any, Any, bool]]:
        return lambda: _refused(storage.replace(key, f"racer {number}".encode(), token))

    refused = await gather(effects, [racer(number) for number in range(RACERS)], width=RACERS)
    left = await storage.read(key)
    if refused.count(False) != 1 or left is None:
        return False
    return left.data == f"racer {refused.index(False)}".encode()


async def _forget(storage: Storage, used: list[str]) -> None:
    try:
        await storage.delete(used)
    except (PermissionDeniedError, StorageError):
        return  # a writer's role may not delete; a few bytes under `probe/` harm nobody
