"""Commands that prove and archive: verify, repair, export, import."""

from __future__ import annotations

import io
import os
import random
import re
import threading
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from cloudckpt import keys
from cloudckpt.archive import SIGNATURES
from cloudckpt.cli import archives, checks
from cloudckpt.errors import InvalidInputError
from cloudckpt.examine import ADVICE
from tests.protocol.signers import KEYS, pem, public_pem
from tests.unit.cli_lab import Lab, Told, agent, new_lab


@pytest.fixture
def lab() -> Lab:
    lab = new_lab()
    agent(lab, "r", 3, tags={2: ("best",)})
    with lab.store.run("large") as run:
        for n in range(4):
            run.save({"n": n, "blob": random.Random(n).randbytes(40_000)})
    return lab


@pytest.fixture
def key(tmp_path: Path) -> tuple[str, str]:
    """Files with a private key and its public one."""
    private, public = tmp_path / "key.pem", tmp_path / "key.pub.pem"
    private.write_bytes(pem(KEYS[0]))
    public.write_bytes(public_pem(KEYS[0]))
    return str(private), str(public)


def lose(lab: Lab, seq: int) -> str:
    """Delete an object, as a rule of a bucket does it."""
    found = lab.store._core.call(lab.store.run("large").access.base()).manifest
    key = next(entry.extents[0].key for entry in found.checkpoints if entry.seq == seq)
    lab.store._core.call(lab.store._core.storage.delete([key]))
    return key


def damaged(told: Told, *facts: str) -> None:
    assert told.code == 1
    assert all(fact in told.err for fact in facts), told.err


# ---- verify


def test_a_whole_store_is_a_line_a_run_and_exit_code_0(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    told = lab("verify")
    assert told.code == 0
    assert [line[:4] for line in told.lines] == [["large", "true", "2", "4"], ["r", "true", "2", "3"]]
    assert told.err.startswith("2 runs, ")
    assert told.err.endswith(": all whole\n")
    assert lab("verify", "--json").rows == [checks.shape(one) for one in lab.store.verify()]
    assert [row["run"] for row in lab("verify", "--prefix", "la", "--json").rows] == ["large"]
    in_terminal = lab.terminal(monkeypatch, "verify")
    assert (in_terminal.code, in_terminal.out) == (0, "")
    assert "large" in lab.terminal(monkeypatch, "verify", "large").out


@pytest.mark.parametrize("args", [["--depth", "1"], ["--depth", "2"], ["--depth", "3"], ["--deep"], []])
def test_a_depth_is_passed_on(lab: Lab, args: list[str]) -> None:
    depth = 3 if "--deep" in args else int(args[1]) if args else 2
    assert {row["depth"] for row in lab("verify", *args, "--json").rows} == {depth}
    [row] = lab("verify", "r", *args, "--json").rows
    assert row == checks.shape(lab.store.run("r").verify(depth=depth))


def test_damage_is_exit_code_1_and_names_run_seq_and_key(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    key = lose(lab, 3)
    for told in (lab("verify"), lab("verify", "large"), lab.terminal(monkeypatch, "verify")):
        damaged(told, "run='large'", "seq=3", f"key='{key}'", "a checkpoint's object is missing", "1 damaged")
    [large, other] = lab("verify", "--json").rows
    assert (large["ok"], other["ok"]) == (False, True)
    [problem] = large["problems"]
    assert (problem["kind"], problem["seq"], problem["key"]) == ("object-missing", 3, key)
    assert problem["do"]
    assert lab("verify", "--depth", "1").code == 0


def test_a_damaged_manifest_hides_no_other_run(lab: Lab) -> None:
    storage = lab.store._core.storage
    lab.store._core.call(storage.delete([keys.manifest_key("large")]))
    lab.store._core.call(storage.put(keys.manifest_key("large"), b"junk"))
    told = lab("verify")
    damaged(told, "run='large'", keys.manifest_key("large"))
    assert [line[:2] for line in told.lines] == [["large", "false"], ["r", "true"]]


def test_a_copy_that_was_interrupted_is_told_from_a_lost_manifest(lab: Lab) -> None:
    """Objects come first: until it is done again they look like those of a run whose manifest is lost."""
    storage = lab.store.run("x").access.storage
    lab.store._core.call(storage.put(f"objects/new/1-{'0' * 64}-0123456789abcdef", b"half a copy"))
    damaged(lab("verify"), "run='new'", "do a copy or an import that was interrupted again")


def test_what_is_not_there_can_not_be_verified(lab: Lab) -> None:
    assert lab("verify", "nobody").code == 3
    assert "did you mean 'large'?" in lab("verify", "larg").err
    assert lab("verify", "r", "--depth", "4").code == 2
    assert lab("verify", url=None).code == 2
    assert "there is no file 'x.tar'" in lab("verify", "x.tar", url=None).err
    assert lab("verify", "r", "--key", "/dev/null").code == 2


# ---- repair


def test_a_repair_asks_since_it_fences(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(lab, 4)
    assert lab("repair", "large").code == 2
    assert lab.terminal(monkeypatch, "repair", "large", answer="n\n").code == 1
    assert lab.store.run("large").verify().problems
    planned = lab("repair", "large", "--dry-run")
    assert (planned.code, planned.out) == (0, "run 'large': seq=3 would become the newest\n")
    told = lab("repair", "large", "--yes")
    damaged(told, "seq=4")  # which is in the history still
    assert told.out == "run 'large': seq=3 became the newest as seq=5\n"
    assert lab.store.run("large").load()["n"] == 2


def test_damage_leaves_the_history_when_it_is_asked_for(lab: Lab) -> None:
    lose(lab, 4)
    lose(lab, 2)
    planned = lab("repair", "large", "--drop-damaged", "-n", "--json").json
    assert (planned["dropped"], planned["seq"], planned["dry_run"]) == ([4, 2], None, True)
    told = lab("repair", "large", "--drop-damaged", "--yes", "--json")
    assert (told.code, told.json) == (0, planned | {"seq": 5, "dry_run": False})
    assert lab("verify", "--deep").code == 0


def test_a_whole_run_needs_no_repair_and_no_answer(lab: Lab) -> None:
    told = lab("repair", "large")
    assert (told.code, told.out) == (0, "run 'large': the newest checkpoint is intact; nothing was changed\n")
    lose(lab, 1)
    damaged(lab("repair", "large"), "seq=1")
    assert lab("repair", "nobody").code == 3


# ---- export and import


def test_there_and_back_through_files_and_pipes(lab: Lab, key: tuple[str, str], tmp_path: Path) -> None:
    private, public = key
    file = str(tmp_path / "runs.tar")
    told = lab("export", "-o", file, "--sign", private)
    assert told.code == 0
    assert told.out.startswith(f"{file}: 2 runs, 6 members, ")
    assert "signed by" in told.out
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []
    for args in ([file], [file, "--key", public], [file, "--depth", "1"]):
        seen = lab("verify", *args, url=None)
        assert (seen.code, [line[:2] for line in seen.lines]) == (0, [["large", "true"], ["r", "true"]])
        assert seen.err.startswith("whole: 2 runs, 6 members, ")
    other = new_lab()
    assert [line[0] for line in other("import", file).lines] == ["large", "r"]
    assert {row["was_there"] for row in other("import", file, "--json").rows} == {True}
    assert other.store.run("r").load(tag="best") == lab.store.run("r").load(tag="best")
    assert other("verify", "--deep").code == 0


def test_only_what_is_named_is_exported_and_imported(lab: Lab, tmp_path: Path) -> None:
    file = str(tmp_path / "runs.tar")
    told = lab("export", "r", "--output", file, "--json").json
    assert [one["run"] for one in told["runs"]] == ["r"]
    lab("export", "--prefix", "la", "-o", file)
    other = new_lab()
    assert other("import", file, "r").code == 3
    assert [line[0] for line in other("import", file, "large").lines] == ["large"]
    assert lab("export", "nobody", "-o", file).code == 3
    assert lab("export", "--prefix", "nobody", "-o", file).code == 2
    assert Path(file).stat().st_size > 0


def test_stdout_and_stdin_are_files_too(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from cloudckpt.cli.commands import cli

    env = {"CLOUDCKPT_URL": lab.url}
    done = CliRunner().invoke(cli, ["export", "r"], env=env)
    assert done.exit_code == 0
    assert done.stderr.startswith("1 run, 1 member, ")
    seen = CliRunner().invoke(cli, ["verify", "-"], input=done.stdout_bytes)
    assert (seen.exit_code, seen.stdout.split("\t")[0]) == (0, "r")
    other = new_lab()
    brought = CliRunner().invoke(
        cli, ["import", "-"], input=done.stdout_bytes, env={"CLOUDCKPT_URL": other.url}
    )
    assert brought.exit_code == 0
    assert other.store.run("r").load() == lab.store.run("r").load()
    assert lab("export", "r", "--json").code == 2


def test_an_archive_that_was_changed_fails_and_the_member_is_named(
    lab: Lab, key: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "runs.tar"
    lab("export", "large", "-o", str(file), "--sign", key[0])
    good = file.read_bytes()
    at = good.index(b"objects/large/3-")
    file.write_bytes(good[: at + 600] + bytes([good[at + 600] ^ 1]) + good[at + 601 :])
    damaged(lab("verify", str(file), url=None), "key='objects/large/3-")
    told = lab("verify", str(file), "--json", url=None)
    assert told.code == 1
    assert told.json["ok"] is False
    [problem] = told.json["runs"][0]["problems"]
    assert (problem["kind"], problem["seq"]) == ("object-bytes", 3)
    damaged(new_lab()("import", str(file)), "key='objects/large/3-", "the archive is damaged")


def test_a_key_must_fit_and_an_archive_without_a_signature_fails(
    lab: Lab, key: tuple[str, str], tmp_path: Path
) -> None:
    file = str(tmp_path / "runs.tar")
    lab("export", "r", "-o", file)
    damaged(lab("verify", file, "--key", key[1], url=None), "the archive is not signed", SIGNATURES)
    lab("export", "r", "-o", file, "--sign", key[0])
    other = tmp_path / "other.pem"
    other.write_bytes(public_pem(KEYS[1]))
    damaged(lab("verify", file, "--key", str(other), url=None), "signed by another key", "run='r'")
    wrong = lab("verify", file, "--key", key[0], url=None)
    assert (wrong.code, "private key" in wrong.err) == (2, True)
    assert lab("export", "r", "-o", file, "--sign", key[1]).code == 2


def test_a_failed_export_leaves_the_older_file(lab: Lab, tmp_path: Path) -> None:
    """An archive has its name only when it is whole."""
    file = tmp_path / "runs.tar"
    lab("export", "large", "-o", str(file))
    before = file.read_bytes()
    key = lose(lab, 2)
    damaged(lab("export", "large", "-o", str(file)), "seq=2", f"key='{key}'")
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_an_export_into_what_is_no_file_leaves_it_what_it_is(lab: Lab, tmp_path: Path) -> None:
    """`-o /dev/stdout`, or a pipe of the shell's: root's export put a file in the device's place."""
    pipe, link, seen = tmp_path / "pipe", tmp_path / "link", tmp_path / "seen"
    os.mkfifo(pipe)
    link.symlink_to("real.tar")
    reader = threading.Thread(target=lambda: seen.write_bytes(pipe.read_bytes()), daemon=True)
    reader.start()
    assert lab("export", "r", "-o", str(pipe)).code == 0
    reader.join(60)
    assert pipe.is_fifo()
    assert lab("export", "r", "-o", str(link)).code == 0
    assert link.is_symlink()
    assert lab("verify", str(seen)).code == lab("verify", str(link)).code == 0
    for stdout in ("-", "/dev/stdout"):
        told = lab("export", "r", "-o", stdout)
        assert told.err.startswith("1 run, 1 member, ")
        assert "1 member" not in told.out
    assert sorted(tmp_path.iterdir()) == [link, pipe, tmp_path / "real.tar", seen]


@pytest.mark.parametrize("where", ["none/runs.tar", "file/runs.tar"])
def test_a_file_that_can_not_be_written_is_a_line(lab: Lab, tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    told = lab("export", "r", "-o", str(tmp_path / where))
    assert told.code == 2
    assert told.err.startswith(f"error: the archive could not be written to {tmp_path / where}: N")
    assert told.err.count("\n") == 1


def test_two_exports_into_one_file_leave_a_whole_one(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one name for the part of both, the second cuts off what the first is writing."""
    file = tmp_path / "runs.tar"
    real = cloudckpt.Store.export

    def overtaken(store: cloudckpt.Store, runs: Any, target: Any, **options: Any) -> Any:
        monkeypatch.setattr(cloudckpt.Store, "export", real)
        done = real(store, runs, target, **options)
        with monkeypatch.context() as other:
            other.setattr(os, "getpid", lambda: 1)
            assert lab("export", "r", "-o", str(file)).code == 0
        return done

    monkeypatch.setattr(cloudckpt.Store, "export", overtaken)
    assert lab("export", "large", "-o", str(file)).code == 0
    assert [line[0] for line in lab("verify", str(file)).lines] == ["large"]
    assert list(tmp_path.iterdir()) == [file]


def test_a_run_that_exists_is_not_overwritten(lab: Lab, tmp_path: Path) -> None:
    file = str(tmp_path / "runs.tar")
    lab("export", "r", "-o", file)
    lab.store.run("r").save({})
    damaged(lab("import", file), "not what the archive has", "run='r'")


def test_the_shapes_are_those_of_the_library(lab: Lab, tmp_path: Path) -> None:
    with (tmp_path / "runs.tar").open("w+b") as file:
        exported = lab.store.export(["r"], file)
        file.seek(0)
        [imported] = new_lab().store.import_(file)
    assert archives.exported_shape(exported)["digest"] == exported.digest
    assert archives.imported_shape(imported)["run"] == "r"


def test_a_store_in_a_folder_goes_through_too(tmp_path: Path, lab: Lab) -> None:
    file = str(tmp_path / "runs.tar")
    lab("export", "-o", file)
    folder: Any = tmp_path / "store"
    assert lab("import", file, url=str(folder)).code == 0
    with cloudckpt.open(folder) as store:
        assert store.run("large").load()["n"] == 3


def test_every_kind_of_problem_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs/archives.md").read_text()
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `")]
    told = {kind for row in rows for kind in re.findall(r"`([\w-]+)`", row)}
    assert set(ADVICE) <= told


@pytest.mark.parametrize("file", [io.StringIO(), "runs.tar", Path("runs.tar"), None], ids=repr)
def test_an_export_wants_a_file_of_bytes(lab: Lab, file: Any) -> None:
    """As an import does; a name, the first thing that one tries, had no attribute 'write'."""
    with pytest.raises(InvalidInputError, match="open for writing bytes"):
        lab.store.export(["r"], file)
