"""The payload objects of one run, as its writer puts them and lets go of them.

Owns: cutting a payload into objects, and putting one behind a commit while it
still rides inline. Invariants: a key is put with one value only; nothing that is
put aside is lost when it fails, since its payload rides on; no key is handed to
the sweeper before the put of the same key ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from cloudckpt import keys
from cloudckpt.effects import ASIDE_SECONDS, Background, Effects, gather, sha256
from cloudckpt.errors import StorageError, UnsupportedStoreError
from cloudckpt.model import Extent, Manifest
from cloudckpt.storage.placed import Placer
from cloudckpt.sweep import Sweeper

PART_BYTES = 128 * 1024 * 1024
"""A larger payload is several objects, which travel side by side."""

PARTS_AT_ONCE = 2  # an engine may copy a part to send it
RIDE_BYTES = 32 * 1024
"""Payloads ride on without an object while they, and two more like the newest, are at most this.

So a payload's object is under way two saves before there would be no room for another
(docs/design/riding.md).
"""

MAX_RIDE_BYTES = 64 * 1024
"""No more than this rides: a save waits for the oldest payload's object first."""


class Objects:
    """What one writer knows of its run's objects. Not for concurrent callers.

    Args:
        placer: Puts them.
        effects: Time, chance and concurrency.
        run: The run's id.
        sweeper: Deletes what is dropped.

    Attributes:
        placer: The same.
    """

    def __init__(self, placer: Placer, effects: Effects, run: str, sweeper: Sweeper) -> None:
        self.placer = placer
        self._effects = effects
        self._run = run
        self._sweeper = sweeper
        self._known: set[str] = set()  # of the manifest's own checkpoints, those whose object exists
        self._never: set[str] = set()  # riding keys of ours whose object nobody began to put
        self._behind: dict[str, Background] = {}
        self._late: dict[str, int] = {}  # dropped while the put of their object was under way

    async def extents(self, seq: int, data: bytes) -> tuple[Extent, ...]:
        """Name the objects that `data` will be, under keys that no earlier try used."""
        attempt = self._effects.new_id()
        found = []
        for start in range(0, max(len(data), 1), PART_BYTES):
            digest = await self.digest(memoryview(data)[start : start + PART_BYTES])
            key = keys.object_key(self._run, seq, digest, attempt)
            found.append(Extent(key, 0, min(PART_BYTES, len(data) - start), digest))
        return tuple(found)

    async def digest(self, data: memoryview) -> str:
        """Return the sha256 of `data` in hex, see `effects.sha256`."""
        return await sha256(self._effects, data)

    async def put(self, extents: tuple[Extent, ...], data: bytes) -> None:
        """Put a payload's objects; they exist when it returns."""
        if len(extents) == 1:
            await self.placer.put(extents[0].key, data)  # as it is: an engine need not copy bytes
            return
        parts = (memoryview(data)[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES))
        work = [partial(self.placer.put, x.key, part) for x, part in zip(extents, parts, strict=True)]
        await gather(self._effects, work, width=PARTS_AT_ONCE)

    def exists(self, key: str) -> bool:
        """Whether this writer knows that the object of one of the manifest's own checkpoints exists."""
        return key in self._known

    def landed(self, manifest: Manifest, key: str | None = None, crowded: Collection[str] = ()) -> None:
        """Take note of a manifest that stands, and begin to put what should not ride for long.

        Args:
            manifest: What was committed, or found.
            key: The payload that this writer let ride in it, if it did.
            crowded: Keys of the oldest payloads, which should not ride however small they are.
        """
        riding = manifest.riding()
        # Also what rides no longer: a fold that began on an older manifest would put it once more.
        self._known &= manifest.keys().keys()
        for gone in [one for one, put in self._behind.items() if one not in riding and put.done()]:
            del self._behind[gone]
        if key is not None:
            self._never.add(key)
        total = sum(map(len, riding.values()))
        newest = len(next(reversed(riding.values()), b""))
        for one, data in riding.items():
            if total + 2 * newest <= RIDE_BYTES and one not in crowded:
                break
            total -= len(data)
            self._start(one, data)

    def _start(self, key: str, data: bytes) -> None:
        if key not in self._behind and key not in self._known:
            self._never.discard(key)
            self._behind[key] = self._effects.spawn(self._put_behind(key, data))

    async def ended(self, riding: Mapping[str, bytes]) -> None:
        """Put the objects of payloads that ride in a manifest; what fails is told by `exists`."""
        for key, data in riding.items():
            self._start(key, data)
        for key in riding:
            if key in self._behind:
                await _ended(self._behind[key])

    async def make_room(self, manifest: Manifest, size: int) -> None:
        """Return when a payload of `size` bytes may ride too: the oldest become objects first."""
        riding = {key: data for key, data in manifest.riding().items() if key not in self._known}
        total = size + sum(map(len, riding.values()))
        for key, data in riding.items():
            if total <= MAX_RIDE_BYTES:
                return
            total -= len(data)
            await self._make(key, data)

    async def _make(self, key: str, data: bytes) -> None:
        if key in self._behind:
            await _ended(self._behind[key])
            self._behind.pop(key, None)
        if key not in self._known:
            self._never.discard(key)
            await self._put_riding(key, data)

    async def _put_behind(self, key: str, data: bytes) -> None:
        await self._effects.sleep(ASIDE_SECONDS)
        await self._put_riding(key, data)
        if key in self._late:
            self._sweeper.doom({key: self._late.pop(key)})

    async def _put_riding(self, key: str, data: bytes) -> None:
        await self.placer.put(key, data)
        self._known.add(key)

    def drop(self, dropped: Mapping[str, int], riding: Mapping[str, bytes]) -> None:
        """Let go of objects that a landed commit dropped.

        Args:
            dropped: Their keys, and bytes of each that nothing refers to any more.
            riding: What still rides.
        """
        ready: dict[str, int] = {}
        for key, size in dropped.items():
            if key in self._never:
                continue
            put = self._behind.get(key)
            if put is None or put.done():
                ready[key] = size
            else:
                self._late[key] = size  # a put that ends later would bring the object back
        self._never &= riding.keys()
        self._sweeper.doom(ready)

    async def settle(self) -> None:
        """Wait for the puts that were started aside. What of them failed is no loss.

        The payload rides on, and the run's next writer puts it.
        """
        for put in list(self._behind.values()):
            await _ended(put)
        late, self._late = self._late, {}  # dropped just as its put ended, or the put failed after all
        self._sweeper.doom(late)


async def _ended(work: Background) -> None:
    try:
        await work.wait()
    except (StorageError, UnsupportedStoreError):
        return  # whoever needs the outcome looks at what is known, not at this
