"""The command line in a real terminal and in a real pipe, whose other end may go."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import cloudckpt
from tests.servers.base import ROOT

CLI = ("-c", "from cloudckpt.cli import main; main()")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with cloudckpt.open(tmp_path / "store") as store:
        for number in range(3):
            store.run(f"nightly-{number}").save({"step": number})
    return tmp_path / "store"


def in_terminal(store: Path, *args: str, typed: str = "", **env: str) -> tuple[int, str]:
    """Run a command with a terminal for all its streams; return its code and what it wrote."""
    reader, terminal = os.openpty()
    child = subprocess.Popen(
        [sys.executable, *CLI, *args],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm",
            "COLUMNS": "100",
            "CLOUDCKPT_URL": str(store),
            **env,
        },
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    os.write(reader, typed.encode())
    written = b""
    try:
        while chunk := os.read(reader, 4096):
            written += chunk
    except OSError:  # Linux says so when the program has gone
        pass
    finally:
        os.close(reader)
    return child.wait(60), written.decode(errors="replace")


def test_a_terminal_gets_a_table_and_a_bar(store: Path) -> None:
    code, shown = in_terminal(store, "runs", "-l")
    assert code == 0
    assert "\t" not in shown
    assert "checkpoints" in shown
    assert "3/3" in shown  # the bar, which is gone again in the end


def test_a_terminal_is_asked_and_its_no_is_heard(store: Path) -> None:
    code, shown = in_terminal(store, "delete", "nightly-1", typed="n\n")
    assert (code, "Delete 'nightly-1'?" in shown, "nothing was changed" in shown) == (1, True, True)
    assert in_terminal(store, "delete", "nightly-1", typed="y\n")[0] == 0
    with cloudckpt.open(store) as opened:
        assert opened.run("nightly-1").summary().status == "deleted"


def piped(store: Path, *args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *CLI, *args],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CLOUDCKPT_URL": str(store)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    """As in ``cloudckpt cat run | head -1``."""
    with cloudckpt.open(tmp_path) as store:
        store.run("r").save({"log": [f"line {n}" for n in range(200_000)]})
    child = piped(tmp_path, "cat", "r")
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    guard = threading.Timer(60, child.kill)
    guard.start()
    said = child.stderr.read()
    child.stderr.close()
    assert child.wait() in (0, 1)
    guard.cancel()
    assert b"Traceback" not in said


def test_an_error_is_one_line_without_a_traceback(store: Path) -> None:
    out, err = piped(store, "show", "nigthly-1").communicate(timeout=60)
    assert out == b""
    assert err.count(b"\n") == 1
    assert err.startswith(b"error: there is no such run in this store; did you mean 'nightly-1'")
