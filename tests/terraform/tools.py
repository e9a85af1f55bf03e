"""Terraform or OpenTofu at work on a copy of the modules, with the providers of a folder and no network.

Owns: where the program and the folder are looked for, and the environment that they run in.
Invariant: nothing is written beside the project's own files, and what a module asks for is
found in the folder or fails at once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.servers.base import ROOT

COPIED = ("terraform", "tests/terraform/root")
"""What the modules need of the project."""

FOLDER_VARIABLE = "CLOUDCKPT_TF_PLUGIN_DIR"
PROGRAMS = {"terraform": "registry.terraform.io", "tofu": "registry.opentofu.org"}
"""The programs, and the host whose providers each takes."""

PROVIDER = "hashicorp/aws"
USUAL = ("~/.terraform.d/plugins", "/usr/share/terraform/plugins", "/usr/local/share/terraform/plugins")
SECONDS = 600
"""For one command; the longest takes about one minute."""


class Missing(Exception):
    """The machine lacks something; the message says what, for the summary."""


@dataclass(frozen=True)
class Done:
    """What came of a command: its exit code, and all that it printed."""

    code: int
    shown: str


@dataclass(frozen=True)
class Terraform:
    """The program with its copy of the project.

    Attributes:
        program: Path of the program.
        home: A folder of its own, with the copy in it.
        awake: Called before each command, which may take `SECONDS`.
    """

    program: str
    home: Path
    awake: Callable[[], None]

    def __call__(self, folder: str, *arguments: str) -> Done:
        """Run a command in a folder of the copy.

        Args:
            folder: As in the project, such as ``terraform/aws``.
            *arguments: Of the program.
        """
        self.awake()
        done = subprocess.run(
            [self.program, *arguments],
            cwd=self.home / folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Done(done.returncode, done.stdout)

    def init(self, folder: str) -> None:
        """Fetch the modules and providers of a folder, from this machine, if that was not done yet."""
        if (self.home / folder / ".terraform").exists():
            return
        done = self(folder, "init", "-no-color", "-input=false", "-backend=false")
        assert done.code == 0, done.shown

    def outputs(self, folder: str) -> dict[str, Any]:
        """Return the outputs of what was applied, by name."""
        done = self(folder, "output", "-json", "-no-color")
        assert done.code == 0, done.shown
        return {name: each["value"] for name, each in json.loads(done.shown).items()}

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "AWS_"))}
        nowhere = "http://127.0.0.1:9"
        return kept | {
            "HOME": str(self.home),
            "TF_CLI_CONFIG_FILE": str(self.home / "settings.tfrc"),
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "HTTPS_PROXY": nowhere,
            "HTTP_PROXY": nowhere,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }


def programs() -> dict[str, str]:
    """Return the programs that this machine has, by name, and their paths.

    Raises:
        Missing: There is none.
    """
    there = {name: path for name in PROGRAMS if (path := shutil.which(name))}
    if not there:
        raise Missing(f"neither {' nor '.join(PROGRAMS)} is on PATH")
    return there


def without_providers(
    folder: Path, *arguments: str, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the program where no provider is needed; the test is skipped where there is no program."""
    try:
        program = next(iter(programs().values()))
    except Missing as missing:
        pytest.skip(str(missing))
    return subprocess.run(
        [program, *arguments],
        cwd=folder,
        input=stdin,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("TF_")},
            "TF_CLI_CONFIG_FILE": os.devnull,  # nobody's mirror or plugins
            "CHECKPOINT_DISABLE": "1",  # it would ask its maker for a newer version
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def found() -> tuple[str, Path]:
    """Return the program, and the folder with its providers.

    Raises:
        Missing: There is no program, or no provider for one.
    """
    for name, program in programs().items():
        for folder in _folders():
            if (folder / PROGRAMS[name] / PROVIDER).is_dir():
                return program, folder
    raise Missing(f"no folder holds the provider {PROVIDER}: name one by {FOLDER_VARIABLE}")


def _folders() -> Iterable[Path]:
    if named := os.environ.get(FOLDER_VARIABLE):
        yield Path(named).absolute()
    yield from (Path(each).expanduser() for each in USUAL)
    yield from sorted(Path("/opt").glob("*"))


def prepare(home: Path, awake: Callable[[], None]) -> Terraform:
    """Return the program with a copy of the modules in a new folder.

    Args:
        home: The folder.
        awake: See `Terraform`.

    Raises:
        Missing: See `found`.
    """
    program, folder = found()
    mirror = (
        f"provider_installation {{\n  filesystem_mirror {{\n    path = {json.dumps(str(folder))}\n  }}\n}}\n"
    )
    (home / "settings.tfrc").write_text(mirror)
    unwanted = shutil.ignore_patterns(".terraform*", "*.tfstate*")
    for each in COPIED:
        shutil.copytree(ROOT / each, home / each, ignore=unwanted)
    return Terraform(program, home, awake)
