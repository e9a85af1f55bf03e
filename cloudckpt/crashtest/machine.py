"""One process on an empty disk, as on another machine.

Owns: start and end of an agent's process, and what is lost with it: its folder, its
temporary files, its home. Invariant: nothing of one process's disk or memory reaches the
next; what could be kept outside the store lies in a folder that is removed with the
process. A path that an agent spells out, such as ``/tmp/state``, is beyond it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import site
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import cloudckpt
from cloudckpt.errors import InvalidInputError

PACKAGE: Final = Path(cloudckpt.__file__).parent

_KEPT: Final = {
    "AWS_CONFIG_FILE": ".aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials",
    "CLOUDSDK_CONFIG": ".config/gcloud",
    "AZURE_CONFIG_DIR": ".azure",
    "PYENV_ROOT": ".pyenv",
}
"""What another machine would have too, and is found by HOME: credentials, and the interpreter."""


class GauntletError(InvalidInputError):
    """The agent that was named can't be tried: it fails, hangs or saves nothing without any kill."""


class Machine:
    """A process at work. A context manager: its process group and disk end with the block.

    Args:
        command: Program and arguments. A relative one that names a file of this process's
            folder, and of none that was brought, is given as an absolute path.
        environment: Added to this process's own.
        bring: Files and folders that are copied onto the disk, each to where it is from here.
        keep_home: Leave HOME as it is.
        ahead: A folder in front of its PYTHONPATH.
        output: Where its stdout goes, as `subprocess.Popen` takes it.

    Attributes:
        disk: Its folder.
        pid: Of the process.
        process: For its stdout, and its end.
        began: When it was started, by the monotonic clock.
        killed: Whether `kill` was called.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        bring: Sequence[Path] = (),
        keep_home: bool = False,
        ahead: Path | None = None,
        output: Any = subprocess.PIPE,
    ) -> None:
        self.killed = False
        self.disk = Path(tempfile.mkdtemp(prefix="cloudckpt-disk-"))
        self._complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed on exit
        try:
            for path in bring:
                _copy(path, self.disk)
            self.began = time.monotonic()
            self.process = subprocess.Popen(
                [_placed(argument, self.disk) for argument in command],
                cwd=self.disk,
                env={**own_environment(self.disk, keep_home=keep_home, ahead=ahead), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=self._complaints,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            self._clear()
            raise GauntletError(f"the command can't be run: {error}", command=command[0]) from error
        self.pid = self.process.pid

    def kill(self) -> None:
        """Send SIGKILL to the process and all that it started: they get no chance to end anything."""
        self.killed = True
        self._end()

    def complaints(self) -> str:
        """Return what it said on stderr."""
        self._complaints.seek(0)
        return self._complaints.read().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self.process.communicate()
        self._clear()

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _clear(self) -> None:
        self._complaints.close()
        shutil.rmtree(self.disk, ignore_errors=True)


def own_environment(disk: Path, *, keep_home: bool, ahead: Path | None = None) -> dict[str, str]:
    """Return this process's environment as a process on a disk of its own has it."""
    own = {name: str(disk) for name in ("TMPDIR", "TEMP", "TMP")}
    own |= {f"XDG_{name}_HOME": str(disk) for name in ("DATA", "CACHE", "STATE")}
    own["PYTHONPATH"] = os.pathsep.join([*([str(ahead)] if ahead else []), *_python_path()])
    if not keep_home:
        home = Path.home()
        own |= {
            name: str(home / path)
            for name, path in _KEPT.items()
            if name not in os.environ and (home / path).exists()
        }
        own |= {"HOME": str(disk), "PYTHONUSERBASE": site.getuserbase()}
    return {**os.environ, **own}


def _python_path() -> list[str]:
    """Return what is found from here: modules of the folder, and this package where it is not installed."""
    told = [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    package = str(PACKAGE.parent)
    if package not in (*site.getsitepackages(), site.getusersitepackages(), *told):
        told.append(package)  # a checkout that is run in place
    return [*told, str(Path.cwd())]


def _copy(path: Path, disk: Path) -> None:
    target = disk / (path.name if path.is_absolute() else path)
    if path.is_dir():
        shutil.copytree(path, target, dirs_exist_ok=True, symlinks=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def _placed(argument: str, disk: Path) -> str:
    # Not pathlib's: it raises for an argument that is too long to be a name.
    relative = bool(argument) and not os.path.isabs(argument)
    if relative and os.path.isfile(argument) and not os.path.exists(disk / argument):
        return str(Path(argument).absolute())
    return argument
