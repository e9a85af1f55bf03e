"""Keys as people have them, and messages that say what to do about the wrong ones."""

from __future__ import annotations

import io
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from cloudckpt import signing
from cloudckpt.archive import verify_archive
from cloudckpt.errors import InvalidInputError
from tests.protocol.signers import KEYS, pem, public_pem

KEY = KEYS[0]
ABOUT = signing.about_run("r", 3, "0" * 64)
OTHER = ec.generate_private_key(ec.SECP256R1())
OPENSSH = KEY.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
LINE = KEY.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


@pytest.mark.parametrize("private", [pem(KEY), OPENSSH, KEY])
@pytest.mark.parametrize("public", [public_pem(KEY), LINE, LINE + b" ann@host\n", KEY.public_key()])
def test_a_key_is_the_same_in_every_form(private: bytes, public: bytes) -> None:
    signature = signing.sign(signing.private_key(private), ABOUT)
    assert signing.is_signed(signing.public_key(public), ABOUT, signature)
    assert signing.fingerprint(signing.public_key(public)) == signing.fingerprint(KEY.public_key())


def test_a_signature_is_of_one_statement_by_one_key() -> None:
    """One on a run never passes for one on an archive, or on the same run at another point."""
    signature = signing.sign(KEY, ABOUT)
    for about in (
        signing.about_run("s", 3, "0" * 64),
        signing.about_run("r", 4, "0" * 64),
        signing.about_run("r", 3, "1" * 64),
        signing.about_archive("0" * 64),
    ):
        assert not signing.is_signed(KEY.public_key(), about, signature)
    assert not signing.is_signed(KEYS[1].public_key(), ABOUT, signature)
    for junk in ("", "junk!", signature[:-4], signature + "AAAA"):
        assert not signing.is_signed(KEY.public_key(), ABOUT, junk)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (b"", "openssl genpkey"),
        (b"junk", "openssl genpkey"),
        (public_pem(KEY), "openssl genpkey"),
        (KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")), "pass phrase"),
        (OTHER.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), "Ed25519"),
        (KEY.public_key(), "Ed25519"),
        ("KEY.pem", "Ed25519"),
    ],
)
def test_what_is_no_private_key_is_refused_with_advice(key: bytes, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        signing.private_key(key)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (b"", "-pubout"),
        (b"ssh-ed25519 junk", "-pubout"),
        (pem(KEY), "private key"),
        (OPENSSH, "private key"),
        (OTHER.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), "Ed25519"),
        (OTHER.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH), "no public key|Ed25519"),
        (KEY, "Ed25519"),
    ],
)
def test_what_is_no_public_key_is_refused_with_advice(key: bytes, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        signing.public_key(key)


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """And an archive is verified without it when nobody gives a key."""
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for use in (signing.private_key, signing.public_key):
        with pytest.raises(InvalidInputError, match=r"pip install \"cloudckpt\[sign\]\"") as caught:
            use(b"junk")
        assert caught.value.kind == "missing-package"
    assert not verify_archive(io.BytesIO(b"")).ok
