"""Listings of a folder: page by page every key once, in order, without a walk over all for each page."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cloudckpt.errors import PermissionDeniedError, StorageError
from cloudckpt.storage import file
from cloudckpt.storage.file import FileStorage
from cloudckpt.testing.driver import by_hand

segments = st.text("ab-.!", min_size=1, max_size=3).filter(lambda name: not name.startswith("."))
keys = st.lists(segments, min_size=1, max_size=3).map("/".join)


@pytest.fixture(autouse=True)
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "PAGE_ROWS", 3)


def paged(storage: FileStorage, prefix: str) -> Iterator[list[str]]:
    cursor = None
    while True:
        page = by_hand(storage.list(prefix, cursor=cursor))
        yield [row.key for row in page.rows]
        cursor = page.cursor
        if cursor is None:
            return


@settings(max_examples=200, deadline=None)
@given(st.sets(keys, max_size=25), st.builds(lambda key, length: key[:length], keys, st.integers(0, 6)))
@example({"a/b", "a-/b", "a.b", "a/b-", "ab/a"}, "a")
@example({f"a/{name}/b" for name in ("a", "b", "a-", "b-", "a.", "!")}, "a/")
def test_pages_give_every_key_once_and_in_order(wanted: set[str], prefix: str) -> None:
    """`a-b` comes before `a/b`: a folder counts by its name with the slash."""
    wanted = {key for key in wanted if not any(other.startswith(f"{key}/") for other in wanted)}
    with tempfile.TemporaryDirectory() as folder:
        for key in wanted:
            (Path(folder) / key).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / key).touch()
        pages = list(paged(FileStorage(folder), prefix))
    assert all(len(page) == 3 for page in pages[:-1])
    assert [key for page in pages for key in page] == sorted(key for key in wanted if key.startswith(prefix))


def test_a_page_looks_only_into_the_folders_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of 10,000 runs has a folder for each one's objects, and hundreds of pages of them."""
    storage = FileStorage(tmp_path)
    for number in range(30):
        for name in ("1", "2"):
            by_hand(storage.put(f"objects/run-{number:02}/{name}", b""))
    looked: list[str] = []
    scandir = os.scandir

    def noted(path: Any) -> Any:
        looked.append(os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    pages = list(paged(storage, "objects/"))
    assert [len(page) for page in pages] == [3] * 20
    inside = [path for path in looked if "run-" in path]
    assert len(inside) <= 30 + 2 * len(pages)


def test_only_so_many_names_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(tmp_path)
    for number in range(20):
        by_hand(storage.put(f"manifests/{number:02}.json", b""))
    held: list[int] = []
    smallest = file.heapq.nsmallest

    def noted(count: int, names: Iterator[str]) -> list[str]:
        found = smallest(count, names)
        held.append(len(found))
        return found

    monkeypatch.setattr(file.heapq, "nsmallest", noted)
    assert sum(map(len, paged(storage, "manifests/"))) == 20
    assert max(held) == 4


def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk that passes over what it can't read would call it empty, and a collector would believe it."""

    def denied(path: Any) -> Any:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(PermissionDeniedError):
        by_hand(FileStorage(tmp_path).list("objects/"))


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    storage = FileStorage(tmp_path)
    assert by_hand(storage.list("objects/run/")).rows == ()
    assert by_hand(storage.list("plain/run/")).rows == ()


def test_a_file_in_the_stores_place_is_no_empty_store(tmp_path: Path) -> None:
    """`verify --store` of a file said that all of its 0 runs are whole."""
    (tmp_path / "file").touch()
    for root in ("file", "file/below"):
        with pytest.raises(StorageError) as caught:
            by_hand(FileStorage(tmp_path / root).list("manifests/"))
        assert caught.value.kind == "not-a-folder"
    storage = FileStorage(tmp_path)
    assert by_hand(storage.list("file/below/")).rows == ()  # as in a bucket: a key is no folder
    assert by_hand(FileStorage(tmp_path / "none").list("")).rows == ()
