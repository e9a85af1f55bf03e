"""Run a program that dies with the process that started it: `bound.py PARENT PROGRAM ARGUMENT...`.

A test run that is killed cannot stop its servers. On Linux the kernel does it
(PR_SET_PDEATHSIG); the mark survives the exec below, so the pid that the caller
has is the program's own. It is set here and not in a `preexec_fn`, which forks
the caller's threads' locks with it and which newer Pythons warn about. Elsewhere
it does nothing, and a killed test run leaves its servers behind.

The kernel watches the thread that started the process, so start servers from a
thread that lives as long as they should, such as the main one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # it died before the mark was set
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
