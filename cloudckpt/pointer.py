"""The pointer: a run's manifest, read whole and advanced by one conditional write.

Owns: rule 2 of the protocol (docs/ARCHITECTURE.md). Invariant: every answer to a
conditional write but success proves nothing until the manifest was read: SDKs
and proxies send a PUT again, so "precondition failed" may be the answer to
one's own success, and a time-out may hide either. It does not know what a commit
is for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cloudckpt import keys
from cloudckpt.effects import Effects
from cloudckpt.errors import (
    AmbiguousError,
    CloudckptError,
    CorruptCheckpointError,
    OutcomeUnknownError,
    PreconditionFailedError,
    StorageError,
    ThrottledError,
    UnsupportedFormatError,
)
from cloudckpt.format import decode_manifest, encode_manifest
from cloudckpt.model import Manifest
from cloudckpt.storage.answers import AbsentError
from cloudckpt.storage.changed import Changes
from cloudckpt.storage.contract import Storage, Stored, Token
from cloudckpt.storage.retry import Retries, RetryPolicy


@dataclass(frozen=True, slots=True)
class Base:
    """A manifest and the token that names this version of it."""

    manifest: Manifest
    token: Token


async def read_base(storage: Storage, run: str) -> Base | None:
    """Read a run's manifest: one request. None when the run does not exist.

    Raises:
        CorruptCheckpointError: It is damaged.
        UnsupportedFormatError: A newer release wrote it.
    """
    stored = await storage.read(keys.manifest_key(run))
    return None if stored is None else _base(stored, run)


def _base(stored: Stored, run: str) -> Base:
    key = keys.manifest_key(run)
    try:
        return Base(decode_manifest(stored.data, run), stored.token)
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(
            "the run's manifest is damaged; bring back an earlier version of this key, or start a new run",
            run=run,
            key=key,
            why=error.message,
        ) from error
    except UnsupportedFormatError as error:
        raise UnsupportedFormatError(error.message, run=run, key=key, **error.facts) from error


class Pointer:
    """One run's manifest in its store."""

    def __init__(self, storage: Storage, effects: Effects, run: str, policy: RetryPolicy) -> None:
        self._storage = storage
        self._effects = effects
        self._run = run
        self._key = keys.manifest_key(run)
        self._policy = policy
        self._changes = Changes(storage)

    async def read(self) -> Base | None:
        """Read it, see `read_base`."""
        return await read_base(self._storage, self._run)

    async def newer(self, base: Base) -> Base | None:
        """Return the newest version when it is another one than `base`, None while it is that.

        Raises:
            CorruptCheckpointError: It is damaged, or has vanished.
        """
        try:
            stored = await self._changes.since(self._key, base.token)
        except AbsentError:
            return await self.read_existing()  # raises: it has vanished
        return None if stored is None else _base(stored, self._run)

    async def read_existing(self) -> Base:
        """Read a manifest that must be there.

        Raises:
            CorruptCheckpointError: It has vanished.
        """
        base = await self.read()
        if base is None:
            raise CorruptCheckpointError(
                "the run's manifest has vanished; bring back an earlier version of this key",
                run=self._run,
                key=self._key,
            )
        return base

    async def swap(
        self, base: Base | None, new: Manifest, is_ours: Callable[[Manifest], bool], commit: str | None = None
    ) -> tuple[Base, bool]:
        """Write `new` over `base`; return what stands there then, and whether ours landed.

        Args:
            base: What `new` was derived from; None when the run does not exist yet.
            new: The manifest to write.
            is_ours: Says of a manifest that stands there whether it is `new` or was made on top of it.
            commit: Named in the error when the outcome stays unknown.

        Raises:
            OutcomeUnknownError: It may or may not have landed, or may still.
            StorageError: It did not land, and won't.
        """
        data = encode_manifest(new)
        retries = Retries(self._policy, self._effects)
        doubtful = False
        while True:
            try:
                if base is None:
                    token = await self._storage.create(self._key, data)
                else:
                    token = await self._storage.replace(self._key, data, base.token)
                return Base(new, token), True
            except (PreconditionFailedError, AmbiguousError, ThrottledError) as error:
                # A 503 may hide a write that happened; only a refused condition is an answer.
                doubtful = doubtful or not isinstance(error, PreconditionFailedError)
                cause: StorageError = error
            except StorageError as error:
                if doubtful:
                    raise self.outcome_unknown(commit) from error
                raise
            try:
                seen = await self.read()
            except CloudckptError as error:
                raise self.outcome_unknown(commit) from error
            if seen is not None and is_ours(seen.manifest):
                return seen, True
            if seen is None and base is not None:
                await self.read_existing()  # raises: it has vanished
            if seen is not None and (base is None or seen.token != base.token):
                return seen, False
            if not await retries.pause():
                raise self.outcome_unknown(commit) if doubtful else cause from cause

    def outcome_unknown(self, commit: str | None) -> OutcomeUnknownError:
        """Return the error for a commit of which nobody can tell."""
        return OutcomeUnknownError(
            "the store gave no answer that tells whether the commit happened; "
            "read the run and look for this commit before going on",
            commit=commit,
            run=self._run,
        )
