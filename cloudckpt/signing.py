"""Ed25519 signatures of archives, by keys of the user's.

Owns: how keys are read, and what exactly is signed. Invariant: what is signed says
what it is about, so a signature of one thing never passes for that of another. The
library, `cryptography`, comes with the extra `sign` and is imported when it is used.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, TypeAlias

from cloudckpt.errors import InvalidInputError
from cloudckpt.late import Late
from cloudckpt.sealed import canonical

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    PrivateKey: TypeAlias = ed25519.Ed25519PrivateKey
    PublicKey: TypeAlias = ed25519.Ed25519PublicKey
else:
    exceptions = Late("cryptography.exceptions")
    ed25519 = Late("cryptography.hazmat.primitives.asymmetric.ed25519")
    serialization = Late("cryptography.hazmat.primitives.serialization")


def private_key(key: bytes | PrivateKey) -> PrivateKey:
    """Return a key that signs: of a PEM file's bytes (PKCS 8 or OpenSSH, without a pass phrase).

    Raises:
        InvalidInputError: It is no such key, or `cryptography` is not installed.
    """
    _installed()
    if not isinstance(key, bytes):
        found: object = key
    else:
        ssh = b"OPENSSH PRIVATE KEY" in key
        load = serialization.load_ssh_private_key if ssh else serialization.load_pem_private_key
        try:
            found = load(key, password=None)
        except TypeError as error:
            raise InvalidInputError("the private key has a pass phrase; give one without") from error
        except (ValueError, exceptions.UnsupportedAlgorithm) as error:
            raise InvalidInputError(
                "this is no private key; make one by: openssl genpkey -algorithm ed25519"
            ) from error
    if not isinstance(found, ed25519.Ed25519PrivateKey):
        raise InvalidInputError("the key must be an Ed25519 private key", got=type(found).__name__)
    return found


def public_key(key: bytes | PublicKey) -> PublicKey:
    """Return a key that checks signatures: of a PEM file's bytes, or of an ``ssh-ed25519`` line.

    Raises:
        InvalidInputError: It is no such key, or `cryptography` is not installed.
    """
    _installed()
    if not isinstance(key, bytes):
        found: object = key
    elif b"PRIVATE KEY" in key:
        raise InvalidInputError(
            "this is a private key; whoever checks needs the public one: openssl pkey -in KEY.pem -pubout"
        )
    else:
        ssh = key.lstrip().startswith(b"ssh-")
        load = serialization.load_ssh_public_key if ssh else serialization.load_pem_public_key
        try:
            found = load(key.strip())
        except (ValueError, exceptions.UnsupportedAlgorithm) as error:
            raise InvalidInputError(
                "this is no public key; get it by: openssl pkey -in KEY.pem -pubout"
            ) from error
    if not isinstance(found, ed25519.Ed25519PublicKey):
        raise InvalidInputError("the key must be an Ed25519 public key", got=type(found).__name__)
    return found


def _installed() -> None:
    try:
        import cryptography  # noqa: F401
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            'signatures need cryptography: pip install "cloudckpt[sign]"', kind="missing-package"
        ) from error


def fingerprint(key: PublicKey) -> str:
    """Return the sha256 of a public key's 32 bytes, in hex: names it to people."""
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return hashlib.sha256(raw).hexdigest()


def sign(key: PrivateKey, about: dict[str, object]) -> str:
    """Return the signature of a statement: of its canonical JSON, in base64."""
    return base64.b64encode(key.sign(canonical(about))).decode()


def is_signed(key: PublicKey, about: dict[str, object], signature: str) -> bool:
    """Whether a signature is of this statement, by this key."""
    try:
        key.verify(base64.b64decode(signature, validate=True), canonical(about))
    except (exceptions.InvalidSignature, ValueError):
        return False
    return True


def about_archive(digest: str) -> dict[str, object]:
    """Return the statement on a whole archive, by the sha256 of its index."""
    return {"cloudckpt": "archive", "index": digest}


def about_run(run: str, seq: int, digest: str) -> dict[str, object]:
    """Return the statement on a run, by the digest of its manifest."""
    return {"cloudckpt": "run", "run": run, "seq": seq, "manifest": digest}
