"""Whether one order explains a history of saves and loads.

Owns: `RULES`, and `check_history`, which holds what the processes of one run were told
(`histories.py`) against each other, and against what stands in the store in the end.

Commits are numbered, so no search for an order is needed: a save has its place at
its seq, a load behind the seq that it returned, and what remains is whether these
places agree with real time. Two saves of a run must not be of equal states.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cloudckpt.errors import FencedError
from cloudckpt.model import Entry, Manifest
from cloudckpt.testing.histories import Entered, Load, Operation, Save

RULES = {
    "H1": "an acknowledged save is where it was told, as it was told, exactly once until it expires",
    "H2": "a refused save never appears",
    "H3": "a save without an answer appears at most once",
    "H4": "nothing appears that nobody saved",
    "H5": "a save comes after all that was answered before it began",
    "H6": "a load returns nothing older than what was answered before it began",
    "H7": "a load of a seq returns what was saved as that seq",
    "H8": "epochs never decrease, each has one writer, and it found all that was answered before",
    "H9": "who was overtaken never commits again",
}


class HistoryBrokenError(AssertionError):
    """No order explains the history.

    Attributes:
        rule: Its key in `RULES`.
    """

    def __init__(self, rule: str, what: str, **facts: Any) -> None:
        self.rule = rule
        shown = "".join(f" {name}={value!r}" for name, value in facts.items())
        super().__init__(f"{rule} is broken ({RULES[rule]}): {what}{shown}")


@dataclass(frozen=True, slots=True)
class Figures:
    """What a check has seen.

    Attributes:
        operations: All calls.
        acknowledged, refused, unanswered: Saves by their answer.
        loads: Those that were answered.
        takeovers: How often somebody became the writer and was told so.
    """

    operations: int = 0
    acknowledged: int = 0
    refused: int = 0
    unanswered: int = 0
    loads: int = 0
    takeovers: int = 0


def check_history(
    operations: Sequence[Operation], manifest: Manifest | None, *, keep_last: int | None = None
) -> Figures:
    """Check every rule of `RULES` on the whole history of one run.

    Args:
        operations: Everything that anybody asked of the run.
        manifest: What stands in the store after all of it; None for nothing.
        keep_last: The smallest of any of its writers; None when nothing may have expired.

    Raises:
        HistoryBrokenError: Names the rule.
        ValueError: Two saves are of equal states, so nobody can tell which of them a load returned.
    """
    saves = [op for op in operations if isinstance(op, Save)]
    if len({save.state for save in saves}) != len(saves):
        raise ValueError("two saves of the run are of equal states; let each state differ")
    places = _Places(saves, manifest, keep_last)
    entered = [op for op in operations if isinstance(op, Entered) and op.epoch is not None]
    _check_writers(operations, entered, places)
    loads = [op for op in operations if isinstance(op, Load)]
    for load in loads:
        places.check_loaded(load)
    _check_times(operations, places)
    return Figures(
        operations=len(operations),
        acknowledged=sum(save.seq is not None for save in saves),
        refused=sum(save.refused for save in saves),
        unanswered=sum(not save.answered for save in saves),
        loads=sum(load.answered for load in loads),
        takeovers=len(entered),
    )


class _Places:
    """Which seq each save has, by what stands and by what was told; checked as it is built."""

    def __init__(self, saves: Sequence[Save], manifest: Manifest | None, keep_last: int | None) -> None:
        self._saves = {save.state: save for save in saves}
        self.seq_of: dict[str, int] = {}
        self.epoch_of: dict[int, int] = {}
        self.newest = manifest.seq if manifest else 0
        self.epoch = manifest.epoch if manifest else 0
        self.oldest_kept = 1 if keep_last is None else max(1, self.newest - keep_last + 1)
        for entry in manifest.checkpoints if manifest else ():
            self._stands(entry)
        for seq in range(self.oldest_kept, self.newest + 1):
            if seq not in self.epoch_of:
                raise HistoryBrokenError("H1", "a checkpoint is gone that can't have expired", seq=seq)
        for save in saves:
            self._acknowledged(save)

    def _stands(self, entry: Entry) -> None:
        save = self._saves.get(entry.encoded_digest)
        if save is None:
            raise HistoryBrokenError("H4", "a checkpoint stands that nobody saved", seq=entry.seq)
        if save.refused:
            raise HistoryBrokenError("H2", "it stands", seq=entry.seq, save=save)
        if entry.encoded_digest in self.seq_of:
            rule = "H3" if save.seq is None else "H1"
            raise HistoryBrokenError(rule, "it stands twice", seqs=(entry.seq, self.seq_of[save.state]))
        if save.seq is not None and (save.seq, save.commit) != (entry.seq, entry.commit):
            raise HistoryBrokenError("H1", "it stands otherwise than it was told", seq=entry.seq, save=save)
        for epoch in (save.held, save.epoch):
            if epoch not in (None, entry.epoch):
                raise HistoryBrokenError("H8", "it stands under another's epoch", of=entry.epoch, save=save)
        self._place(save.state, entry.seq, entry.epoch)

    def _acknowledged(self, save: Save) -> None:
        if save.seq is None or save.epoch is None or save.state in self.seq_of:
            return
        if save.seq >= self.oldest_kept:
            raise HistoryBrokenError(
                "H1", "it is gone, and can't have expired", newest=self.newest, save=save
            )
        if save.seq in self.epoch_of:
            raise HistoryBrokenError("H1", "another save has its place", save=save)
        self._place(save.state, save.seq, save.epoch)

    def _place(self, state: str, seq: int, epoch: int) -> None:
        self.seq_of[state] = seq
        self.epoch_of[seq] = epoch

    def check_loaded(self, load: Load) -> None:
        """Check that what a load returned was saved, and as what it asked for."""
        if load.state is None:
            return
        save = self._saves.get(load.state)
        if save is None:
            raise HistoryBrokenError("H4", "a load returned a state that nobody saved", load=load)
        if save.refused:
            raise HistoryBrokenError("H2", "a load returned it", load=load, save=save)
        seq = self.seq_of.get(load.state)  # None: without an answer, and expired
        if load.seq is not None and seq != load.seq and (seq is not None or load.seq in self.epoch_of):
            raise HistoryBrokenError("H7", "it was saved as another", seq=seq, load=load)

    def seen_by(self, load: Load) -> int | None:
        """Return the newest seq that a load has shown to exist; None when that is not known."""
        if load.state is not None:
            return self.seq_of.get(load.state, load.seq)
        return 0 if load.answered and load.error is None else None


def _check_writers(operations: Sequence[Operation], entered: Sequence[Entered], places: _Places) -> None:
    seqs = sorted(places.epoch_of)
    for older, newer in pairwise(seqs):
        if places.epoch_of[older] > places.epoch_of[newer]:
            raise HistoryBrokenError("H8", "an epoch decreases", seqs=(older, newer))
    owners: dict[int, str] = {}
    for op in operations:
        epoch = op.held if op.held is not None else op.epoch if isinstance(op, Entered | Save) else None
        if epoch is None:
            continue
        if owners.setdefault(epoch, op.process) != op.process:
            raise HistoryBrokenError("H8", "two have it", epoch=epoch, processes=(owners[epoch], op.process))
        if epoch > places.epoch:
            raise HistoryBrokenError("H8", "the epoch went back", epoch=places.epoch, told=op)
    epochs = [places.epoch_of[seq] for seq in seqs]
    for op in entered:
        assert op.epoch is not None
        before = bisect_right(epochs, op.epoch - 1)  # so many have an earlier epoch
        if op.head is not None and before != bisect_right(seqs, op.head):
            raise HistoryBrokenError("H8", "it did not find what stood before it", entered=op)
    if len({op.epoch for op in entered}) != len(entered):
        raise HistoryBrokenError("H8", "an epoch was told twice", epochs=[op.epoch for op in entered])


class _Frontier:
    """What has been answered until a moment."""

    def __init__(self, epoch_of: dict[int, int]) -> None:
        self._epoch_of = epoch_of
        self._newest = 0
        self._found = 0  # by those who became the writer
        self.epoch = 0

    def tell(self, seq: int) -> None:
        self.epoch = max(self.epoch, self._epoch_of.get(seq, 0))
        if seq in self._epoch_of:
            self._newest = max(self._newest, seq)

    def enter(self, epoch: int, head: int) -> None:
        self.epoch = max(self.epoch, epoch)
        self._found = max(self._found, head)
        self.tell(head)

    def seq(self) -> int:
        """Return the newest seq that anybody was told of."""
        return max(self._newest, self._found)


def _check_times(operations: Sequence[Operation], places: _Places) -> None:
    """Go through beginnings and answers in the order of time; at the same moment, beginnings first."""
    begins = [(op.begun, 0, at) for at, op in enumerate(operations)]
    ends = [(op.ended, 1, at) for at, op in enumerate(operations) if op.answered and op.ended is not None]
    frontier = _Frontier(places.epoch_of)
    for _, is_end, at in sorted(begins + ends):
        (_note if is_end else _check_begin)(operations[at], places, frontier)


def _check_begin(op: Operation, places: _Places, frontier: _Frontier) -> None:
    """Hold where an operation took effect against what had been answered when it began."""
    if isinstance(op, Save):
        seq = places.seq_of.get(op.state)
        if seq is not None and places.epoch_of[seq] < frontier.epoch:
            raise HistoryBrokenError("H9", "it began after that was known", known=frontier.epoch, save=op)
        if seq is not None and seq <= frontier.seq():
            raise HistoryBrokenError("H5", f"seq {frontier.seq()} was answered before", seq=seq, save=op)
    elif isinstance(op, Load):
        floor, seen = frontier.seq(), places.seen_by(op)
        if op.seq is None and seen is not None and seen < floor:
            raise HistoryBrokenError("H6", f"seq {floor} was answered before", seq=seen, load=op)
        if op.seq is not None and op.absent and places.oldest_kept <= op.seq <= floor:
            raise HistoryBrokenError("H6", f"seq {floor} was answered before", load=op)
    elif isinstance(op, Entered) and op.epoch is not None:
        behind = op.head is not None and op.head < frontier.seq()
        if behind or op.epoch <= frontier.epoch:
            raise HistoryBrokenError("H8", f"seq {frontier.seq()} was answered before", entered=op)


def _note(op: Operation, places: _Places, frontier: _Frontier) -> None:
    """Add what an answer has told."""
    if isinstance(op, Save) and op.seq is not None:
        frontier.tell(op.seq)
    elif isinstance(op, Load):
        frontier.tell(places.seen_by(op) or 0)
    elif isinstance(op, Entered) and op.epoch is not None:
        frontier.enter(op.epoch, op.head or 0)
    if op.error == FencedError.__name__ and op.held is not None:
        frontier.epoch = max(frontier.epoch, op.held + 1)
