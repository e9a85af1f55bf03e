"""A save before it is committed, as frozen values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudckpt.ledger import Note
from cloudckpt.model import Entry, Manifest, Origin

if TYPE_CHECKING:
    from cloudckpt.codec import Encoded


@dataclass(frozen=True, slots=True)
class Again:
    """The state of a retained checkpoint, which becomes the newest once more."""

    seq: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A save as its caller asked for it.

    Attributes:
        commit: Its id, the same however often it is tried.
        state: What is saved.
        origin: Where the state came from, when it was not saved by a step.
        expect: The seq that must be the newest.
        notes: What goes into the ledger with it.
        status: What the run is from then on, instead of running or waiting.
        max_steps: How many steps there will be at most, if that is known.
    """

    commit: str
    state: Encoded | Again
    origin: Origin | None = None
    step: int | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: Mapping[str, str] | None = None
    expect: int | None = None
    notes: tuple[Note, ...] = ()
    status: str | None = None
    max_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Next:
    """What a save would commit.

    Attributes:
        manifest: The whole.
        entry: The new checkpoint in it.
        rides: Key of its payload, when it rides.
        dropped: Keys of objects that nothing refers to once it has landed, with their bytes.
    """

    manifest: Manifest
    entry: Entry
    rides: str | None
    dropped: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Noted:
    """A manifest that differs by notes in its ledger."""

    manifest: Manifest
    notes: list[Note]


@dataclass(frozen=True, slots=True)
class Renewed:
    """A manifest that differs by its lease alone."""

    manifest: Manifest


Made = Next | Noted | Renewed
