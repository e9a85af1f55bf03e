"""Stores that hold many runs, written without saving each of them.

Owns: what such a run is made of: its manifest, its objects, and objects that nothing refers
to. They are as a writer writes them, hash chain and all.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from cloudckpt import keys
from cloudckpt.clock import SystemClock
from cloudckpt.codec import encode
from cloudckpt.entries import entry_digest
from cloudckpt.format import encode_manifest
from cloudckpt.model import RECENT_COMMITS, Entry, Extent, Manifest, Writer
from cloudckpt.runner import Runner, make_runner
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.engines import engine_for
from tests.benchmarks.engines import Place

THREADS = 32
AT_ONCE = 4_000
"""Objects that are made before they are put."""

SAVED = datetime(2026, 1, 1, tzinfo=UTC)


def opened(place: Place, ends: ExitStack) -> tuple[Storage, Runner]:
    """Return an engine object for a place, and a runner that runs its bare calls."""
    engine = engine_for(place.url, storage_options=place.options, engine=place.engine)()
    runner = make_runner(blocking=engine.blocking, clock=SystemClock())
    ends.callback(lambda: runner.call(engine.close()))
    return engine, runner


def fill(place: Place, runs: Iterable[str], *, checkpoints: int = 2, spare: int = 1, size: int = 100) -> None:
    """Write runs to a place, by the fastest engine for it.

    Args:
        place: Where.
        runs: Their ids.
        checkpoints: How many each has, with an object each.
        spare: How many objects nothing refers to, as a crash leaves them.
        size: Bytes of each object, some more or less.
    """
    fast = "obstore" if place.url.startswith("s3:") else place.engine
    with ExitStack() as ends, ThreadPoolExecutor(THREADS) as threads:
        engine, runner = opened(replace(place, engine=fast), ends)
        manifests: dict[str, bytes] = {}
        objects: dict[str, bytes] = {}

        def flush() -> None:
            list(threads.map(lambda one: runner.call(engine.put(*one)), objects.items()))
            list(threads.map(lambda one: runner.call(engine.create(*one)), manifests.items()))
            manifests.clear()
            objects.clear()

        for run in runs:
            manifests[keys.manifest_key(run)] = document(
                run, objects, checkpoints=checkpoints, spare=spare, size=size
            )
            if len(objects) >= AT_ONCE:
                flush()
        flush()


def names(count: int) -> Iterator[str]:
    """Yield ids of runs."""
    return (f"agent-{number:06}" for number in range(count))


def document(run: str, objects: dict[str, bytes], *, checkpoints: int, spare: int, size: int) -> bytes:
    """Return the manifest of a run, and put its objects among others."""
    entries: list[Entry] = []
    for seq in range(1, checkpoints + 1):
        encoded = encode({"run": run, "step": seq, "noise": os.urandom(size)})
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
    for _ in range(spare):
        _extent(run, checkpoints + 1, os.urandom(size), objects)
    manifest = Manifest(
        run=run,
        seq=checkpoints,
        nonce=f"{next(_nonces):016x}",
        epoch=1,
        writer=Writer("0" * 16, "bench", 1, SAVED),
        checkpoints=tuple(reversed(entries)),
        recent=tuple(entry.commit for entry in reversed(entries[-RECENT_COMMITS:])),
    )
    return encode_manifest(manifest)


_nonces = itertools.count(1)


def _extent(run: str, seq: int, data: bytes, objects: dict[str, bytes]) -> Extent:
    digest = hashlib.sha256(data).hexdigest()
    key = keys.object_key(run, seq, digest, f"{next(_nonces):016x}")
    objects[key] = data
    return Extent(key, 0, len(data), digest)
