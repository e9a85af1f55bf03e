"""Which plots are played, and how large things are while they are.

Owns: `RIDES` and `riding`, which make a few small checkpoints meet every rule on sizes;
`RANDOM`, plots for single runs; `EXHAUSTIVE`, plots of which every run is played.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from cloudckpt import commit, folding, making, objects, pages, sweep
from tests.protocol.stage import KEEP_LAST, SMALL, Plot, collector, deleter, killer, loader, reader, writer


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bounds in bytes; a payload has 45 to 60 of them, and an entry about 800.

    Attributes:
        inline: Up to this a payload rides.
        ride: Up to this they ride on without an object, as far as the rule goes.
        most: No more than this rides.
        window: More than this of entries begins to move into the history.
        most_window: More than this waits until they have moved.
    """

    inline: int
    ride: int
    most: int
    window: int = folding.WINDOW_BYTES
    most_window: int = folding.MOST_WINDOW_BYTES


RIDES = {
    "all ride, put behind at once": Sizes(1000, 0, 130),
    "all ride for long": Sizes(1000, 160, 200),
    "some ride": Sizes(SMALL, 0, 130),
    "none rides": Sizes(0, 0, 0),
    "some ride, all but the newest are history": Sizes(SMALL, 0, 130, window=1, most_window=2000),
}

_tail = folding.tail


@contextmanager
def riding(name: str) -> Iterator[None]:
    """Let payloads ride, and entries move, as `RIDES` says."""
    sizes = RIDES[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "INLINE_BYTES", sizes.inline)
        patch.setattr(objects, "RIDE_BYTES", sizes.ride)
        patch.setattr(objects, "MAX_RIDE_BYTES", sizes.most)
        patch.setattr(sweep, "SWEEP_KEYS", 1)
        patch.setattr(folding, "WINDOW_BYTES", sizes.window)
        patch.setattr(folding, "MOST_WINDOW_BYTES", sizes.most_window)
        left = min(folding.WINDOW_LEFT, sizes.window)
        for module in (folding, commit):
            patch.setattr(module, "tail", lambda manifest, most=left: _tail(manifest, most))
        patch.setattr(folding, "LEAF_ENTRIES", 2)
        patch.setattr(folding, "SLACK", 1)
        patch.setattr(pages, "FAN", 2)
        yield


RANDOM: Mapping[str, Plot] = {
    "two writers": {"A": writer("A", 4, times=2), "B": writer("B", 4, times=2)},
    "a writer, collectors and a reader": {
        "A": writer("A", 5),
        "collector": collector,
        "collector 2": collector,
        "reader": reader,
    },
    "one is killed, another goes on": {
        "A": writer("A", 5),
        "killer": killer,
        "B": writer("B", 3, times=2),
        "collector": collector,
        "reader": reader,
    },
    "the run is deleted": {
        "A": writer("A", 3),
        "B": writer("B", 3, times=2),
        "deleter": deleter,
        "collector": collector,
        "reader": reader,
    },
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """A plot of which every run is played.

    Attributes:
        plot: Who acts.
        keep_last: How many checkpoints a commit keeps.
        epochs: See `explore`.
    """

    plot: Plot
    keep_last: int = KEEP_LAST
    epochs: int = 4


_TWO = {"A": writer("A", 2), "B": writer("B", 2)}

EXHAUSTIVE: Mapping[str, Bounds] = {
    "a writer and a collector": Bounds({"A": writer("A", 2), "collector": collector}),
    "a writer whose run is deleted": Bounds({"A": writer("A", 2), "deleter": deleter}),
    "a reader of what expires": Bounds({"A": writer("A", 2), "reader": loader(1)}, keep_last=1),
    "two writers": Bounds(_TWO),
    "three become the writer": Bounds({name: writer(name, 1) for name in "ABC"}),
    "two writers and a collector": Bounds({**_TWO, "collector": collector}),
    "two writers whose run is deleted": Bounds({**_TWO, "deleter": deleter}),
}
