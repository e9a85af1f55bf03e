"""How a command fails: one line on stderr, and an exit code.

Owns: which failure has which code. docs/cli.md promises them:

    0    it went well
    1    it ran, and the answer is no: damage, a difference, a refusal
    2    it could not run: a wrong argument, no such store, a missing package
    3    there is no such run or checkpoint (any more)
    4    the store failed, or denied it: try again, or see to the rights
    130  interrupted
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

import click

from cloudckpt.cli.words import shown
from cloudckpt.errors import (
    ClosedError,
    CloudckptError,
    InvalidInputError,
    NotFoundError,
    RunDeletedError,
    SerializationError,
    StorageError,
    UnsupportedStoreError,
)

NO: Final = 1
USAGE: Final = 2
ABSENT: Final = 3
STORE: Final = 4
INTERRUPTED: Final = 130

_CODES: Final[tuple[tuple[type[CloudckptError], int], ...]] = (
    (InvalidInputError, USAGE),
    (UnsupportedStoreError, USAGE),
    (SerializationError, USAGE),
    (ClosedError, USAGE),
    (NotFoundError, ABSENT),
    (RunDeletedError, ABSENT),
    (StorageError, STORE),
)


def code_of(error: CloudckptError) -> int:
    """Return the exit code of an error of this package."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), NO)


class Failure(click.ClickException):
    """A failure that is told in one line.

    Args:
        message: The line.
        code: The exit code.
    """

    def __init__(self, message: str, code: int = NO) -> None:
        super().__init__(message)
        setattr(self, "exit_code", code)  # noqa: B010 - click has it as a class's

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002 - click's signature
        """Print the line."""
        complain(self.message)


def complain(message: str) -> None:
    """Print a failure that does not end the command."""
    click.echo(f"error: {shown(message)}", err=True)


@contextmanager
def told() -> Iterator[None]:
    """Tell an error of this package as a failure, and an interrupt by its code."""
    try:
        yield
    except CloudckptError as error:
        raise Failure(str(error), code_of(error)) from error
    except RecursionError as error:
        raise Failure(
            "this is nested too deep to be read or shown; of a state cat --stored gives the bytes", USAGE
        ) from error
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
