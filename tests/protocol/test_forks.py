"""A process that forks while another of its threads is in the middle: the child has none of its locks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import cloudckpt
from cloudckpt.late import Late
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.testing.driver import by_hand

SECONDS = 100

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def ends_well(work: Callable[[], object]) -> bool:
    """Do some work in a forked child, which is ended when it waits for ever."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def test_no_module_is_half_imported_in_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock of a module that a thread imports at a fork is closed in the child for good."""
    (tmp_path / "slowly_imported.py").write_text(
        "import sys, time\nsys.modules['tests_of_forks'].began.set()\ntime.sleep(0.5)\nVALUE = 42\n"
    )
    began = threading.Event()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "tests_of_forks", type("Told", (), {"began": began}))  # type: ignore[arg-type]
    slow = Late("slowly_imported")
    thread = threading.Thread(target=lambda: slow.VALUE)
    thread.start()
    assert began.wait(SECONDS)
    assert ends_well(lambda: slow.VALUE)
    thread.join()
    del sys.modules["slowly_imported"]


SAVES = """
import os, signal, sys, threading, warnings
warnings.simplefilter("ignore")
import cloudckpt
store = cloudckpt.open(sys.argv[1])
def save(name):
    with store.run(name) as run:
        run.save({"n": 1})
        assert run.load() == {"n": 1}
thread = threading.Thread(target=save, args=("parent",))
thread.start()
children = []
for number in range(8):
    children.append(os.fork())
    if children[-1] == 0:
        signal.alarm(100)
        save(f"child-{number}")
        os._exit(0)
thread.join()
sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
"""


def test_children_that_are_forked_during_the_first_save_of_another_thread_save(tmp_path: Path) -> None:
    """It imports what a save needs, in several steps."""
    for number in range(2):
        command = [sys.executable, "-c", SAVES, str(tmp_path / str(number))]
        assert subprocess.run(command, check=False, timeout=300).returncode == 0


def test_a_child_uses_a_store_in_memory_that_another_thread_was_using() -> None:
    storage = MemoryStorage("forked")
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with storage._space.lock:
            held.set()
            go.wait(SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(SECONDS)
    try:
        assert ends_well(lambda: by_hand(storage.create("key", b"data")))
        assert ends_well(lambda: cloudckpt.open("memory://forked").run("r").save({"n": 1}))
    finally:
        go.set()
        thread.join()
