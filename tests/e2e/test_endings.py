"""Programs that end, drop or fork a store without closing it leave nothing on the screen."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.servers.base import Server

DROPPED = """
import asyncio, gc, sys, cloudckpt
async def main():
    store = cloudckpt.open(sys.argv[1])
    await store.run("a").asave({"x": 1})
    del store
    gc.collect()
    await asyncio.sleep(0.3)
    gc.collect()
asyncio.run(main())
"""

FORKED = """
import os, sys, cloudckpt
store = cloudckpt.open(sys.argv[1], timeout=3600)  # so a request without an answer takes a minute
run = store.run("a")
run.save({"by": "parent"})
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    try:
        run.save({"by": "parent again"})
    except cloudckpt.FencedError:
        assert run.load() == {"by": "child"}
    else:
        sys.exit("the parent was not fenced")
else:
    assert run.load() == {"by": "parent"}
    run.save({"by": "child"})
"""


def run_program(program: str, server: Server, *options: str) -> None:
    environment = {**os.environ, **server.environment(), "PYTHONASYNCIODEBUG": ""}
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            *options,
            "-c",
            program,
            f"{server.url}/endings-{os.urandom(4).hex()}",
        ],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=50,  # less than a request without an answer is waited for
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_store_that_is_dropped_is_closed_on_its_own_loop(minio_server: Server) -> None:
    """The garbage collector strikes in any thread; aiohttp's connections belong to the IO loop's."""
    run_program(DROPPED, minio_server)


def test_a_forked_child_is_a_writer_of_its_own(minio_server: Server) -> None:
    """A child that used its parent's epoch would interleave its commits with the parent's.

    And one that closed the parent's connections would leave the parent waiting for an answer.
    """
    run_program(FORKED, minio_server, "-W", "ignore::ResourceWarning")  # the parent's, not closed on purpose
