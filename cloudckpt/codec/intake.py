"""What a run does with a state on its way to bytes.

Owns: the order of it (exclude and redact, encode, compare with the limit, watch
the growth) and the definition of a growth that is worth a warning. Invariants: a
state over the limit raises before anything is written; a warning is given once,
and nothing depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from cloudckpt.codec.encoding import Encoded, encode
from cloudckpt.codec.frame import MAX_STATE_BYTES
from cloudckpt.codec.redaction import Rules
from cloudckpt.codec.sizes import measure, sizes_by_path
from cloudckpt.errors import InvalidInputError, SerializationError
from cloudckpt.model import Size

SAVES: Final = 20
"""Saves in a row, each of a larger state than the one before, that make a growth steady."""

STEADY: Final = 4
"""How many times as much the state may grow in one quarter of them as in another."""

LEAST: Final = 64 * 1024
"""Encoded bytes below which no growth is worth a word."""

_QUARTER: Final = SAVES // 4
_LEVELS: Final = 4
_SHOWN: Final = 6


@dataclass(frozen=True, slots=True)
class Taken:
    """A state that may be saved.

    Attributes:
        encoded: Its bytes.
        measured: Where they come from, if that was asked for.
        warning: What to tell the user, if anything.
    """

    encoded: Encoded
    measured: Size | None
    warning: str | None


class Intake:
    """Takes the states of one run.

    Args:
        rules: What is excluded and redacted.
        max_state_bytes: How large a state may be before compression.
    """

    def __init__(self, rules: Rules | None = None, *, max_state_bytes: int = MAX_STATE_BYTES) -> None:
        self.rules = rules or Rules()
        self._max = max_state_bytes
        self._growth = Growth()

    def take(self, state: object, *, explain: bool = False) -> Taken:
        """Return the state as it is saved.

        Raises:
            InvalidInputError: It is too large, or a rule excludes what can't be missing.
            SerializationError: It can't be carried.
        """
        state = self.rules.apply(state)
        try:
            encoded = encode(state, max_bytes=self._max)
        except SerializationError as error:
            if error.kind != "too-large":
                raise
            raise InvalidInputError(
                "the state is larger than max_state_bytes; save less of it (what is large and never changes "
                f"can stay outside, with its address in the state):\n{measure(state).render(limit=_SHOWN)}\n",
                kind="too-large",
                encoded_size=error.facts["encoded_size"],
                max_state_bytes=self._max,
            ) from None
        return Taken(
            encoded=encoded,
            measured=measure(state) if explain else None,
            warning=self._growth.note(state, encoded.encoded_size),
        )


def check_max_state_bytes(value: int | None) -> int:
    """Return the limit; None is the largest that a load takes.

    Raises:
        InvalidInputError: It is no number of bytes, or a load would refuse such a state.
    """
    if value is None:
        return MAX_STATE_BYTES
    if type(value) is not int or not 0 < value <= MAX_STATE_BYTES:
        raise InvalidInputError(
            f"max_state_bytes must be a whole number from 1 to {MAX_STATE_BYTES}, or None", got=value
        )
    return value


class Growth:
    """Watches for a state that grows by about the same amount at each save, as a transcript does.

    Steady is: each of the last `SAVES` saves was of a larger state than the one
    before it, in no quarter of them it grew by more than `STEADY` times what it grew
    by in another, and it is at least `LEAST` bytes by now. Quarters, since single
    messages differ a lot, while what an agent writes in five steps does not.
    """

    def __init__(self) -> None:
        self._row = _Row()
        self._told = False

    def note(self, state: Any, encoded_size: int) -> str | None:
        """Return a warning about this state, or None; after a warning always None."""
        if self._told:
            return None
        row = self._row  # taken and put back at once, so that threads lose a count at worst
        if row.sizes and encoded_size <= row.sizes[-1]:
            row = _Row()
        sizes, before = (*row.sizes[-SAVES:], encoded_size), row.before
        if len(sizes) > SAVES // 2 and before is None:
            before = sizes_by_path(state, levels=_LEVELS)
        self._row = _Row(sizes, before)
        if before is None or len(sizes) <= SAVES or encoded_size < LEAST or not _is_steady(sizes):
            return None
        self._told = True
        where = _most_grown(sizes_by_path(state, levels=_LEVELS), before)
        return (
            f"grew at each of its last {SAVES} saves, by about {(sizes[-1] - sizes[0]) // SAVES:,} bytes, to "
            f"{encoded_size:,}; most of that is {where}: compact it, or save only what decides the next step"
        )


@dataclass(frozen=True, slots=True)
class _Row:
    """The last saves of ever larger states.

    Attributes:
        sizes: Their encoded bytes.
        before: Bytes by path when half a row had been seen.
    """

    sizes: tuple[int, ...] = ()
    before: dict[str, int] | None = None


def _is_steady(sizes: tuple[int, ...]) -> bool:
    ends = range(0, len(sizes) - _QUARTER, _QUARTER)
    quarters = [sizes[end + _QUARTER] - sizes[end] for end in ends]
    return max(quarters) <= STEADY * min(quarters)


def _most_grown(now: dict[str, int], before: dict[str, int]) -> str:
    """Return the innermost part that was there before and has more than half of the growth."""
    grown = {path: now[path] - before[path] for path in now if path in before}
    return [path for path in grown if 2 * grown[path] > grown["state"]][-1]
