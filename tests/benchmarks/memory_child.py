"""One save of a large state in a process of its own; prints what it took as JSON.

Owns: the measured part of `memory.py`. It is a process because a peak can only
be told from memory that nothing else has used before. Linux alone tells a
process its peak and lets it start anew (proc_pid_status(5), proc_pid_clear_refs(5)).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import cloudckpt
from cloudckpt.codec import encode
from tests.benchmarks.measure import seconds_of
from tests.benchmarks.texts import make_text

MIB = 1 << 20
BEAT = 0.001
REPEATS = 5


def main() -> None:
    asked = json.loads(sys.argv[1])
    with cloudckpt.open(asked["url"], storage_options=asked["storage_options"]) as store:
        with store.run("warm") as run:
            run.save(b"opens connections and imports the rest")
        state = _state(asked["kind"], asked["mib"])
        with store.run("bench") as run:
            before = _memory("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is in use
            run.save(state)
            peak = _memory("VmHWM")
        encodings, gaps = [], []
        with store.run("heartbeat") as run:
            for _ in range(REPEATS):
                encodings.append(seconds_of(lambda: encode(state))[0])
                gaps.append(asyncio.run(_gaps(run, state)))
    print(json.dumps({"over": peak - before, "encodings": encodings, "gaps": gaps}))


def _state(kind: str, mib: int) -> Any:
    if kind == "bytes":
        return os.urandom(mib * MIB)
    # Each content is an object of its own, as in a state that grew.
    content = make_text(4096, 1400, seed="content")
    return {
        "messages": [
            {"role": "user", "content": f"{number} {content}"[: len(content)]}
            for number in range(mib * MIB // 4096)
        ]
    }


def _memory(name: str) -> int:
    """Return a figure of this process's status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} in /proc/self/status")


async def _gaps(run: cloudckpt.Run, state: Any) -> list[float]:
    """Return the two longest times for which a save kept the loop from a task of its own, longest first."""
    gaps: list[float] = []

    async def heartbeat() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(BEAT)
            now = time.perf_counter()
            gaps.append(now - last - BEAT)
            last = now

    beating = asyncio.create_task(heartbeat())
    await asyncio.sleep(0.05)
    gaps.clear()
    await run.asave(state)
    await asyncio.sleep(2 * BEAT)  # a gap is known when the next beat is over
    beating.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beating
    return sorted(gaps, reverse=True)[:2]


if __name__ == "__main__":
    main()
