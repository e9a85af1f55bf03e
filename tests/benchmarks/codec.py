"""Encoding and decoding a state, beside what one would otherwise use.

Each peer also compresses with zstd at our level, so that what differs is the
serializer. LangGraph's is measured where its package is installed.
"""

from __future__ import annotations

import importlib
import pickle
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import zstandard

from cloudckpt.codec import decode, encode
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, mebibytes, medians, milliseconds
from tests.benchmarks.texts import make_text

MOST = 1.5
PEAK = 2.2
ARRAY_BYTES = 64 << 20
STATE_BYTES = 100 << 20


def run(lab: Lab) -> Iterator[Table]:
    yield _speed(lab)
    yield _memory()


def _speed(lab: Lab) -> Table:
    table = Table(
        "encode and decode a state of about 1 MB, by how many times a peer takes",
        tuple(
            f"{how} / {peer}" for peer in ("msgspec", "pickle", "LangGraph") for how in ("encode", "decode")
        ),
        ("every one with zstd at level 3; medians, side by side",),
    )
    for label, state in {"messages": _messages(), "numbers": _numbers()}.items():
        packs, loads = _contestants(state)
        put = medians(packs, rounds=lab.rounds(40))
        got = medians(loads, rounds=lab.rounds(40))
        cells = []
        for peer, most in (("msgspec", MOST), ("pickle", 1.0), ("langgraph", 1.0)):
            for took in (put, got):
                known = peer in took
                cells.append(Figure(took["ours"] / took[peer], "x", most) if known else "not installed")
        table.add(f"{label}, {milliseconds(put['ours'])}", *cells)
    return table


def _messages() -> list[dict[str, Any]]:
    return [
        {
            "role": "tool",
            "id": f"call_{n}",
            "content": make_text(4000, 1600, seed=str(n)),
            "n": n,
            "ok": True,
        }
        for n in range(240)
    ]


def _numbers() -> dict[str, Any]:
    rng = random.Random(4)
    return {f"row {n}": [rng.random(), rng.randrange(1 << 30), None, n % 2 == 0] for n in range(24_000)}


def _contestants(state: Any) -> tuple[dict[str, Callable[[], Any]], dict[str, Callable[[], Any]]]:
    press, unpress = zstandard.ZstdCompressor(level=3).compress, zstandard.ZstdDecompressor().decompress
    ours = encode(state).data
    packed = press(msgspec.msgpack.encode(state))
    pickled = press(pickle.dumps(state))
    packs: dict[str, Callable[[], Any]] = {
        "ours": lambda: encode(state),
        "msgspec": lambda: press(msgspec.msgpack.encode(state)),
        "pickle": lambda: press(pickle.dumps(state)),
    }
    loads: dict[str, Callable[[], Any]] = {
        "ours": lambda: decode(ours),
        "msgspec": lambda: msgspec.msgpack.decode(unpress(packed)),
        "pickle": lambda: pickle.loads(unpress(pickled)),
    }
    try:
        serde = importlib.import_module("langgraph.checkpoint.serde.jsonplus").JsonPlusSerializer()
    except ImportError:
        return packs, loads
    kind, data = serde.dumps_typed(state)
    pressed = press(data)
    packs["langgraph"] = lambda: press(serde.dumps_typed(state)[1])
    loads["langgraph"] = lambda: serde.loads_typed((kind, unpress(pressed)))
    return packs, loads


_CHILD = """
from tests.benchmarks import codec
codec.child({what!r})
"""


def _memory() -> Table:
    table = Table(
        "memory that encoding and decoding take at most, by the size of the encoded state",
        ("encode", "encode / size", "decode", "decode / size"),
        ("each in a process of its own; over what the process had before, the result included",),
    )
    for what in ("bytes", "messages", "array"):
        done = subprocess.run(
            [sys.executable, "-c", _CHILD.format(what=what)], capture_output=True, text=True, check=True
        )
        size, put, got = map(int, done.stdout.split())
        # An array is copied once out of the encoded state; text becomes str objects, which have no bound.
        table.add(
            f"{what}, {mebibytes(size)}",
            mebibytes(put),
            Figure(put / size, "x", PEAK),
            mebibytes(got),
            Figure(got / size, "x", PEAK if what == "array" else None),
        )
    return table


def child(what: str) -> None:
    """Print the encoded size of a large state, and the peaks of encoding and decoding it."""
    rng = random.Random(5)
    state: Any
    if what == "bytes":
        state = {"blob": rng.randbytes(STATE_BYTES)}
    elif what == "array":
        state = {"array": np.frombuffer(rng.randbytes(ARRAY_BYTES), dtype=np.float32).copy()}
    else:
        text = make_text(4096, 4000, seed="state")
        state = [f"{n} {text}" for n in range(STATE_BYTES // 4096)]
    encode([{"warm": 1}]), decode(encode((1, 2)).data)
    before = _resident()
    done = encode(state)
    put = _peak() - before
    data, size = done.data, done.encoded_size
    del done, state
    before = _resident()
    _reset_peak()
    decode(data)
    print(size, put, _peak() - before)


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _peak() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
