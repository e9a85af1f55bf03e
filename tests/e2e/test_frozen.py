"""A worker that stands still for longer than its lease: it is taken over, and learns it when it goes on."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import cloudckpt
from cloudckpt.storage.file import LOCKS
from tests.servers.base import ROOT

HOLDER = """
import sys
import cloudckpt

tell = lambda error: print(type(error).__name__, flush=True)
run = cloudckpt.open(sys.argv[1]).run("r", lease=0.3, on_fenced=tell)
with run:
    run.save({"by": "holder"})
    print("saved", flush=True)
    sys.stdin.readline()
    try:
        run.save({"by": "zombie"})
    except cloudckpt.FencedError:
        print("refused", flush=True)
"""


def stop_outside_of_a_write(holder: subprocess.Popen[str], folder: Path) -> None:
    """Let it stand still; in the midst of a write it would hold the lock of a file, and so everybody up."""
    while True:
        holder.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
        if not any(is_locked(path) for path in (folder / LOCKS).iterdir()):
            return
        holder.send_signal(signal.SIGCONT)


def is_locked(path: Path) -> bool:
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_frozen_holder_loses_the_run_and_is_told_before_its_next_save(tmp_path: Path) -> None:
    """As a laptop that was closed, or a container that was paused: no clock of its own has told it so."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "saved\n"
        stop_outside_of_a_write(holder, tmp_path)
        with cloudckpt.open(tmp_path) as store, store.run("r", lease=30, busy="wait") as run:
            assert run.load() == {"by": "holder"}
            run.save({"by": "heir"})
            holder.send_signal(signal.SIGCONT)
            assert holder.stdout.readline() == "FencedError\n", "by its heart, before it saved"
            out, _ = holder.communicate("\n", timeout=60)
            assert out == "refused\n"
            run.save({"by": "heir", "n": 2})
    finally:
        holder.kill()
        holder.communicate()
