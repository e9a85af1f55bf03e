"""What the doctor finds of a folder and its file system, and that it leaves the folder as it was."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloudckpt.clock import SystemClock
from cloudckpt.doctor import Report, examine
from cloudckpt.doctor.folder import file_system
from cloudckpt.runner import DirectRunner, drive
from cloudckpt.storage.file import FileStorage
from cloudckpt.storage.findings import Level
from cloudckpt.store import open as open_store
from tests.unit.visits import found


def visit(path: Path) -> Report:
    return drive(examine(FileStorage(path), DirectRunner(SystemClock()).effects))


def tree(path: Path) -> dict[str, bytes | None]:
    return {
        str(each.relative_to(path)): each.read_bytes() if each.is_file() else None for each in path.rglob("*")
    }


def test_a_folder_that_is_not_there_is_not_there_afterwards(tmp_path: Path) -> None:
    report = visit(tmp_path / "new/agents")
    assert report.count(Level.FAULT) == 0
    checks = {each.check for each in report.findings}
    assert {"identity", "file-system", "space", "flock", "fsync"} <= checks
    page = (Path(__file__).parents[2] / "docs/cli.md").read_text()
    assert [check for check in checks if f"| `{check}` |" not in page] == [], "not in docs/cli.md"
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_in_use_is_left_byte_for_byte(tmp_path: Path) -> None:
    """Lock files included: the engine keeps those of its keys for ever, and nobody knows a visit's keys."""
    with open_store(tmp_path) as store:
        store.run("r").save({"step": 1})
    before = tree(tmp_path)
    assert visit(tmp_path).count(Level.FAULT) == 0
    assert tree(tmp_path) == before


def test_a_file_in_the_way_is_a_fault_and_stays(tmp_path: Path) -> None:
    (tmp_path / "agents").write_text("in the way")
    report = visit(tmp_path / "agents")
    assert found(report, "store").level is Level.FAULT
    assert tree(tmp_path) == {"agents": b"in the way"}


def test_a_folder_that_can_not_be_written_leaves_its_file_system_unjudged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no file of the check may end up in the folder above it."""

    def refuse(path: Any, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "read-only", str(path))

    monkeypatch.setattr(os, "mkdir", refuse)
    report = visit(tmp_path / "agents")
    assert (found(report, "write").level, found(report, "write").facts["kind"]) == (Level.FAULT, "read-only")
    assert found(report, "flock").level is Level.UNKNOWN
    assert found(report, "fsync").level is Level.UNKNOWN
    assert list(tmp_path.iterdir()) == []


def test_a_flock_that_excludes_nobody_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems answer yes to everybody."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    assert found(visit(tmp_path), "flock").level is Level.FAULT
    assert list(tmp_path.iterdir()) == []


def test_a_flock_that_fails_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.flock

    def fails(descriptor: int, operation: int) -> None:
        if operation & fcntl.LOCK_NB:
            raise OSError(errno.ENOLCK, "No locks available")
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", fails)
    assert "No locks available" in found(visit(tmp_path), "flock").found


def test_a_folder_that_can_not_be_flushed_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fails(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), tmp_path.stat()):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fails)
    (tmp_path / "probe").mkdir()  # so that no write needs to flush the store's own folder
    (tmp_path / ".locks").mkdir()
    assert found(visit(tmp_path), "fsync").level is Level.FAULT


@pytest.mark.parametrize(("free", "level"), [(2**30 - 1, Level.WARNING), (2**30, Level.OK)])
def test_little_space_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: Level
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    space = found(visit(tmp_path), "space")
    assert (space.level, space.facts["free_bytes"]) == (level, free)


MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:20 / /tmp rw - tmpfs tmpfs rw
23 21 0:21 / /mnt rw - nfs4 server:/export rw
24 23 8:2 / /mnt/disk rw shared:7 master:2 - xfs /dev/sdb1 rw
25 21 0:22 / /data rw - overlay overlay rw
26 21 0:23 / /share\\040of\\040mine rw - cifs //server/share rw
27 21 0:24 / /bucket rw - fuse.s3fs s3fs rw
28 21 0:25 / /over rw - nfs4 server:/a rw
29 28 8:3 / /over rw - ext4 /dev/sdc1 rw
a line of another kernel
"""


@pytest.mark.parametrize(
    ("path", "kind", "level"),
    [
        ("/home/me", "ext4", Level.OK),
        ("/tmp/agents", "tmpfs", Level.WARNING),
        ("/tmpx", "ext4", Level.OK),
        ("/mnt/agents", "nfs4", Level.WARNING),
        ("/mnt/disk/agents", "xfs", Level.OK),
        ("/data", "overlay", Level.WARNING),
        ("/share of mine/agents", "cifs", Level.WARNING),
        ("/bucket/agents", "fuse.s3fs", Level.WARNING),
        ("/over/agents", "ext4", Level.OK),
    ],
)
def test_the_file_system_is_that_of_the_innermost_mount(path: str, kind: str, level: Level) -> None:
    """A prefix of a name is no folder around it, and of two mounts on one place the later is seen."""
    finding = file_system(Path(path), MOUNTS)
    assert (finding.facts["type"], finding.level) == (kind, level)


def test_a_system_that_does_not_tell_its_mounts_is_no_good_sign() -> None:
    assert file_system(Path("/x"), "").level is Level.UNKNOWN
