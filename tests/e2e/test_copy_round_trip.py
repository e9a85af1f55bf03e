"""Runs on a journey: from a folder to MinIO, to Google, and back into a folder, with all that they are."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import cloudckpt
from cloudckpt.cli.commands import cli
from cloudckpt.errors import InFlightError, WaitingError
from cloudckpt.retention import Retention
from cloudckpt.store import Store
from tests.servers.base import Server

RUN = "agents/nightly 42"
SAVES = 90
"""So many that some have moved into pages of history."""


@dataclass(frozen=True)
class Place:
    url: str
    options: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def store(self) -> Iterator[Store]:
        with cloudckpt.open(self.url, storage_options=self.options) as store:
            yield store


def copied(here: Place, there: Place, *args: str, code: int = 0) -> list[dict[str, Any]]:
    options = (
        "--storage-options",
        json.dumps(here.options),
        "--to-storage-options",
        json.dumps(there.options),
    )
    done = CliRunner().invoke(cli, ["copy", here.url, there.url, *args, *options, "--json"])
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def blob(step: int) -> bytes:
    """Bytes that no compressor makes small, so that they become objects."""
    return random.Random(step).randbytes(20_000)


def live(store: Store) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    store.set_retention(Retention(keep_last=200))
    with store.run(RUN) as run:
        for step in range(1, SAVES + 1):
            run.save({"step": step, "blob": blob(step)}, tags=("good",) if step % 30 == 0 else ())
        for order in range(40):
            run.once(f"pay-{order}", dict, order=order, receipt=blob(order)[:3000])
        run.once("large", blob, 1000)
        with pytest.raises(ZeroDivisionError):
            run.once("in-flight", broken)
        run.hold("case 7", by="legal", seq=5)
        run.hold("the whole of it", by="legal", whole=True)
        run.annotate({"reviewed": True}, seq=9)
        run.rollback(tag="good")
        with pytest.raises(WaitingError):
            run.wait("Go on?", schema=bool, state={"step": 30, "blob": blob(30)})
    with store.run("other") as run:
        run.save({"small": True})


def known(store: Store) -> dict[str, Any]:
    """All that can be known of the runs of a store, from outside."""
    run = store.run(RUN)
    summary = run.summary()
    history = run.history()
    return {
        "runs": [info.id for info in store.runs()],
        "history": [replace(one, inline=False) for one in history],
        "states": [run.load(seq=one.seq) for one in history[::7]],
        "actions": run.actions(),
        "questions": run.questions(),
        "in flight": run.in_flight(),
        "held": (summary.hold, summary.held, run.find(seq=5)),
        "rules": (summary.retention, summary.set_by, store.get_retention()),
        "status": (summary.status, summary.epoch, summary.writer),
        "whole": [report.ok for report in store.verify(depth=3)],
    }


def test_a_run_comes_back_from_a_journey_through_three_kinds_of_store(
    tmp_path: Path, minio_server: Server, fake_gcs_server: Server
) -> None:
    name = uuid.uuid4().hex
    journey = [
        Place(str(tmp_path / "home")),
        Place(f"{minio_server.url}/{name}", minio_server.storage_options()),
        Place(f"{fake_gcs_server.url}/{name}", fake_gcs_server.storage_options()),
        Place(str(tmp_path / "back")),
    ]
    with journey[0].store() as store:
        live(store)
        first = known(store)
    assert len(first["history"]) > SAVES
    assert len(first["actions"]) == 43
    for here, there in pairwise(journey):
        plan = copied(here, there, "--dry-run", "--settings")
        done = copied(here, there, "--settings")
        assert done == [{**row, "dry_run": False} for row in plan]
        assert done[0]["sent"] >= SAVES - 3
        with there.store() as store:
            assert known(store) == first
        assert [row["changed"] for row in copied(here, there)] == [False, False]
    _goes_on(journey[-1])
    refused = copied(journey[0], journey[-1], RUN, code=1)
    assert refused == [], "the agent went on there: it is no copy any more"
    assert copied(journey[-1], journey[0], RUN)[0]["changed"], "but all that is at home is in it"
    with journey[0].store() as home, journey[-1].store() as back:
        assert known(home) == known(back)


def _goes_on(place: Place) -> None:
    with place.store() as store:
        [question] = store.run(RUN).questions()
        store.run(RUN).answer(question.token, True, by="ann")
        with store.run(RUN) as run:
            assert run.wait("Go on?", schema=bool) is True
            assert run.once("pay-7", _never, order=7, receipt=blob(7)[:3000])["order"] == 7
            assert run.once("large", _never, 1000) == blob(1000)
            with pytest.raises(InFlightError):
                run.once("in-flight", _never)
            assert run.save({"step": 31, "blob": blob(31)}).parent == run.history(limit=2)[1].seq


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("it was done before the journey")
