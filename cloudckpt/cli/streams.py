"""The streams of the process, as whoever started it left them.

Owns: that a command finds three streams which take what it writes. One that was closed is
opened anew, so that no file of a store gets its number; and a character that the encoding of
a stream does not have is written as JSON escapes it, so that it fails no command and a
document stays one. Does not decide what is written where: see `screen.py`.
"""

from __future__ import annotations

import codecs
import errno
import json
import os
import sys
from contextlib import suppress
from typing import Final

_FLAGS: Final = {"stdin": os.O_RDONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
"""How the null device stands in for a closed stream: writing to a closed stdout must fail."""

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def prepare() -> None:
    """Make the streams usable; to be called before anything else opens a file."""
    for name, flags in _FLAGS.items():
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, flags)
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w"))
    codecs.register_error("cloudckpt.escapes", _escapes)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="cloudckpt.escapes")


def _escapes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def refused(error: OSError) -> str | None:
    """Return why standard output took no more, where it is this that an error tells.

    What is left to be written is given up, so that the interpreter does not fail by it again.
    """
    if error.filename is not None or error.errno not in _FULL:
        return None
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return error.strerror or "it is closed"
