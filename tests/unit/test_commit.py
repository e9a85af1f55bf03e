"""Becoming the writer and committing: which requests that takes, and what stands in between."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from typing import Any

import pytest

from cloudckpt import keys, objects, runner, sweep
from cloudckpt.entries import entry_digest
from cloudckpt.errors import (
    ConflictError,
    CorruptCheckpointError,
    FencedError,
    PermissionDeniedError,
    RunDeletedError,
    StorageError,
)
from cloudckpt.format import decode_manifest, encode_manifest
from cloudckpt.model import Entry, Manifest
from cloudckpt.retention import Retention
from cloudckpt.run import Run
from cloudckpt.sealed import seal, unseal
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from tests.protocol.scripted import AtOnce, OwnTime, ScriptedStorage, failing

RUN = "r"
KEY = keys.manifest_key(RUN)


def blob(size: int = 40_000) -> bytes:
    return secrets.token_bytes(size)


@pytest.fixture(autouse=True)
def own_time(monkeypatch: pytest.MonkeyPatch) -> OwnTime:
    time = OwnTime()
    monkeypatch.setattr(runner, "_sleep", time.sleep)
    return time


@pytest.fixture
def storage() -> ScriptedStorage:
    return ScriptedStorage()


@pytest.fixture
def store(storage: ScriptedStorage, own_time: OwnTime) -> Store:
    return Store(lambda: storage, clock=own_time, keep_last=3)


@pytest.fixture
def run(store: Store, storage: ScriptedStorage) -> Run:
    """The writer of a run with one checkpoint."""
    run = store.run(RUN)
    run.save({"n": 1})
    storage.calls.clear()
    return run


def stands(storage: ScriptedStorage) -> Manifest:
    stored = by_hand(storage.inner.read(KEY))
    assert stored is not None
    return decode_manifest(stored.data, RUN)


def interfere(storage: ScriptedStorage, change: Callable[[Manifest], Manifest]) -> None:
    """Write another manifest, as a stranger."""
    stored = by_hand(storage.inner.read(KEY))
    assert stored is not None
    new = replace(change(decode_manifest(stored.data, RUN)), nonce=secrets.token_hex(8))
    by_hand(storage.inner.replace(KEY, encode_manifest(new), stored.token))


# What it costs.


def test_a_small_save_is_one_request(run: Run, storage: ScriptedStorage) -> None:
    for n in range(20):
        run.save({"n": n})
    assert storage.calls == [("replace", KEY)] * 20


def test_a_large_save_is_two_requests_the_object_first(run: Run, storage: ScriptedStorage) -> None:
    run.save(blob())
    [(op, key), last] = storage.calls
    assert (op, last) == ("put", ("replace", KEY))
    assert key.startswith(keys.objects_prefix(RUN))


def test_becoming_the_writer_is_two_requests(store: Store, run: Run, storage: ScriptedStorage) -> None:
    store.run(RUN).acquire()
    assert storage.calls == [("read", KEY), ("replace", KEY)]


def test_the_writers_own_load_of_what_rides_is_one_request(run: Run, storage: ScriptedStorage) -> None:
    """What the writer remembers may be old news: another process may have taken over since."""
    assert run.load() == {"n": 1}
    assert [call[0] for call in storage.calls] == ["read"]


def test_a_writer_that_was_overtaken_loads_what_its_heir_saved(run: Run, storage: ScriptedStorage) -> None:
    """It would go on reporting its own last state for as long as it does not save."""
    with Store(lambda: storage).run(run.id) as heir:
        heir.save({"n": "by the heir"})
    assert run.load() == {"n": "by the heir"}
    with pytest.raises(FencedError):
        run.save({"n": "by the writer of before"})


def test_a_store_is_probed_before_its_first_run_only(storage: ScriptedStorage, store: Store) -> None:
    store.run("one").save(1)
    assert ("read", keys.STORE_KEY) in storage.calls
    storage.calls.clear()
    store.run("two").save(1)
    assert [call for call in storage.calls if not call[1].startswith(keys.MANIFESTS)] == [
        ("read", keys.SETTINGS_KEY)
    ], "which others may have set since"
    storage.calls.clear()
    Store(lambda: storage).run("three").save(1)
    assert [call for call in storage.calls if not call[1].startswith(keys.MANIFESTS)] == [
        ("read", keys.STORE_KEY),
        ("read", keys.SETTINGS_KEY),
    ]
    storage.calls.clear()
    Store(lambda: storage).run("three").save(1)
    assert not [key for _, key in storage.calls if not key.startswith(keys.MANIFESTS)]


# What stands.


def test_each_entry_holds_the_digest_of_the_one_before(run: Run, storage: ScriptedStorage) -> None:
    for n in range(5):
        run.save({"n": n})
    first, second, third = stands(storage).checkpoints
    assert (first.parent, first.parent_digest) == (second.seq, entry_digest(second))
    assert (second.parent, second.parent_digest) == (third.seq, entry_digest(third))
    assert third.parent == third.seq - 1, "the parent is named when it has expired, too"


def test_no_two_manifests_are_the_same_bytes(run: Run, storage: ScriptedStorage) -> None:
    """A token of content would come back otherwise, and a stale write would be taken for a fresh one."""
    for _ in range(5):
        run.save({"n": 1})
        run = Run(run._core, RUN, rules=Retention(keep_last=3))
    assert len(set(storage.bodies)) == len(storage.bodies)


def test_fields_that_a_newer_release_added_survive_a_save(run: Run, storage: ScriptedStorage) -> None:
    """An old worker in a rolling deploy must not strip them."""
    document = unseal(encode_manifest(stands(storage)))
    document["later"] = {"until": 5}
    document["checkpoints"][0]["mood"] = "calm"
    by_hand(storage.inner.delete([KEY]))
    by_hand(storage.inner.put(KEY, seal(document)))
    late = Run(run._core, RUN, rules=Retention(keep_last=3))
    late.save({"n": 2})
    manifest = stands(storage)
    assert manifest.extra == {"later": {"until": 5}}
    assert [entry.extra for entry in manifest.checkpoints] == [{}, {"mood": "calm"}]


def test_a_payload_of_several_parts(
    run: Run, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "PART_BYTES", 15_000)
    monkeypatch.setattr(sweep, "SWEEP_KEYS", 1)
    state = blob()
    run.save(state)
    extents = stands(storage).checkpoints[0].extents
    assert len({x.key for x in extents}) == len(extents) == 3
    assert [x.length for x in extents[:2]] == [15_000, 15_000]
    for reader in (run, Run(run._core, RUN, rules=Retention(keep_last=3))):
        assert reader.load() == state
    for n in range(3):
        run.save({"n": n})
    run.close()
    listed = by_hand(storage.inner.list(keys.objects_prefix(RUN))).rows
    assert not {row.key for row in listed} & {x.key for x in extents}


# Who else is there.


def strangers_save(manifest: Manifest) -> Manifest:
    """Add a checkpoint under the same epoch, as a copy of the process would that shares its claim."""
    head = manifest.checkpoints[0]
    entry = replace(
        head, seq=head.seq + 1, commit="stranger", parent=head.seq, parent_digest=entry_digest(head)
    )
    return replace(
        manifest,
        seq=entry.seq,
        checkpoints=(entry, *manifest.checkpoints),
        recent=("stranger", *manifest.recent),
    )


def test_a_commit_on_top_of_the_base_is_a_conflict_until_it_is_loaded(
    run: Run, storage: ScriptedStorage
) -> None:
    """Saving on blindly would make a history of two agents that don't know of each other."""
    interfere(storage, strangers_save)
    for _ in range(2):
        with pytest.raises(ConflictError) as caught:
            run.save({"n": "mine"})
        assert type(caught.value) is ConflictError
        assert (caught.value.facts["known"], caught.value.facts["newest"]) == (1, 2)
    assert run.load() == {"n": 1}, "the stranger saved the same state again"
    assert run.save({"n": 2}).seq == 3
    assert [entry.commit for entry in stands(storage).checkpoints][1] == "stranger"


def test_loading_does_not_make_a_fenced_writer_the_writer_again(run: Run, storage: ScriptedStorage) -> None:
    interfere(storage, lambda m: replace(m, epoch=2, writer=replace(m.writer, id="w", host="h2", pid=7)))
    for _ in range(2):
        with pytest.raises(FencedError) as caught:
            run.save({})
        assert (caught.value.facts["host"], caught.value.facts["pid"]) == ("h2", 7)
        assert (run.head, run.epoch) == (None, None)
        run.load()


def test_a_deleted_run_refuses_every_commit(run: Run, store: Store, storage: ScriptedStorage) -> None:
    """A late save must not revive it."""
    interfere(storage, lambda m: replace(m, status="deleted", checkpoints=(), inline={}, epoch=m.epoch + 1))
    before = by_hand(storage.inner.read(KEY))
    late = store.run(RUN)
    for call in (late.load, late.acquire, lambda: late.save({}), lambda: run.save({}), run.load):
        with pytest.raises(RunDeletedError):
            call()
    assert by_hand(storage.inner.read(KEY)) == before


def test_a_manifest_that_vanished_is_not_made_anew(run: Run, storage: ScriptedStorage) -> None:
    """Somebody deleted it by hand, or a lifecycle rule did; its history may still be brought back."""
    by_hand(storage.inner.delete([KEY]))
    for _ in range(2):
        with pytest.raises(CorruptCheckpointError, match="vanished"):
            run.save({"n": 2})
    assert by_hand(storage.inner.read(KEY)) is None


# What is put behind, and swept.


def riding(storage: ScriptedStorage) -> list[Entry]:
    manifest = stands(storage)
    return [entry for entry in manifest.checkpoints if entry.extents[0].key in manifest.inline]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is put behind be done, or have failed, before its save returns."""
    monkeypatch.setattr(runner, "_spawn_aside", AtOnce)


@pytest.mark.usefixtures("at_once")
def test_a_payload_whose_object_cannot_be_put_rides_on(run: Run, storage: ScriptedStorage) -> None:
    """Its save was acknowledged, so it may neither be lost nor fail later ones while there is room."""
    storage.puts.extend(repeat(failing(StorageError("no")), 2))
    for _ in range(2):
        run.save(blob(20_000))
    assert [entry.seq for entry in riding(storage)] == [3, 2, 1]
    assert not storage.puts
    run.save(blob(30_000))
    assert [entry.seq for entry in riding(storage)] == [4, 2], "3 was put, and 1 has expired"
    assert run.save(blob(30_000)).seq == 5
    assert [entry.seq for entry in riding(storage)] == [5], "room was made by putting 2 again"


@pytest.mark.usefixtures("at_once")
def test_a_save_that_finds_no_room_fails_and_the_next_one_goes_on(run: Run, storage: ScriptedStorage) -> None:
    storage.puts.extend(repeat(failing(StorageError("no")), 1000))
    for _ in range(2):
        run.save(blob(25_000))
    with pytest.raises(StorageError):
        run.save(blob(25_000))
    storage.puts.clear()
    assert run.save(blob(25_000)).seq == 4
    assert Run(run._core, RUN, rules=Retention(keep_last=3)).load(seq=3)


@pytest.mark.usefixtures("at_once")
def test_a_new_writer_puts_what_the_last_one_left_riding(
    store: Store, run: Run, storage: ScriptedStorage
) -> None:
    storage.puts.extend(repeat(failing(StorageError("no")), 1000))
    for _ in range(2):
        run.save(blob(20_000))
    storage.puts.clear()
    storage.calls.clear()
    with store.run(RUN):
        pass
    assert [op for op, _ in storage.calls] == ["read", "replace", "put", "put", "put"]


def test_without_the_right_to_delete_saving_goes_on(
    run: Run, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer's role may lack it; it is asked once, and collecting is left to another."""
    asked = 0

    async def denied(_: Any) -> None:
        nonlocal asked
        asked += 1
        raise PermissionDeniedError("no right to delete", kind="denied")

    monkeypatch.setattr(sweep, "SWEEP_KEYS", 1)
    monkeypatch.setattr(storage, "delete", denied)
    for n in range(8):
        assert run.save(blob()).seq == n + 2
    run.close()
    assert asked == 1


def test_credentials_that_came_back_delete_again(
    run: Run, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That they had expired says nothing of the role's rights."""
    really, asked = storage.delete, 0

    async def expired_once(gone: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise PermissionDeniedError("expired", kind="credentials-expired")
        await really(gone)

    monkeypatch.setattr(sweep, "SWEEP_KEYS", 1)
    monkeypatch.setattr(storage, "delete", expired_once)
    for _ in range(8):
        run.save(blob())
    run.close()
    with Run(run._core, RUN, rules=Retention(keep_last=3)) as later:
        for _ in range(8):
            later.save(blob())
    assert asked > 1


def test_a_sweep_that_fails_is_nobodys_failure(
    run: Run, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing_delete(_: Any) -> None:
        raise StorageError("not now")

    monkeypatch.setattr(sweep, "SWEEP_KEYS", 1)
    monkeypatch.setattr(storage, "delete", failing_delete)
    for _ in range(5):
        run.save(blob())
    run.close()
    assert Run(run._core, RUN, rules=Retention(keep_last=3)).load()
