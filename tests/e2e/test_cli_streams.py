"""The command line with streams that are closed, full, or of an encoding that lacks what is shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cloudckpt
from tests.e2e.test_cli_terminal import CLI, in_terminal
from tests.servers.base import ROOT

NAME = "nächte-日本-\N{GRINNING FACE}"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with cloudckpt.open(tmp_path / "store") as store:
        store.run(NAME).save({"step": 1}, step=1)
    return tmp_path / "store"


def called(
    store: Path, *args: str, closed: tuple[int, ...] = (), stdout: int = subprocess.PIPE, **env: str
) -> subprocess.CompletedProcess[bytes]:
    def close() -> None:
        for number in closed:
            os.close(number)

    return subprocess.run(
        [sys.executable, *CLI, *args],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CLOUDCKPT_URL": str(store), **env},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        preexec_fn=close,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "args", [("runs",), ("runs", "--json"), ("export",), ("cat", NAME, "--stored"), ("doctor",), ("--help",)]
)
@pytest.mark.parametrize("how", ["full", "closed"])
def test_an_answer_that_nobody_gets_is_a_failure_of_one_line(
    store: Path, args: tuple[str, ...], how: str
) -> None:
    """An export onto a full disk, told by a traceback and the code that means "the answer is no"."""
    if how == "closed":
        done = called(store, *args, closed=(1,))
    else:
        full = os.open("/dev/full", os.O_WRONLY)
        done = called(store, *args, stdout=full)
        os.close(full)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: standard output could not be written: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("args", "closed", "code"),
    [
        (("show", "nothing"), (2,), 3),
        (("show", "nothing"), (0, 1, 2), 3),
        (("delete", NAME), (0,), 2),
        (("import", "-"), (0,), 1),
        (("submit", "new", "--state", "-"), (0,), 2),
        (("tag", NAME, "best"), (0, 2), 0),
    ],
)
def test_a_stream_that_is_closed_changes_no_exit_code(
    store: Path, args: tuple[str, ...], closed: tuple[int, ...], code: int
) -> None:
    """As under some init systems, where there is no stdin to ask whether it is a terminal."""
    done = called(store, *args, closed=closed)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


def test_no_file_of_a_store_gets_the_number_of_a_closed_stream(store: Path, tmp_path: Path) -> None:
    """What a library then writes to descriptor 2 would go into the file of a checkpoint."""
    agent = tmp_path / "agent.py"
    agent.write_text(
        "import os\n"
        "from cloudckpt.cli import streams\n"
        "streams.prepare()\n"
        f"number = os.open({str(tmp_path / 'payload')!r}, os.O_CREAT | os.O_WRONLY)\n"
        "os._exit(0 if number > 2 else 1)\n"
    )
    done = subprocess.run(
        [sys.executable, str(agent)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: os.closerange(0, 3),
        timeout=60,
        check=False,
    )
    assert done.returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_name_is_shown_in_every_encoding(store: Path, encoding: str) -> None:
    """A terminal of another age: a table with an agent's name in it was a traceback."""
    code, shown = in_terminal(store, "runs", PYTHONIOENCODING=encoding)
    assert (code, "modified" in shown, "Traceback" in shown) == (0, True, False)
    for option in ((), ("--json",)):
        done = called(store, "runs", *option, PYTHONIOENCODING=encoding)
        assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode("latin-1" if encoding == "latin-1" else "utf-8")  # click mends ascii in a pipe
    assert json.loads(text)["run"] == NAME
