"""The command line. Parses, calls, prints; alone in reading the environment.

Owns: the entry point. Its libraries, click and rich, come with the extra `cli` and are
imported when a command runs.

    commands.py    names and one line of each command; the rest is imported when it is used
    frame.py       options that many commands have, and questions before what destroys
    names.py       RUN@WHICH, and what was meant when there is no such run
    screen.py      tables for a terminal, tab-separated lines for a pipe, JSON for programs
    shapes.py      the JSON that docs/cli.md promises
    words.py       sizes, times and texts for people; what people write for a time
    failures.py    errors as one line, and exit codes

Each further module has the commands of one topic. Exit codes are in `failures.py`.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; never returns."""
    try:
        from cloudckpt.cli.commands import cli
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("cloudckpt"):
            raise
        sys.exit(f'error: the command line needs {error.name}: pip install "cloudckpt[cli]"')
    cli()
