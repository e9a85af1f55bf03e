"""What the tests' own environment can't hold: made once by another toolchain, into a cache folder.

Owns: `~/.cache/cloudckpt-tests` (below XDG_CACHE_HOME where that is set).
Invariant: what stands there under its name is whole, since it is made aside and
moved.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.servers.base import Unavailable

SECONDS = 1200


def cache() -> Path:
    """Return the cache folder, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cloudckpt-tests"


def go_install(module: str, version: str, target: Path, say: Callable[[str], None]) -> None:
    """Build a program by the Go toolchain.

    Args:
        module: Its module, whose last part is the program's name.
        version: The module's.
        target: Where to put it.
        say: Told before and after.

    Raises:
        Unavailable: There is no Go here, or the build failed.
    """
    go = _tool("go")
    name = module.rpartition("/")[2]
    _make(
        f"{name} {version}",
        target,
        lambda aside: [go, "install", f"{module}@{version}"],
        lambda aside: {"GOBIN": str(aside)},
        lambda aside: aside / name,
        say,
    )


def npm_install(package: str, target: Path, say: Callable[[str], None]) -> None:
    """Install an npm package and what it needs.

    Args:
        package: Its name, with a version.
        target: The folder that gets `node_modules`.
        say: Told before and after.

    Raises:
        Unavailable: There is no npm here, or it failed.
    """
    npm = _tool("npm")
    quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts"]
    _make(
        package,
        target,
        lambda aside: [npm, "install", *quiet, "--prefix", str(aside), package],
        lambda aside: {},
        lambda aside: aside,
        say,
    )


def uv_install(package: str, target: Path, say: Callable[[str], None]) -> None:
    """Install a Python package whose needs disagree with the tests' own, into a folder for PYTHONPATH.

    Args:
        package: Its name, with a version.
        target: The folder.
        say: Told before and after.

    Raises:
        Unavailable: There is no uv here, or it failed.
    """
    install = [_tool("uv"), "pip", "install", "--quiet", "--python", sys.executable]
    _make(
        package,
        target,
        lambda aside: [*install, "--target", str(aside), package],
        lambda aside: {},
        lambda aside: aside,
        say,
    )


def wheels(packages: Sequence[str], target: Path, say: Callable[[str], None]) -> None:
    """Get the wheels of Python packages, to be read and not installed.

    Args:
        packages: Their names, with a version each.
        target: The folder that gets the files.
        say: Told before and after.

    Raises:
        Unavailable: There is no uv here, or it failed.
    """
    download = [
        _tool("uv"),
        "tool",
        "run",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
    ]
    _make(
        " ".join(packages),
        target,
        lambda aside: [*download, "--dest", str(aside), *packages],
        lambda aside: {},
        lambda aside: aside,
        say,
    )


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent  # uv is in the tests' environment, which PATH may not name
    found = shutil.which(name) or shutil.which(name, path=str(beside))
    if found is None:
        raise Unavailable(f"no program '{name}' on PATH to get it with")
    return found


def _make(
    what: str,
    target: Path,
    command: Callable[[Path], Sequence[str]],
    environment: Callable[[Path], dict[str, str]],
    made: Callable[[Path], Path],
    say: Callable[[str], None],
) -> None:
    say(f"getting {what} once into {target}")
    started = time.monotonic()
    aside = target.with_name(f"{target.name}.{os.getpid()}")
    aside.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            command(aside),
            env={**os.environ, **environment(aside)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode != 0:
            words = done.stderr.strip().splitlines() or ["it said nothing"]
            raise Unavailable(f"getting {what} failed: {words[-1]}")
        try:
            os.replace(made(aside), target)
        except OSError:
            if not target.exists():  # else another run was faster
                raise
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"getting {what} took longer than {SECONDS} s") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    say(f"got {what} in {time.monotonic() - started:.0f} s")
