"""docs/cli.md has every command, argument and option of the command line, and no other."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import click
import pytest

from cloudckpt.cli.commands import COMMANDS, cli

PAGE = (Path(__file__).parents[2] / "docs/cli.md").read_text()
HEADING = re.compile(r"^## cloudckpt ([\w-]+)\n", re.MULTILINE)
SECTIONS = {found[1]: PAGE[found.end() :].partition("\n## ")[0] for found in HEADING.finditer(PAGE)}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def command(name: str) -> click.Command:
    found: click.Command = importlib.import_module(COMMANDS[name]).command
    return found


def options(found: click.Command) -> set[str]:
    """Return the long names of a command's options."""
    return {
        name
        for each in found.params
        if isinstance(each, click.Option)
        for name in (*each.opts, *each.secondary_opts)
        if name.startswith("--")
    }


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert set(SECTIONS) == set(COMMANDS)
    assert len(HEADING.findall(PAGE)) == len(SECTIONS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_its_commands_section_and_no_other_is(name: str) -> None:
    """An option that went away misleads a reader as surely as a new one is missed."""
    table, synopsis = SECTIONS[name], SECTIONS[name].strip().partition("\n\n")[0]
    wanted = options(command(name))
    assert {option for option in wanted if f"| `{option}` |" not in table} == set()
    assert set(OPTION.findall(synopsis)) == wanted
    assert set(re.findall(r"^\| `(--[a-z-]+)` \|", table, re.MULTILINE)) == wanted


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_is_in_its_commands_section(name: str) -> None:
    for each in command(name).params:
        if isinstance(each, click.Argument):
            assert f"| `{each.metavar or str(each.name).upper()}` |" in SECTIONS[name]


def test_the_options_of_all_commands_are_on_the_page() -> None:
    introduction = PAGE.partition("\n## ")[0]
    for option in (*options(cli), "--help", "CLOUDCKPT_URL"):
        assert f"`{option}`" in introduction
