"""The documents of the protocol as frozen values. Pure: no bytes, no I/O.

Owns: `Manifest` and what it is made of. Invariants (held by `commit.py`,
checked by `testing/invariants.py`): `checkpoints`, and behind them `history`, are
newest first with strictly falling seq; the first one's seq is the manifest's, once
there is one; every key in `inline` is referred to by one of `checkpoints`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cloudckpt.measured import Size

FORMAT_VERSION = 1
"""Version of manifests that this release writes, and the newest that it reads."""

MOST_EXPIRED = 8
"""How many ranges of expired checkpoints a manifest tells of."""

RECENT_COMMITS = 32
"""How many of the newest commit ids a manifest keeps, for reading back one's own."""

STATUSES = ("running", "waiting", "done", "failed", "deleted")


@dataclass(frozen=True, slots=True)
class Extent:
    """A part of a payload: `length` bytes of object `key` from `offset`, with their sha256."""

    key: str
    offset: int
    length: int
    digest: str


@dataclass(frozen=True, slots=True)
class Origin:
    """The checkpoint that a rollback or a fork started from; `store` is a URL, None for the same store."""

    run: str
    seq: int
    store: str | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """What keeps a checkpoint, or a whole run, from expiry and deletion until it is released."""

    by: str
    why: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Action:
    """Something that an agent does once, or a question that it asks once, in the run's ledger.

    Attributes:
        number: From 1, in the order in which they were first begun.
        key: The caller's name for it, unique in the run.
        arguments: sha256 of what it was called with, in hex.
        attempt: Id of the newest try.
        tries: How often it was begun.
        epoch: Of the writer that began it last.
        begun: When that was, by the writer's clock.
        ended: When its result was recorded; None while nobody knows whether it happened.
        by: Who answered a question.
        result: Its result, encoded as a state is, when it is small; else it is in
        extents: as a payload is.
        question: What is asked, for a question.
    """

    number: int
    key: str
    arguments: str
    attempt: str
    tries: int
    epoch: int
    begun: datetime
    ended: datetime | None = None
    by: str | None = None
    result: bytes | None = None
    extents: tuple[Extent, ...] = ()
    question: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Who deleted a run, when and why, and the digest of the last manifest that it had."""

    by: str
    why: str
    time: datetime
    digest: str


@dataclass(frozen=True, slots=True)
class Expired:
    """Checkpoints `first` to `last` of which some expired, `time` of the last such commit, and the rule."""

    first: int
    last: int
    time: datetime
    rule: str


@dataclass(frozen=True, slots=True)
class Page:
    """A reference to an immutable history object, which holds older checkpoints or older such references.

    Attributes:
        name: Last part of its key, which has the sha256 of its bytes in it.
        size: Bytes of the object.
        level: 0 when it holds checkpoints, else one more than the pages that it holds.
        count: Checkpoints in it and below.
        held: How many of them are held.
        newest, oldest: Their highest and lowest seq.
        since, until: Their earliest and latest time.
        steps: Their lowest and highest step, or None when none has one.
        tags: Their tags, sorted; None when they are too many to tell.
        stored: Bytes of payload that they refer to.
    """

    name: str
    size: int
    level: int
    count: int
    held: int
    newest: int
    oldest: int
    since: datetime
    until: datetime
    steps: tuple[int, int] | None
    tags: tuple[str, ...] | None
    stored: int


@dataclass(frozen=True, slots=True)
class Writer:
    """Who became the run's writer, and when by its own clock (for people, never for safety)."""

    id: str
    host: str
    pid: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Lease:
    """That somebody works on a run; who, is the manifest's writer.

    Attributes:
        seconds: For how long it must be seen unchanged to count as expired. None: nobody works on the run,
            and whoever claims it may.
        beat: Another number after every write of the writer's.
    """

    seconds: float | None
    beat: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One retained checkpoint as the manifest has it.

    Attributes:
        seq: From 1, never reused in a run.
        step: The caller's own count of steps, or None.
        commit: Id of the save; the same however often it was tried.
        epoch: The writer's epoch at the save.
        parent: seq of the checkpoint before it, or None for the first.
        parent_digest: Digest of the parent's entry as it was saved: a hash chain. What may
            change later (`tags`, `hold`, `notes`) is not covered.
        digest: sha256 of the stored payload (all extents, in order), in hex.
        size: Bytes of the stored payload.
        encoded_digest: sha256 of the encoded state before compression, in hex.
        encoded_size: Bytes of the encoded state before compression.
        codec: Name of the codec with its version, such as ``msgpack+zstd/1``.
        schema: Name of the state's type, or None for plain values.
        schema_version: Version of that schema, from 1, or None.
        fingerprint: Digests of what decides the next step, by name; None when not asked for.
        time: When the writer saved, by its own clock (UTC).
        tags: Names on this checkpoint.
        metadata: The caller's own, a mapping of strings to JSON values.
        extents: Where the payload is, in order.
        origin: Where its state came from, when it was not saved by a step.
        hold: What keeps it, if something does.
        notes: What was said of it later, a mapping of strings to JSON values.
        extra: Fields that a newer release added; kept and written back.
    """

    seq: int
    step: int | None
    commit: str
    epoch: int
    parent: int | None
    parent_digest: str | None
    digest: str
    size: int
    encoded_digest: str
    encoded_size: int
    codec: str
    schema: str | None
    schema_version: int | None
    fingerprint: Mapping[str, str] | None
    time: datetime
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]
    extents: tuple[Extent, ...]
    origin: Origin | None = None
    hold: Hold | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    cached: bytes | None = field(default=None, init=False, compare=False, repr=False)
    """Its canonical JSON, once `format.py` has made it: a run's entries are written again and again."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A run's one small mutable document: the pointer.

    Attributes:
        run: The run's id.
        seq: seq of the newest checkpoint ever committed, 0 before the first.
        nonce: Makes every manifest's bytes unique, so that a token never returns.
        epoch: Number of the writer, from 1; a lower one can no longer commit.
        writer: Who holds that epoch.
        status: One of `STATUSES`.
        checkpoints: The newest of the retained ones, newest first.
        history: Where the older retained ones are, newest first.
        actions: The newest of the run's ledger of actions, newest first, and all that have not ended.
        ledger: Where the older ones are, newest first: pages as those of `history`.
        thinned: How many of the checkpoints in `history` the rules kept when they were last applied to it.
        expired: What expired last, newest first (at most `MOST_EXPIRED`).
        retention: The run's own rules as JSON and who set them ("store", "code" or "operator").
        hold: What keeps the whole run, if something does.
        notes: What was said of the run, a mapping of strings to JSON values.
        tombstone: Of a deleted run.
        copied: URL of the store that it was copied from, until somebody writes to the copy.
        lease: That the writer is at work, or that the run waits for a worker; None where leases are not used.
        max_steps: How many steps there will be at most, if the writer said so.
        recent: Commit ids of seq, seq-1, ... (at most `RECENT_COMMITS`).
        inline: Object key to payload, for payloads that ride in the manifest
            because nobody who commits knows yet that their object exists.
        extra: Fields that a newer release added; kept and written back.
    """

    run: str
    seq: int
    nonce: str
    epoch: int
    writer: Writer
    status: str = "running"
    checkpoints: tuple[Entry, ...] = ()
    recent: tuple[str, ...] = ()
    inline: Mapping[str, bytes] = field(default_factory=dict)
    history: tuple[Page, ...] = ()
    actions: tuple[Action, ...] = ()
    ledger: tuple[Page, ...] = ()
    thinned: int = 0
    expired: tuple[Expired, ...] = ()
    retention: Mapping[str, Any] | None = None
    hold: Hold | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    tombstone: Tombstone | None = None
    copied: str | None = None
    lease: Lease | None = None
    max_steps: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def head(self) -> Entry | None:
        """The newest checkpoint, or None before the first save."""
        return self.checkpoints[0] if self.checkpoints else None

    def commit_of(self, seq: int) -> str | None:
        """Return the id of the commit that made `seq`, or None if it is not known any more."""
        age = self.seq - seq
        return self.recent[age] if 0 <= age < len(self.recent) else None

    def riding(self) -> dict[str, bytes]:
        """Return the payloads that ride, oldest first."""
        extents = (x for entry in reversed(self.checkpoints) for x in entry.extents)
        return {x.key: self.inline[x.key] for x in extents if x.key in self.inline}

    def keys(self) -> dict[str, int]:
        """Return the object keys that `checkpoints` (not `history`) refer to, with the bytes referred to."""
        found: dict[str, int] = {}
        for entry in self.checkpoints:
            for extent in entry.extents:
                found[extent.key] = found.get(extent.key, 0) + extent.length
        return found


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """What describes a saved checkpoint to its user. Fields as in `Entry`.

    Attributes:
        run: The run's id.
        size: Bytes as stored.
        encoded_size: Bytes before compression.
        inline: Whether the payload rides in the manifest as of this reading.
        measured: What `cloudckpt.measure` says of the state as it was saved; only
            from ``save(..., explain=True)``, since it is not stored.
    """

    run: str
    seq: int
    step: int | None
    commit: str
    epoch: int
    parent: int | None
    digest: str
    size: int
    encoded_size: int
    codec: str
    schema: str | None
    schema_version: int | None
    time: datetime
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]
    fingerprint: Mapping[str, str] | None
    inline: bool
    origin: Origin | None = None
    hold: Hold | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    measured: Size | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A row of `store.runs()`: what one listing tells without opening the run.

    Attributes:
        id: The run's id. Of a run whose id is too long for its key and whose manifest
            is damaged, the beginning, followed by an ellipsis.
        modified: When its manifest last changed, by the store's own clock.
        manifest_size: Bytes of the manifest, inline payloads included.
    """

    id: str
    modified: datetime
    manifest_size: int


def describe(manifest: Manifest, entry: Entry) -> CheckpointInfo:
    """Return what a user is told of `entry`."""
    return CheckpointInfo(
        run=manifest.run,
        seq=entry.seq,
        step=entry.step,
        commit=entry.commit,
        epoch=entry.epoch,
        parent=entry.parent,
        digest=entry.digest,
        size=entry.size,
        encoded_size=entry.encoded_size,
        codec=entry.codec,
        schema=entry.schema,
        schema_version=entry.schema_version,
        time=entry.time,
        tags=entry.tags,
        metadata=dict(entry.metadata),
        fingerprint=None if entry.fingerprint is None else dict(entry.fingerprint),
        inline=any(x.key in manifest.inline for x in entry.extents),
        origin=entry.origin,
        hold=entry.hold,
        notes=dict(entry.notes),
    )
