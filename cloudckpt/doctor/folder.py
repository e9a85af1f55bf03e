"""What a folder's file system is, and whether it keeps what the engine leans on."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cloudckpt import keys
from cloudckpt.storage.file import LOCKS, FileStorage
from cloudckpt.storage.file_leftovers import TEMPORARY
from cloudckpt.storage.findings import Finding, fault, ok, unknown, warning

LOW_SPACE = 2**30
MOUNTS = Path("/proc/self/mountinfo")
NETWORK = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "glusterfs",
    "lustre",
    "beegfs",
    "gpfs",
)
FLEETING = ("tmpfs", "ramfs", "overlay", "aufs")


async def inspect_folder(engine: FileStorage) -> list[Finding]:
    """Return what there is to say about the folder of an engine. Blocks, as the engine does."""
    root = _root(engine)
    here = next(path for path in (root, *root.parents) if path.is_dir())
    found = [_identity(), file_system(here.resolve(), _mounts()), _space(here)]
    if here != root:  # nothing could be written, so it was not made
        return [
            *found,
            *(unknown(check, "not tried, since there is no folder") for check in ("flock", "fsync")),
        ]
    return [*found, _flock(root), _fsync(root)]


def _root(engine: FileStorage) -> Path:
    return Path(engine.url.removeprefix("file://"))


def _identity() -> Finding:
    import pwd

    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # as in many containers
        return ok("identity", f"user {uid}, without a name here", uid=uid)
    return ok("identity", f"user {name} ({uid})", uid=uid, name=name)


# ---- file system


def _mounts() -> str:
    try:
        return MOUNTS.read_text(errors="replace")
    except OSError:  # not Linux
        return ""


def file_system(path: Path, mounts: str) -> Finding:
    """Return what the file system of a path means for a store.

    Args:
        path: A folder, without symbolic links on its way.
        mounts: What `/proc/self/mountinfo` says, or "".
    """
    found = ""
    longest = -1
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.partition(" ")[0]
        if len(fields) < 5 or not kind:
            continue
        mounted = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]))
        # Of two on one place the later one is seen.
        if path.is_relative_to(mounted) and len(mounted.parts) >= longest:
            found, longest = kind, len(mounted.parts)
    if not found:
        return unknown("file-system", "this system does not tell the kind of file system")
    if found in NETWORK or found.startswith("fuse"):
        do = "have one machine write to it, or use an object store: it is as safe as its flock is"
        return warning("file-system", f"{found}: shared over a network, or by a program", do, type=found)
    if found in FLEETING:
        do = "use a volume or an object store for what must outlive this machine or container"
        return warning("file-system", f"{found}: gone with this machine or container", do, type=found)
    return ok("file-system", found, type=found)


def _space(here: Path) -> Finding:
    free = shutil.disk_usage(here).free
    found = f"{free / 2**30:,.1f} GiB free"
    if free < LOW_SPACE:
        return warning("space", found, "free some space: a save on a full disk fails", free_bytes=free)
    return ok("space", found, free_bytes=free)


# ---- what the engine leans on


def _flock(here: Path) -> Finding:
    path = here / f"{TEMPORARY}{secrets.token_hex(8)}"
    do = "use a local file system, or an object store: two writers could overwrite each other"
    descriptors: list[int] = []
    try:
        descriptors += [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600) for _ in range(2)]
        fcntl.flock(descriptors[0], fcntl.LOCK_EX)
        with suppress(BlockingIOError):
            fcntl.flock(descriptors[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fault("flock", "flock excludes nobody on this file system", do)
        return ok("flock", "flock excludes a second holder")
    except PermissionError:
        return unknown("flock", "not tried, since nothing could be written")
    except OSError as error:
        return fault("flock", f"flock fails on this file system: {error.strerror}", do)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(OSError):
            path.unlink()


def _fsync(here: Path) -> Finding:
    descriptor = os.open(here, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        found = f"a folder can't be flushed on this file system: {error.strerror}"
        return fault("fsync", found, "use a local file system: saves fail without it")
    finally:
        os.close(descriptor)
    return ok("fsync", "folders can be flushed")


# ---- leaving nothing behind


def tidier(engine: FileStorage) -> Callable[[set[str]], None]:
    """Return what takes away the lock files of keys, and the folders that are not there yet.

    The engine keeps lock files for ever, since somebody may wait for one; but nobody
    else knows the keys of a visit.
    """
    root = _root(engine)
    made = [root / keys.PROBES.rstrip("/"), root / LOCKS, root, *root.parents]
    made = [folder for folder in made if not folder.is_dir()]

    def tidy(touched: set[str]) -> None:
        for key in touched:
            lock = hashlib.sha256(key.encode()).hexdigest()[:32]
            with suppress(OSError):
                (root / LOCKS / lock).unlink(missing_ok=True)
        for folder in made:
            with suppress(OSError):  # somebody has begun to use it
                folder.rmdir()

    return tidy
