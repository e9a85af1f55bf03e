"""What all commands share: how they are found, how they fail, where their words go."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import cloudckpt
from cloudckpt import errors
from cloudckpt.cli import commands, failures, frame, screen, words
from cloudckpt.cli.commands import ALIASES, COMMANDS
from cloudckpt.cli.screen import Column, Output, flat
from tests.servers.base import ROOT
from tests.unit.cli_lab import Lab, agent, new_lab


@pytest.fixture
def lab() -> Lab:
    return new_lab()


# ---- the table of commands


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    """`--help` imports no command, so its lines could tell of what a command did long ago."""
    command = commands.load(name)
    assert command.help is not None
    assert command.help.partition("\n")[0] == COMMANDS[name].help
    assert command.name == name


def test_an_alias_is_the_same_command(lab: Lab) -> None:
    for alias, name in ALIASES.items():
        assert lab(alias, "--help").out.replace(f" {alias} ", f" {name} ") == lab(name, "--help").out


def test_a_command_that_is_not_there_suggests_one(lab: Lab) -> None:
    told = lab("histroy")
    assert (told.code, told.out) == (2, "")
    assert "no such command 'histroy'; did you mean 'history'?" in told.err
    assert "see cloudckpt --help" in lab("xyzzy").err


def loaded_by(*args: str) -> set[str]:
    """Return what a fresh interpreter has imported after a call of the command line."""
    code = (
        "import sys, json\n"
        f"sys.argv = ['cloudckpt', *{args!r}]\n"
        "from cloudckpt.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100, check=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_help_imports_no_command_and_nothing_heavy() -> None:
    """What it costs is what it imports: click, and no store."""
    loaded = loaded_by("--help")
    ours = {name for name in loaded if name.startswith("cloudckpt.")}
    assert ours == {
        "cloudckpt.cli",
        "cloudckpt.cli.commands",
        "cloudckpt.cli.failures",
        "cloudckpt.cli.streams",
        "cloudckpt.cli.words",
        "cloudckpt.errors",
    }
    assert not loaded & {"rich", "msgpack", "zstandard", "asyncio", "fsspec", "concurrent.futures"}


def test_a_command_in_a_pipe_imports_no_other_and_no_rich(tmp_path: Path) -> None:
    loaded = loaded_by("runs", "--store", str(tmp_path))
    assert "cloudckpt.cli.runs" in loaded
    assert not loaded & {"rich", "cloudckpt.cli.show", "cloudckpt.cli.doctor", "fsspec", "botocore"}


# ---- the store


def test_a_store_must_be_named(lab: Lab) -> None:
    told = lab("runs", url=None)
    assert (told.code, told.out) == (2, "")
    assert "name a store: --store URL, or CLOUDCKPT_URL in the environment" in told.err


def test_one_who_never_named_a_store_is_told_where_the_states_are(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`Checkpoint` saves without a URL, and the command line asks for one."""
    monkeypatch.setattr("cloudckpt.held.data_folder", lambda: str(tmp_path / "cloudckpt"))
    assert "Checkpoint saves" not in lab("runs", url=None).err
    with cloudckpt.open(tmp_path / "cloudckpt") as store:
        store.run("r").save({"step": 1})
    assert f"Checkpoint saves to {tmp_path / 'cloudckpt'} without one" in lab("runs", url=None).err


def test_the_option_goes_before_the_environment(lab: Lab) -> None:
    agent(lab, "here", 1)
    assert lab("runs", "--store", lab.url, url="memory://elsewhere").out.startswith("here\t")
    assert lab("runs", url="memory://elsewhere").out == ""


@pytest.mark.parametrize(
    "args",
    [
        ("runs",),
        ("runs", "-l"),
        ("waiting",),
        ("verify",),
        ("collect",),
        ("copy", "memory://none", "memory://x"),
    ],
)
def test_a_store_without_a_run_is_told(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    """A URL with a typo was told by `verify` as: 0 runs, all whole."""
    args = args if args[0] == "copy" else (*args, "--store", "memory://none")
    for option in ((), ("--json",)):
        told = lab(*args, *option)
        assert (told.code, told.out) == (0, "")
        assert told.err.startswith("there is no run in memory://none\n")
        assert "whole" not in told.err
    assert "there is no run in memory://none\n" in lab.terminal(monkeypatch, *args).err
    if args[0] != "copy":
        agent(lab, "r", 1)
        by_prefix = (args[0], "z") if args[0] in ("runs", "waiting") else (args[0], "--prefix", "z")
        assert f"no run whose id begins with 'z' in {lab.url}\n" in lab(*by_prefix).err
        assert "there is no run" not in lab(args[0]).err


def test_a_limit_may_be_as_large_as_one_likes(lab: Lab) -> None:
    agent(lab, "r", 1)
    for args in (("runs",), ("runs", "-l"), ("history", "r"), ("size", "r"), ("actions", "r")):
        assert lab(*args, "--limit", str(10**30)).code == 0


def test_options_of_the_engine_reach_it(lab: Lab) -> None:
    assert "no such engine" in lab("runs", "--store", "s3://b/p", "--engine", "boto9").err
    told = lab("runs", "--store", "s3://b/p", "--storage-options", '{"nothing_of_the_kind": 1}')
    assert (told.code, "nothing_of_the_kind" in told.err) == (4, True)
    assert "not JSON" in lab("runs", "--storage-options", "{").err


# ---- failures


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidInputError("no"), 2),
        (errors.UnsupportedStoreError("no"), 2),
        (errors.RunNotFoundError("no"), 3),
        (errors.CheckpointNotFoundError("no"), 3),
        (errors.RunDeletedError("no"), 3),
        (errors.HeldError("no"), 1),
        (errors.CorruptCheckpointError("no"), 1),
        (errors.SchemaError("no"), 1),
        (errors.ConflictError("no"), 1),
        (errors.FencedError("no"), 1),
        (errors.StorageError("no"), 4),
        (errors.PermissionDeniedError("no"), 4),
        (errors.ThrottledError("no"), 4),
        (errors.OutcomeUnknownError("no"), 4),
        (errors.ArchivedError("no"), 4),
    ],
)
def test_each_failure_has_its_exit_code_and_one_line(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, error: errors.CloudckptError, code: int
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr("cloudckpt.store.Store.runs", fails)
    told = lab("runs")
    assert (told.code, told.out, told.err) == (code, "", "error: no\n")
    assert failures.code_of(error) == code


def test_an_interrupt_has_a_code_of_its_own(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("cloudckpt.store.Store.runs", interrupted)
    told = lab("runs")
    assert (told.code, told.err) == (130, "interrupted\n")


def test_a_defect_of_ours_is_not_hidden(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback is what makes a bug report; only errors raised on purpose are lines."""

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("cloudckpt.store.Store.runs", broken)
    with pytest.raises(ZeroDivisionError):
        lab("runs")


# ---- questions


@click.command()
@frame.yes_option
def destroy(*, yes: bool) -> None:
    frame.confirm("Destroy it?", yes=yes)
    click.echo("destroyed")


@pytest.mark.parametrize(
    ("there", "args", "answer", "code", "destroyed"),
    [
        (True, [], "y\n", 0, True),
        (True, [], "n\n", 1, False),
        (True, [], "\n", 1, False),
        (True, ["--yes"], None, 0, True),
        (False, ["-y"], None, 0, True),
        (False, [], "y\n", 2, False),
    ],
)
def test_nothing_is_destroyed_without_a_yes(
    monkeypatch: pytest.MonkeyPatch,
    there: bool,
    args: list[str],
    answer: str | None,
    code: int,
    destroyed: bool,
) -> None:
    """In a pipe there is nobody to ask: what comes on stdin may be data."""
    monkeypatch.setattr(frame, "somebody_answers", lambda: there)
    done = CliRunner().invoke(destroy, args, input=answer)
    assert (done.exit_code, "destroyed" in done.stdout) == (code, destroyed)
    assert there or args or "--yes" in done.stderr
    assert "Destroy it?" not in done.stdout


def test_an_interrupt_at_a_question_is_one_and_the_end_of_the_input_is_a_no(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were "Aborted!" and 1, so a script took an interrupt for an answer."""
    agent(lab, "r", 1)
    ended = lab.terminal(monkeypatch, "delete", "r", answer="")
    assert (ended.code, "nothing was changed" in ended.err) == (1, True)

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", interrupted)
    monkeypatch.setattr(frame, "somebody_answers", lambda: True)
    with pytest.raises(KeyboardInterrupt):  # which is code 130, as everywhere
        frame.confirm("Destroy it?", yes=False)


# ---- numbers


@pytest.mark.parametrize("text", ["nan", "inf", "1e300", "-1", "3153600001e3", "soon"])
@pytest.mark.parametrize(
    "args",
    [
        ("watch", "r", "--interval"),
        ("work", "--lease"),
        ("work", "--poll"),
        ("work", "--retry-after"),
        ("work", "--idle-exit"),
        ("gauntlet", "--timeout"),
    ],
)
def test_seconds_that_nobody_can_wait_for_are_refused(lab: Lab, args: tuple[str, ...], text: str) -> None:
    """`--idle-exit nan` never ended, and `--interval inf` was a traceback."""
    agent(lab, "r", 1)
    if "--idle-exit" in args and text in ("inf", "1e300", "3153600001e3"):
        return  # never
    command = () if args[0] == "watch" else ("--", "true")
    told = lab(*args, text, *command)
    assert (told.code, told.out) == (2, "")
    assert f"Invalid value for '{args[-1]}'" in told.err


# ---- words


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (None, "-"),
        ("", "-"),
        ([], "-"),
        ({}, "-"),
        (0, "0"),
        (False, "false"),
        ("a\tb\nc", "a\\tb\\nc"),
        (["a", "b"], "a,b"),
        ({"a": [1]}, '{"a": [1]}'),
    ],
)
def test_a_field_in_a_pipe_is_one_field(value: Any, field: str) -> None:
    assert flat(value) == field
    assert "\t" not in flat(value)


@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "a\nb", "\x9b1m", "\u202e", "\ud800"])
def test_nothing_that_is_stored_moves_a_terminal(text: str) -> None:
    """A run's id is anybody's text; an escape sequence in it must not run in an operator's terminal."""
    assert words.shown(text).isprintable()
    printed = words.as_json({text: [text]})
    assert printed.isascii() or printed.isprintable()
    assert json.loads(printed) == {text: [text]}


def test_a_whole_number_of_any_size_is_json() -> None:
    """docs/cli.md promises it; Python refuses to print more than 4,300 digits unless it is told to."""
    assert len(words.as_json(10**5000)) == 5001


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert words.size(count) == text


def test_times_are_utc() -> None:
    from datetime import UTC, datetime, timedelta, timezone

    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert words.moment("90m", now=now) == now - timedelta(minutes=90)
    assert words.moment("2w", now=now) == now - timedelta(weeks=2)
    assert words.moment("2026-01-31", now=now) == datetime(2026, 1, 31, tzinfo=UTC)
    assert words.moment("2026-01-31T12:00:00+02:00", now=now).utcoffset() == timedelta(hours=2)
    for text in ("yesterday", "0h", "-1d", "1y", ""):
        with pytest.raises(ValueError, match="not a"):
            words.moment(text, now=now)
    for text in ("999999999w", "999999999d", "200000w"):
        with pytest.raises(ValueError, match="at most a hundred years"):
            words.moment(text, now=now)
    east = datetime(2026, 3, 1, 14, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))
    assert words.iso(east) == "2026-03-01T12:00:00.000005Z"
    assert words.when(words.iso(east)) == "2026-03-01 12:00:00"


# ---- three forms


ROWS = [{"a": "x", "b": 1, "more": None}, {"a": "[bold]y[/]", "b": None, "more": 2}]
COLUMNS = (Column("a", "name"), Column("b", "count", lambda n: "" if n is None else f"{n} B", right=True))


def test_a_list_has_three_forms(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).rows(ROWS, COLUMNS)
    assert capsys.readouterr().out == "x\t1\n[bold]y[/]\t-\n"
    Output(as_json=True).rows(ROWS, COLUMNS)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS
    monkeypatch.setattr(screen, "is_pretty", lambda _: True)
    Output(as_json=False).rows(ROWS, COLUMNS)
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown == [["name", "count"], ["x", "1", "B"], ["[bold]y[/]"]]  # a value is no markup


def test_progress_is_for_a_terminal_and_never_among_the_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # to rich the captured stderr is a terminal, too

    def go(*, stdout: bool, stderr: bool, as_json: bool) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(screen, "is_pretty", lambda stream: stdout if stream is sys.stdout else stderr)
            with Output(as_json=as_json).progress("runs", lambda: 3) as advance:
                advance(3)
        told = capsys.readouterr()
        assert told.out == ""
        return told.err

    assert go(stdout=False, stderr=False, as_json=False) == ""
    assert go(stdout=True, stderr=True, as_json=True) == ""
    for stdout, as_json in ((True, False), (False, True)):
        assert "3/3" in go(stdout=stdout, stderr=True, as_json=as_json)
