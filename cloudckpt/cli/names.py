"""Naming a checkpoint: ``RUN``, ``RUN@3``, ``RUN@-1``, ``RUN@best``, ``RUN@step:17``.

Owns: how such a name is read, and what to say when there is no such run. A run's id
may hold anything, an ``@`` too, and so may a tag. So the last ``@`` is where the id ends;
where there is no such run or checkpoint, the whole is tried as an id, then an earlier ``@``;
and one ``@`` more at the end says beyond doubt that all before it is the id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final, TypeVar

from cloudckpt.errors import (
    CheckpointNotFoundError,
    InvalidInputError,
    NotFoundError,
    RunDeletedError,
    RunNotFoundError,
)
from cloudckpt.labels import MAX_TAG
from cloudckpt.run import Run
from cloudckpt.store import Store

T = TypeVar("T")

LOOKED_AT: Final = 1000
"""Ids among which a near miss is looked for: one page of a listing."""

_SEQ: Final = re.compile(r"(?:seq:)?(?P<seq>[0-9]{1,18})")
_BACK: Final = re.compile(r"-(?P<back>[0-9]{1,6})")
_STEP: Final = re.compile(r"step:(?P<step>[0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Name:
    """One way to read a name.

    Attributes:
        run: The run's id.
        point: Which checkpoint, as `Run.load` takes it: by seq, tag or step; empty for the newest.
        back: Or so many before the newest.
    """

    run: str
    point: dict[str, Any]
    back: int | None = None

    @property
    def is_bare(self) -> bool:
        """Whether it names no checkpoint."""
        return not self.point and self.back is None


def readings(text: str) -> list[Name]:
    """Return the ways to read a name, the likeliest first."""
    found = [_read(run, which) for run, which in _parted(text)]
    return [*found[:1], Name(text, {}), *found[1:]]


def _parted(text: str) -> Iterator[tuple[str, str]]:
    """Yield the id and the rest by the last ``@``, then by those before it, since a tag may hold one."""
    run, _, which = text.rpartition("@")
    while run and len(which) <= MAX_TAG + len("tag:"):
        yield run, which
        run, _, more = run.rpartition("@")
        which = f"{more}@{which}"


def _read(run: str, which: str) -> Name:
    if not which:
        return Name(run, {})
    if found := _BACK.fullmatch(which):
        return Name(run, {}, int(found["back"]))
    if found := _SEQ.fullmatch(which):
        return Name(run, {"seq": int(found["seq"])})
    if found := _STEP.fullmatch(which):
        return Name(run, {"step": int(found["step"])})
    return Name(run, {"tag": which.removeprefix("tag:")})


def at(store: Store, text: str, work: Callable[[Run, dict[str, Any]], T]) -> T:
    """Return what `work` makes of the run and the checkpoint that a name means.

    Args:
        store: Where the run is.
        text: The name.
        work: Takes the run and its checkpoint as keyword arguments of `Run.load`; raises
            `NotFoundError` when it is not there.

    Raises:
        NotFoundError: It is not there by any reading; names runs that may have been meant.
    """
    return either(store, text, lambda run, point: work(run, point or {}))


def whole(store: Store, text: str, work: Callable[[Run], T]) -> T:
    """Return what `work` makes of the run that an id names; the id may have an ``@`` more at its end."""
    ids = [text, *([text[:-1]] if text.endswith("@") and len(text) > 1 else [])]
    return _first(store, [Name(run, {}) for run in ids], lambda name: work(store.run(name.run)))


def there(store: Store, text: str) -> str:
    """Return the id of the run that a name means; raises when it is not there: one request."""

    def look(run: Run) -> str:
        run.summary()
        return run.id

    return whole(store, text, look)


def either(store: Store, text: str, work: Callable[[Run, dict[str, Any] | None], T]) -> T:
    """Return what `work` makes of a checkpoint, or where the name has none, of the whole run (None)."""

    def look(name: Name) -> T:
        run = store.run(name.run)
        if name.is_bare:
            return work(run, None)
        return work(run, _counted_back(run, name.back) if name.back is not None else name.point)

    return _first(store, readings(text), look)


def _counted_back(run: Run, back: int) -> dict[str, Any]:
    found = run.history(limit=back + 1)
    if not found:
        run.find()  # says what is missing: the run, or any checkpoint
    if len(found) <= back:
        raise CheckpointNotFoundError(
            "the run has not so many checkpoints; count back from the newest, which is @-0",
            run=run.id,
            retained=len(found),
        )
    return {"seq": found[back].seq}


def _first(store: Store, names: Iterable[Name], look: Callable[[Name], T]) -> T:
    refused: list[NotFoundError | RunDeletedError] = []
    unusable: InvalidInputError | None = None
    for name in names:
        try:
            return look(name)
        except (NotFoundError, RunDeletedError) as error:
            refused.append(error)
        except InvalidInputError as error:
            if not refused:  # else it is only another reading that can't be an id
                unusable = unusable or error
    if unusable is not None:
        raise unusable
    there = [error for error in refused if not isinstance(error, RunNotFoundError)]
    if there:
        raise there[0]
    raise _with_near(store, refused)


def _with_near(store: Store, refused: list[NotFoundError | RunDeletedError]) -> NotFoundError:
    ids = list(dict.fromkeys(str(error.facts["run"]) for error in refused))
    near = near_misses(store, ids)
    first = refused[0]
    if not near:
        return RunNotFoundError(first.message, **first.facts)
    meant = " or ".join(map(repr, near))
    return RunNotFoundError(f"there is no such run in this store; did you mean {meant}?", run=ids[0])


def near_misses(store: Store, ids: list[str]) -> list[str]:
    """Return ids of runs that resemble one of `ids`: at most two listings of one page each."""
    for prefix in (ids[0][: max(1, len(ids[0]) // 2)], ""):
        there = [info.id for info in islice(store.runs(prefix), LOOKED_AT)]
        found = [near for one in ids for near in get_close_matches(one, there, n=3, cutoff=0.7)]
        if found:
            return list(dict.fromkeys(found))[:3]
    return []
