"""What an operator sets for a whole store: one small document that changes.

Owns: `settings.json`. It is read when a run's first manifest is created, which takes
over what it says; never on the way of a load or a save.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cloudckpt import keys
from cloudckpt.errors import CorruptCheckpointError, DataError, InvalidInputError, UnsupportedFormatError
from cloudckpt.model import FORMAT_VERSION
from cloudckpt.retention import Retention
from cloudckpt.sealed import seal, unseal
from cloudckpt.storage.contract import Storage, Token


@dataclass(frozen=True, slots=True)
class Settings:
    """A store's settings as they were read.

    Attributes:
        retention: The rules of runs for which nobody else gave any.
        extra: Fields that a newer release added; kept and written back.
        token: Of this version of the document; None when there is none.
    """

    retention: Retention | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    token: Token | None = None


async def read_settings(storage: Storage) -> Settings:
    """Return the store's settings; those of a store without a document are empty.

    Raises:
        CorruptCheckpointError: The document is damaged.
        UnsupportedFormatError: A newer release wrote it.
    """
    stored = await storage.read(keys.SETTINGS_KEY)
    if stored is None:
        return Settings()
    try:
        document = unseal(stored.data)
        version = document.pop("format", None)
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise UnsupportedFormatError(
                "the store's settings have a newer format than this release reads; upgrade cloudckpt"
            )
        rules = document.pop("retention", None)
        return Settings(None if rules is None else Retention.from_json(rules), document, stored.token)
    except DataError as error:
        error.facts.update(key=keys.SETTINGS_KEY)
        raise
    except (TypeError, InvalidInputError) as error:
        raise CorruptCheckpointError(
            "the store's settings are not as we write them; set them again", key=keys.SETTINGS_KEY
        ) from error


async def write_settings(storage: Storage, settings: Settings) -> None:
    """Write settings over the version that they were read from.

    Raises:
        PreconditionFailedError: Somebody else changed them meanwhile.
        AmbiguousError: They may have been written.
    """
    document = {**settings.extra, "format": FORMAT_VERSION}
    if settings.retention is not None:
        document["retention"] = settings.retention.to_json()
    if settings.token is None:
        await storage.create(keys.SETTINGS_KEY, seal(document))
    else:
        await storage.replace(keys.SETTINGS_KEY, seal(document), settings.token)
