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
from cloudckpt.format import seal, unseal
from cloudckpt.model import FORMAT_VERSION
from cloudckpt.storage.contract import Storage, Token

RACERS = 4
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
    except (PreconditionFailedError, AmbiguousError):
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
            if last:
                raise
            continue
        finally:
            await _forget(storage, [key, _missing(key)])
        if not verdict.faults or last:
            return verdict
    raise AssertionError("unreachable")


async def _probe(storage: Storage, effects: Effects, key: str) -> Verdict:
    first = await storage.create(key, b"first")
    second_create = await _refused(storage.create(key, b"second"))
    created = await storage.read(key)  # again: where the second create was not refused, it moved on
    first = created.token if created else first
    second = await storage.replace(key, b"replaced", first)
    stale = await _refused(storage.replace(key, b"stale", first))
    missing = await _refused(storage.replace(_missing(key), b"nothing", second))
    current = await storage.read(key)
    token = current.token if current else second
    return Verdict(second_create, stale, missing, await _race(storage, effects, key, token))


def _missing(key: str) -> str:
    return f"{key}-missing"


async def _refused(write: Coroutine[Any, Any, Token]) -> bool:
    try:
        await write
    except PreconditionFailedError:
        return True
    return False


async def _race(storage: Storage, effects: Effects, key: str, token: Token) -> bool:
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
