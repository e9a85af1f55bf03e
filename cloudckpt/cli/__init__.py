"""The command line. Parses, calls, prints; alone in reading the environment.

Owns: the entry point, and how it ends. Its libraries, click and rich, come with
the extra `cli` and are imported when a command runs. One module a command,
named in `commands.py` and imported when the command is used.

Exit codes: 0 it went well; 1 it ran, and the answer is no; 2 it could not run.
"""

from __future__ import annotations

import sys

from cloudckpt.errors import CloudckptError


def main() -> None:
    """Run the command line; never returns."""
    try:
        from cloudckpt.cli.commands import cli
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("cloudckpt"):
            raise
        sys.exit(f'error: the command line needs {error.name}: pip install "cloudckpt[cli]"')
    try:
        cli()
    except CloudckptError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
