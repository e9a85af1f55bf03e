"""`cloudckpt doctor` as a user runs it: in a terminal, in a pipe, and for programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from cloudckpt.cli.doctor import bars, lines, shape
from cloudckpt.doctor import Report
from cloudckpt.storage.findings import fault, ok, unknown, warning
from tests.servers.base import ROOT, Server

CLI = ("-c", "from cloudckpt.cli import main; main()", "doctor")
WITHOUT_RICH = (
    "-c",
    "import sys; sys.modules['rich'] = None; from cloudckpt.cli import main; main()",
    "doctor",
)


def run(*args: str, tmp: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        cwd=tmp,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def levels(told: dict[str, Any]) -> dict[str, str]:
    return {finding["check"]: finding["level"] for finding in told["findings"]}


@pytest.mark.parametrize("how", ["argument", "option", "environment"])
def test_a_pipe_gets_a_line_a_check_and_nothing_that_moves(tmp_path: Path, how: str) -> None:
    store = str(tmp_path / "store")
    named = {"argument": (store,), "option": ("--store", store), "environment": ()}[how]
    more = {"CLOUDCKPT_URL": store if how == "environment" else "gopher://elsewhere"}
    done = run(*CLI, *named, tmp=tmp_path, **more)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    shown = done.stdout.splitlines()
    assert shown[0] == "ok       engine        file"
    assert "ok       conditions    conditional writes are refused where they must be, also in a race" in shown
    assert any("#" in line and " ms " in line for line in shown)
    assert shown[-1].startswith(f"file://{store}: ")
    assert " 0 fault" in shown[-1]
    assert list(tmp_path.iterdir()) == []


def test_programs_get_one_document_of_a_stable_shape(tmp_path: Path) -> None:
    done = run(*CLI, str(tmp_path / "store"), "--json", tmp=tmp_path)
    told = json.loads(done.stdout)
    assert list(told) == ["version", "url", "engine", "ok", "counts", "left", "findings"]
    assert (told["version"], told["engine"], told["ok"]) == (cloudckpt.__version__, "file", True)
    assert set(told["counts"]) == {"ok", "warning", "fault", "unknown"}
    assert sum(told["counts"].values()) == len(told["findings"])
    assert all(list(each) == ["check", "level", "found", "do", "facts"] for each in told["findings"])


def test_a_fault_is_exit_code_1_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("in the way")
    done = run(*CLI, "store", tmp=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "fault    store         a file is where the store needs a folder, or the reverse" in done.stdout
    told = json.loads(run(*CLI, "store", "--json", tmp=tmp_path).stdout)
    assert (told["ok"], told["counts"]["fault"]) == (False, 1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "name a store: an argument, --store, or CLOUDCKPT_URL"),
        (("gopher://x",), "unknown kind of store"),
        (("ftp://x/y",), "no conditional writes"),
        (("store", "--engine", "boto9"), "no such engine"),
        (("store", "--storage-options", "{"), "not JSON"),
        (("store", "--storage-options", "[1]"), "not a JSON object"),
    ],
)
def test_what_can_not_be_opened_is_exit_code_2(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    done = run(*CLI, *args, tmp=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bucket_is_visited_by_the_environment_and_by_options(tmp_path: Path, minio_server: Server) -> None:
    url = f"{minio_server.url}/doctor-{uuid.uuid4().hex}"
    told = json.loads(
        run(*CLI, "--json", tmp=tmp_path, CLOUDCKPT_URL=url, **minio_server.environment()).stdout
    )
    assert (told["ok"], told["url"], told["engine"]) == (True, url, "s3fs")
    assert levels(told)["object-lock"] == "ok"
    options = {**minio_server.storage_options(), "secret": "wrong"}
    done = run(*CLI, url, "--storage-options", json.dumps(options), tmp=tmp_path)
    assert done.returncode == 1
    assert "the store refuses the signature" in done.stdout
    assert "wrong" not in done.stdout


def test_a_terminal_gets_a_table_and_the_same_words(tmp_path: Path) -> None:
    done = in_terminal(*CLI, "store", tmp=tmp_path)
    assert "┃" in done
    assert "latency-put" in done
    assert " 0 fault" in done
    without = in_terminal(*WITHOUT_RICH, "store", tmp=tmp_path)
    assert "ok       engine        file" in without
    assert "┃" not in without


def in_terminal(*args: str, tmp: Path) -> str:
    """Return what a program writes to a terminal."""
    reader, terminal = os.openpty()
    child = subprocess.Popen(
        [sys.executable, *args],
        cwd=tmp,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"},
        stdout=terminal,
    )
    os.close(terminal)
    written = b""
    try:
        while chunk := os.read(reader, 4096):
            written += chunk
    except OSError:  # Linux says so when the program has gone
        pass
    finally:
        os.close(reader)
    assert child.wait(60) == 0
    return written.decode()


BARS = [{"from_ms": 1.0, "to_ms": 2.0, "count": 8}, {"from_ms": 2.0, "to_ms": 3.5, "count": 2}]
REPORT = Report(
    "s3://b/agents",
    "s3fs",
    (
        ok("latency-put", "median 1.2 ms", histogram=BARS),
        warning("versioning", "enabled, " + "and no rule ends old pointers " * 4, "add a rule"),
        fault("lifecycle", "a rule deletes objects", "delete " + "the rule " * 12),
        unknown("identity", "not told"),
    ),
    ("probe/1", "probe/2"),
)


def test_long_words_are_wrapped_below_themselves_and_bars_are_to_scale() -> None:
    assert bars(REPORT.findings[0]) == [
        "      1 to       2 ms #################### 8",
        "      2 to     3.5 ms #####                2",
    ]
    shown = lines(REPORT)
    assert max(map(len, shown[:-1])) <= 100
    assert shown[0] == "ok       latency-put   median 1.2 ms"
    assert [line for line in shown if line.startswith(" " * 23 + "->")] == [
        " " * 23 + "-> add a rule",
        " " * 23 + "-> delete the rule the rule the rule the rule the rule the rule the rule the",
    ]
    assert shown[-1] == (
        "s3://b/agents: 1 ok, 1 warning, 1 fault, 1 unknown; "
        "left behind, since they can't be deleted: probe/1, probe/2"
    )
    assert shape(REPORT)["left"] == ["probe/1", "probe/2"]
    assert json.loads(json.dumps(shape(REPORT)))["findings"][0]["facts"] == {"histogram": BARS}
