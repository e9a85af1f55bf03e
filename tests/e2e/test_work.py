"""``cloudckpt work`` with real processes: its commands know nothing of leases, crash, are told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from tests.servers.base import ROOT, Server
from tests.until import PATIENCE, until

CLI = ("-c", "from cloudckpt.cli import main; main()")

AGENT = """
import json, os, signal, sys, time
import cloudckpt

how, folder, name = sys.argv[1:]
assert name == os.environ["CLOUDCKPT_RUN"]
signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))
with cloudckpt.open(os.environ["CLOUDCKPT_URL"]) as store, store.run(name) as run:
    state = run.load() or {"steps": []}
    state["steps"].append(run.epoch)
    run.save(state)
    with open(f"{folder}/{name}.begun", "a") as file:
        file.write(f"{os.getpid()}\\n")
    if how == "sleeps":
        time.sleep(600)
    if how == "fails" or (how == "dies once" and len(state["steps"]) == 1):
        os.kill(os.getpid(), signal.SIGKILL) if how == "dies once" else sys.exit(3)
    if how == "steps" and len(state["steps"]) < 6:
        sys.exit(0)
    if how == "asks":
        state["answer"] = run.wait("go on?")
    run.finish(state)
"""


class Place:
    """A store, and an agent that works on its runs."""

    def __init__(self, folder: Path, url: str, environment: dict[str, str], options: dict[str, Any]) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "CLOUDCKPT_URL": url, **environment}
        self.store = cloudckpt.open(url, storage_options=options or None)
        self.workers: list[subprocess.Popen[str]] = []
        (folder / "agent.py").write_text(AGENT)

    def begin(self, how: str, *options: str) -> subprocess.Popen[str]:
        """Start a worker."""
        agent = [sys.executable, str(self.folder / "agent.py"), how, str(self.folder), "{run}"]
        worker = subprocess.Popen(
            [sys.executable, *CLI, "work", "--poll", "0.1", *options, "--", *agent],
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.workers.append(worker)
        return worker

    def end(self) -> None:
        """Leave nothing behind, also when a test has failed in the middle."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
                for note in self.folder.glob("*.begun"):
                    with suppress(ProcessLookupError):
                        os.kill(self.begun(note.stem)[-1], signal.SIGKILL)
                worker.communicate()
        self.store.close()

    def work(self, how: str, *options: str) -> tuple[int, list[list[str]], str]:
        """Let a worker work; return its exit code, its rows and what it complained."""
        worker = self.begin(how, *options)
        out, err = worker.communicate(timeout=PATIENCE)
        return worker.returncode, [line.split("\t") for line in out.splitlines()], err

    def begun(self, run: str) -> list[int]:
        """Return the processes that began to work on a run."""
        with suppress(FileNotFoundError):
            return [int(line) for line in (self.folder / f"{run}.begun").read_text().split()]
        return []

    def beat(self, run: str) -> int:
        """Return how often the run's lease was renewed."""
        lease = self.store._core.call(self.store._core.access(run).base()).manifest.lease
        assert lease is not None
        return lease.beat

    def until_begun(self, run: str, count: int = 1) -> int:
        until(lambda: len(self.begun(run)) >= count, "nobody began")
        return self.begun(run)[-1]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path, str(tmp_path / "store"), {}, {})
    yield place
    place.end()


def test_a_worker_works_on_all_that_was_submitted_and_ends(place: Place) -> None:
    for n in range(3):
        place.store.submit(f"r {n}", {"steps": []})
    code, rows, err = place.work("works")
    assert (code, err) == (0, "")
    assert sorted(row[:3] for row in rows) == [[f"r {n}", "done", "0"] for n in range(3)]
    assert place.store.run("r 1").load() == {"steps": [3]}, "submitted, claimed, taken over by the agent"


def test_a_worker_works_on_a_bucket_too(tmp_path: Path, minio_server: Server) -> None:
    url = f"{minio_server.url}/work-{uuid.uuid4().hex}"
    place = Place(tmp_path, url, minio_server.environment(), minio_server.storage_options())
    with place.store as store:
        store.submit("r", {"steps": []})
        code, rows, err = place.work("works", "--once")
        assert (code, [row[:3] for row in rows]) == (0, [["r", "done", "0"]]), err


def test_an_agent_that_is_killed_is_run_again_when_its_lease_has_expired(place: Place) -> None:
    place.store.submit("r", {"steps": []})
    code, rows, _ = place.work("dies once", "--lease", "0.5", "--retry-after", "0.1")
    assert code == 0
    assert [row[:3] for row in rows] == [["r", "running", "-9"], ["r", "done", "0"]]
    assert len(place.store.run("r").load()["steps"]) == 2


def test_a_command_that_fails_again_and_again_is_given_up(place: Place) -> None:
    """Else one bad run would keep a worker busy for ever."""
    place.store.submit("bad", {"steps": []})
    code, rows, err = place.work("fails", "--tries", "2", "--retry-after", "0.1", "--idle-exit", "1")
    assert code == 1
    assert [row[:3] for row in rows] == [["bad", "running", "3"]] * 2
    assert "failed too often for bad" in err
    code, rows, _ = place.work("works")
    assert (code, rows[0][:3]) == (0, ["bad", "done", "0"]), "another worker may still take it"


def test_an_agent_that_does_a_step_in_each_process_is_no_failure(place: Place) -> None:
    """Each time something was saved: it goes on at once, however often."""
    place.store.submit("r", {"steps": []})
    code, rows, err = place.work("steps", "--tries", "1", "--retry-after", "600")
    assert (code, [row[1] for row in rows]) == (0, ["running"] * 5 + ["done"]), err


def test_a_run_that_waits_for_an_answer_is_no_failure(place: Place) -> None:
    place.store.submit("r", {"steps": []})
    code, rows, _ = place.work("asks")
    assert (code, [row[1] for row in rows]) == (0, ["waiting"])
    assert place.work("asks")[1] == []
    (question,) = place.store.run("r").questions()
    place.store.run("r").answer(question.token, "yes")
    code, rows, err = place.work("asks")
    assert (code, [row[1] for row in rows]) == (0, ["done"]), err
    assert place.store.run("r").load()["answer"] == "yes"


def test_a_worker_that_is_told_to_stop_hands_it_on_and_waits(place: Place) -> None:
    """As Kubernetes does it: what the agent needs to end well it must be given."""
    for n in range(2):
        place.store.submit(f"r{n}", {"steps": []})
    worker = place.begin("sleeps")
    until(lambda: place.begun("r0") or place.begun("r1"), "nobody began")
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=PATIENCE)
    assert worker.returncode == 128 + signal.SIGTERM
    assert "told to stop" in err
    assert len(out.splitlines()) == 1, "it began another one"
    code, rows, _ = place.work("works")
    assert code == 0
    assert sorted(row[0] for row in rows) == ["r0", "r1"], "both are free at once"


def test_a_killed_worker_leaves_its_agent_at_work_and_alone(place: Place) -> None:
    """The agent holds the run itself, so its worker's death lets nobody else in."""
    place.store.submit("r", {"steps": []})
    worker = place.begin("sleeps", "--lease", "1")
    agent = place.until_begun("r")
    try:
        worker.kill()
        worker.wait(PATIENCE)
        before = place.beat("r")
        until(lambda: place.beat("r") >= before + 2, "its lease is not renewed")
        code, rows, _ = place.work("works", "--lease", "1")
        assert (code, rows, place.begun("r")) == (0, [], [agent])
    finally:
        os.kill(agent, signal.SIGKILL)
        worker.communicate(timeout=PATIENCE)  # its pipes were the agent's too
    code, rows, _ = place.work("works", "--lease", "1", "--idle-exit", "5")
    assert (code, [row[:3] for row in rows]) == (0, [["r", "done", "0"]]), "nobody picked it up"


def test_a_command_that_does_not_exist_is_told_and_lets_the_run_go(place: Place) -> None:
    place.store.submit("r", {"steps": []})
    done = subprocess.run(
        [sys.executable, *CLI, "work", "--", "no-such-program"],
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert "can't run no-such-program" in done.stderr
    assert place.store.claim() is not None
