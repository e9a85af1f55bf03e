"""The words of `storage_options` that a file system of fsspec's takes, and those that nobody takes.

Owns: how a word that is misspelt is told. Invariant: no word is dropped in silence, since
what it was to do would not be done: an endpoint, an encryption. `gcsfs` and `adlfs` drop
what they don't know; `s3fs` does not, and the engines that have words of their own say so
themselves.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping
from typing import Any

from cloudckpt.errors import InvalidInputError

AZURES = re.compile(
    r"exclude_\w+_credential|(managed|workload)_identity_\w+|shared_cache_\w+|visual_studio_code_tenant_id"
    "|additionally_allowed_tenants|authority|process_timeout|require_envvar|((connection|read)_)?timeout"
)
"""Words that adlfs hands on to `azure.identity.DefaultAzureCredential`, and what an older adlfs drops."""

_FSSPECS = ("batch_size", "listings_expiry_time", "max_paths", "skip_instance_cache", "use_listings_cache")


def check_words(
    options: Mapping[str, Any], make: type, engine: str, also: re.Pattern[str] | None = None
) -> None:
    """Refuse words that a file system does not know.

    Args:
        options: The caller's.
        make: The class of the file system, whose constructor names its words.
        engine: Its name, for the message.
        also: More words that it takes.

    Raises:
        InvalidInputError: There are some; the message names them, and the known ones.
    """
    named = inspect.signature(make.__init__).parameters.values()  # type: ignore[misc]
    words = {one.name for one in named if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    more = {word for word in options if also is not None and also.fullmatch(word)}
    refuse_unknown(options, words - {"self"} | {*_FSSPECS} | more, f"engine='{engine}'")


def refuse_unknown(options: Mapping[str, Any], known: Collection[str], who: str, where: str = "") -> None:
    """Raise unless all words are known.

    Args:
        options: The caller's.
        known: The words.
        who: Who does not know the others.
        where: What they are part of, with a dot behind.

    Raises:
        InvalidInputError: Some are not.
    """
    unknown = sorted(f"{where}{word}" for word in options if word not in known)
    if unknown:
        raise InvalidInputError(
            f"{who} does not know these storage_options; correct them, or leave them out",
            unknown=unknown,
            known=sorted(f"{where}{word}" for word in known),
        )
