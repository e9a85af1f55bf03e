"""What a run does with a state on its way to bytes.

Owns: the order of it (exclude and redact, encode, compare with the limit, watch
the growth) and the definition of a growth that is worth a warning. Invariants: a
state over the limit raises before anything is written; a warning is given once,
and nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cloudckpt.codec import frame
from cloudckpt.codec.frame import MAX_STATE_BYTES
from cloudckpt.errors import InvalidInputError, SerializationError
from cloudckpt.late import Late, imported

if TYPE_CHECKING:
    from cloudckpt.codec import encoding, freezing, gently, redaction, sizes
    from cloudckpt.measured import Size
else:  # a run has an intake before it is known whether it will save
    encoding = Late("cloudckpt.codec.encoding")
    freezing = Late("cloudckpt.codec.freezing")
    gently = Late("cloudckpt.codec.gently")
    redaction = Late("cloudckpt.codec.redaction")
    sizes = Late("cloudckpt.codec.sizes")

SAVES: Final = 20
"""Saves in a row, each of a larger state than the one before, that make a growth steady."""

STEADY: Final = 4
"""How many times as much the state may grow in one quarter of them as in another."""

LEAST: Final = 64 * 1024
"""Encoded bytes below which no growth is worth a word."""

AT_ONCE: Final = 1 << 20
"""Encoded bytes that are packed in a moment: a millisecond or two."""

_QUARTER: Final = SAVES // 4
_LEVELS: Final = 4
_SHOWN: Final = 6


class Taken(NamedTuple):
    """A state that may be saved.

    Attributes:
        encoded: Its bytes.
        measured: Where they come from, if that was asked for.
        warning: What to tell the user, if anything.
    """

    encoded: encoding.Encoded
    measured: Size | None
    warning: str | None


class Intake:
    """Takes the states of one run.

    Args:
        exclude, redact: What is excluded and redacted, see `redaction.Rules`.
        max_state_bytes: How large a state may be before compression.

    Attributes:
        redact: As it was given.

    Raises:
        InvalidInputError: A rule is none.
    """

    def __init__(
        self,
        exclude: Iterable[str] = (),
        redact: Iterable[redaction.Rule] = (),
        *,
        max_state_bytes: int = MAX_STATE_BYTES,
    ) -> None:
        self._rules = None if exclude == redact == () else redaction.Rules(exclude, redact)
        self.redact = () if self._rules is None else self._rules.redact
        self._max = max_state_bytes
        self._growth = Growth()
        self._size: int | None = None  # of the newest state that was packed

    def labels(
        self, tags: tuple[str, ...], metadata: dict[str, Any]
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Return the tags and the metadata of a checkpoint as they are saved: redacted."""
        if self._rules is None:
            return tags, metadata
        return self._rules.tags(tags), self._rules.metadata(metadata)

    def result(self, value: object, what: str) -> bytes:
        """Return another value that a run keeps, as bytes; redacted as a state is.

        Args:
            value: What is kept.
            what: Names it, for the error.

        Raises:
            SerializationError: It can't be carried.
        """
        if self._rules is not None:
            value = self._rules.apply(value)
        try:
            return encoding.encode(value, max_bytes=self._max).data
        except SerializationError as error:
            raise SerializationError(f"{what} can't be kept: {error.message}", paths=error.paths) from error

    def take(self, state: object, *, explain: bool = False) -> Taken:
        """Return the state as it is saved.

        Raises:
            InvalidInputError: It is too large, or a rule excludes what can't be missing.
            SerializationError: It can't be carried.
        """
        frame.import_codecs()
        return self._capture(state, explain=explain, at_once=True)()

    def capture(self, state: object, *, explain: bool = False) -> Callable[[], Taken]:
        """Take the state as it is now; return what makes it bytes, on any thread, once.

        When the state before it was of a size that is packed in a moment, it is packed here. Else it is
        only copied as far as it can change (`freezing.py`), and packed there; so is it told there that it
        is too large.

        Raises:
            InvalidInputError: It is too large, or a rule excludes what can't be missing.
            SerializationError: It can't be carried.
        """
        frame.import_codecs()
        _import_all()
        return self._capture(state, explain=explain, at_once=self._size is not None and self._size <= AT_ONCE)

    def _capture(self, state: object, *, explain: bool, at_once: bool) -> Callable[[], Taken]:
        if self._rules is not None:
            state = self._rules.apply(state)
        frozen = None if at_once or explain else freezing.freeze(state)
        if frozen is not None:
            return lambda: self._sealed(frozen.value)
        unsealed = self._packed(state, encoding.prepare)
        warning = self._noted(state, unsealed)
        measured = sizes.measure(state) if explain else None
        return lambda: Taken(unsealed.seal(), measured, warning)

    def _sealed(self, state: object) -> Taken:
        unsealed = self._packed(state, gently.prepare)
        warning = self._noted(state, unsealed)
        return Taken(unsealed.seal(), None, warning)

    def _noted(self, state: object, unsealed: encoding.Unsealed) -> str | None:
        self._size = unsealed.size
        return self._growth.note(state, unsealed.size)

    def _packed(self, state: object, pack: Callable[..., encoding.Unsealed]) -> encoding.Unsealed:
        try:
            return pack(state, max_bytes=self._max)
        except SerializationError as error:
            if error.kind != "too-large":
                raise
            fattest = sizes.measure(state).render(limit=_SHOWN)
            raise InvalidInputError(
                "the state is larger than max_state_bytes; save less of it (what is large and never changes "
                f"can stay outside, with its address in the state):\n{fattest}\n",
                kind="too-large",
                encoded_size=error.facts["encoded_size"],
                max_state_bytes=self._max,
            ) from None


@cache
def _import_all() -> None:
    """Import here what another thread would: a child that is forked meanwhile would wait for ever.

    The lock of a module that is being imported is never released in it.
    """
    imported(*(f"cloudckpt.codec.{module}" for module in ("gently", "freezing", "sizes")))


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
        grown, before = (*row.sizes[-SAVES:], encoded_size), row.before
        if len(grown) > SAVES // 2 and before is None:
            before = sizes.sizes_by_path(state, levels=_LEVELS)
        self._row = _Row(grown, before)
        if before is None or len(grown) <= SAVES or encoded_size < LEAST or not _is_steady(grown):
            return None
        self._told = True
        where = _most_grown(sizes.sizes_by_path(state, levels=_LEVELS), before)
        return (
            f"grew at each of its last {SAVES} saves, by about {(grown[-1] - grown[0]) // SAVES:,} bytes, to "
            f"{encoded_size:,}; most of that is {where}: compact it, or save only what decides the next step"
        )


class _Row(NamedTuple):
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
