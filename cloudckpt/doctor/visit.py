"""What the contract alone can tell of a store: rights, conditions, clock and pace.

Owns: the order of the checks, and what the answer to each means.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from cloudckpt import keys
from cloudckpt.doctor.names import engine_name, engine_packages
from cloudckpt.doctor.pace import measure
from cloudckpt.doctor.traces import TracedStorage
from cloudckpt.effects import Effects
from cloudckpt.errors import (
    ArchivedError,
    CloudckptError,
    CorruptCheckpointError,
    PermissionDeniedError,
    PreconditionFailedError,
    UnsupportedStoreError,
)
from cloudckpt.model import FORMAT_VERSION
from cloudckpt.sealed import unseal
from cloudckpt.storage.contract import Storage, Stored
from cloudckpt.storage.findings import Finding, Level, Samples, fault, ok, told, unknown, warning
from cloudckpt.storage.probe import Verdict, probe

SKEW_WARNING = timedelta(seconds=5)
SKEW_FAULT = timedelta(minutes=15)
"""From here on S3 refuses every request (its error RequestTimeTooSkewed)."""

SAMPLE = b"written by cloudckpt doctor"

MAY_WRITE = "grant the right to write (on S3: s3:PutObject)"
MAY_READ = "grant the right to read (on S3: s3:GetObject)"
MAY_LIST = "grant the right to list (on S3: s3:ListBucket)"
MAY_DELETE = (
    "nothing, if another role collects what expired; else grant the right to delete "
    "(on S3: s3:DeleteObject on objects/* and probe/*)"
)
UNFIT = "don't use this store: two writers could overwrite each other; docs/stores.md names others"


class Visit:
    """One visit to a store, and what it has seen so far.

    Args:
        traced: The store's engine.
        storage: The same, with retries.
        effects: Time and chance.
        inspect: What asks beyond the contract.
    """

    def __init__(
        self,
        traced: TracedStorage,
        storage: Storage,
        effects: Effects,
        inspect: Callable[[Samples], Coroutine[Any, Any, Sequence[Finding]]],
    ) -> None:
        self._traced = traced
        self._storage = storage
        self._effects = effects
        self._inspect = inspect
        self._pointer = f"{keys.PROBES}{effects.new_id()}"
        self._payload = f"{self._pointer}-object"
        self._missing = f"{self._pointer}-missing"
        self._written = False
        self._readable = False
        self._tells_missing = False
        self._refusal: CloudckptError | None = None
        self._left: Stored | None = None
        self._clock = unknown("clock", "nothing was written whose time the store could tell")
        self._times: tuple[datetime, datetime] | None = None

    async def findings(self) -> list[Finding]:
        """Make every check, in the order in which one needs another; return them in that of reading."""
        first = [self._engine()]
        document: Stored | PermissionDeniedError | None
        try:
            document = await self._storage.read(keys.STORE_KEY)
        except CloudckptError as error:
            # Denied may be what a missing key is answered; that is told apart below.
            if not isinstance(error, PermissionDeniedError) or error.kind != "denied":
                return [*first, told("store", Level.FAULT, error)]
            document = error
        first.append(ok("store", f"{self._storage.url} answers"))
        rights = [await self._write(), await self._read(), await self._missing_key(), await self._list()]
        inside = await self._inside()
        rights.append(await self._delete())
        conditions = await self._conditions()
        pace = await self._pace()
        return [*first, *rights, conditions, _verdict(document, conditions), self._clock, *pace, *inside]

    def _engine(self) -> Finding:
        name, packages = engine_name(self._traced.inner), engine_packages(self._traced.inner)
        shown = ", ".join(f"{package} {version}" for package, version in packages.items())
        return ok("engine", f"{name} ({shown})" if shown else name, engine=name, packages=packages)

    async def _write(self) -> Finding:
        before = self._effects.clock.now()
        try:
            await self._storage.create(self._pointer, SAMPLE)
            self._times = before, self._effects.clock.now()
            await self._storage.put(self._payload, SAMPLE)
        except CloudckptError as error:
            self._refusal = error
            return told("write", Level.FAULT, error, _right(error, MAY_WRITE))
        self._written = True
        return ok("write", "a new key can be written")

    async def _read(self) -> Finding:
        if not self._written:
            return unknown("read", "not tried, since nothing could be written")
        try:
            stored = await self._storage.read(self._pointer)
        except ArchivedError as error:
            do = "take the storage class out of the options: a pointer is read again and again"
            return told("read", Level.FAULT, error, do)
        except CloudckptError as error:
            self._refusal = error
            return told("read", Level.FAULT, error, _right(error, MAY_READ))
        if stored is None or stored.data != SAMPLE:
            found = "a value that was just written is not read back"
            return fault("read", found, "use a store with strongly consistent reads, and no cache before it")
        self._readable, self._left = True, stored
        return ok("read", "a value that was just written is read back")

    async def _missing_key(self) -> Finding:
        if not self._readable:
            return unknown("missing-key", "not tried, since a key that exists can't be read")
        try:
            await self._storage.read(self._missing)
        except PermissionDeniedError as error:
            found = "a missing key is answered as denied (403 where 404 is meant), so no run can begin"
            return fault("missing-key", found, MAY_LIST, **error.facts)
        except CloudckptError as error:
            return told("missing-key", Level.UNKNOWN, error)
        self._tells_missing = True
        return ok("missing-key", "a missing key is answered as missing")

    async def _list(self) -> Finding:
        try:
            rows = (await self._storage.list(self._pointer)).rows
        except CloudckptError as error:
            self._clock = unknown("clock", "the store's time of a write is told by listings, and that failed")
            return told("list", Level.FAULT, error, _right(error, MAY_LIST))
        if not self._written:
            return ok("list", "keys can be listed")
        times = [row.modified for row in rows if row.key == self._pointer]
        if not times:
            found = "a listing does not show a key that was just written"
            return warning("list", found, "expect lists of runs to lag behind; saves and loads never list")
        if self._times is not None:
            self._clock = clock_finding(times[0], *self._times)
        return ok("list", "keys can be listed")

    async def _delete(self) -> Finding:
        if not self._written:
            return unknown("delete", "not tried, since nothing could be written")
        try:
            await self._storage.delete([self._payload])
            await self._storage.delete([self._pointer])
            # Where a missing key is answered as denied, the answer would tell nothing.
            self._left = await self._storage.read(self._pointer) if self._tells_missing else None
        except PermissionDeniedError as error:
            return told("delete", Level.WARNING, error, MAY_DELETE)
        except CloudckptError as error:
            return told("delete", Level.UNKNOWN, error)
        if self._left is not None:
            return warning(
                "delete", "a deleted key is still there", "expect expired checkpoints to take space"
            )
        return ok("delete", "a key can be deleted")

    async def _conditions(self) -> Finding:
        try:
            verdict = await self._probe()
        except UnsupportedStoreError as error:
            return told("conditions", Level.FAULT, error, UNFIT)
        except PreconditionFailedError:
            return fault("conditions", "the store refuses conditional writes that it should take", UNFIT)
        except CloudckptError as error:
            return told("conditions", Level.UNKNOWN, error)
        if verdict is None:
            return unknown("conditions", "not tried, since writing or reading fails")
        seen = asdict(verdict)
        if verdict.faults:
            wrong = ", ".join(f"not {name.replace('_', ' ')}" for name in verdict.faults)
            return fault("conditions", f"conditional writes are not kept: {wrong}", UNFIT, **seen)
        return ok("conditions", "conditional writes are refused where they must be, also in a race", **seen)

    async def _probe(self) -> Verdict | None:
        if isinstance(self._refusal, UnsupportedStoreError | PreconditionFailedError):
            raise self._refusal  # the first write was a conditional one, and a read tells its token
        return await probe(self._storage, self._effects) if self._readable else None

    async def _pace(self) -> list[Finding]:
        if not self._readable:
            why = "not tried, since writing or reading fails"
            return [unknown(check, why) for check in ("latency-put", "latency-get")]
        token = None if self._left is None else self._left.token
        return await measure(self._traced, self._effects, self._pointer, token)

    async def _inside(self) -> Sequence[Finding]:
        try:
            return await self._inspect(Samples(self._pointer, self._payload) if self._written else Samples())
        except CloudckptError as error:
            return [told("settings", Level.UNKNOWN, error)]


def _right(error: CloudckptError, grant: str) -> str:
    """Return what to do about a right that is not granted; "" for what the error itself says."""
    return grant if isinstance(error, PermissionDeniedError) and error.kind in (None, "denied") else ""


def clock_finding(modified: datetime, before: datetime, after: datetime) -> Finding:
    """Return how far this machine's clock is from the store's.

    Args:
        modified: The store's time of a write; most round it down to a second.
        before: This machine's time before that write.
        after: And after it.
    """
    ahead = before - modified - timedelta(seconds=1)
    behind = modified - after
    skew = max(ahead, behind, timedelta(0))
    seconds = round(skew.total_seconds(), 1)
    facts = {"seconds_ahead": -seconds if behind > ahead else seconds}
    if skew < SKEW_WARNING:
        return ok("clock", "this machine's clock and the store's agree", **facts)
    found = f"this machine's clock is {seconds:,} s {'behind' if behind > ahead else 'ahead of'} the store's"
    if skew < SKEW_FAULT:
        do = "set the clock (NTP): times in the history are wrong; what is saved is safe all the same"
        return warning("clock", found, do, **facts)
    return fault("clock", found, "set the clock (NTP): S3 refuses requests that are 15 minutes off", **facts)


def _verdict(document: Stored | PermissionDeniedError | None, conditions: Finding) -> Finding:
    """Return what `cloudckpt.json` says."""
    again = f"delete {keys.STORE_KEY}: the store is then probed before its next new run"
    if isinstance(document, PermissionDeniedError):
        return told("verdict", Level.UNKNOWN, document)
    if document is None:
        return ok("verdict", "none is kept yet: the store is probed before its first run", kept=False)
    try:
        found = unseal(document.data)
    except CorruptCheckpointError as error:
        return told("verdict", Level.FAULT, error, again)
    version = found.get("format")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        return fault("verdict", f"the store has format {version}, which is newer", "upgrade cloudckpt")
    if conditions.level is Level.FAULT:
        return warning("verdict", "the kept verdict says that conditions hold, which is no longer so", again)
    since = found.get("time")
    return ok("verdict", f"{keys.STORE_KEY} says that conditions hold, since {since}", kept=True, since=since)
