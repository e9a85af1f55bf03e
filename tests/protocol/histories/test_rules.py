"""The checker of histories: what it takes, and a history made by hand against each of its rules."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cloudckpt import open as open_store
from cloudckpt.errors import FencedError, OutcomeUnknownError, StaleStateError
from cloudckpt.model import Entry, Manifest, Writer
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.histories import Entered, Load, Operation, Recorder, Save, by_run, read_history
from cloudckpt.testing.invariants import Ledger, check_laws
from cloudckpt.testing.linearity import RULES, Figures, HistoryBrokenError, check_history

NOW = datetime(2030, 1, 1, tzinfo=UTC)
_names = itertools.count()


def saved(at: int, until: int, state: str, seq: int, epoch: int = 1, **facts: Any) -> Save:
    by = facts.pop("by", f"writer {epoch}")
    told = {"seq": seq, "epoch": epoch, "commit": f"commit of {state}"}
    return Save(by, "r", at, until, **{"held": epoch, "state": state, **told, **facts})


def refused(at: int, until: int, state: str, epoch: int, error: type[Exception] = FencedError) -> Save:
    return Save(f"writer {epoch}", "r", at, until, held=epoch, error=error.__name__, state=state)


def unanswered(at: int, state: str, epoch: int = 1, **facts: Any) -> Save:
    return Save(f"writer {epoch}", "r", at, held=epoch, state=state, **facts)


def loaded(at: int, until: int, state: str | None, seq: int | None = None, **facts: Any) -> Load:
    return Load("reader", "r", at, until, state=state, seq=seq, **facts)


def loaded_by(process: str, *arguments: Any, **facts: Any) -> Load:
    return replace(loaded(*arguments, **facts), process=process)


def entered(at: int, until: int, epoch: int, head: int, *, by: str = "") -> Entered:
    return Entered(by or f"writer {epoch}", "r", at, until, epoch=epoch, head=head)


def stands(*entries: tuple[int, str, int], epoch: int = 0) -> Manifest:
    """Return a manifest with these checkpoints (seq, state, epoch), oldest first."""
    kept = tuple(_entry(*entry) for entry in reversed(entries))
    newest = kept[0] if kept else None
    writer = Writer("w", "host", 1, NOW)
    return Manifest(
        "r",
        newest.seq if newest else 0,
        "nonce",
        epoch or (newest.epoch if newest else 1),
        writer,
        checkpoints=kept,
    )


def _entry(seq: int, state: str, epoch: int) -> Entry:
    return Entry(
        seq=seq,
        step=None,
        commit=f"commit of {state}",
        epoch=epoch,
        parent=seq - 1 or None,
        parent_digest=None,
        digest="",
        size=0,
        encoded_digest=state,
        encoded_size=0,
        codec="c/1",
        schema=None,
        schema_version=None,
        fingerprint=None,
        time=NOW,
        tags=(),
        metadata={},
        extents=(),
    )


GOOD: list[Operation] = [
    entered(0, 1, 1, 0),
    saved(2, 3, "a", 1),
    loaded(4, 5, "a"),
    saved(6, 9, "b", 2),
    loaded(7, 8, "a"),
    loaded(7, 8, "b"),
    unanswered(10, "c"),
    entered(11, 14, 2, 3),
    loaded(12, 13, "b"),
    refused(15, 16, "d", 1),
    saved(17, 18, "e", 4, 2),
    loaded(19, 20, "b", 2),
    loaded(19, 20, None, 9, error="CheckpointNotFoundError"),
    refused(21, 22, "f", 2, StaleStateError),
    replace(unanswered(23, "g", 2), ended=24, error=OutcomeUnknownError.__name__),
    loaded(25, 26, "e"),
]
STANDS = stands((1, "a", 1), (2, "b", 1), (3, "c", 1), (4, "e", 2))


def test_a_right_history_is_taken() -> None:
    """Loads beside a save see it or not, and what was not answered is in it or not."""
    assert check_history(GOOD, STANDS) == Figures(16, 3, 2, 2, 7, 2)
    late = stands((1, "a", 1), (2, "b", 1), (3, "c", 1), (4, "e", 2), (5, "g", 2))
    with pytest.raises(HistoryBrokenError, match=r"^H8"):
        check_history([*GOOD, entered(27, 28, 3, 4)], replace(late, epoch=3))
    check_history([*GOOD, entered(27, 28, 3, 5), loaded(29, 30, "g")], replace(late, epoch=3))


def test_of_what_expired_the_rest_is_compared() -> None:
    check_history(GOOD, replace(STANDS, checkpoints=STANDS.checkpoints[:2]), keep_last=2)
    with pytest.raises(HistoryBrokenError, match=r"^H1"):
        check_history(GOOD, replace(STANDS, checkpoints=STANDS.checkpoints[:2]), keep_last=3)
    with pytest.raises(HistoryBrokenError, match=r"^H1"):
        check_history(
            [*GOOD, saved(0, 9, "also 1", 1)],
            replace(STANDS, checkpoints=STANDS.checkpoints[:1]),
            keep_last=1,
        )


def test_a_writer_that_was_overtaken_must_load_what_its_heir_saved() -> None:
    """It asks the store like everybody else: what it remembers may be old news."""
    history = [
        *(entered(0, 1, 1, 0), saved(2, 3, "a", 1), saved(4, 5, "b", 2)),
        *(entered(6, 7, 2, 2), saved(8, 9, "c", 3, 2)),
    ]
    found = stands((1, "a", 1), (2, "b", 1), (3, "c", 2))
    check_history([*history, loaded_by("writer 1", 10, 11, "c", held=1)], found)
    with pytest.raises(HistoryBrokenError, match=r"^H6"):
        check_history([*history, loaded_by("writer 1", 10, 11, "b", held=1)], found)


BROKEN: dict[str, tuple[str, list[Operation], Manifest | None]] = {
    "an acknowledged save is gone": ("H1", [saved(0, 1, "a", 1), saved(2, 3, "b", 2)], stands((1, "a", 1))),
    "all are gone": ("H1", [saved(0, 1, "a", 1)], None),
    "one in the middle is gone": (
        "H1",
        [saved(0, 1, "a", 1), saved(2, 3, "b", 2), saved(4, 5, "c", 3)],
        stands((1, "a", 1), (3, "c", 1)),
    ),
    "an unanswered one in the middle is gone": (
        "H1",
        [saved(0, 1, "a", 1), unanswered(2, "b"), saved(4, 5, "c", 3)],
        stands((1, "a", 1), (3, "c", 1)),
    ),
    "it has another seq": ("H1", [unanswered(0, "b"), saved(2, 3, "a", 1)], stands((1, "b", 1), (2, "a", 1))),
    "it has another commit": ("H1", [saved(0, 1, "a", 1, commit="other")], stands((1, "a", 1))),
    "it is there twice": ("H1", [saved(0, 1, "a", 1)], stands((1, "a", 1), (2, "a", 1))),
    "two were told the same seq": ("H1", [saved(0, 1, "a", 1), saved(2, 3, "b", 1)], stands((1, "a", 1))),
    "a refused one is there": ("H2", [refused(0, 1, "a", 1)], stands((1, "a", 1))),
    "a refused one was loaded": ("H2", [refused(0, 1, "a", 1), loaded(2, 3, "a")], stands(epoch=2)),
    "an unanswered one is there twice": ("H3", [unanswered(0, "a")], stands((1, "a", 1), (2, "a", 1))),
    "a stranger's is there": ("H4", [loaded(0, 1, None)], stands((1, "a", 1))),
    "a stranger's was loaded": ("H4", [saved(0, 1, "a", 1), loaded(2, 3, "b")], stands((1, "a", 1))),
    "saves are in the wrong order": (
        "H5",
        [saved(0, 1, "a", 2), saved(2, 3, "b", 1)],
        stands((1, "b", 1), (2, "a", 1)),
    ),
    "an unanswered one is before an earlier one": (
        "H5",
        [saved(0, 1, "a", 2), unanswered(2, "b")],
        stands((1, "b", 1), (2, "a", 1)),
    ),
    "a load saw a save that had not begun": (
        "H5",
        [loaded(0, 1, "a"), saved(2, 3, "a", 1)],
        stands((1, "a", 1)),
    ),
    "a load missed a save": (
        "H6",
        [saved(0, 1, "a", 1), saved(2, 3, "b", 2), loaded(4, 5, "a")],
        stands((1, "a", 1), (2, "b", 1)),
    ),
    "a load found nothing": ("H6", [saved(0, 1, "a", 1), loaded(2, 3, None)], stands((1, "a", 1))),
    "a load went back": (
        "H6",
        [saved(0, 1, "a", 1), unanswered(2, "b"), loaded(3, 4, "b"), loaded(5, 6, "a")],
        stands((1, "a", 1), (2, "b", 1)),
    ),
    "a load of a seq found nothing": (
        "H6",
        [saved(0, 1, "a", 1), loaded(2, 3, None, 1, error="CheckpointNotFoundError")],
        stands((1, "a", 1)),
    ),
    "a load of a seq returned another": (
        "H7",
        [saved(0, 1, "a", 1), saved(2, 3, "b", 2), loaded(4, 5, "b", 1)],
        stands((1, "a", 1), (2, "b", 1)),
    ),
    "an epoch decreases": (
        "H8",
        [saved(0, 9, "a", 1, 2), saved(0, 9, "b", 2, 1)],
        stands((1, "a", 2), (2, "b", 1), epoch=2),
    ),
    "two are the same epoch's writer": (
        "H8",
        [saved(0, 1, "a", 1), saved(2, 3, "b", 2, by="another")],
        stands((1, "a", 1), (2, "b", 1)),
    ),
    "an epoch was given twice": ("H8", [entered(0, 9, 1, 0), entered(0, 9, 1, 0)], stands(epoch=1)),
    "epochs were given in the wrong order": (
        "H8",
        [entered(0, 1, 2, 0), entered(2, 3, 1, 0)],
        stands(epoch=2),
    ),
    "the epoch went back": ("H8", [entered(0, 1, 2, 0)], stands(epoch=1)),
    "it was saved under another's epoch": ("H8", [saved(0, 1, "a", 1, held=2)], stands((1, "a", 1), epoch=2)),
    "a new writer missed a save": (
        "H8",
        [saved(0, 1, "a", 1), entered(2, 3, 2, 0)],
        stands((1, "a", 1), epoch=2),
    ),
    "an older writer's save came after the takeover": (
        "H8",
        [entered(0, 9, 2, 0), unanswered(0, "a")],
        stands((1, "a", 1), epoch=2),
    ),
    "who was told that it is fenced saves on": (
        "H9",
        [saved(0, 1, "a", 1), refused(2, 3, "b", 1), saved(4, 5, "c", 2)],
        stands((1, "a", 1), (2, "c", 1)),
    ),
    "who was overtaken saves on": (
        "H9",
        [entered(0, 1, 1, 0), entered(2, 3, 2, 1), saved(4, 5, "a", 1, 1)],
        stands((1, "a", 1), epoch=2),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_history_is_refused_by_the_name_of_its_rule(case: str) -> None:
    rule, history, manifest = BROKEN[case]
    with pytest.raises(HistoryBrokenError) as caught:
        check_history(history, manifest)
    assert caught.value.rule == rule, caught.value


def test_every_rule_has_a_history_that_breaks_it() -> None:
    assert {rule for rule, _, _ in BROKEN.values()} == set(RULES)


def test_equal_states_are_refused_since_nobody_could_tell_them_apart() -> None:
    with pytest.raises(ValueError, match="let each state differ"):
        check_history([saved(0, 1, "a", 1), saved(2, 3, "a", 2)], stands((1, "a", 1), (2, "a", 1)))


def test_what_a_process_recorded_is_read_back(tmp_path: Path) -> None:
    """Also when it was killed in the midst of a line."""
    name = f"recorded-{next(_names)}"
    recorder = Recorder(tmp_path / "one.jsonl")
    with open_store(f"memory://{name}") as store:
        run, other = store.run("r"), store.run("r")
        with recorder.entering(run):
            run.acquire()
        with recorder.saving(run, {"n": 1}) as told:
            told(run.save({"n": 1}))
        with recorder.loading(other) as told_load:
            told_load(other.load())
        other.acquire()
        with pytest.raises(FencedError), recorder.saving(run, {"n": 2}) as told:
            told(run.save({"n": 2}))
        with pytest.raises(KeyboardInterrupt), recorder.saving(other, {"n": 3}):
            raise KeyboardInterrupt
    recorder.close()
    manifest = by_hand(check_laws(MemoryStorage(name), "r", _ledger()))
    assert manifest is not None
    [operations] = by_run(read_history(tmp_path)).values()
    kinds = [(type(op), op.held, op.error, op.answered) for op in operations]
    assert kinds == [
        (Entered, None, None, True),
        (Save, 1, None, True),
        (Load, None, None, True),
        (Save, 1, "FencedError", True),
        (Save, 2, None, False),
    ]
    assert check_history(operations, manifest) == Figures(5, 1, 1, 1, 1, 1)

    whole = (tmp_path / "one.jsonl").read_bytes()
    for cut in range(len(whole)):
        (tmp_path / "one.jsonl").write_bytes(whole[:cut])
        assert len(read_history(tmp_path)) <= 5
    lines = whole.splitlines(keepends=True)
    (tmp_path / "one.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:20])
    [*_, save] = read_history(tmp_path)
    assert isinstance(save, Save)
    assert (save.answered, save.refused, save.seq) == (False, False, None)


def _ledger() -> Ledger:
    ledger = Ledger()
    for n in (1, 2, 3):
        ledger.ask({"n": n})
    return ledger
