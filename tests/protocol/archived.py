"""Stores that are archived, the archives they give, and archives as somebody changed them.

Owns: the runs that an archive in a test is of, and how one is made, taken apart and put
together again with every digest right. A module of tests takes the fixtures over by name.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from typing import Any

import pytest

from cloudckpt.archive import INDEX, SIGNATURES, verify_archive
from cloudckpt.errors import RunDeletedError
from cloudckpt.sealed import seal
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.tarball import Member, TarReader, header, padding, tail
from cloudckpt.testing.driver import by_hand
from tests.protocol import damaged as worlds
from tests.protocol.damaged import ACTIONS, LONG, RUN, LongWorld, act, outcome, small_pages
from tests.protocol.signers import KEYS

LONG_ID = "X" * 1000
RUNS = (RUN, LONG_ID, "gone", "empty", "busy")
_names = itertools.count()

world = worlds.world


@pytest.fixture(scope="module")
def long_world() -> LongWorld:
    """Beside the long run: a long id whose payload rides, a deleted run, an empty one, a ledger."""
    with small_pages():
        world = LongWorld()
        with world.store.run("busy") as run:
            act(run, large=True)
    world.run.hold("for the auditors", seq=9)
    world.store.run(LONG_ID).save({"rides": True})
    world.store.run("gone").save({})
    world.store.delete("gone")
    world.store.run("empty").acquire()
    world.store.collect("busy")
    by_hand(world.store._core._sweeper.settle())
    return world


@pytest.fixture(scope="module")
def archive(long_world: LongWorld) -> bytes:
    return exported(long_world.store, *RUNS)


@pytest.fixture(scope="module")
def signed(long_world: LongWorld) -> bytes:
    """A small one."""
    return exported(long_world.store, LONG_ID, "gone", sign=KEYS[0])


def exported(store: Store, *runs: str, **options: Any) -> bytes:
    file = io.BytesIO()
    told = store.export(runs, file, **options)
    assert told.bytes == len(file.getvalue())
    assert [one.run for one in told.runs] == list(runs)
    return file.getvalue()


def new_name() -> str:
    """Return the name of a store that is not there yet."""
    return f"archive-{next(_names)}"


def new_store() -> Store:
    name = new_name()
    return Store(lambda: MemoryStorage(name))


def inside(store: Store) -> dict[str, bytes]:
    storage = store._core.storage
    return {row.key: by_hand(storage.read(row.key)).data for row in by_hand(storage.list("")).rows}  # type: ignore[union-attr]


def members(data: bytes) -> dict[str, tuple[Member, bytes]]:
    reader = TarReader(io.BytesIO(data))
    found = {}
    while (member := reader.next()) is not None:
        found[member.name] = (member, reader.read())
    return found


def tarred(parts: Any) -> bytes:
    data = b"".join(header(member) + body + padding(len(body)) for member, body in parts)
    return data + tail(len(data))


def indexed(parts: dict[str, tuple[Member, bytes]]) -> bytes:
    """Make an archive of these members, as who changes one and knows the format would."""
    parts = {name: part for name, part in parts.items() if name not in (INDEX, SIGNATURES)}
    rows = [[m.name, m.size, m.time, hashlib.sha256(body).hexdigest()] for m, body in parts.values()]
    index = seal({"format": 1, "members": rows})
    return tarred([*parts.values(), (Member(INDEX, len(index), 0), index)])


def wrong(data: bytes, **options: Any) -> dict[str | None, str]:
    """Return what is wrong with an archive: name of the member to kind."""
    report = verify_archive(io.BytesIO(data), **options)
    assert report.ok == (not report.problems)
    for problem in report.problems:
        assert problem.do
    return {problem.key: problem.kind for problem in report.problems}


def check_same(world: LongWorld, store: Store) -> None:
    """Check that a store has all that was exported: states, history, tags, holds, tombstones."""
    for seq in range(1, LONG + 1):
        assert store.run(RUN).load(seq=seq) == world.state(seq)
    assert store.run(RUN).history() == world.run.history()
    assert store.run(RUN).load(tag="good") == world.state(4)
    assert store.run(RUN).find(seq=9).hold == world.run.find(seq=9).hold
    assert store.run(LONG_ID).load() == {"rides": True}
    assert store.run("empty").load() is None
    for n in range(ACTIONS):
        assert store.run("busy").once(f"pay-{n}", outcome, n, large=n % 2 == 0) == outcome(
            n, large=n % 2 == 0
        )
    with pytest.raises(RunDeletedError):
        store.run("gone").save({"late": True})
    assert all(report.ok for report in store.verify(deep=True))
    assert {report.unreferenced for report in store.verify(depth=2)} == {0}


def places(data: bytes) -> list[tuple[int, int, int, str]]:
    """Return where each member begins, where its bytes do, and where it ends with its padding."""
    found, at = [], 0
    for member, body in members(data).values():
        begin = at + len(header(member))
        end = begin + len(body) + len(padding(len(body)))
        found.append((at, begin, end, member.name))
        at = end
    return [*found, (at, at, len(data), "")]
