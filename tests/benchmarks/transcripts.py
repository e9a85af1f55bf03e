"""Real agents' transcripts, replayed step by step into the ready-made state.

The sizes are real, the text is made up (`texts.py`). After each step the state
is saved, then read by another store object. The peer does what is usually
written by hand: the state as JSON, a row of SQLite or an object of s3fs a step,
read back by its known name.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import cloudckpt
from cloudckpt import Checkpoint, CheckpointInfo
from tests.benchmarks.lab import ROUND_TRIPS, Lab
from tests.benchmarks.measure import Figure, Table, milliseconds, seconds_of
from tests.benchmarks.peer import Peer, Sqlite
from tests.benchmarks.texts import Message, Transcript, transcripts
from tests.servers.base import Server
from tests.servers.proxy import separate

COLUMNS = (
    "steps",
    "save",
    "JSON save",
    "ratio",
    "load",
    "JSON load",
    "ratio ",
    "rode inline",
    "stored / state",
    "newest / state",
    "JSON stored / state",
)


class Hand(Protocol):
    """What one writes by hand."""

    def save(self, run: str, step: int, data: bytes) -> None: ...

    def load(self, run: str, step: int) -> bytes: ...


@dataclass
class Tally:
    """What was measured over all steps, and the bytes at the end of each run."""

    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in ("save", "load", "JSON save", "JSON load")}
    )
    saves: list[CheckpointInfo] = field(default_factory=list)
    by_hand: int = 0
    final: int = 0
    newest: int = 0

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        seconds, result = seconds_of(work)
        self.seconds[name].append(seconds)
        return result

    def cells(self, stored: int) -> tuple[Figure, ...]:
        took = {name: statistics.median(samples) for name, samples in self.seconds.items()}
        inline = sum(info.inline for info in self.saves)
        return (
            Figure(len(self.saves)),
            milliseconds(took["save"]),
            milliseconds(took["JSON save"]),
            Figure(took["save"] / took["JSON save"], "x"),
            milliseconds(took["load"]),
            milliseconds(took["JSON load"]),
            Figure(took["load"] / took["JSON load"], "x"),
            Figure(100 * inline / len(self.saves), "%"),
            Figure(stored / self.final, "x"),
            Figure(self.newest / self.final, "x"),
            Figure(self.by_hand / self.final, "x"),
        )


def run(lab: Lab) -> Iterator[Table]:
    found = transcripts(5 if lab.quick else None)
    table = Table(
        f"replay of {len(found)} agents' transcripts, a save and a load a step",
        COLUMNS,
        (
            "medians over all steps; state: its encoded size at the end, before compression",
            "stored: all that the store holds at the end, 10 checkpoints a run; newest: the last one alone",
            "JSON: what one writes by hand, a row or an object a step; stored: all of them",
        ),
    )
    _in_folder(lab, found, table)
    server = lab.server()
    with separate(server.endpoint, rtt=ROUND_TRIPS[0]) as endpoint, Peer(server.through(endpoint)) as peer:
        _on_wire(lab, found, table, server.through(endpoint), peer)
    yield table


def _in_folder(lab: Lab, found: list[Transcript], table: Table) -> None:
    folder = lab.folder()
    database = Sqlite(lab.folder() / "states.db")

    class Rows:
        def save(self, run: str, step: int, data: bytes) -> None:
            database.save(run, data)

        def load(self, run: str, step: int) -> bytes:
            return database.newest(run)

    tally = _replayed(found, lambda: cloudckpt.open(folder), Rows())
    database.close()
    stored = sum(path.stat().st_size for path in _files(folder))
    table.add("folder / SQLite", *tally.cells(stored))


def _files(folder: Path) -> Iterator[Path]:
    for name in ("manifests", "objects"):
        yield from (path for path in (folder / name).rglob("*") if path.is_file())


def _on_wire(lab: Lab, found: list[Transcript], table: Table, server: Server, peer: Peer) -> None:
    prefix = lab.name()
    url, options = f"{server.url}/{prefix}", server.storage_options()

    class Keys:
        def save(self, run: str, step: int, data: bytes) -> None:
            peer.pipe(f"json/{run}/{step}.json", data)

        def load(self, run: str, step: int) -> bytes:
            return peer.cat(f"json/{run}/{step}.json")

    tally = _replayed(found, lambda: cloudckpt.open(url, storage_options=options), Keys())
    client = server.client()
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=server.bucket, Prefix=f"{prefix}/")
    rows = [row for page in pages for row in page.get("Contents", ())]
    client.close()
    stored = sum(row["Size"] for row in rows if "/manifests/" in row["Key"] or "/objects/" in row["Key"])
    table.add(f"MinIO at {ROUND_TRIPS[0] * 1e3:.0f} ms / s3fs", *tally.cells(stored))


def _replayed(found: list[Transcript], opened: Callable[[], cloudckpt.Store], hand: Hand) -> Tally:
    tally = Tally()
    with opened() as store, opened() as reader:
        reader.run("warm").load()  # its connection, not a load of ours
        for transcript in found:
            state = Checkpoint.new(transcript.id, messages=[_plain(each) for each in transcript.opening])
            for step in transcript.steps:
                _grow(state, step)
                _step(tally, store, reader, hand, transcript.id, state)
            tally.final += tally.saves[-1].encoded_size
            tally.newest += tally.saves[-1].size
    return tally


def _step(
    tally: Tally, store: cloudckpt.Store, reader: cloudckpt.Store, hand: Hand, run: str, state: Checkpoint
) -> None:
    def save_json() -> int:
        data = json.dumps(asdict(state)).encode()
        hand.save(run, state.step, data)
        return len(data)

    tally.saves.append(tally.timed("save", lambda: state.save(run, store=store)))
    tally.by_hand += tally.timed("JSON save", save_json)
    loaded = tally.timed("load", lambda: reader.run(run).load(Checkpoint))
    tally.timed("JSON load", lambda: json.loads(hand.load(run, state.step)))
    if loaded != state:
        raise RuntimeError("this is not what was saved")


def _grow(state: Checkpoint, step: tuple[Message, ...]) -> None:
    """Do to the state what the step did to the agent's."""
    for message in step:
        if message.arguments:
            calls = [
                {"id": f"call-{state.step}-{n}", "function": {"name": "bash", "arguments": arguments}}
                for n, arguments in enumerate(message.arguments)
            ]
            state.apply({"role": message.role, "content": message.text, "tool_calls": calls})
        elif message.role == "tool":
            state.record(state.pending[0].id, message.text)
        else:
            state.messages.append(_plain(message))
    state.step += 1


def _plain(message: Message) -> dict[str, Any]:
    return {"role": message.role, "content": message.text}
