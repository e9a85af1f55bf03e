"""What a commit would write: the next manifest over one that is known.

Owns: the new checkpoint's entry, what expires with it, and what of it rides. Invariant:
all that the new manifest refers to exists when `next` returns, or rides in it. Each
call puts under keys of its own, so it may be called again after a lost race. It does
not write a manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cloudckpt import keys
from cloudckpt.codec import Encoded
from cloudckpt.drafts import Again, Draft, Next
from cloudckpt.effects import Effects
from cloudckpt.entries import entry_digest
from cloudckpt.errors import CheckpointNotFoundError
from cloudckpt.folding import Folding, merged, owned, ranges
from cloudckpt.ledger import INLINE_RESULT_BYTES, End, Note, noted, shortened, status_of
from cloudckpt.model import RECENT_COMMITS, Entry, Extent, Manifest
from cloudckpt.objects import Objects
from cloudckpt.pages import Pages, find
from cloudckpt.retention import placing_in, plan_expiry, rules_of

INLINE_BYTES = 32 * 1024
"""A payload of at most this many bytes rides in the manifest."""


class Maker:
    """Makes the next manifests of one run. Not for concurrent callers.

    Args:
        effects: Time, chance and concurrency.
        run: The run's id.
        objects: Of the run.
        pages: Of the run.
        folding: Of the run.
        rides: Whether small payloads ride in the manifest.
    """

    def __init__(
        self,
        effects: Effects,
        run: str,
        *,
        objects: Objects,
        pages: Pages,
        folding: Folding,
        rides: bool,
    ) -> None:
        self._effects = effects
        self._run = run
        self._objects = objects
        self._pages = pages
        self._folding = folding
        self._inline_bytes = INLINE_BYTES if rides else 0

    async def next(self, manifest: Manifest, draft: Draft) -> Next:
        """Put the payload, unless it rides or is there; return what to commit over `manifest`.

        Raises:
            UnsupportedStoreError: The engine can't place objects as the manifest's rules say.
        """
        rules = rules_of(manifest.retention)
        self._objects.placer.obey(rules.placing, self._effects.clock)
        riding: dict[str, bytes] = {}
        most = 0 if rules.locks else self._inline_bytes  # what expires as it rides was never locked
        if isinstance(draft.state, Again):
            entry = await self._again(manifest, draft, draft.state.seq)
        else:
            entry = await self._new(manifest, draft, draft.state, most)
            if len(draft.state.data) <= most:
                riding[entry.extents[0].key] = draft.state.data
        now = entry.time
        plan = plan_expiry(
            (entry, *manifest.checkpoints), rules=rules, epoch=manifest.epoch, now=now, hold=manifest.hold
        )
        new = replace(
            manifest,
            seq=entry.seq,
            nonce=self._effects.new_id(),
            checkpoints=plan.kept,
            recent=(draft.commit, *manifest.recent)[:RECENT_COMMITS],
            expired=merged((*ranges(plan.dropped, now, rules), *manifest.expired)),
        )
        if draft.notes:
            new = await self.noted(new, draft.notes)
        new = replace(
            new,
            status=draft.status or status_of("running", new.actions),
            max_steps=manifest.max_steps if draft.max_steps is None else draft.max_steps,
        )
        kept = new.keys()  # also by what moves to a page now: a rollback refers to another's objects
        new, fold = await self._folding.fold(new)
        wanted = new.keys()
        dropped = {k: n for gone in plan.dropped for k, n in owned(gone).items() if k not in kept}
        if fold is not None:
            dropped |= {k: n for k, n in fold.dropped.items() if k not in kept}
        inline = {k: v for k, v in manifest.inline.items() if k in wanted and not self._objects.exists(k)}
        return Next(replace(new, inline=inline | riding), entry, next(iter(riding), None), dropped)

    async def _new(self, manifest: Manifest, draft: Draft, encoded: Encoded, most: int) -> Entry:
        """Put a new state, or make room for it to ride if it has at most so many bytes; return its entry."""
        seq = manifest.seq + 1
        extents = await self._objects.extents(seq, encoded.data)
        if len(encoded.data) <= most:
            await self._objects.make_room(manifest, len(encoded.data))
        else:
            await self._objects.put(extents, encoded.data)
        parent = manifest.head
        whole = (
            await self._objects.digest(memoryview(encoded.data)) if len(extents) > 1 else extents[0].digest
        )
        return Entry(
            seq=seq,
            step=draft.step,
            commit=draft.commit,
            epoch=manifest.epoch,
            parent=parent.seq if parent else None,
            parent_digest=entry_digest(parent) if parent else None,
            digest=whole,
            size=len(encoded.data),
            encoded_digest=encoded.encoded_digest,
            encoded_size=encoded.encoded_size,
            codec=encoded.codec,
            schema=encoded.schema,
            schema_version=encoded.schema_version,
            fingerprint=draft.fingerprint,
            time=self._effects.clock.now(),
            tags=draft.tags,
            metadata=draft.metadata,
            extents=extents,
            origin=draft.origin,
        )

    async def _again(self, manifest: Manifest, draft: Draft, seq: int) -> Entry:
        """Return the entry of a state that the run has already."""
        old = await find(
            self._pages, manifest, lambda one: one.seq == seq, lambda page: page.oldest <= seq <= page.newest
        )
        parent = manifest.head
        if old is None or parent is None:
            raise CheckpointNotFoundError(
                "the checkpoint has expired meanwhile; choose one that is retained", run=self._run, seq=seq
            )
        return replace(
            old,
            seq=manifest.seq + 1,
            commit=draft.commit,
            epoch=manifest.epoch,
            parent=parent.seq,
            parent_digest=entry_digest(parent),
            time=self._effects.clock.now(),
            tags=draft.tags,
            metadata=draft.metadata,
            origin=draft.origin,
            hold=None,
            notes={},
        )

    async def noted(self, manifest: Manifest, notes: Sequence[Note]) -> Manifest:
        """Return the manifest with notes in its ledger; puts a page when that takes too much room.

        Raises:
            UnsupportedStoreError: As `next`.
        """
        self._objects.placer.obey(placing_in, manifest.retention, self._effects.clock)
        ready = [await self._ready(note) for note in notes]
        new = noted(manifest, ready, now=self._effects.clock.now())
        return await shortened(self._pages, new, [note.key for note in notes])

    async def _ready(self, note: Note) -> Note:
        """Put a result that is too large for the ledger."""
        if not isinstance(note, End) or len(note.data) <= INLINE_RESULT_BYTES:
            return note
        digest = await self._objects.digest(memoryview(note.data))
        name = keys.result_name(digest, self._effects.new_id())
        extent = Extent(keys.page_key(self._run, name), 0, len(note.data), digest)
        await self._objects.put((extent,), note.data)
        return replace(note, data=b"", extents=(extent,))
