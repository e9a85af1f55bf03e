"""Agents with a planted bug each, and nothing else wrong. Alone, every one of them does its work."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudckpt
from cloudckpt import Run
from cloudckpt.crashtest import effect

STEPS = 4


@contextmanager
def opened() -> Iterator[Run]:
    with cloudckpt.open(os.environ["CLOUDCKPT_URL"]) as store, store.run("run") as run:
        yield run


def saves_in_mid_action() -> int:
    """The step counts as done before its action is: a kill between the two leaves it out."""
    with opened() as run:
        state = run.load() or {"step": 0, "sum": 0}
        while state["step"] < STEPS:
            state["step"] += 1
            state["sum"] += state["step"]
            run.save(state)
            effect("paid", key=str(state["step"]))
        return int(state["sum"])


def forgets_completed_actions() -> int:
    """Each mail of a step is saved, but not in what a resumed process looks at."""
    with opened() as run:
        state: dict[str, Any] = run.load() or {"step": 0, "mails": []}
        while state["step"] < STEPS:
            for name in ("ann", "bob"):
                effect("mailed", to=name, step=state["step"])
                state["mails"] = sorted({*state["mails"], f"{state['step']}/{name}"})
                run.save(state)
            state["step"] += 1
            run.save(state)
        return len(state["mails"])


def pays_again_without_looking() -> int:
    """A payment that was in flight is made again, and the other side can't know that it is the same."""

    def pay(amount: int) -> int:
        effect("paid", amount=amount)
        fee = amount + 1
        fee *= 2
        return amount + fee

    with opened() as run:
        state = run.load() or {"step": 0, "sum": 0}
        while state["step"] < STEPS:
            state["sum"] += run.once(str(state["step"]), pay, state["step"], policy="retry")
            state["step"] += 1
            run.save(state)
        return int(state["sum"])


squares: list[int] = []


def keeps_a_global() -> int:
    """What it adds up is the process's own."""
    with opened() as run:
        state = run.load() or {"step": 0}
        while state["step"] < STEPS:
            squares.append(state["step"] ** 2)
            state["step"] += 1
            run.save(state)
        return sum(squares)


def keeps_a_temporary_file() -> str:
    """Its notes are on a disk that is lost."""
    notes = Path(tempfile.gettempdir()) / "notes"
    with opened() as run:
        state = run.load() or {"step": 0}
        while state["step"] < STEPS:
            with notes.open("a") as file:
                file.write(f"note {state['step']};")
            state["step"] += 1
            run.save(state)
        return notes.read_text() if notes.exists() else ""


def resumes_from_the_wrong_place() -> int:
    """It goes on from the first checkpoint, whichever is the newest."""
    with opened() as run:
        state = {"step": 0} if not run.head else run.load(seq=1)
        while state["step"] < STEPS:
            state["step"] += 1
            run.save(state)
        return int(state["step"])


def leaves_a_step_out() -> int:
    """It takes the step that was interrupted for one that was done."""
    with opened() as run:
        state = run.load()
        state = {"step": 0, "sum": 0} if state is None else {**state, "step": state["step"] + 1}
        while state["step"] < STEPS:
            state["sum"] += state["step"]
            state["step"] += 1
            run.save(state)
        return int(state["sum"])


def starts_another_run() -> int:
    """Its run's id is made anew once it finds something: the beginning is done again."""
    with cloudckpt.open(os.environ["CLOUDCKPT_URL"]) as store:
        found = len(list(store.runs()))
        with store.run(f"run-{found}") as run:
            for step in range(STEPS):
                run.save({"step": step})
        return STEPS


def fails_to_load() -> int:
    """It can't read what it saved: the type that it asks for is another one."""
    with opened() as run:
        if run.load(list) is None:
            for step in range(STEPS):
                run.save({"step": step})
        return STEPS
