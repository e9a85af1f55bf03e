"""The command line. Parses, calls, prints; alone in reading the environment.

Owns: the entry point. Its libraries, click and rich, come with the extra `cli` and are
imported when a command runs.

    commands.py    names and one line of each command; the rest is imported when it is used
    frame.py       options that many commands have, and questions before what destroys
    names.py       RUN@WHICH, and what was meant when there is no such run
    screen.py      tables for a terminal, tab-separated lines for a pipe, JSON for programs
    shapes.py      the JSON that docs/cli.md promises
    streams.py     stdin, stdout and stderr, as whoever started the process left them
    words.py       sizes, times and texts for people; what people write for a time
    failures.py    errors as one line, and exit codes

Each further module has the commands of one topic. Exit codes are in `failures.py`.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> None:
    """Run the command line; never returns."""
    from cloudckpt.cli import streams

    streams.prepare()
    try:
        from cloudckpt.cli.commands import cli

        cli()
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        _end(f'error: the command line needs {error.name}; pip install "cloudckpt[cli]"', 2)
    except OSError as error:
        why = streams.refused(error)
        if why is None:
            raise
        _end(f"error: standard output could not be written: {why}", 2)
    except KeyboardInterrupt:  # while the commands were imported: they tell it themselves
        _end("interrupted", 130)


def _end(line: str, code: int) -> NoReturn:
    print(line, file=sys.stderr)
    sys.exit(code)
