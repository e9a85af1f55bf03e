"""How test servers are got by another toolchain: whole, once, or with a reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.servers.base import Unavailable
from tests.servers.fetched import go_install, npm_install


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder on PATH besides the system's, for tools of a test."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_a_program_that_was_built_stands_under_its_name_alone(tool: Path, tmp_path: Path) -> None:
    script(tool, "go", 'echo "$@" > "$GOBIN/server"')
    target, said = tmp_path / "cache" / "server-v1", list[str]()
    go_install("example.org/server", "v1", target, said.append)
    assert target.read_text() == "install example.org/server@v1\n"
    assert os.listdir(target.parent) == [target.name]
    assert len(said) == 2


def test_a_package_that_was_installed_is_a_folder(tool: Path, tmp_path: Path) -> None:
    script(tool, "npm", 'while [ "$1" != --prefix ]; do shift; done; echo "$3" > "$2/package"')
    target = tmp_path / "cache" / "server-1"
    npm_install("server@1", target, print)
    assert (target / "package").read_text() == "server@1\n"
    assert os.listdir(target.parent) == [target.name]


def test_a_build_that_failed_leaves_nothing_that_looks_like_a_program(tool: Path, tmp_path: Path) -> None:
    """Else every later run would start half a program."""
    script(tool, "go", 'echo half > "$GOBIN/server"; echo "no network" >&2; exit 1')
    target = tmp_path / "cache" / "server-v1"
    with pytest.raises(Unavailable, match="no network"):
        go_install("example.org/server", "v1", target, print)
    assert os.listdir(target.parent) == []


def test_a_missing_toolchain_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="'npm'"):
        npm_install("server@1", tmp_path / "server", print)
