"""From a URL to an engine, or to a message that says what would do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudckpt.errors import InvalidInputError, UnsupportedStoreError
from cloudckpt.storage.engines import engine_for


@pytest.mark.parametrize(
    ("url", "engine", "shown"),
    [
        ("memory://x", "MemoryStorage", "memory://x"),
        ("MEMORY://x/", "MemoryStorage", "memory://x"),
        ("file:///tmp/a b", "FileStorage", "file:///tmp/a b"),
        ("local:///tmp/a", "FileStorage", "file:///tmp/a"),
        ("/tmp/a", "FileStorage", "file:///tmp/a"),
        (Path("/tmp/ä"), "FileStorage", "file:///tmp/ä"),
        ("s3://bucket/some/prefix/", "S3Storage", "s3://bucket/some/prefix"),
        ("s3a://bucket", "S3Storage", "s3://bucket"),
    ],
)
def test_a_url_has_its_engine(url: Any, engine: str, shown: str) -> None:
    storage = engine_for(url)()
    assert (type(storage).__name__, storage.url) == (engine, shown)


def test_a_relative_path_and_a_home_are_made_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that changes its folder later must not go on in another store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert engine_for("here")().url == f"file://{tmp_path}/here"
    assert engine_for("~/there")().url == f"file://{tmp_path}/home/there"


def test_each_call_makes_an_engine_of_its_own() -> None:
    make = engine_for("memory://x")
    assert make() is not make()


@pytest.mark.parametrize(
    "url",
    ["", "  ", None, 5, b"memory://x", "s3://", "s3:///key", "file://", "/a\0b", "s3://b/x\n", "/a\r\n"],
)
def test_an_unusable_url_is_refused_with_the_forms(url: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        engine_for(url)
    assert "://" in str(caught.value) or "NUL" in str(caught.value)


@pytest.mark.parametrize(
    "url", ["s3:/bucket/x", "s3:bucket", "GS:/bucket", "file:/folder", "memory:x", "abfs:c"]
)
def test_a_url_without_its_slashes_is_no_folder(url: str) -> None:
    """Agents saved into a folder `s3:` of their container's disk, and it went well."""
    with pytest.raises(InvalidInputError, match="://") as caught:
        engine_for(url)
    assert f"./{url} " in str(caught.value)
    assert engine_for(f"./{url}")().url.endswith(f"/{url}")
    assert engine_for("c:/x")().url.endswith("/c:/x")


@pytest.mark.parametrize("scheme", ["s4", "postgres", "s3 ", "x"])
def test_an_unknown_scheme_says_what_is_known(scheme: str) -> None:
    with pytest.raises(UnsupportedStoreError, match=r"s3://") as caught:
        engine_for(f"{scheme}://x")
    assert caught.value.facts == {"scheme": scheme}


@pytest.mark.parametrize("scheme", ["ftp", "sftp", "webdav", "dbfs", "github", "http"])
def test_a_protocol_without_conditional_writes_is_refused(scheme: str) -> None:
    with pytest.raises(UnsupportedStoreError, match="unsafe_single_writer=True"):
        engine_for(f"{scheme}://host/path")


@pytest.mark.parametrize(
    ("url", "engine"), [("memory://x", "s3fs"), ("s3://b", "nonsense"), ("ftp://h", "x")]
)
def test_an_unknown_engine_is_refused(url: str, engine: str) -> None:
    with pytest.raises(InvalidInputError, match="no such engine"):
        engine_for(url, engine=engine)


@pytest.mark.parametrize("options", ["key=1", [("key", 1)], 5])
def test_options_must_be_a_mapping(options: Any) -> None:
    with pytest.raises(InvalidInputError, match="storage_options"):
        engine_for("memory://x", storage_options=options)
