"""Each law of `check_laws` can be broken, and is then named; a run as it should be breaks none."""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cloudckpt import keys
from cloudckpt.codec import encode
from cloudckpt.entries import entry_digest
from cloudckpt.errors import FencedError, OutcomeUnknownError, StorageError
from cloudckpt.format import decode_manifest, encode_manifest
from cloudckpt.model import Manifest
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.invariants import LAWS, LawBrokenError, Ledger, check_laws

RUN = "r"
KEY = keys.manifest_key(RUN)
_names = itertools.count()


def large(n: int) -> dict[str, Any]:
    return {"n": n, "blob": secrets.token_bytes(40_000)}


class World:
    """A run of two writers: one saved 1 to 4, of which 1 is tagged, the next one 5 and 6; three are kept."""

    def __init__(self) -> None:
        self.storage = MemoryStorage(f"laws-{next(_names)}")
        self.ledger = Ledger(keep_last=3)
        self.states = [large(n) for n in range(1, 7)]
        store = Store(lambda: self.storage, keep_last=3)
        for numbers in (range(4), range(4, 6)):
            with store.run(RUN) as run:
                self.ledger.took_over(run.epoch)
                for n in numbers:
                    with self.ledger.asking(self.states[n], epoch=run.epoch) as told:
                        told(run.save(self.states[n], tags=["first"] if n == 0 else []))
                    self.ledger.load(run.load())

    def check(self) -> str | None:
        """Return the law that is broken."""
        try:
            by_hand(check_laws(self.storage, RUN, self.ledger))
        except LawBrokenError as error:
            return error.law if LAWS[error.law] in str(error) else "a law that is not told"
        return None

    def manifest(self) -> Manifest:
        stored = by_hand(self.storage.read(KEY))
        assert stored is not None
        return decode_manifest(stored.data, RUN)

    def write(self, manifest: Manifest) -> None:
        by_hand(self.storage.delete([KEY]))
        by_hand(self.storage.put(KEY, encode_manifest(manifest)))


@pytest.fixture
def world() -> World:
    return World()


def test_a_run_as_it_should_be_breaks_none(world: World) -> None:
    assert world.check() is None
    assert [entry.seq for entry in world.manifest().checkpoints] == [6, 5, 4, 1]


def test_a_run_that_nobody_saved_to_need_not_exist() -> None:
    storage = MemoryStorage(f"laws-{next(_names)}")
    assert by_hand(check_laws(storage, RUN, Ledger())) is None


# What is in the store.


def head_object(world: World) -> str:
    return world.manifest().checkpoints[0].extents[0].key


def damage(world: World, data: bytes | None) -> None:
    key = head_object(world)
    by_hand(world.storage.delete([key]))
    if data is not None:
        by_hand(world.storage.put(key, data))


def head(**changes: Any) -> Callable[[Manifest], Manifest]:
    def change(manifest: Manifest) -> Manifest:
        first, *rest = manifest.checkpoints
        return replace(manifest, checkpoints=(replace(first, **changes), *rest))

    return change


def without(seq: int) -> Callable[[Manifest], Manifest]:
    return lambda m: replace(m, checkpoints=tuple(e for e in m.checkpoints if e.seq != seq))


def duplicated(manifest: Manifest) -> Manifest:
    first = manifest.checkpoints[0]
    again = replace(first, seq=7, parent=6, commit="another", parent_digest=entry_digest(first))
    return replace(
        manifest, seq=7, checkpoints=(again, *manifest.checkpoints), recent=("another", *manifest.recent)
    )


BROKEN: dict[str, tuple[str, Callable[[Manifest], Manifest]]] = {
    "a wrong length": ("L1", head(size=5)),
    "a payload that rides for nobody": ("L1", lambda m: replace(m, inline={"objects/r/9-00-0": b"x"})),
    "out of order": ("L2", lambda m: replace(m, checkpoints=m.checkpoints[::-1])),
    "the head is gone": ("L2", without(6)),
    "all is gone": ("L2", lambda m: replace(m, checkpoints=())),
    "the head went back": ("L2", lambda m: replace(without(6)(m), seq=5, recent=m.recent[1:])),
    "a wrong parent": ("L2", head(parent=3)),
    "the past was edited": ("L2", lambda m: replace(m, checkpoints=edited(m))),
    "a commit twice": ("L3", lambda m: replace(m, recent=(m.recent[0], m.recent[0]))),
    "a save twice": ("L3", duplicated),
    "a save lost": ("L3", without(5)),
    "another commit in its place": ("L3", head(commit="stranger")),
    "an epoch that goes down": ("L6", lambda m: replace(m, epoch=1)),
    "a tagged one gone": ("L7", without(1)),
    "another state": ("L8", head(encoded_digest="0" * 64)),
}


def edited(manifest: Manifest) -> tuple[Any, ...]:
    first, second, *rest = manifest.checkpoints
    return (first, replace(second, metadata={"edited": True}), *rest)


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_manifest_names_its_law(world: World, case: str) -> None:
    law, change = BROKEN[case]
    world.write(change(world.manifest()))
    assert world.check() == law


@pytest.mark.parametrize("data", [None, b"", b"other bytes"])
def test_a_broken_object_is_l1(world: World, data: bytes | None) -> None:
    damage(world, data)
    assert world.check() == "L1"


def test_an_object_with_a_tail_is_l1(world: World) -> None:
    stored = by_hand(world.storage.read(head_object(world)))
    assert stored is not None
    damage(world, stored.data + b"\0")
    assert world.check() == "L1"


def test_a_run_that_vanished_is_l3(world: World) -> None:
    by_hand(world.storage.delete([KEY]))
    assert world.check() == "L3"


def test_the_checkpoint_that_the_writer_started_from_is_kept(world: World) -> None:
    """Once more have been saved than are kept, only the rule about it keeps it."""
    with Store(lambda: world.storage, keep_last=3).run(RUN) as run:
        world.ledger.took_over(run.epoch)
        for n in range(7, 12):
            with world.ledger.asking({"n": n}) as told:
                told(run.save({"n": n}))
    assert world.check() is None
    manifest = world.manifest()
    assert [entry.seq for entry in manifest.checkpoints] == [11, 10, 9, 6, 1]
    world.write(without(6)(manifest))
    assert world.check() == "L7"


# What clients were told.


def test_a_refused_save_that_appears_is_l4(world: World) -> None:
    world.ledger.asked[-1].told = False
    assert world.check() == "L4"
    world.ledger.asked[-1].told = None
    assert world.check() is None, "one with an unknown outcome may appear"


def test_a_refused_commit_that_appears_is_l4(world: World) -> None:
    """Also when its checkpoint has expired: its id is still known."""
    world.ledger.ask({"other": "state"}, commit=world.manifest().recent[3]).told = False
    assert world.check() == "L4"


def test_an_unknown_save_that_appears_twice_is_l5(world: World) -> None:
    world.ledger.asked[-1].told = None
    world.write(duplicated(world.manifest()))
    assert world.check() == "L5"
    world.ledger.ask(world.states[5])
    assert world.check() is None, "it was asked for twice"


@pytest.mark.parametrize("epochs", [[1, 2, 2], [1, 2, 3]])
def test_an_epoch_of_two_writers_or_from_the_future_is_l6(world: World, epochs: list[int]) -> None:
    world.ledger.epochs = epochs
    assert world.check() == "L6"


def test_a_save_under_another_writers_epoch_is_l6(world: World) -> None:
    world.ledger.asked[-1].epoch = 1
    assert world.check() == "L6"


def test_a_deletion_of_what_is_referred_to_is_l7(world: World) -> None:
    """Even if the object is there at the moment, since somebody put it back."""
    world.ledger.delete([head_object(world)])
    assert world.check() == "L7"


def test_a_load_of_what_nobody_saved_is_l8(world: World) -> None:
    world.ledger.load({"n": "never saved"})
    assert world.check() == "L8"


def test_a_checkpoint_that_nobody_saved_is_l8(world: World) -> None:
    del world.ledger.asked[-1], world.ledger.loaded[-1]
    assert world.check() == "L8"


def test_bytes_that_decode_to_something_else_are_l8(world: World) -> None:
    """The whole chain of digests is right, and the state is not what its entry says."""
    other = encode({"n": "other"})
    manifest = world.manifest()
    key = keys.object_key(RUN, 6, (digest := sha256(other.data)), "0")
    by_hand(world.storage.put(key, other.data))
    first = manifest.checkpoints[0]
    extents = (replace(first.extents[0], key=key, length=len(other.data), digest=digest),)
    world.write(head(extents=extents, digest=digest, size=len(other.data))(manifest))
    assert world.check() == "L8"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_ledger_takes_errors_for_what_they_say() -> None:
    ledger = Ledger()
    for n, error in enumerate(
        (FencedError("f"), StorageError("s"), OutcomeUnknownError("u"), KeyboardInterrupt())
    ):
        with pytest.raises(type(error)), ledger.asking({"n": n}):
            raise error
    assert [ask.told for ask in ledger.asked] == [False, False, None, None]
    assert ledger.saved == []
