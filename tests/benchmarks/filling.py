"""Stores that hold many runs, written without saving each of them.

Owns: what such a run is made of: two checkpoints with an object each, and one object that
nothing refers to, as a crash leaves it. They are as a writer writes them, hash chain and all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from cloudckpt import keys
from cloudckpt.codec import encode
from cloudckpt.entries import entry_digest
from cloudckpt.format import encode_manifest
from cloudckpt.model import Entry, Extent, Manifest, Writer
from cloudckpt.runner import Runner
from cloudckpt.storage.contract import Storage

CHECKPOINTS = 2
SPARE = 1
THREADS = 32
SAVED = datetime(2026, 1, 1, tzinfo=UTC)


def fill(engine: Storage, runner: Runner, runs: Iterable[str]) -> int:
    """Write runs to an engine; return how many objects they have."""

    def write(run: str) -> int:
        manifest, objects = documents(run)
        for key, data in objects.items():
            runner.call(engine.put(key, data))
        runner.call(engine.create(keys.manifest_key(run), manifest))
        return len(objects)

    with ThreadPoolExecutor(THREADS) as threads:
        return sum(threads.map(write, runs))


def names(count: int) -> Iterator[str]:
    """Yield ids of runs."""
    return (f"agent-{number:06}" for number in range(count))


def documents(run: str) -> tuple[bytes, Mapping[str, bytes]]:
    """Return the manifest of a run, and its objects by key."""
    objects: dict[str, bytes] = {}
    entries: list[Entry] = []
    for seq in range(1, CHECKPOINTS + 1):
        encoded = encode({"run": run, "step": seq, "notes": f"{run} at step {seq}. " * 20})
        extent = _extent(run, seq, encoded.data, objects)
        parent = entries[-1] if entries else None
        entries.append(
            Entry(
                seq=seq,
                step=seq,
                commit=f"{seq:016x}",
                epoch=1,
                parent=parent and parent.seq,
                parent_digest=parent and entry_digest(parent),
                digest=extent.digest,
                size=extent.length,
                encoded_digest=encoded.encoded_digest,
                encoded_size=encoded.encoded_size,
                codec=encoded.codec,
                schema=None,
                schema_version=None,
                fingerprint=None,
                time=SAVED + timedelta(minutes=seq),
                tags=(),
                metadata={},
                extents=(extent,),
            )
        )
    for seq in range(CHECKPOINTS + 1, CHECKPOINTS + SPARE + 1):
        _extent(run, seq, f"a crash left {run} this".encode(), objects)
    manifest = Manifest(
        run=run,
        seq=CHECKPOINTS,
        nonce=f"{next(_nonces):016x}",
        epoch=1,
        writer=Writer("0" * 16, "bench", 1, SAVED),
        checkpoints=tuple(reversed(entries)),
        recent=tuple(entry.commit for entry in reversed(entries)),
    )
    return encode_manifest(manifest), objects


_nonces = itertools.count(1)


def _extent(run: str, seq: int, data: bytes, objects: dict[str, bytes]) -> Extent:
    import hashlib

    digest = hashlib.sha256(data).hexdigest()
    key = keys.object_key(run, seq, digest, f"{next(_nonces):016x}")
    objects[key] = data
    return Extent(key, 0, len(data), digest)
