"""Every command that opens a store, once, on a folder, on MinIO and on fake-gcs-server: one run's life."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import cloudckpt
from cloudckpt.cli.commands import COMMANDS, cli
from cloudckpt.errors import WaitingError

RUN = "nightly/42 @home"
ELSEWHERE = {"completion", "demo", "doctor", "gauntlet", "work"}
"""These have tests of their own."""
TWO_STORES = {"copy"}
"""These name their stores by arguments."""
STORES = ["folder", "minio", "fake_gcs"]


class Session:
    """Calls of the command line on one store; remembers which commands were used."""

    def __init__(self, url: str, options: dict[str, Any], folder: Path) -> None:
        self.url = url
        self.options = options
        self.folder = folder
        self.used: set[str] = set()

    def __call__(self, command: str, *args: str, code: int = 0) -> str:
        self.used.add(command)
        store = () if command in TWO_STORES else ("--store", self.url)
        store += ("--storage-options", json.dumps(self.options))
        done = CliRunner().invoke(cli, [command, *args, *store], catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done.stdout

    def rows(self, command: str, *args: str, code: int = 0) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(command, *args, "--json", code=code).splitlines()]

    def document(self, command: str, *args: str) -> Any:
        return json.loads(self(command, *args, "--json"))


@pytest.fixture(params=STORES)
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    if request.param == "folder":
        return Session(str(tmp_path / "store"), {}, tmp_path)
    server = request.getfixturevalue(f"{request.param}_server")
    return Session(f"{server.url}/cli-{uuid.uuid4().hex}", server.storage_options(), tmp_path)


def test_every_command_works_on_every_store(session: Session) -> None:
    _live(session)


def test_no_command_is_left_out(tmp_path: Path) -> None:
    """Else one that nobody called on a real store would look as well tried as the others."""
    session = Session(str(tmp_path / "store"), {}, tmp_path)
    _live(session)
    assert session.used == set(COMMANDS) - ELSEWHERE


def _live(session: Session) -> None:
    with cloudckpt.open(session.url, storage_options=session.options) as store, store.run(RUN) as run:
        for step in range(1, 6):
            state = {"step": step, "log": [f"did {n}" for n in range(step)], "blob": bytes(range(256)) * 200}
            run.save(state, tags=("best",) if step == 3 else ())
    for look in LOOKS:
        look(session)
    for change in CHANGES:
        change(session)


def runs(call: Session) -> None:
    assert [row["run"] for row in call.rows("runs")] == [RUN]
    assert call.rows("runs", "nightly", "-l")[0]["checkpoints"] == 5


def show_and_history(call: Session) -> None:
    assert call.document("show", RUN)["seq"] == 5
    assert call.document("show", f"{RUN}@best")["step"] == 3
    assert [row["seq"] for row in call.rows("history", RUN, "--limit", "2")] == [5, 4]
    assert call.rows("watch", RUN, "--once")[0]["seq"] == 5
    call("show", "nightly/43 @home", code=3)


def states(call: Session) -> None:
    assert call.document("cat", f"{RUN}@2", "--path", "log") == ["did 0", "did 1"]
    found = call.rows("diff", f"{RUN}@-1", code=1)
    assert [(row["path"], row["kind"]) for row in found] == [
        ("state.step", "changed"),
        ("state.log[4]", "added"),
    ]
    assert call.rows("size", RUN)[0]["path"] == "state"


def marks(call: Session) -> None:
    assert call.document("tag", f"{RUN}@4", "good")["tags"] == ["good"]
    assert call.document("annotate", f"{RUN}@good", "by=ann")["notes"] == {"by": "ann"}
    assert call.document("hold", f"{RUN}@2", "--why", "audit")["hold"]["why"] == "audit"
    call("delete", RUN, "--yes", code=1)
    assert call.document("release", f"{RUN}@2")["hold"] is None


def back(call: Session) -> None:
    assert call.document("rollback", f"{RUN}@best", "--yes")["origin"]["seq"] == 3
    assert call.rows("diff", f"{RUN}@best") == []
    assert call.document("fork", f"{RUN}@2", "branch")["step"] == 2
    assert call.document("restore", f"{RUN}@2")["ready"] is True


def clean(call: Session) -> None:
    [plan] = call.rows("retain", RUN, "--keep-last", "1", "--dry-run")
    [done] = call.rows("retain", RUN, "--keep-last", "1", "--yes")
    assert (plan["dropped"], done["dropped"]) == ([2, 1], [2, 1])
    assert call.document("retain", "--default", "--keep-last", "7")["retention"] == {"keep_last": 7}
    assert {row["run"] for row in call.rows("retain", "--default", "--apply", "--yes")} == {RUN, "branch"}
    assert {row["run"] for row in call.rows("collect", "--dry-run")} == {RUN, "branch"}
    call("collect", RUN)
    assert call.rows("delete", "branch", "--yes")[0]["run"] == "branch"
    assert call.document("show", "branch")["status"] == "deleted"
    call("cat", "branch", code=3)
    receipt = call.document("forget", "branch", "--why", "asked for", "--yes")
    assert (receipt["run"], receipt["complete"]) == ("branch", True)
    assert call.document("cat", RUN, "--path", "step") == 3


def waits(call: Session) -> None:
    with cloudckpt.open(call.url, storage_options=call.options) as store:
        with store.run("refund") as run:
            run.once("look-up", len, "7")
            with pytest.raises(WaitingError):
                run.wait("Refund?", schema=bool, state={"step": 1}, expires=3600)
        [question] = call.rows("waiting", "ref")
        assert (question["run"], question["prompt"]) == ("refund", "Refund?")
        assert call.document("answer", "refund", "yes")["value"] is True
        call("answer", "refund", "no", code=1)
        assert [row["ended"] is None for row in call.rows("actions", "refund")] == [False, False]
        with store.run("refund") as run:
            assert run.wait("Refund?", schema=bool) is True


def proofs(call: Session) -> None:
    assert [row["ok"] for row in call.rows("verify", "--deep")] == [True] * len(call.rows("runs"))
    assert call.document("repair", RUN)["back_to"] is None
    archive = str(call.folder / "nightly.tar")
    [exported] = call.document("export", RUN, "--output", archive)["runs"]
    assert call.document("verify", archive)["ok"] is True
    [imported] = call.rows("import", archive)
    assert (imported["seq"], imported["was_there"]) == (exported["seq"], True)


def copies(call: Session) -> None:
    there = str(call.folder / "copy")
    [plan] = call.rows("copy", call.url, there, RUN, "--dry-run")
    [done] = call.rows("copy", call.url, there, RUN, "--settings")
    assert (done["sent"], done["bytes"]) == (plan["sent"], plan["bytes"])
    assert done["changed"]
    assert call.rows("copy", call.url, there, RUN)[0]["changed"] is False
    with cloudckpt.open(there) as other:
        assert other.run(RUN).load()["step"] == 3
        assert other.get_retention() == cloudckpt.Retention(keep_last=7)


LOOKS: list[Callable[[Session], None]] = [runs, show_and_history, states]


def queue(call: Session) -> None:
    (call.folder / "first.json").write_text('{"step": 0}')
    assert call.document("submit", "queued", "--state", str(call.folder / "first.json"))["seq"] == 1
    assert call.rows("offer", "queued") == [{"run": "queued"}]


CHANGES: list[Callable[[Session], None]] = [marks, back, clean, waits, queue, proofs, copies]
