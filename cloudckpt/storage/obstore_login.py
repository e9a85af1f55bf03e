"""A profile of AWS's shared files, for obstore, which does not read them.

Owns: how botocore's credentials reach obstore, and stay fresh there. botocore
is looked for only when a profile is in play: it takes longer to import than
obstore takes for all it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cloudckpt.errors import PermissionDeniedError, UnsupportedStoreError
from cloudckpt.storage.obstore_options import Profile
from cloudckpt.storage.s3_answers import NO_CREDENTIALS, raise_told

FRESH = timedelta(minutes=10)
"""botocore hands out credentials that last at least so long; obstore asks again 5 minutes earlier."""


@dataclass(frozen=True, slots=True)
class Login:
    """What a profile says.

    Attributes:
        provider: What obstore asks for credentials; None when the profile has none.
        client: What else it names, as `client_kwargs` of s3fs.
    """

    provider: Provider | None
    client: dict[str, str]


@dataclass(frozen=True, slots=True)
class Provider:
    """Credentials of botocore's, which renews them when it is asked."""

    credentials: Any = field(repr=False)

    def __call__(self) -> dict[str, Any]:
        frozen = self.credentials.get_frozen_credentials()
        until = None
        if hasattr(self.credentials, "refresh_needed"):
            until = datetime.now(UTC) + FRESH
            end = getattr(self.credentials, "_expiry_time", None)
            until = min(until, end.astimezone(UTC)) if end else until  # some are made to last for less
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": until,
        }


def log_in(profile: Profile) -> Login:
    """Look a profile up.

    Raises:
        UnsupportedStoreError: It was asked for, and botocore is not here.
        PermissionDeniedError: It was asked for, and has no credentials.
        StorageError: There is no such profile.
    """
    try:
        import botocore.session
    except ImportError as error:
        if not profile.named:
            return Login(None, {})
        raise UnsupportedStoreError(
            "a profile of AWS's needs botocore beside obstore; pip install botocore", profile=profile.name
        ) from error
    try:
        session = botocore.session.Session(profile=profile.name)
        credentials = session.get_credentials()
        named = {
            "region_name": session.get_config_variable("region"),
            "endpoint_url": session.get_scoped_config().get("endpoint_url"),
        }
    except Exception as error:  # noqa: BLE001 - whatever botocore makes of the files
        raise_told(error, "")
    if credentials is None and profile.named:
        raise PermissionDeniedError(NO_CREDENTIALS, kind="no-credentials", profile=profile.name)
    client = {word: value for word, value in named.items() if value}
    return Login(None if credentials is None else Provider(credentials), client)
