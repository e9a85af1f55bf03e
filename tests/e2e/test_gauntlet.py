"""The gauntlet on agents that are right, on agents with a planted bug each, and as a user has it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from cloudckpt.crashtest import GauntletError, Report
from cloudckpt.crashtest.aims import AtCall
from cloudckpt.crashtest.pytest_plugin import Gauntlet
from cloudckpt.crashtest.shapes import replay, text
from tests.e2e.agents import planted
from tests.servers.base import ROOT, Server

CLI = ("-c", "from cloudckpt.cli import main; main()")
AGENTS = ROOT / "tests/e2e/agents"
PLAIN = (sys.executable, str(AGENTS / "plain.py"))
ASYNC = (sys.executable, str(AGENTS / "plain_async.py"))
BACKGROUND = (sys.executable, str(AGENTS / "background.py"))
ONCE = (sys.executable, str(AGENTS / "once_heavy.py"))
APPROVALS = (sys.executable, str(AGENTS / "approvals.py"))
RIGHT = {"plain": PLAIN, "async": ASYNC, "background": BACKGROUND, "once": ONCE, "approvals": APPROVALS}
SEED = 123_250
"""Its life, and those of the nine seeds after it, are killed once each, at a line: nothing here depends on
how fast this machine is."""

SAVES = "import cloudckpt, os; cloudckpt.open(os.environ['CLOUDCKPT_URL']).run({run}).save({state}); {then}"


def cli(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *CLI, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(cwd), **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def kinds(report: Report) -> set[str]:
    return {problem.kind for problem in report.problems}


# ---- agents that are right


@pytest.mark.gauntlet(kills=4, seed=SEED)
@pytest.mark.parametrize("agent", RIGHT.values(), ids=RIGHT)
def test_a_right_agent_comes_through_on_a_folder(
    agent: tuple[str, ...], gauntlet: Gauntlet, tmp_path: Path
) -> None:
    report = gauntlet.run(agent, url=str(tmp_path))
    assert (report.fallen, len(report.kills), report.url) == (4, 4, None)
    assert report.notes == [] or agent is BACKGROUND, "which of its saves give way differs by the moment"
    assert {kill.redone for kill in report.kills} <= {0, 1}
    assert len(report.covered) >= 3
    assert all(kill.source for kill in report.kills)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [], "a life's store was left behind"


@pytest.mark.gauntlet(kills=2, seed=SEED)
@pytest.mark.parametrize("agent", RIGHT.values(), ids=RIGHT)
def test_a_right_agent_comes_through_on_minio(
    agent: tuple[str, ...], gauntlet: Gauntlet, minio_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in minio_server.environment().items():
        monkeypatch.setenv(name, value)
    prefix = f"gauntlet-{uuid.uuid4().hex}"
    report = gauntlet.run(agent, url=f"{minio_server.url}/{prefix}", engine="boto3")
    assert report.fallen == 2
    left = minio_server.client().list_objects_v2(Bucket=minio_server.bucket, Prefix=prefix)
    assert left["KeyCount"] == 0


@pytest.mark.gauntlet(kills=0, every_call=True)
def test_every_storage_call_is_a_place_to_die(gauntlet: Gauntlet) -> None:
    """A kill between two lines never falls into the write that is the save."""
    report = gauntlet.run([*PLAIN, "1"])
    calls = [(kill.aim, kill.call) for kill in report.kills]
    assert len(calls) == 2 * report.calls
    assert [aim for aim, _ in calls] == [
        f"{n}:{when}" for n in range(report.calls) for when in ("before", "after")
    ]
    assert calls[-1][1] == "replace manifests, answered"
    assert [kill.redone for kill in report.kills[-2:]] == [1, 0], "before the save and after it"
    assert all(kill.line for kill in report.kills)


@pytest.mark.gauntlet(kills=3, seed=SEED)
def test_a_program_whose_lines_are_not_seen_is_killed_at_moments(gauntlet: Gauntlet) -> None:
    """A shell stands for what is not Python; -E keeps the hook out of what it starts."""
    command = ["sh", "-c", f"{shlex.join([sys.executable, '-E', *PLAIN[1:]])}; exit $?"]
    report = gauntlet.run(command)
    assert (report.lines, report.fallen, report.covered) == ((), 3, set())


@pytest.mark.gauntlet(kills=2, seed=SEED)
def test_a_kill_takes_all_that_the_agent_started_with_and_all_that_started_it(gauntlet: Gauntlet) -> None:
    """On a machine that is gone no wrapper of the agent goes on, and does what comes after it."""
    after = "from cloudckpt.crashtest import effect; effect('reported')"
    command = f"{shlex.join(PLAIN)}; {shlex.join([sys.executable, '-c', after])}"
    report = gauntlet.run(["sh", "-c", command], result="none", calls=(AtCall(5, "after"),))
    assert len(report.kills) == 3
    assert {Path(line.file).name for line in report.lines} == {"plain.py"}, (
        "the first Python process is looked at"
    )


# ---- planted bugs

RARE = {planted.saves_in_mid_action, planted.pays_again_without_looking}
"""Only a kill at one or a few of their lines shows what is wrong."""
PLANTED: dict[Callable[[], Any], set[str]] = {
    planted.saves_in_mid_action: {"effect-missing"},
    planted.forgets_completed_actions: {"effect-doubled"},
    planted.pays_again_without_looking: {"effect-doubled"},
    planted.keeps_a_global: {"result"},
    planted.keeps_a_temporary_file: {"result"},
    planted.resumes_from_the_wrong_place: {"redone"},
    planted.leaves_a_step_out: {"final-state", "result"},
    planted.starts_another_run: {"runs"},
    planted.fails_to_load: {"failed"},
}


@pytest.mark.gauntlet(seed=SEED)
@pytest.mark.parametrize("agent", PLANTED, ids=lambda agent: agent.__name__)
def test_a_planted_bug_is_found(agent: Callable[[], Any], gauntlet: Gauntlet) -> None:
    """Each agent does its work when nobody kills it; only a resumed one shows what is wrong."""
    report = gauntlet.report(agent, kills=10 if agent in RARE else 5)
    assert not report.ok, text(report)
    assert kinds(report) >= PLANTED[agent], text(report)
    assert all(problem.replay for problem in report.problems)


def test_every_planted_agent_is_tried() -> None:
    named = {
        name for name, value in vars(planted).items() if getattr(value, "__module__", "") == planted.__name__
    }
    assert named - {"opened"} == {agent.__name__ for agent in PLANTED}


@pytest.mark.gauntlet(kills=3, seed=SEED)
def test_a_failed_life_is_lived_again_by_its_own_command(gauntlet: Gauntlet, tmp_path: Path) -> None:
    """A seed that shows the failure only after all the lives before it is of little help."""
    report = gauntlet.report(planted.keeps_a_global)
    problem = report.problems[-1]
    again = shlex.split(replay(report, problem.replay))
    assert again[:2] == ["cloudckpt", "gauntlet"]
    done = cli("gauntlet", "--json", *again[2:], cwd=tmp_path)
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (1, False)
    assert {each["kind"] for each in told["problems"]} == {"result"}
    assert told["lives"] == 1
    lines = [kill.line for kill in report.kills if kill.life == problem.life]
    assert [Path(kill["line"]).name for kill in told["kills"]] == [Path(str(line)).name for line in lines]


def test_a_failed_life_stays_in_the_users_store(gauntlet: Gauntlet, tmp_path: Path) -> None:
    calls = (AtCall(5, "after"), AtCall(0, "before"))
    report = gauntlet.report(planted.leaves_a_step_out, kills=0, calls=calls, url=str(tmp_path / "store"))
    assert report.url is not None
    lives = {problem.life for problem in report.problems}
    assert len(lives) == 1, "what came through is removed"
    assert {path.name for path in Path(report.url).iterdir()} == {str(life) for life in lives}
    for life in lives:
        with cloudckpt.open(f"{report.url}/{life}") as store:
            assert [info.id for info in store.runs()] == ["run"]


# ---- agents that can't be tried


def test_an_agent_that_cannot_be_tried_is_told_so(gauntlet: Gauntlet) -> None:
    def error(code: str, **options: Any) -> str:
        with pytest.raises(GauntletError) as caught:
            gauntlet.run([sys.executable, "-c", code], **options)
        return str(caught.value)

    assert "fails, also when nobody kills it: Oh no" in error("raise SystemExit('Oh no')")
    assert "does not end" in error("import time; time.sleep(100)", timeout=0.2)
    assert "saved nothing" in error("print(1)")
    assert "another run id" in error(SAVES.format(run="os.urandom(4).hex()", state="{}", then=""))
    assert "different results" in error(SAVES.format(run="'r'", state="{}", then="print(os.urandom(4))"))
    effects = "from cloudckpt.crashtest import effect; effect(os.urandom(4).hex())"
    assert "different effects" in error(SAVES.format(run="'r'", state="{}", then=effects))
    assert "no result file" in error(SAVES.format(run="'r'", state="{}", then=""), result_file="report")
    with pytest.raises(GauntletError, match="can't be run"):
        gauntlet.run(["/no/such/program"])


def test_what_differs_without_kills_is_a_note(gauntlet: Gauntlet) -> None:
    code = SAVES.format(run="'r'", state="{'id': os.urandom(4)}", then="")
    report = gauntlet.run([sys.executable, "-c", code], kills=1, seed=SEED)
    assert report.notes == [
        "run 'r': undisturbed lives end in different states (state.id), so it is not compared"
    ]


# ---- where an agent works


def test_each_process_has_an_empty_disk_and_what_was_brought(
    gauntlet: Gauntlet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine has neither the folder nor the home nor what is in /tmp of the one that died."""
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/first.txt").write_text("hello")
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['CUSTOM'] = 'theirs'")
    (tmp_path / "agent.py").write_text(
        "import cloudckpt, os, subprocess, sys, tempfile\n"
        "from pathlib import Path\n"
        "here = {path.name for path in Path.cwd().iterdir()}\n"
        "assert (Path('prompts') / 'first.txt').read_text() == 'hello'\n"
        "assert not any('mine' in name for name in here), here\n"
        "assert Path.home() == Path.cwd() == Path(tempfile.gettempdir())\n"
        "assert os.environ.pop('CUSTOM') == 'theirs'\n"
        'code = \'import os; print(os.environ["CUSTOM"], os.environ["PYTHONPATH"])\'\n'
        "child = subprocess.check_output([sys.executable, '-c', code], text=True)\n"
        "assert child.startswith('theirs '), child\n"
        "assert 'gauntlet-lab' not in child, child\n"
        "with cloudckpt.open(os.environ['CLOUDCKPT_URL']) as store, store.run('r') as run:\n"
        "    state = run.load() or {'step': 0}\n"
        "    while state['step'] < 3:\n"
        "        Path('mine').write_text('x')\n"
        "        (Path.home() / 'mine-at-home').write_text('x')\n"
        "        state['step'] += 1\n"
        "        run.save(state)\n"
        "Path('report').write_text(str(state))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    report = gauntlet.run(
        [sys.executable, "agent.py"], kills=3, seed=SEED, bring=(Path("prompts"),), result_file="report"
    )
    assert {str(kill.line).partition(":")[0] for kill in report.kills} <= {"agent.py"}
    done = gauntlet.report(
        [sys.executable, "agent.py"], kills=0, bring=(Path("prompts"), Path("agent.py")), result_file="report"
    )
    assert done.ok
    assert {line.file for line in done.lines} == {"agent.py"}, "a file that was brought is the agent's own"


# ---- the command


def test_the_command_tells_each_kill_and_the_verdict(tmp_path: Path) -> None:
    done = cli(
        "gauntlet", "--kills", "2", "--seed", "4", "--call", "5:after", "--", *PLAIN, "2", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == 3
    assert {len(row) for row in rows} == {8}
    assert "plain.py:" in rows[0][2]
    assert rows[-1][4] == "replace manifests, answered"
    assert done.stderr.splitlines()[-1] == "PASSED: each life came to what an undisturbed one comes to"
    assert "3 kills in" in done.stderr
    assert list(tmp_path.iterdir()) == [], "a disk or a store was left behind"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--", "false"), "fails, also when nobody kills it"),
        (("--call", "7", "--", "true"), "7:before"),
        (("--call", "never", "--", "true"), "7:before"),
        (("--store", "memory://x", "--", "true"), "a folder or a bucket"),
        ((), "COMMAND"),
    ],
)
def test_a_gauntlet_that_cannot_run_says_why(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = cli("gauntlet", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# ---- the plugin


def test_a_test_with_the_fixture_fails_when_its_agent_does(tmp_path: Path) -> None:
    (tmp_path / "test_agents.py").write_text(
        "import pytest\n"
        "from tests.e2e.agents import planted\n"
        "@pytest.mark.gauntlet(kills=4)\n"
        "def test_it(gauntlet):\n"
        "    gauntlet.run(planted.keeps_a_global)\n"
    )
    alone = ("-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", os.devnull, "--strict-markers")
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-m",
            "pytest",
            "-q",
            *alone,
            "--gauntlet-seed",
            str(SEED),
            str(tmp_path),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "result: " in done.stdout
    assert "again: cloudckpt gauntlet --kills " in done.stdout
    assert "FAILED: " in done.stdout


def test_a_session_that_never_asks_for_the_fixture_imports_nothing_for_it(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    found = {name for name in sys.modules if name.startswith('cloudckpt')}\n"
        "    assert found == {'cloudckpt', 'cloudckpt.crashtest', 'cloudckpt.crashtest.pytest_plugin'}\n"
    )
    alone = ("-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", os.devnull)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", *alone, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# ---- the test mode


def test_a_store_that_nobody_tests_knows_nothing_of_it() -> None:
    code = "import sys, cloudckpt; cloudckpt.open('memory://x').run('r').save({}); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not [name for name in done.stdout.split() if "crashtest" in name or "testing" in name]
