"""What this process holds for ready-made states: stores, and handles of runs.

Owns: the store of those who name none, which handle a run's states are saved
through, and whose turn it is to save a state that several act on. Invariants: a
run has one handle at a time, that of its newest load or save, and the number of
handles is bounded. After a fork both sides have them all: stores and handles know
their process by themselves. What may be saved through a handle is for `saved.py`
to say.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from cloudckpt.run import Run
from cloudckpt.store import Store
from cloudckpt.store import open as open_store

HELD_RUNS = 256
"""Run handles that a process keeps for ready-made states. Dropping the oldest is
safe: its state's next save becomes the writer again, for one more commit."""


@dataclass(frozen=True, slots=True)
class Held:
    """A run handle, with its writer's number as of the last load or save (0: not known)."""

    store: Store
    run: Run
    epoch: int

    @classmethod
    def new(cls, store: Store, run_id: str, epoch: int = 0) -> Held:
        """Return a handle that is nobody's yet."""
        return cls(store, store.run(run_id), epoch)


class Process:
    """The stores and the run handles of ready-made states. Safe from any thread."""

    def __init__(self) -> None:
        self._stores: dict[str, Store] = {}
        self._runs: dict[tuple[int, str], Held] = {}
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()  # another thread may have held the old one at the fork
        self._turns: dict[int, Future[None]] = {}  # of threads that the child has not

    def store(self, url: str) -> Store:
        """Return the process's store of that URL, opened again when somebody closed it."""
        with self._lock:
            store = self._stores.get(url)
            if store is None or store.closed:
                store = self._stores[url] = open_store(url)
            return store

    def store_of(self, url: str, run_id: str) -> Store | None:
        """Return the store of that URL through which the run was loaded or saved last, or a default one."""
        with self._lock:
            of_run = (held.store for held in reversed(self._runs.values()) if held.run.id == run_id)
            known = (store for store in (*of_run, *self._stores.values()) if store.url == url)
            return next((store for store in known if not store.closed), None)

    def turn(self, state: object) -> Future[None] | None:
        """Return None when it is one's turn to save a state, until `end_turn`; else what to wait for."""
        with self._lock:
            other = self._turns.get(id(state))
            if other is None:
                self._turns[id(state)] = Future()
            return other

    def end_turn(self, state: object) -> None:
        """Let those go on who wait."""
        with self._lock:
            ended = self._turns.pop(id(state), None)
        if ended is not None:
            ended.set_result(None)

    def held(self, store: Store, run_id: str) -> Held | None:
        """Return the handle of the run's newest load or save."""
        with self._lock:
            return self._runs.get((id(store), run_id))

    def hold(self, held: Held) -> Held:
        """Take the place of the run's older handle."""
        with self._lock:
            key = (id(held.store), held.run.id)  # not another's id: the entry keeps the store
            self._runs.pop(key, None)
            self._runs[key] = held
            while len(self._runs) > HELD_RUNS:
                del self._runs[next(iter(self._runs))]
        return held


process = Process()


def default_store() -> Store:
    """Return the store of states that are saved without one, opened once in a process.

    This is the one place of the library that reads the environment, since the
    ready-made state has no other argument to name a store with: the URL in
    ``CLOUDCKPT_URL``, or else the folder ``cloudckpt`` in the user's data directory
    (``XDG_DATA_HOME``, by default ``~/.local/share``; ``~/Library/Application
    Support`` on macOS, ``LOCALAPPDATA`` on Windows).
    """
    return process.store(os.environ.get("CLOUDCKPT_URL") or f"file://{data_folder()}")


def data_folder() -> str:
    """Return the folder of `default_store` where no URL is given."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Application Support"
    else:
        base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return str(Path(base).expanduser() / "cloudckpt")
