"""From a URL to an engine. Owns: which engine serves which URL, and what to say when none does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from cloudckpt.errors import InvalidInputError, UnsupportedStoreError
from cloudckpt.storage.contract import Storage

_SCHEMES = "memory://NAME, file://PATH or a plain path, s3://BUCKET/PREFIX"
_ENGINES = {"memory": "memory", "file": "file", "s3": "s3fs"}


def engine_for(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    engine: str | None = None,
    unsafe_single_writer: bool = False,
) -> Callable[[], Storage]:
    """Return a function that makes the engine for `url`: once at first, and again after a fork.

    Args:
        url: See the message of the error for the forms.
        storage_options: fsspec's own, for engines that come from fsspec.
        engine: Name of the engine, where a URL has more than one.
        unsafe_single_writer: Take an fsspec protocol without conditional writes.

    Raises:
        InvalidInputError: The URL, the options or the engine's name are not usable.
        UnsupportedStoreError: No engine can keep the promise on this URL.
    """
    options = _checked_options(storage_options)
    scheme, rest = _split(url)
    if engine is not None and _ENGINES.get(scheme) != engine:
        known = _ENGINES.get(scheme)
        raise InvalidInputError(
            f"this URL has no such engine; {f'use {known!r} or leave it out' if known else 'leave it out'}",
            engine=engine,
            url=f"{scheme}://",
        )
    if scheme == "memory":
        return _memory(rest)
    if scheme == "file":
        return _file(rest)
    if scheme == "s3":
        return _s3(rest, options)
    return _other(scheme, rest, options, unsafe_single_writer=unsafe_single_writer)


def _split(url: str | os.PathLike[str]) -> tuple[str, str]:
    try:
        text = os.fspath(url)
    except TypeError:
        text = url  # type: ignore[assignment]  # told below
    if not isinstance(text, str) or not text.strip():
        raise InvalidInputError(f"a store's URL must be a str or a path: {_SCHEMES}", got=url)
    scheme, colon, rest = text.partition("://")
    if not colon:
        return "file", text
    return {"s3a": "s3", "local": "file"}.get(scheme.lower(), scheme.lower()), rest


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


def _s3(rest: str, options: dict[str, Any]) -> Callable[[], Storage]:
    from cloudckpt.storage.s3 import S3Storage

    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise InvalidInputError("the URL has no bucket; write s3://BUCKET/PREFIX")
    return lambda: S3Storage(bucket, prefix.strip("/"), storage_options=options)


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
