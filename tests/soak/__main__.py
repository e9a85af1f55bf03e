"""The command: ``python -m tests.soak [NAME ...] [--seconds N] [--seed S]``.

Each proof has an equal share of the time and tries one seed after the other. A broken
law ends it with exit code 1, and how to try the same seed again.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass

from tests.conftest import _isolate
from tests.servers.base import Unavailable
from tests.soak.progress import Progress, make_progress
from tests.soak.proofs import PROOFS, Figures, Lab, Piece


class Broken(Exception):
    """A law is broken; the cause says which."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(f"broken; try the same seed again: python -m tests.soak {name} --seed {seed}")


def main() -> int:
    options = _options()
    names = [name for name in PROOFS if name.startswith(tuple(options.names or ("",)))]
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    print(f"seed {seed}, {options.seconds} s for: {' '.join(names)}", flush=True)
    _isolate()
    progress, found, code = make_progress(), {}, 0
    broken: Broken | None = None
    try:
        with Lab() as lab:
            for name in names:
                found[name] = figures = Counter()
                soak(name, seed, options.seconds / len(names), lab, progress, figures)
    except Broken as error:
        broken, code = error, 1
    except KeyboardInterrupt:
        code = 130
    finally:
        progress.close()
    for name, figures in found.items():
        print(f"\n{name}")
        for what, count in sorted(figures.items()):
            print(f"  {count:>12,}  {what}")
    if broken is not None:
        traceback.print_exception(broken.__cause__)
        print(broken)
    return code


@dataclass(frozen=True, slots=True)
class Told:
    """Passes on what a piece tells, with what came before."""

    name: str
    start: float
    seed: int
    figures: Figures
    progress: Progress

    def __call__(self, more: Figures) -> None:
        self.progress.tell(self.name, time.monotonic() - self.start, self.seed, self.figures + more)


def soak(name: str, seed: int, seconds: float, lab: Lab, progress: Progress, figures: Figures) -> None:
    """Try one seed after the other until the time is over; add to the figures."""
    progress.begin(name, seconds)
    try:
        piece: Piece = PROOFS[name](lab)
    except Unavailable as error:
        progress.end(name, f"skipped: {error}")
        return
    start = time.monotonic()
    while (gone := time.monotonic() - start) < seconds:
        progress.tell(name, gone, seed, figures)
        try:
            figures += piece(seed, seconds - gone, Told(name, start, seed, figures, progress))
        except Exception as error:
            progress.end(name, f"broken at seed {seed}")
            raise Broken(name, seed) from error
        figures["seeds"] += 1
        seed += 1
    progress.tell(name, seconds, seed, figures)
    progress.end(name, f"holds: {figures['seeds']:,} seeds")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description="The random parts of the tests, for as long as you like."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of, or the beginning of: {', '.join(PROOFS)}"
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="for all together (600)")
    parser.add_argument("--seed", type=int, help="to begin with (any)")
    options = parser.parse_args()
    for name in options.names:
        if not any(proof.startswith(name) for proof in PROOFS):
            parser.error(f"there is no {name}; there are: {', '.join(PROOFS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
