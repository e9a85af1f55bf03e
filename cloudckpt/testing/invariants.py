"""The laws of a run, as one function over its store and what its clients were told.

Owns: `LAWS`, `Ledger` (what each client asked for and what it was told) and
`check_laws`, which every suite calls: after a crash, a race, a lost answer, at
any moment. Invariant: the store is read raw, by the storage contract and the
formats alone, so that a fault of the commit or load code can't hide itself.

    ledger = Ledger()
    with ledger.asking(state) as told:
        told(run.save(state))
    client.run(check_laws(storage, "nightly-42", ledger))

A ledger must know of every save that anybody tried on its run: one that is
asked and not told, as after a kill, may or may not have happened.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import zstandard

from cloudckpt import keys
from cloudckpt.codec import decode, encode
from cloudckpt.entries import entry_digest
from cloudckpt.errors import CloudckptError, OutcomeUnknownError
from cloudckpt.format import decode_manifest, decode_page
from cloudckpt.model import CheckpointInfo, Entry, Extent, Manifest, Page
from cloudckpt.retention import KEEP_LAST
from cloudckpt.storage.contract import Storage

LAWS = {
    "L1": "every object that a retained checkpoint refers to exists and hashes right, or rides inline",
    "L2": "a seq never repeats, and the head is never removed",
    "L3": "an acknowledged save is in the history exactly once until it expires",
    "L4": "a save that was refused never appears",
    "L5": "a save with an unknown outcome appears at most once",
    "L6": "epochs never decrease, and each has one writer",
    "L7": "nothing that is referred to, tagged, held or the head is deleted",
    "L8": "a load returns what was saved, equal in type and value, or raises",
}


class LawBrokenError(AssertionError):
    """A law does not hold.

    Attributes:
        law: Its key in `LAWS`.
    """

    def __init__(self, law: str, what: str, **facts: Any) -> None:
        self.law = law
        shown = "".join(f" {name}={value!r}" for name, value in facts.items())
        super().__init__(f"{law} is broken ({LAWS[law]}): {what}{shown}")


@dataclass(slots=True)
class Ask:
    """One save as its client asked for it and was answered.

    Attributes:
        digest: sha256 of the encoded state.
        commit: Its id, where the client chose it.
        epoch: The number that the client held as the run's writer, where it knew one.
        told: What it was told: the checkpoint; False, that it was refused; None, nothing that tells.
    """

    digest: str
    commit: str | None
    epoch: int | None
    told: CheckpointInfo | Entry | bool | None = None

    def answer(self, told: CheckpointInfo | Entry) -> None:
        """Note that the save was acknowledged."""
        self.told = told


class Ledger:
    """What the clients of one run asked for and were told. Safe for threads.

    Args:
        keep_last: The smallest `keep_last` that any of them had.
    """

    def __init__(self, *, keep_last: int = KEEP_LAST) -> None:
        self.keep_last = keep_last
        self.asked: list[Ask] = []
        self.epochs: list[int] = []
        self.deleted: set[str] = set()
        self.loaded: list[str] = []

    def ask(self, state: object, *, commit: str | None = None, epoch: int | None = None) -> Ask:
        """Note a save before it begins. Until it is answered, it may have happened."""
        self.asked.append(Ask(encode(state).encoded_digest, commit, epoch))
        return self.asked[-1]

    @contextmanager
    def asking(
        self, state: object, *, commit: str | None = None, epoch: int | None = None
    ) -> Iterator[Callable[[CheckpointInfo | Entry], None]]:
        """Note a save and, from what comes out of the block, what its client was told.

        An error of this package says that nothing was saved, `OutcomeUnknownError` aside;
        anything else, such as an interrupt, says nothing.
        """
        ask = self.ask(state, commit=commit, epoch=epoch)
        try:
            yield ask.answer
        except OutcomeUnknownError:
            raise
        except CloudckptError:
            ask.told = False
            raise

    def took_over(self, epoch: int | None) -> None:
        """Note that a client was told that it is the writer of this epoch."""
        if epoch is not None:
            self.epochs.append(epoch)

    def delete(self, gone: Iterable[str]) -> None:
        """Note keys that somebody deleted."""
        self.deleted.update(gone)

    def load(self, state: object) -> None:
        """Note what a load returned."""
        self.loaded.append(encode(state).encoded_digest)

    @property
    def saved(self) -> list[Ask]:
        """The saves that were acknowledged."""
        return [ask for ask in self.asked if isinstance(ask.told, CheckpointInfo | Entry)]


async def check_laws(storage: Storage, run: str, ledger: Ledger) -> Manifest | None:
    """Check every law of `LAWS` on a run as it stands now.

    Args:
        storage: The store, without faults.
        run: The run's id.
        ledger: What its clients asked for and were told until now.

    Returns:
        Its manifest, with the checkpoints of its pages behind its own; None without one.

    Raises:
        LawBrokenError: Names the law.
        CorruptCheckpointError: The manifest itself is damaged.
    """
    stored = await storage.read(keys.manifest_key(run))
    if stored is None:
        if ledger.saved:
            raise LawBrokenError("L3", "the run is gone with all its saves", run=run)
        return None
    manifest = decode_manifest(stored.data, run)
    older = [entry for page in manifest.history for entry in await _below(storage, manifest, page, ledger)]
    whole = replace(manifest, checkpoints=(*manifest.checkpoints, *older))
    if manifest.status == "deleted":
        if whole.checkpoints or manifest.inline:
            raise LawBrokenError("L7", "a tombstone keeps checkpoints", run=run)
    else:
        _check_chain(whole)
        _check_acknowledged(whole, ledger)
    _check_counts(whole, ledger)
    _check_epochs(whole, ledger)
    if manifest.status != "deleted":
        _check_kept(whole, ledger)
    for entry in whole.checkpoints:
        payload = b"".join([await _part(storage, manifest, entry, extent) for extent in entry.extents])
        _check_payload(entry, payload)
    return whole


async def _below(storage: Storage, manifest: Manifest, page: Page, ledger: Ledger) -> list[Entry]:
    """Return the checkpoints in a page of history and below it."""
    key = keys.page_key(manifest.run, page.name)
    stored = await storage.read(key)
    if stored is None:
        law = "L7" if key in ledger.deleted else "L1"
        raise LawBrokenError(law, "an object of the history is missing", key=key)
    if hashlib.sha256(stored.data).hexdigest() != keys.object_digest(key):
        raise LawBrokenError("L1", "an object of the history is not what its key promises", key=key)
    entries, pages = decode_page(zstandard.ZstdDecompressor().decompress(stored.data), manifest.run)
    found = [*entries, *[entry for one in pages for entry in await _below(storage, manifest, one, ledger)]]
    seqs = [entry.seq for entry in found]
    if (len(found), seqs[0], seqs[-1]) != (page.count, page.newest, page.oldest):
        raise LawBrokenError("L2", "a page is not what its reference says", key=key, seqs=seqs)
    return found


def _check_chain(manifest: Manifest) -> None:
    newest_first = [entry.seq for entry in manifest.checkpoints]
    if newest_first != sorted(set(newest_first), reverse=True):
        raise LawBrokenError("L2", "the history is not in falling order", seqs=newest_first)
    if manifest.seq != (newest_first[0] if newest_first else 0):
        raise LawBrokenError("L2", "the head is not in the history", seq=manifest.seq, seqs=newest_first)
    for entry in manifest.checkpoints:
        if entry.parent != (entry.seq - 1 or None):
            raise LawBrokenError("L2", "a checkpoint has a wrong parent", seq=entry.seq, parent=entry.parent)
    for entry, older in pairwise(manifest.checkpoints):
        if entry.parent == older.seq and entry.parent_digest != entry_digest(older):
            raise LawBrokenError("L2", "the past was changed", seq=older.seq)
    for ids in ([entry.commit for entry in manifest.checkpoints], manifest.recent):
        if len(set(ids)) != len(ids):
            raise LawBrokenError("L3", "a commit is in the history twice", commits=ids)


def _check_acknowledged(manifest: Manifest, ledger: Ledger) -> None:
    retained = {entry.seq: entry for entry in manifest.checkpoints}
    seen: dict[int, str] = {}
    newest = max((ask.told.seq for ask in ledger.saved), default=0)  # type: ignore[union-attr]
    if newest > manifest.seq:
        raise LawBrokenError("L2", "the head went back", seq=manifest.seq, acknowledged=newest)
    for ask in ledger.saved:
        told = ask.told
        assert isinstance(told, CheckpointInfo | Entry)
        if seen.setdefault(told.seq, told.commit) != told.commit:
            raise LawBrokenError("L2", "two saves were told the same seq", seq=told.seq)
        entry = retained.get(told.seq)
        known = entry.commit if entry else manifest.commit_of(told.seq)
        if known is not None and known != told.commit:
            raise LawBrokenError("L3", "another commit has its place", seq=told.seq, commit=told.commit)
        if entry is None and told.tags:
            raise LawBrokenError("L7", "a tagged checkpoint is gone", seq=told.seq, tags=told.tags)
        if entry is None and manifest.seq - told.seq < ledger.keep_last:
            raise LawBrokenError("L3", "a save is gone that can't have expired", seq=told.seq)
        if entry is not None and entry.encoded_digest != ask.digest:
            raise LawBrokenError("L8", "another state was stored than was saved", seq=told.seq)


def _check_counts(manifest: Manifest, ledger: Ledger) -> None:
    """Hold how often each state appears against how often it may."""
    refused = Counter(ask.digest for ask in ledger.asked if ask.told is False)
    unknown = Counter(ask.digest for ask in ledger.asked if ask.told is None)
    acknowledged = Counter(ask.digest for ask in ledger.saved)
    for ask in ledger.asked:
        if ask.told is False and ask.commit in {*manifest.recent, *(e.commit for e in manifest.checkpoints)}:
            raise LawBrokenError("L4", "a refused commit was made", commit=ask.commit)
    for digest, times in Counter(entry.encoded_digest for entry in manifest.checkpoints).items():
        if times <= acknowledged[digest] + unknown[digest]:
            continue
        seqs = [entry.seq for entry in manifest.checkpoints if entry.encoded_digest == digest]
        if unknown[digest]:
            raise LawBrokenError("L5", "a save happened more often than it was asked for", seqs=seqs)
        if acknowledged[digest]:
            raise LawBrokenError("L3", "a save happened more often than it was acknowledged", seqs=seqs)
        if refused[digest]:
            raise LawBrokenError("L4", "a refused save happened", seqs=seqs)
        raise LawBrokenError("L8", "the history has a state that nobody saved", seqs=seqs)
    for digest in ledger.loaded:
        if not acknowledged[digest] and not unknown[digest]:
            raise LawBrokenError("L8", "a load returned a state that nobody saved", digest=digest)


def _check_epochs(manifest: Manifest, ledger: Ledger) -> None:
    epochs = [manifest.epoch, *(entry.epoch for entry in manifest.checkpoints)]
    if epochs != sorted(epochs, reverse=True):
        raise LawBrokenError("L6", "epochs decrease along the history", newest_first=epochs)
    if ledger.epochs and max(ledger.epochs) > manifest.epoch:
        raise LawBrokenError("L6", "the epoch went back", epoch=manifest.epoch, told=max(ledger.epochs))
    if len(set(ledger.epochs)) != len(ledger.epochs):
        raise LawBrokenError("L6", "two writers were told the same epoch", epochs=ledger.epochs)
    for ask in ledger.saved:
        assert isinstance(ask.told, CheckpointInfo | Entry)
        if ask.epoch is not None and ask.told.epoch != ask.epoch:
            raise LawBrokenError(
                "L6", "a writer saved under another's epoch", own=ask.epoch, saved_as=ask.told.epoch
            )


def _check_kept(manifest: Manifest, ledger: Ledger) -> None:
    used = set(manifest.keys())
    lost = ledger.deleted & used - manifest.inline.keys()
    if lost:
        raise LawBrokenError("L7", "what a retained checkpoint refers to was deleted", keys=sorted(lost))
    before = [x.told.seq for x in ledger.saved if x.told.epoch < manifest.epoch]  # type: ignore[union-attr]
    started_from = max(before, default=0)
    if not any(e.seq >= started_from and e.epoch < manifest.epoch for e in manifest.checkpoints) and before:
        raise LawBrokenError("L7", "the checkpoint that the writer started from is gone", seq=started_from)
    strangers = manifest.inline.keys() - used
    if strangers:
        raise LawBrokenError("L1", "a payload rides that no checkpoint refers to", keys=sorted(strangers))


async def _part(storage: Storage, manifest: Manifest, entry: Entry, extent: Extent) -> bytes:
    whole = manifest.inline.get(extent.key)
    if whole is None:
        stored = await storage.read(extent.key)
        if stored is None:
            raise LawBrokenError("L1", "an object is missing", seq=entry.seq, key=extent.key)
        whole = stored.data
    if hashlib.sha256(whole).hexdigest() != keys.object_digest(extent.key):
        raise LawBrokenError("L1", "an object is not what its key promises", seq=entry.seq, key=extent.key)
    part = whole[extent.offset : extent.offset + extent.length]
    if len(part) != extent.length or hashlib.sha256(part).hexdigest() != extent.digest:
        raise LawBrokenError("L1", "a part does not match its digest", seq=entry.seq, key=extent.key)
    return part


def _check_payload(entry: Entry, payload: bytes) -> None:
    if len(payload) != entry.size or hashlib.sha256(payload).hexdigest() != entry.digest:
        raise LawBrokenError("L1", "a payload does not match its digest", seq=entry.seq)
    # Plain values and records encode to the bytes that they came from, so an equal
    # digest is an equal state in type and value, whatever class it was saved from.
    if encode(decode(payload)).encoded_digest != entry.encoded_digest:
        raise LawBrokenError("L8", "what comes back is not what was saved", seq=entry.seq)
