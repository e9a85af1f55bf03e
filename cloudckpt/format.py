"""Manifests to bytes and back (docs/FORMAT.md). Pure.

Owns: the JSON form and its self-digest. Invariants: equal manifests give equal
bytes; any changed, cut or added byte is found, since the digest at the front
covers every byte behind it; fields that this release does not know survive.

A document is ``{"digest":"<sha256 hex>",`` followed by the rest of a canonical
JSON object (sorted keys, no spaces, ASCII); the digest is that of ``{`` and the
rest. This envelope stays in every later format, so that an old release can tell
"newer" from "damaged".
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from cloudckpt.errors import CorruptCheckpointError, InvalidInputError, UnsupportedFormatError
from cloudckpt.keys import check_text
from cloudckpt.model import FORMAT_VERSION, STATUSES, Entry, Extent, Manifest, Writer

_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_HEAD = b'{"digest":"'
_REST = len(_HEAD) + 64 + 2
_ENVELOPE = re.compile(rb'\{"digest":"([0-9a-f]{64})",(?=.)', re.DOTALL)
_MANIFEST_FIELDS = frozenset(f.name for f in fields(Manifest)) - {"extra"} | {"format"}
_ENTRY_FIELDS = frozenset(f.name for f in fields(Entry)) - {"extra", "cached"}

MAX_TAG = 128
"""Characters of a tag."""

MAX_INT = 2**63 - 1
"""Largest whole number in a manifest, either way from zero: other languages' JSON reads no more."""


def canonical(value: object) -> bytes:
    """Return `value` as JSON whose bytes depend on nothing but the value."""
    return _json.encode(value).encode("ascii")


def seal(document: Mapping[str, Any]) -> bytes:
    """Return a document's bytes with the digest of itself in front."""
    return _sealed(canonical(document))


def _sealed(body: bytes) -> bytes:
    return _HEAD + hashlib.sha256(body).hexdigest().encode() + b'",' + body[1:]


def unseal(data: bytes) -> dict[str, Any]:
    """Return the document of `seal`.

    Raises:
        CorruptCheckpointError: A byte was changed, cut off or added.
    """
    found = _ENVELOPE.match(data)
    if found is None:
        raise CorruptCheckpointError("the document does not start as ours do; it is damaged or not ours")
    body = b"{" + data[_REST:]
    if hashlib.sha256(body).hexdigest().encode() != found[1]:
        raise CorruptCheckpointError("the document does not match its own digest; it was cut or changed")
    try:
        document = json.loads(body)
    except ValueError as error:  # unreachable unless somebody sealed what is no JSON
        raise CorruptCheckpointError("the document is not JSON") from error
    if not isinstance(document, dict):
        raise CorruptCheckpointError("the document is not a JSON object")
    return document


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest's bytes."""
    writer = manifest.writer
    fields = {
        **manifest.extra,
        "format": FORMAT_VERSION,
        "run": manifest.run,
        "seq": manifest.seq,
        "nonce": manifest.nonce,
        "epoch": manifest.epoch,
        "writer": {
            "id": writer.id,
            "host": writer.host,
            "pid": writer.pid,
            "since": _time_out(writer.since),
        },
        "status": manifest.status,
        "recent": list(manifest.recent),
    }
    riders = (
        b'%b:"%b"' % (canonical(key), base64.b64encode(data)) for key, data in sorted(manifest.inline.items())
    )
    entries = (_entry_bytes(entry) for entry in manifest.checkpoints)
    ready = {"checkpoints": b"[%b]" % b",".join(entries), "inline": b"{%b}" % b",".join(riders)}
    return _sealed(_canonical_object(fields, ready))


def _canonical_object(fields: Mapping[str, Any], ready: Mapping[str, bytes]) -> bytes:
    """Return what `canonical` gives, where some values are canonical JSON already: the large ones."""
    pieces: list[bytes] = []
    for is_ready, group in itertools.groupby(sorted([*fields, *ready]), key=ready.__contains__):
        if is_ready:
            pieces += (b"%b:%b" % (canonical(key), ready[key]) for key in group)
        else:
            pieces.append(canonical({key: fields[key] for key in group})[1:-1])
    return b"{%b}" % b",".join(pieces)


def _entry_bytes(entry: Entry) -> bytes:
    if entry.cached is None:
        # Derived from what can't change, so the value stays the same to all who look at it.
        object.__setattr__(entry, "cached", canonical(_entry_out(entry)))
    return entry.cached or b""


def decode_manifest(data: bytes, run: str | None) -> Manifest:
    """Return the manifest in `data`, which must be of `run` unless that is None.

    Raises:
        CorruptCheckpointError: Damaged, or of another run. Without `key`: the caller knows it.
        UnsupportedFormatError: Written by a newer release.
    """
    document = unseal(data)
    version = document.get("format")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise UnsupportedFormatError(
            "the manifest has a newer format than this release reads; upgrade cloudckpt",
            format=version,
            known=FORMAT_VERSION,
        )
    try:
        manifest = _manifest_in(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptCheckpointError("the manifest lacks a field or has one of a wrong type") from error
    if run is not None and manifest.run != run:
        raise CorruptCheckpointError("the manifest is of another run", found=manifest.run)
    return manifest


def entry_digest(entry: Entry) -> str:
    """Return the digest that the next checkpoint's entry keeps of this one."""
    return hashlib.sha256(_entry_bytes(entry)).hexdigest()


def check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of `metadata` that comes back from JSON as it is.

    Raises:
        InvalidInputError: A key is no str, or a value is not plain JSON; names the path.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidInputError("metadata must be a mapping", got=type(metadata).__name__)
    try:
        return {
            _check_key(key, "metadata"): _checked(item, f"metadata.{key}") for key, item in metadata.items()
        }
    except RecursionError as error:
        raise InvalidInputError(
            "metadata is nested too deeply, or holds itself; put it in the state"
        ) from error


def _check_key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise InvalidInputError("keys of metadata must be str", path=path, got=type(key).__name__)
    return check_text(key, path)


def _checked(value: Any, path: str) -> Any:
    if value is None or type(value) is bool:
        return value
    if type(value) is str:
        return check_text(value, path)
    if type(value) is int:
        if abs(value) > MAX_INT:
            raise InvalidInputError(
                "metadata can't hold a whole number over 64 bits; make it a str", path=path
            )
        return value
    if type(value) is float:
        if value - value != 0:  # NaN and the infinities, which JSON lacks
            raise InvalidInputError("metadata can't hold a float that is not finite", path=path)
        return value
    if type(value) is list:
        return [_checked(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if type(value) is dict:
        return {_check_key(key, path): _checked(item, f"{path}.{key}") for key, item in value.items()}
    raise InvalidInputError(
        "metadata holds plain JSON values only; put the rest in the state",
        path=path,
        got=type(value).__name__,
    )


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags, each once.

    Raises:
        InvalidInputError: They are no list, or one is no str that can be a tag.
    """
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise InvalidInputError("tags must be a list or tuple of str", got=tags)
    found = list(tags)
    for tag in found:
        if not isinstance(tag, str) or not 0 < len(tag) <= MAX_TAG:
            raise InvalidInputError(f"a tag must be a str of 1 to {MAX_TAG} characters", got=tag)
        check_text(tag, "tags")
    return tuple(dict.fromkeys(found))


def _time_out(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds")


def _entry_out(entry: Entry) -> dict[str, Any]:
    return {
        **entry.extra,
        "seq": entry.seq,
        "step": entry.step,
        "commit": entry.commit,
        "epoch": entry.epoch,
        "parent": entry.parent,
        "parent_digest": entry.parent_digest,
        "digest": entry.digest,
        "size": entry.size,
        "encoded_digest": entry.encoded_digest,
        "encoded_size": entry.encoded_size,
        "codec": entry.codec,
        "schema": entry.schema,
        "schema_version": entry.schema_version,
        "fingerprint": None if entry.fingerprint is None else dict(entry.fingerprint),
        "time": _time_out(entry.time),
        "tags": list(entry.tags),
        "metadata": dict(entry.metadata),
        "extents": [[x.key, x.offset, x.length, x.digest] for x in entry.extents],
    }


def _manifest_in(document: dict[str, Any]) -> Manifest:
    writer = document["writer"]
    status = document["status"]
    if status not in STATUSES:
        raise ValueError(status)
    return Manifest(
        run=_str(document["run"]),
        seq=_int(document["seq"]),
        nonce=_str(document["nonce"]),
        epoch=_int(document["epoch"]),
        writer=Writer(
            id=_str(writer["id"]),
            host=_str(writer["host"]),
            pid=_int(writer["pid"]),
            since=datetime.fromisoformat(writer["since"]),
        ),
        status=status,
        checkpoints=tuple(_entry_in(item) for item in document["checkpoints"]),
        recent=tuple(_str(item) for item in document["recent"]),
        inline={key: base64.b64decode(data, validate=True) for key, data in document["inline"].items()},
        extra={key: value for key, value in document.items() if key not in _MANIFEST_FIELDS},
    )


def _entry_in(item: dict[str, Any]) -> Entry:
    return Entry(
        seq=_int(item["seq"]),
        step=item["step"],
        commit=_str(item["commit"]),
        epoch=_int(item["epoch"]),
        parent=item["parent"],
        parent_digest=item["parent_digest"],
        digest=_str(item["digest"]),
        size=_int(item["size"]),
        encoded_digest=_str(item["encoded_digest"]),
        encoded_size=_int(item["encoded_size"]),
        codec=_str(item["codec"]),
        schema=item["schema"],
        schema_version=item["schema_version"],
        fingerprint=_digests(item["fingerprint"]),
        time=datetime.fromisoformat(item["time"]),
        tags=tuple(_str(tag) for tag in item["tags"]),
        metadata=dict(item["metadata"]),
        extents=tuple(Extent(_str(k), _int(o), _int(n), _str(d)) for k, o, n, d in item["extents"]),
        extra={key: value for key, value in item.items() if key not in _ENTRY_FIELDS},
    )


def _digests(value: Any) -> dict[str, str] | None:
    return None if value is None else {_str(name): _str(digest) for name, digest in value.items()}


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value
