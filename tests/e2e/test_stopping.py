"""Processes that are told to end, end, stand still or fork, with saves behind them.

Each request takes a moment longer than it would (`latency`), so that something is under way
when it happens; no test depends on how long.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from cloudckpt.store import Store
from cloudckpt.testing.invariants import Ledger, check_laws

TIMEOUT = 90.0
MOMENT, EVER = "0.1", "3600"

PRELUDE = """
import asyncio, os, signal, sys, time, cloudckpt
def say(*words):
    print(*words, flush=True)
store = cloudckpt.open(sys.argv[1], latency=1e-6)
run = store.run("r", cadence="background", queue=9)
run.acquire()
store._core.storage.inner._seconds = float(sys.argv[2])  # of each request from now on
"""


class Program:
    """A program under way."""

    def __init__(self, code: str, url: str, latency: str, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PRELUDE + code, url, latency],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            start_new_session=True,
        )

    def said(self) -> str:
        """Return the next line that it says."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def go(self) -> None:
        """Let it read a line."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def ended(self) -> tuple[int, str, str]:
        """Wait for its end; return its exit code, and what else it said on both streams."""
        out, err = self._process.communicate(timeout=TIMEOUT)
        return self._process.returncode, out, err

    def is_running(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # with what it forked
        self._process.communicate()


class Place:
    """Where programs run, and what they leave in the store."""

    def __init__(self, url: str, environment: dict[str, str], options: dict[str, Any]) -> None:
        self.url = url
        self._environment = environment
        self._options = options
        self._programs: list[Program] = []

    def start(self, code: str, *, latency: str = MOMENT) -> Program:
        self._programs.append(Program(code, self.url, latency, self._environment))
        return self._programs[-1]

    def store(self) -> Store:
        return cloudckpt.open(self.url, storage_options=self._options)

    def saved(self) -> Any:
        """Return the newest state, of a run whose laws hold."""
        with self.store() as store:
            if self.url.startswith("file:"):
                store._core.call(_holds(store))
            return store.run("r").load()

    def clean(self) -> None:
        for program in self._programs:
            program.kill()


async def _holds(store: Store) -> None:
    run = store.run("r")
    ledger = Ledger()
    for info in await run._history():
        ledger.ask(run._decoded(await run._loaded(_which(info.seq)), None))
    await check_laws(store._core.storage, "r", ledger)


def _which(seq: int) -> Any:
    return cloudckpt.history.Which(seq=seq)


@pytest.fixture(params=["folder", "minio"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "folder":
        found = Place(f"file://{tmp_path}", {}, {})
    else:
        server = request.getfixturevalue("minio_server")
        url = f"{server.url}/stopping-{secrets.token_hex(4)}"
        found = Place(url, server.environment(), server.storage_options())
    yield found
    found.clean()


SAVES = """
for n in range(1, 4):
    run.save({"n": n})
"""

# ---- told to end


def test_told_to_end_it_drains_and_dies_of_the_signal(place: Place) -> None:
    program = place.start("run.on_sigterm(50)\n" + SAVES + "say('saved')\nwhile True: signal.pause()")
    assert program.said() == "saved"
    program.send(signal.SIGTERM)
    assert program.ended() == (-signal.SIGTERM, "", "")
    assert place.saved() == {"n": 3}


def test_without_it_what_is_pending_is_lost(place: Place) -> None:
    """Or the test above would show nothing."""
    program = place.start(SAVES + "say('saved')\nwhile True: signal.pause()", latency=EVER)
    assert program.said() == "saved"
    program.send(signal.SIGTERM)
    assert program.ended()[0] == -signal.SIGTERM
    assert place.saved() is None


HANDLER = """
def handler(number, frame):
    say("handler", run.pending)
    sys.exit(7)
signal.signal(signal.SIGTERM, handler)
run.on_sigterm(50)
"""


def test_the_handler_that_was_there_is_called_after_the_drain(place: Place) -> None:
    program = place.start(HANDLER + SAVES + "say('saved')\nwhile True: signal.pause()")
    assert program.said() == "saved"
    program.send(signal.SIGTERM)
    assert program.ended() == (7, "handler 0\n", "")
    assert place.saved() == {"n": 3}


def test_a_process_that_ignored_it_goes_on(place: Place) -> None:
    code = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
run.on_sigterm(50)
"""
    code += SAVES + "say('saved')\nsys.stdin.readline()\nsay('here')\nrun.save({'n': 4})\nrun.close()"
    program = place.start(code)
    assert program.said() == "saved"
    program.send(signal.SIGTERM)
    program.go()
    assert program.said() == "here"
    assert program.ended() == (0, "", "")
    assert place.saved() == {"n": 4}


LOOP = """
async def main():
    over = asyncio.Event()
    def told():
        say("told")
        over.set()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told)
    run.on_sigterm(50)
    for n in range(1, 4):
        await run.asave({"n": n})
    say("saved")
    await over.wait()
    await run.aclose()
    say("closed")
asyncio.run(main())
"""


def test_a_loops_own_handler_is_called_once(place: Place) -> None:
    program = place.start(LOOP)
    assert program.said() == "saved"
    program.send(signal.SIGTERM)
    assert program.ended() == (0, "told\nclosed\n", "")
    assert place.saved() == {"n": 3}


def test_after_the_deadline_it_dies_and_says_what_is_lost(place: Place) -> None:
    program = place.start(
        "run.on_sigterm(0.2)\n" + SAVES + "say('saved')\nwhile True: signal.pause()", latency=EVER
    )
    assert program.said() == "saved"
    program.send(signal.SIGTERM)
    code, _, err = program.ended()
    assert code == -signal.SIGTERM
    assert "pending=3" in err
    assert place.saved() is None


def test_a_second_signal_does_not_wait(place: Place) -> None:
    program = place.start(
        "run.on_sigterm(3600)\n" + SAVES + "say('saved')\nwhile True: signal.pause()", latency=EVER
    )
    assert program.said() == "saved"
    for _ in range(600):  # two that come together are one
        program.send(signal.SIGTERM)
        if not program.is_running(0.1):
            break
    assert program.ended()[0] == -signal.SIGTERM


def test_a_save_under_way_in_cadence_step_is_waited_for(place: Place) -> None:
    code = """
run.cadence = "step"
run.on_sigterm(50)
far = store._core.storage.inner
replace = far.replace
async def replacing(*arguments):
    say("writing")
    return await replace(*arguments)
far.replace = replacing
run.save({"n": 1})
while True: signal.pause()
"""
    program = place.start(code, latency="0.5")
    assert program.said() == "writing"
    program.send(signal.SIGTERM)
    assert program.ended() == (-signal.SIGTERM, "", "")
    assert place.saved() == {"n": 1}


def test_all_is_as_before_once_the_runs_are_closed(place: Place) -> None:
    code = """
def handler(number, frame): pass
signal.signal(signal.SIGTERM, handler)
run.on_sigterm(50)
other = store.run("other", drain_on_sigterm=10)
other.close()
assert signal.getsignal(signal.SIGTERM) is not handler
run.close()
assert signal.getsignal(signal.SIGTERM) is handler
with store.run("third", drain_on_sigterm=10) as third:
    def newer(number, frame): pass
    signal.signal(signal.SIGTERM, newer)
assert signal.getsignal(signal.SIGTERM) is newer
import threading
said = []
def elsewhere():
    try:
        run.on_sigterm(5)
    except cloudckpt.InvalidInputError as error:
        said.append(str(error))
thread = threading.Thread(target=elsewhere)
thread.start()
thread.join()
assert "main thread" in said[0]
"""
    assert place.start(code).ended() == (0, "", "")


# ---- ending


@pytest.mark.parametrize("cadence", ["background", "selective"])
def test_a_program_that_ends_without_closing_has_saved(place: Place, cadence: str) -> None:
    program = place.start(f"run.cadence = {cadence!r}\n" + SAVES + "del run")
    assert program.ended() == (0, "", "")
    assert place.saved() == {"n": 3}


def test_a_program_that_fails_has_saved_what_it_saved(place: Place) -> None:
    program = place.start(SAVES + "raise SystemExit(3)")
    assert program.ended() == (3, "", "")
    assert place.saved() == {"n": 3}


def test_what_failed_and_nobody_was_told_of_is_shown_at_the_end(place: Place) -> None:
    code = """
other = cloudckpt.open(sys.argv[1]).run("r")
other.acquire()
run.save({"n": 1})
"""
    _, _, err = place.start(code).ended()
    assert "FencedError" in err
    assert "another process became the run's writer" in err


# ---- frozen


def test_a_process_that_is_frozen_after_its_return_has_nothing_in_flight(place: Place) -> None:
    """As in a function: it stands still, another takes over, and when it goes on it is told."""
    code = """
def handler(n):
    run.save({"n": n, "blob": os.urandom(20_000)})
    run.sync_before_return()
    say("returned")
for n in range(1, 5):
    handler(n)
sys.stdin.readline()
try:
    run.save({"n": 9})
    run.sync_before_return()
except cloudckpt.FencedError:
    say("fenced")
"""
    program = place.start(code)
    for _ in range(4):
        assert program.said() == "returned"
    program.send(signal.SIGSTOP)
    assert place.saved()["n"] == 4
    with place.store() as store, store.run("r") as other:
        other.save({"n": 5})
        program.go()
        program.send(signal.SIGCONT)
        assert program.ended() == (0, "fenced\n", "")
        other.save({"n": 6})
    assert place.saved() == {"n": 6}


# ---- forks


def test_a_forked_child_has_nothing_pending_and_the_parent_saves_once(place: Place) -> None:
    code = (
        SAVES
        + """
if child := os.fork():
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    run.close()
    say(code, run.load(), len(run.history()))
else:
    try:
        assert run.pending == 0
        run.flush()
        other = store.run("child", cadence="background")
        other.save({"n": "child"})
        other.close()
        say("child", store.run("child").load())
    finally:
        sys.stdout.flush()
        os._exit(5)
"""
    )
    program = place.start(code)
    assert program.said() == "child {'n': 'child'}"
    assert program.said() == "5 {'n': 3} 3"
    code_, _, err = program.ended()
    assert code_ == 0, err
