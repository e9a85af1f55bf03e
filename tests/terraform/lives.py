"""What each role does in its working life, on a store of its own.

Owns: the three lives, which together make every request that the product makes of S3. What
they are denied, and what they leave unused, is for `test_policies.py` to judge.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

import cloudckpt
from cloudckpt.clock import SystemClock
from cloudckpt.doctor import Report, examine
from cloudckpt.errors import CorruptCheckpointError, WaitingError
from cloudckpt.runner import make_runner
from cloudckpt.storage.engines import engine_for
from cloudckpt.storage.findings import Level
from tests.servers.base import Server
from tests.terraform.calls import Watch
from tests.terraform.policies import Setting

RUN = "team-a-1"
OTHER = "team-a-2"
LARGE = 50_000
"""Bytes that do not ride in the pointer."""

_numbers = count(1)


def noise() -> bytes:
    """Return bytes that zstd makes no smaller."""
    return secrets.token_bytes(LARGE)


class Place:
    """A bucket with versions and object lock, and a store in it.

    Args:
        server: Where it is made.
        prefix, run, kms: As of `Setting`.
    """

    def __init__(self, server: Server, *, prefix: str = "agents/", run: str = "*", kms: str = "") -> None:
        name = f"policies-{next(_numbers)}"
        server.client().create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
        self.server = server
        self.client = server.client()
        self.setting = Setting(bucket=name, prefix=prefix, run=run, kms=kms)
        self.runs = run.removesuffix("*")

    @property
    def url(self) -> str:
        return f"s3://{self.setting.bucket}/{self.setting.prefix}".rstrip("/")

    def watch(self, role: str) -> Watch:
        return Watch(self.server, self.setting, role)

    @contextmanager
    def store(self, watch: Watch | None = None, **options: Any) -> Iterator[cloudckpt.Store]:
        """Open the store as somebody who is held to a role; without one, as its owner."""
        storage = self.server.storage_options() if watch is None else watch.options
        with cloudckpt.open(self.url, engine="boto3", storage_options=storage, **options) as store:
            yield store

    def freeze(self, key: str) -> None:
        """Move an object into an archive, as a lifecycle rule would."""
        source = {"Bucket": self.setting.bucket, "Key": key}
        self.client.copy_object(
            Bucket=self.setting.bucket, Key=key, CopySource=source, StorageClass="GLACIER"
        )

    def hold(self, key: str) -> None:
        """Put a legal hold of the store's on an object."""
        self.client.put_object_legal_hold(Bucket=self.setting.bucket, Key=key, LegalHold={"Status": "ON"})

    def lock(self, key: str) -> None:
        """Lock the newest version of a key, as a bucket's default retention would."""
        until = datetime.now(UTC) + timedelta(days=1)
        self.client.put_object_retention(
            Bucket=self.setting.bucket, Key=key, Retention={"Mode": "GOVERNANCE", "RetainUntilDate": until}
        )

    def objects(self, run: str) -> list[str]:
        """Return the keys of a run's objects, oldest first, by the bucket's owner."""
        prefix = f"{self.setting.prefix}objects/{run}/"
        rows = self.client.list_objects_v2(Bucket=self.setting.bucket, Prefix=prefix).get("Contents", ())
        names = [row["Key"] for row in rows if row["Key"][len(prefix)].isdigit()]
        return sorted(names, key=lambda name: int(name[len(prefix) :].split("-")[0]))


def agent(place: Place, watch: Watch) -> None:
    """Save, load, expire, act, ask, look after itself, and go on after damage."""
    with place.store(watch, keep_last=2) as store:
        with store.run(RUN) as run:
            assert run.load() is None
            for step in range(20):
                run.save({"step": step, "text": noise()})
            assert run.once("large", noise) == run.once("large", noise)
            with suppress(WaitingError):
                run.wait("go on?", expires=3600)
        with store.run(RUN) as run:
            assert run.load()["step"] == 19
        assert store.claim(place.runs) is None
        assert [info.id for info in store.runs(place.runs)] == [RUN]
        assert all(report.ok for report in store.verify(place.runs))
    place.client.delete_object(Bucket=place.setting.bucket, Key=place.objects(RUN)[-1])
    with place.store(watch) as store, store.run(RUN) as run:
        with pytest.raises(CorruptCheckpointError):
            run.load()
        assert run.load(fallback=True)["step"] == 18
    with place.store(watch, lock="governance:1d") as store, store.run(OTHER) as run:
        run.save({"step": 0})


def reader(place: Place, watch: Watch) -> None:
    """Look at everything, change nothing."""
    with place.store(keep_last=3) as store, store.run(RUN) as run:
        for step in range(5):
            run.save({"step": step, "text": noise()})
    with place.store(watch) as store:
        [info] = store.runs(place.runs)
        run = store.run(info.id)
        assert len(list(run.history())) == 3
        assert run.load()["step"] == 4
        assert run.verify(depth=3).ok
        assert all(report.ok for report in store.verify(place.runs))
        assert store.get_retention() is None
        with cloudckpt.open(f"memory://{place.setting.bucket}") as copy:
            store.copy(RUN, copy)
    place.client.delete_object(Bucket=place.setting.bucket, Key=place.objects(RUN)[-1])
    with place.store(watch) as store:
        assert not store.run(RUN).verify(depth=3).ok
        assert store.run(f"{RUN}-missing").load() is None


def maintainer(place: Place, watch: Watch) -> None:
    """Copy in, set rules, curate, collect, restore, erase, and look at the bucket."""
    with cloudckpt.open(f"memory://{place.setting.bucket}") as source, place.store(watch) as store:
        with source.run(OTHER) as run:
            run.save({"text": noise()})
        assert source.copy(OTHER, store).changed
    with place.store(keep_last=20, lock="governance:1d") as store, store.run(RUN) as run:
        for step in range(6):
            run.save({"step": step, "text": noise()})
    place.client.put_object(
        Bucket=place.setting.bucket,
        Key=f"{place.setting.prefix}objects/{OTHER}/9-{'0' * 64}-{'0' * 16}",
        Body=b"left by a crash",
    )
    with place.store(watch, lock="governance:1d") as store:
        if not place.runs:
            store.set_retention(cloudckpt.Retention(keep_last=5))
            store.set_retention(cloudckpt.Retention(keep_last=9))
        assert len(list(store.runs(place.runs))) == 2
        run = store.run(RUN)
        run.tag("kept", seq=1)
        run.rollback(seq=5)
        run.save({"step": 7})
        run.close()
        assert all(report.ok for report in store.verify(place.runs))
        assert store.collect(OTHER).removed == 1
        place.freeze(place.objects(RUN)[0])
        assert run.restore(seq=1).objects
        place.hold(place.objects(RUN)[1])
        place.hold(pointer := f"{place.setting.prefix}manifests/{RUN}.json")
        run.untag("kept")
        place.lock(pointer)
        run.tag("kept", seq=1)
        locked, erased = store.forget(RUN, why="done"), store.forget(OTHER, why="done")
    assert {one.kind for one in locked.left} == {"retained"}
    assert erased.complete
    report = doctor(place, watch)
    assert not report.left
    assert not report.count(Level.FAULT)


def doctor(place: Place, watch: Watch) -> Report:
    """Return what the doctor finds when somebody calls for it."""
    engine = engine_for(place.url, storage_options=watch.options, engine="boto3")()
    runner = make_runner(blocking=True, clock=SystemClock())
    try:
        return runner.call(examine(engine, runner.effects))
    finally:
        runner.call(engine.close())
