"""From a URL to an engine. Owns: which engine serves which URL, and what to say when none does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from cloudckpt.errors import InvalidInputError, UnsupportedStoreError
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.placing import NOWHERE, Placing, check_cant
from cloudckpt.storage.retry import PATIENCE

_SCHEMES = "memory://NAME, file://PATH or a plain path, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX"
_Make: TypeAlias = Callable[..., Storage]
"""Of bucket, prefix, and by name what an engine's constructor takes besides."""

_ALIASES = {"local": "file", "s3a": "s3", "gcs": "gs", "abfs": "az"}


def engine_for(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    engine: str | None = None,
    patience: float = PATIENCE,
    unsafe_single_writer: bool = False,
    placing: Placing = NOWHERE,
) -> Callable[[], Storage]:
    """Return a function that makes the engine for `url`: once at first, and again after a fork.

    Args:
        url: See the message of the error for the forms.
        storage_options: fsspec's own, for engines that come from fsspec.
        engine: Name of the engine, where a URL has more than one.
        patience: Seconds without a sign of life after which an engine gives one request up.
        unsafe_single_writer: Take an fsspec protocol without conditional writes.
        placing: What objects are written with.

    Raises:
        InvalidInputError: The URL, the options or the engine's name are not usable.
        UnsupportedStoreError: No engine can keep the promise on this URL.
    """
    options = _checked_options(storage_options)
    scheme, rest = _split(url)
    if scheme not in _ENGINES:
        why = f"{scheme}:// knows no"
        check_cant(placing, lock=f"{why} object lock", storage_class=f"{why} storage class")
    if scheme == "memory":
        _only("memory", engine, scheme)
        return _memory(rest)
    if scheme == "file" and engine != "obstore":
        _only("file", engine, scheme)
        return _file(rest)
    if scheme in _ENGINES or scheme == "file":
        how = {"storage_options": options, "patience": patience, "placing": placing}
        return _bucket(scheme, rest, engine, how)
    _only(None, engine, scheme)
    return _other(scheme, rest, options, unsafe_single_writer=unsafe_single_writer)


def _only(known: str | None, engine: str | None, scheme: str) -> None:
    if engine is not None and engine != known:
        raise InvalidInputError(
            "this URL has no such engine; leave it out", engine=engine, known=known, url=f"{scheme}://"
        )


def _split(url: str | os.PathLike[str]) -> tuple[str, str]:
    try:
        text = os.fspath(url)
    except TypeError:
        text = url  # type: ignore[assignment]  # told below
    if not isinstance(text, str) or not text.strip():
        raise InvalidInputError(f"a store's URL must be a str or a path: {_SCHEMES}", got=url)
    if text[-1] in "\r\n":  # as of a file or a secret: a store beside the one that is meant
        raise InvalidInputError(
            "a store's URL, such as s3://BUCKET/PREFIX, can't end with a line break", got=text
        )
    scheme, colon, rest = text.partition("://")
    if not colon:
        meant = text.partition(":")[0].lower()
        if ":" in text and meant in (*_ENGINES, *_ALIASES, "memory", "file"):  # or runs go into a folder s3:
            raise InvalidInputError(
                f"a URL has :// behind its kind; write {meant}://..., or ./{text} for a folder of that name",
                got=text,
            )
        return "file", text
    return _ALIASES.get(scheme.lower(), scheme.lower()), rest


def _checked_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise InvalidInputError("storage_options must be a mapping", got=type(options).__name__)
    return dict(options)


def _memory(name: str) -> Callable[[], Storage]:
    from cloudckpt.storage.memory import MemoryStorage

    return lambda: MemoryStorage(name.strip("/"))


def _file(path: str) -> Callable[[], Storage]:
    from cloudckpt.storage.file import FileStorage

    if not path:
        raise InvalidInputError("the URL has no path; write file:///folder or a plain path")
    if "\0" in path:
        raise InvalidInputError("a path can't hold a NUL character", path=path)
    return lambda: FileStorage(path)


def _bucket(scheme: str, rest: str, engine: str | None, how: Mapping[str, Any]) -> Callable[[], Storage]:
    known = _ENGINES.get(scheme, {"obstore": _obstore(scheme)})
    name = engine or next(iter(known))
    if name not in known:
        raise InvalidInputError(
            "this URL has no such engine; use one that it has, or leave it out",
            engine=name,
            known=list(known),
            url=f"{scheme}://",
        )
    bucket, _, prefix = rest.partition("/")
    if not bucket and scheme != "file":
        raise InvalidInputError(f"the URL has no bucket; write {scheme}://BUCKET/PREFIX")
    if "@" in bucket:  # it is not shown: there may be a secret in it
        raise InvalidInputError(
            f"a bucket has no '@' in its name; write {scheme}://BUCKET/PREFIX, and pass the account and the "
            "credentials in storage_options"
        )
    prefix = prefix.strip("/")
    if scheme == "az" and ("\\" in prefix or any(part.endswith(".") for part in prefix.split("/"))):
        raise InvalidInputError(
            "Azure takes a backslash for a slash and drops dots at the end of a name, so nothing would be "
            "found again; use another prefix",
            prefix=prefix,
        )
    make = known[name]
    return lambda: make(bucket, prefix, **how)


def _s3fs(bucket: str, prefix: str, **how: Any) -> Storage:
    from cloudckpt.storage.s3 import S3Storage

    return S3Storage(bucket, prefix, **how)


def _boto3(bucket: str, prefix: str, **how: Any) -> Storage:
    from cloudckpt.storage.s3_boto3 import Boto3Storage

    return Boto3Storage(bucket, prefix, **how)


def _gcsfs(bucket: str, prefix: str, **how: Any) -> Storage:
    from cloudckpt.storage.gcs import GCSStorage

    return GCSStorage(bucket, prefix, **how)


def _adlfs(container: str, prefix: str, **how: Any) -> Storage:
    from cloudckpt.storage.azure import AzureStorage

    return AzureStorage(container, prefix, **how)


def _obstore(scheme: str) -> _Make:
    def make(bucket: str, prefix: str, **how: Any) -> Storage:
        from cloudckpt.storage.obstore_engine import ObstoreStorage

        return ObstoreStorage(scheme, bucket, prefix, **how)

    return make


def _other(
    scheme: str, rest: str, options: dict[str, Any], *, unsafe_single_writer: bool
) -> Callable[[], Storage]:
    from fsspec.registry import known_implementations, registry

    if scheme not in known_implementations and scheme not in registry:
        raise UnsupportedStoreError(f"unknown kind of store; use {_SCHEMES}", scheme=scheme)
    if not unsafe_single_writer:
        raise UnsupportedStoreError(
            "this fsspec protocol has no conditional writes, so a second writer could silently overwrite the "
            f"first; use {_SCHEMES}, or pass unsafe_single_writer=True if you can promise that there is ever "
            "only one writer",
            scheme=scheme,
        )
    from cloudckpt.storage.unsafe import UnsafeStorage

    return lambda: UnsafeStorage(scheme, rest, storage_options=options)


_ENGINES: dict[str, dict[str, _Make]] = {
    "s3": {"s3fs": _s3fs, "obstore": _obstore("s3"), "boto3": _boto3},
    "gs": {"gcsfs": _gcsfs, "obstore": _obstore("gs")},
    "az": {"adlfs": _adlfs, "obstore": _obstore("az")},
}
"""Kind of store to name of engine to what makes it; the first is the one by default."""
