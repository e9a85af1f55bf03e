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
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, milliseconds, seconds_of
from tests.benchmarks.peer import Peer, Sqlite
from tests.benchmarks.texts import Message, Transcript, transcripts
from tests.servers.base import Server, Unavailable
from tests.servers.proxy import separate


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

    def figures(self, stored: int) -> dict[str, Figure]:
        """Return what is shown.

        Args:
            stored: Bytes that the store holds at the end.
        """
        took = {name: statistics.median(samples) for name, samples in self.seconds.items()}
        inline = sum(info.inline for info in self.saves)
        return {
            "saves": Figure(len(self.saves)),
            "save": milliseconds(took["save"]),
            "save of JSON": milliseconds(took["JSON save"]),
            "save / save of JSON": Figure(took["save"] / took["JSON save"], "x"),
            "load": milliseconds(took["load"]),
            "load of JSON": milliseconds(took["JSON load"]),
            "load / load of JSON": Figure(took["load"] / took["JSON load"], "x"),
            "saves that rode inline": Figure(100 * inline / len(self.saves), "%"),
            "bytes of the final state": Figure(self.final),
            "its checkpoint / final state": Figure(self.newest / self.final, "x"),
            "all that is stored / final state": Figure(stored / self.final, "x"),
            "all JSON that is stored / final state": Figure(self.by_hand / self.final, "x"),
        }


def run(lab: Lab) -> Iterator[Table]:
    found = transcripts(5 if lab.quick else None)
    notes = [
        "medians over all steps; sizes: sums over the transcripts, the state's before compression",
        "all that is stored: manifests and objects, 10 checkpoints a run",
        "JSON: what one writes by hand, a row of SQLite or an object of s3fs a step, none of them dropped",
    ]
    places = {"folder, SQLite": _in_folder(lab, found)}
    try:
        server = lab.server()
    except Unavailable as error:
        notes.append(f"MinIO skipped: {error}")
    else:
        rtt = lab.round_trips[0]
        with separate(server.endpoint, rtt=rtt) as endpoint, Peer(server.through(endpoint)) as peer:
            figures = _on_wire(lab, found, server.through(endpoint), peer)
        places[f"MinIO at {rtt * 1e3:.0f} ms, s3fs"] = figures
    title = f"replay of {len(found)} agents' transcripts, a save and a load a step"
    table = Table(title, tuple(places), tuple(notes))
    for label in places["folder, SQLite"]:
        table.add(label, *(figures[label] for figures in places.values()))
    yield table


def _in_folder(lab: Lab, found: list[Transcript]) -> dict[str, Figure]:
    folder = lab.folder()
    database = Sqlite(lab.folder() / "states.db")

    class Rows:
        def save(self, run: str, step: int, data: bytes) -> None:
            database.save(run, data)

        def load(self, run: str, step: int) -> bytes:
            return database.newest(run)

    tally = _replayed(found, lambda: cloudckpt.open(folder), Rows())
    database.close()
    return tally.figures(sum(path.stat().st_size for path in _files(folder)))


def _files(folder: Path) -> Iterator[Path]:
    for name in ("manifests", "objects"):
        yield from (path for path in (folder / name).rglob("*") if path.is_file())


def _on_wire(lab: Lab, found: list[Transcript], server: Server, peer: Peer) -> dict[str, Figure]:
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
    return tally.figures(
        sum(row["Size"] for row in rows if "/manifests/" in row["Key"] or "/objects/" in row["Key"])
    )


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
