"""The demo as a user runs it, in processes of its own; and that it can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from cloudckpt.demo import show, survey
from cloudckpt.demo.gauntlet import Kill, Outcome
from tests.servers.base import ROOT, Server

CLI = ("-c", "from cloudckpt.cli import main; main()")
MODULE = ("-m", "cloudckpt.demo")
SMALL = ("--modules", "8", "--seed", "7")


def run(*args: str, tmp: Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command with `tmp` as the only place for temporary files."""
    return subprocess.run(
        [sys.executable, *args],
        cwd=tmp,
        env={**os.environ, "TMPDIR": str(tmp), "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_killed_agent_loses_at_most_a_step_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = run(*MODULE, *SMALL, "--kills", "6", "--json", tmp=tmp_path)
    told = report(done)
    assert (done.returncode, done.stderr) == (0, "")
    assert (told["ok"], told["equal"], told["kept"], told["steps"]) == (True, True, False, 10)
    assert [kill["number"] for kill in told["kills"]] == [1, 2, 3, 4, 5, 6]
    assert {kill["redone"] for kill in told["kills"]} <= {0, 1}
    assert any(kill["where"].startswith("inside tool") for kill in told["kills"])
    assert [(kill["worker"], kill["by"]) for kill in told["kills"]] == [
        (f"worker-{n}", f"worker-{n + 1}") for n in range(1, 7)
    ]
    assert list(tmp_path.iterdir()) == [], "a disk or the store was left behind"


def test_the_demo_tells_what_happens_as_plain_lines_in_a_pipe(tmp_path: Path) -> None:
    done = run(*CLI, "demo", str(tmp_path / "store"), *SMALL, "--kills", "2", tmp=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "The model is scripted" in done.stdout
    assert "kill 1: worker-1 at step" in done.stdout
    assert "worker-3 (pid" in done.stdout
    assert "steps redone" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("PASSED: the reports")
    assert "\x1b" not in done.stdout
    with cloudckpt.open(tmp_path / "store") as store:
        assert len(list(store.runs("demo-"))) == 2, "a store of the user's keeps its runs"


def test_the_demo_does_the_same_on_s3_and_can_be_repeated_there(tmp_path: Path, minio_server: Server) -> None:
    url = f"{minio_server.url}/demo-{uuid.uuid4().hex}"
    environment = {**minio_server.environment(), "CLOUDCKPT_URL": url}
    for _ in range(2):
        arguments = (*CLI, "demo", *SMALL, "--kills", "2", "--json")
        done = run(*arguments, tmp=tmp_path, environment=environment)
        told = report(done)
        assert (done.returncode, told["ok"], told["url"], len(told["kills"])) == (0, True, url, 2)


FORGETFUL = """
import cloudckpt.state as state
save = state.Checkpoint.save
def forget(self, run_id, *, store=None):
    if self.step % 4 == 0 or self.done:
        return save(self, run_id, store=store)
state.Checkpoint.save = forget
"""
CONFUSED = """
import cloudckpt.state as state
load = state.Checkpoint.load.__func__
def confuse(cls, run_id, **options):
    found = load(cls, run_id, **options)
    for message in found.messages[3:4] if found else ():
        message["content"] = message["content"].replace('"functions": ', '"functions": 1')
    return found
state.Checkpoint.load = classmethod(confuse)
"""


@pytest.mark.parametrize(("fault", "equal"), [(FORGETFUL, True), (CONFUSED, False)])
def test_the_demo_fails_when_the_library_does(tmp_path: Path, fault: str, equal: bool) -> None:
    """A demo that can't fail shows nothing: once steps are lost, once what was saved comes back changed."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(fault)
    environment = {"PYTHONPATH": os.pathsep.join([str(broken), str(ROOT)])}
    done = run(*MODULE, *SMALL, "--kills", "5", "--json", tmp=tmp_path, environment=environment)
    told = report(done)
    assert (done.returncode, told["ok"], told["equal"]) == (1, False, equal)
    assert (max(kill["redone"] for kill in told["kills"]) > 1) is equal


@pytest.mark.parametrize("start", [(*CLI, "demo"), MODULE])
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--kills", "9"), "at most one kill a module kills=9 modules=8"),
        (("--kills", "0", "--modules", "0"), "a module or more kills=0 modules=0"),
        (("memory://x",), "use a folder or a bucket"),
        (("gopher://x",), "gopher"),
        (("a-file",), "the agent ended by itself"),
    ],
)
def test_a_demo_that_cannot_run_says_why(
    tmp_path: Path, start: tuple[str, ...], args: tuple[str, ...], message: str
) -> None:
    (tmp_path / "a-file").write_text("in the way")
    done = run(*start, *SMALL, "--kills", "2", *args, tmp=tmp_path)
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a-file"]


# ---- the command line


def test_the_command_line_says_what_it_can_do(tmp_path: Path) -> None:
    assert (
        run(*CLI, "--version", tmp=tmp_path).stdout.strip() == f"cloudckpt, version {cloudckpt.__version__}"
    )
    helped = run(*CLI, "--help", tmp=tmp_path).stdout
    assert "CLOUDCKPT_URL" in helped
    assert "demo  " in helped
    for option in ("--kills", "--seed", "--modules", "--json", "[URL]"):
        assert option in run(*CLI, "demo", "--help", tmp=tmp_path).stdout
    unknown = run(*CLI, "dmo", tmp=tmp_path)
    assert (unknown.returncode, "no such command 'dmo'; did you mean 'demo'?" in unknown.stderr) == (2, True)


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_the_command_line_says_what_to_install(tmp_path: Path, missing: str) -> None:
    """A terminal is all that rich is for: its absence stops nothing in a pipe."""
    code = f"import sys; sys.modules[{missing!r}] = None; from cloudckpt.cli import main; main()"
    done = run("-c", code, "--version", tmp=tmp_path)
    if missing == "rich":
        assert done.returncode == 0
    else:
        assert done.returncode == 2
        assert done.stderr.strip() == 'error: the command line needs click; pip install "cloudckpt[cli]"'


# ---- the job


def test_the_report_is_a_function_of_the_library_alone() -> None:
    modules = survey.pick_modules(5)
    assert modules == sorted(set(modules))
    found = survey.measure("textwrap")
    assert found["functions"] > 10
    assert found["longest"] == sorted(found["longest"], key=lambda row: (-row[1], row[0]))
    assert found == survey.measure("textwrap")


def test_measuring_counts_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested and asynchronous functions are functions; a private one owes nobody a docstring."""
    (tmp_path / "sample.py").write_text(
        "class A:\n"
        "    def shown(self):\n"
        "        def inner(): pass\n"
        "        return inner\n"
        "    def told(self):\n"
        "        'Told.'\n"
        "    def _own(self): pass\n"
        "if True:\n"
        "    async def late(): pass\n"
    )
    monkeypatch.setattr(survey, "_folder", lambda: tmp_path)
    assert survey.measure("sample") == {
        "module": "sample",
        "functions": 5,
        "classes": 1,
        "longest": [["A.shown", 3], ["A.told", 2], ["A._own", 1]],
        "undocumented": ["A.shown", "A.shown.inner", "late"],
    }


# ---- verdict and screen

KILL = Kill(1, "worker-1", step=3, where="inside the save")
OUTCOME = Outcome(
    url="file:///x",
    run="demo-1",
    kept=True,
    seed=1,
    steps=10,
    wanted=1,
    kills=(KILL.resumed("worker-2", 3),),
    report="r",
    expected="r",
    seconds=2.0,
    plain_seconds=1.0,
)


def test_a_step_whose_save_landed_is_not_lost() -> None:
    assert [KILL.resumed("worker-2", step).redone for step in (2, 3, 4)] == [2, 1, 0]


@pytest.mark.parametrize(
    ("outcome", "ok"),
    [
        (OUTCOME, True),
        (replace(OUTCOME, report="other"), False),
        (replace(OUTCOME, wanted=2), False),
        (replace(OUTCOME, kills=(KILL.resumed("worker-2", 2),)), False),
        (replace(OUTCOME, kills=(KILL.resumed("worker-2", 5),)), False),
        (replace(OUTCOME, kills=(KILL,)), False),
    ],
)
def test_the_verdict_is_strict(outcome: Outcome, ok: bool) -> None:
    """A step that was never saved and yet not done again would be a step lost for good."""
    assert outcome.ok is ok


def test_a_terminal_shows_the_same_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    for screen in (show.PlainScreen(), show.RichScreen()):
        teller = show.Teller(screen)
        teller.begun("file:///x", "demo-1", modules=8, kills=1, seed=1)
        teller.undisturbed(10, 1.0)
        teller.loaded("worker-1", 123, 0)
        teller.saved("worker-1", 3)
        teller.killed(KILL)
        teller.resumed(OUTCOME.kills[0])
        teller.close()
        teller.finished(OUTCOME)
        shown = capsys.readouterr().out
        for words in (
            "kill 1: worker-1 at step 3, inside the save",
            "steps redone",
            "PASSED: the reports, of 1 bytes, are equal",
        ):
            assert words in shown


def test_without_rich_a_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert isinstance(show.choose_teller(as_json=False)._screen, show.RichScreen)  # type: ignore[union-attr]
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    assert isinstance(show.choose_teller(as_json=False)._screen, show.PlainScreen)  # type: ignore[union-attr]
