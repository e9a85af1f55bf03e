"""What an operator sets for a whole store: one small document that changes.

Owns: `settings.json`. It is read when a run's first manifest is created, which takes
over what it says; never on the way of a load or a save. Invariant: a change is made of what
stands, and again when somebody else wrote meanwhile or an answer got lost; so it must be the
same when it is done already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cloudckpt import keys
from cloudckpt.effects import Effects
from cloudckpt.errors import (
    AmbiguousError,
    ConflictError,
    CorruptCheckpointError,
    InvalidInputError,
    PreconditionFailedError,
    ThrottledError,
    UnsupportedFormatError,
)
from cloudckpt.model import FORMAT_VERSION
from cloudckpt.retention import Retention
from cloudckpt.sealed import seal, unseal
from cloudckpt.storage.contract import Storage, Stored, Token
from cloudckpt.storage.retry import Retries, RetryPolicy


@dataclass(frozen=True, slots=True)
class Settings:
    """A store's settings as they were read.

    Attributes:
        retention: The rules of runs for which nobody else gave any.
        extra: Fields that a newer release added; kept and written back.
        token: Of this version of the document; None when there is none.
        damaged: Whether the document could not be read, and these stand in for it.
    """

    retention: Retention | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    token: Token | None = None
    damaged: bool = False


_DAMAGED = (
    "the store's settings are damaged; bring back an earlier version of this key, or take them away by "
    "`cloudckpt retain --default --clear` and set them again"
)


async def read_settings(storage: Storage, *, damaged: bool = False) -> Settings:
    """Return the store's settings; those of a store without a document are empty.

    Args:
        storage: The store.
        damaged: Whether a damaged document is read as empty settings, to be written over it.

    Raises:
        CorruptCheckpointError: The document is damaged.
        UnsupportedFormatError: A newer release wrote it.
    """
    stored = await storage.read(keys.SETTINGS_KEY)
    if stored is None:
        return Settings()
    try:
        return _decoded(stored)
    except UnsupportedFormatError as error:
        error.facts.update(key=keys.SETTINGS_KEY)
        raise
    except (CorruptCheckpointError, TypeError, InvalidInputError) as error:
        if damaged:
            return Settings(token=stored.token, damaged=True)
        raise CorruptCheckpointError(_DAMAGED, key=keys.SETTINGS_KEY, why=str(error)) from error


def _decoded(stored: Stored) -> Settings:
    document = unseal(stored.data)
    version = document.pop("format", None)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise UnsupportedFormatError(
            "the store's settings have a newer format than this release reads; upgrade cloudckpt"
        )
    rules = document.pop("retention", None)
    return Settings(None if rules is None else Retention.from_json(rules), document, stored.token)


async def change_settings(
    storage: Storage, effects: Effects, change: Callable[[Settings], Settings], *, damaged: bool = False
) -> None:
    """Change the store's settings. Safe to call again.

    Args:
        storage: The store.
        effects: For the waits in between.
        change: Returns what is to stand.
        damaged: Whether that may be written over a damaged document.

    Raises:
        ConflictError: They are changed by others all the time.
        CorruptCheckpointError, UnsupportedFormatError: As `read_settings`.
    """
    retries = Retries(RetryPolicy(), effects)
    while True:
        found = await read_settings(storage, damaged=damaged)
        new = replace(change(found), damaged=False)
        if new == found:
            return
        try:
            await write_settings(storage, new)
        except (PreconditionFailedError, AmbiguousError, ThrottledError) as error:
            if await retries.pause():
                continue  # what stands tells whether it was ours
            if not isinstance(error, PreconditionFailedError):
                raise
            raise ConflictError(
                "the store's settings are being changed all the time; try again later", key=keys.SETTINGS_KEY
            ) from error
        return


async def write_settings(storage: Storage, settings: Settings) -> None:
    """Write settings over the version that they were read from, once.

    Raises:
        PreconditionFailedError, AmbiguousError: As an engine answers.
    """
    document = {**settings.extra, "format": FORMAT_VERSION}
    if settings.retention is not None:
        document["retention"] = settings.retention.to_json()
    if settings.token is None:
        await storage.create(keys.SETTINGS_KEY, seal(document))
    else:
        await storage.replace(keys.SETTINGS_KEY, seal(document), settings.token)
