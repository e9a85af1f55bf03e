"""docs/cli.md has every command, argument, option and field of the command line, and what they print."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import click
import pytest

from cloudckpt.cli import failures, runs
from cloudckpt.cli.commands import ALIASES, COMMANDS, TOPICS, cli, load
from cloudckpt.codec.diffing import KINDS
from cloudckpt.errors import WaitingError
from tests.docs.console import PLAYED, blocks, played, stable
from tests.unit.cli_lab import Lab, agent, new_lab

PAGE = (Path(__file__).parents[2] / "docs/cli.md").read_text()
HEADING = re.compile(r"^## cloudckpt ([\w-]+)\n", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
SHARED = {"--store", "--engine", "--storage-options", "--json"}
"""Options of every command that opens a store: the page has them once."""
ASKING = {"--yes", "--dry-run"}
"""The page says once what they mean, and in each command's first line who has them."""


def _until_next_heading(text: str) -> str:
    return re.split(r"\n##? ", text)[0]


SECTIONS = {found[1]: _until_next_heading(PAGE[found.end() :]) for found in HEADING.finditer(PAGE)}
INTRODUCTION = PAGE.partition("\n# ")[0]
NOT_PLAYED = {"doctor", "gauntlet", "work"}
"""What these print depends on the machine."""
TWO_STORES = {"copy"}
"""These name their stores by arguments."""
OPENING = sorted(set(COMMANDS) - {"completion", "demo"})


def options(found: click.Command) -> set[str]:
    """Return the long names of a command's options."""
    return {
        name
        for each in found.params
        if isinstance(each, click.Option)
        for name in (*each.opts, *each.secondary_opts)
        if name.startswith("--")
    }


def own(name: str) -> set[str]:
    """Return the options that a command does not share with all others."""
    shared = {"--json"} if name in TWO_STORES else SHARED
    return options(load(name)) - (shared if name in OPENING else set())


def table(name: str) -> set[str]:
    """Return what stands in the first column of a section's tables."""
    return set(re.findall(r"^\| `([^`]*)` \|", SECTIONS[name], re.MULTILINE))


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert set(SECTIONS) == set(COMMANDS)
    assert len(HEADING.findall(PAGE)) == len(SECTIONS)


def test_the_sections_are_in_the_order_of_the_help() -> None:
    assert [name for rows in TOPICS.values() for name in rows] == HEADING.findall(PAGE)


def test_every_alias_is_in_its_commands_section() -> None:
    for alias, name in ALIASES.items():
        assert f"also called `{alias}`" in SECTIONS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_its_commands_section_and_no_other_is(name: str) -> None:
    """An option that went away misleads a reader as surely as a new one is missed."""
    synopsis = SECTIONS[name].strip().partition("\n\n")[0]
    assert set(OPTION.findall(synopsis)) == own(name)
    assert {row for row in table(name) if row.startswith("--")} == own(name) - ASKING


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_is_in_its_commands_section(name: str) -> None:
    synopsis = SECTIONS[name].strip().partition("\n\n")[0]
    for each in load(name).params:
        if isinstance(each, click.Argument):
            shown = each.metavar or str(each.name).upper()
            assert shown in table(name)
            assert f" {shown}" in synopsis or f"[{shown}]" in synopsis


@pytest.mark.parametrize("name", sorted(set(OPENING) - TWO_STORES))
def test_a_command_that_opens_a_store_has_the_shared_options(name: str) -> None:
    assert options(load(name)) >= SHARED


def test_the_options_of_all_commands_are_on_the_page() -> None:
    for option in (*options(cli), *SHARED, *ASKING, "--help", "-n", "-y", "CLOUDCKPT_URL"):
        assert f"`{option}`" in INTRODUCTION


def test_the_exit_codes_are_those_of_the_page() -> None:
    codes = {failures.NO, failures.USAGE, failures.ABSENT, failures.STORE, failures.INTERRUPTED, 0}
    found = re.findall(r"^\| ([0-9]+) \|", INTRODUCTION, re.MULTILINE)
    assert {int(code) for code in found} == codes
    assert all(re.search(rf"^    {code}\b", failures.__doc__ or "", re.MULTILINE) for code in codes)


def fields(heading: str) -> set[str]:
    """Return the fields in the table under a heading."""
    section = _until_next_heading(PAGE.partition(f"\n## {heading}\n")[2])
    rows = re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


@pytest.fixture(scope="module")
def lab() -> Lab:
    lab = new_lab()
    agent(lab, "r", 2)
    with lab.store.run("waits") as run, suppress(WaitingError):
        run.wait("Well?")
    return lab


def test_the_fields_of_json_are_those_of_the_page(lab: Lab) -> None:
    assert set(lab("runs", "--long", "--json").rows[0]) == fields("A run")
    assert set(lab("show", "r@1", "--json").json) == fields("A checkpoint")
    receipt = lab("forget", "r", "--why", "x", "--dry-run", "--json").json
    assert set(receipt) == fields("A receipt")


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("diff", ["r@1", "@2"]),
        ("size", ["r"]),
        ("size", ["r", "--history"]),
        ("watch", ["r", "--once"]),
        ("retain", ["r", "--dry-run"]),
        ("collect", ["--dry-run"]),
        ("delete", ["r", "--dry-run"]),
        ("verify", ["r"]),
        ("restore", ["r"]),
        ("waiting", []),
        ("answer", ["waits", "x"]),
        ("actions", ["waits"]),
        ("copy", ["SRC", "memory://copied-for-its-fields"]),
    ],
)
def test_the_fields_of_other_documents_are_on_the_page(lab: Lab, command: str, args: list[str]) -> None:
    told = set(re.findall(r"`(\w+)`", PAGE.partition("\n## Other documents\n")[2]))
    shown = lab(command, *(arg.replace("SRC", lab.url) for arg in args), "--json").out
    assert set(json.loads(shown if shown.startswith("{\n") else shown.partition("\n")[0])) <= told


def test_the_columns_and_kinds_are_on_the_page() -> None:
    assert {name for name in runs.COLUMNS if f"`{name}`" not in SECTIONS["runs"]} == set()
    assert {kind for kind in KINDS if f"`{kind}`" not in SECTIONS["diff"]} == set()


def test_every_command_that_can_be_played_shows_its_output() -> None:
    """A section without output is only a promise."""
    shown = " ".join(blocks(PAGE))
    for name in set(OPENING) - NOT_PLAYED:
        assert f"$ cloudckpt {name} " in shown


@pytest.mark.parametrize("page", PLAYED, ids=lambda page: page.name)
def test_what_a_page_shows_is_what_is_printed(page: Path) -> None:
    """``python -m tests.docs.console`` writes it anew."""
    for there, real in played(page.read_text()):
        assert stable(there) == stable(real)


def test_what_is_played_can_differ() -> None:
    """Sizes are not compared; were numbers neither, a page could show anything."""
    for text in ("seq 3", "exit 1", "keep_last=3", "2026-03-01 12:30:00", "7\t3"):
        assert stable(text) == text
    assert stable('x 129 B "size": 12') == 'x <size> "size": <size>'
