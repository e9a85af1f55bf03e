"""``cloudckpt waiting``, ``answer`` and ``actions``: what runs wait for, and what they do once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import click

from cloudckpt import fleet
from cloudckpt.asking import Question
from cloudckpt.cli import names
from cloudckpt.cli.failures import NO, USAGE, Failure, complain
from cloudckpt.cli.frame import none_there, run_argument, with_output, with_store
from cloudckpt.cli.screen import Column, Document, Output, remark
from cloudckpt.cli.words import iso, shortened, shown, when
from cloudckpt.errors import InvalidInputError, RunDeletedError
from cloudckpt.ledger import ActionInfo
from cloudckpt.run import Run
from cloudckpt.schemas import check_answer
from cloudckpt.store import Store

YES_NO: Final = {"yes": True, "no": False}

LOOKED_AT: Final = 20
"""Actions among which the last answer is looked for."""

LONGEST: Final = 60
"""Characters of a question in a table; a pipe and `--json` get all of it."""


def _short(text: Any) -> str:
    return shortened(shown(text or ""), LONGEST)


def _answers(schema: Any) -> str:
    """Say what an answer may be, for people."""
    if not schema:
        return "anything"
    if "enum" in schema:
        return ", ".join(one if isinstance(one, str) else json.dumps(one) for one in schema["enum"])
    if schema.get("type") == "boolean":
        return "yes, no"
    return str(schema.get("type", "see --json"))


QUESTIONS: Final = (
    Column("run", "run", style="bold"),
    Column("token", "token"),
    Column("asked", "since", when),
    Column("expires", "expires", when),
    Column("prompt", "question", _short),
    Column("schema", "answer", _answers),
    Column("child", "waits for run"),
    Column("key", "key", _short),
)

FOR_PEOPLE: Final = QUESTIONS[:-2]
"""Whose end is waited for is in the question; its key is for its program."""

ACTIONS: Final = (
    Column("number", "no", right=True),
    Column("key", "key", _short),
    Column("begun", "begun", when),
    Column("ended", "ended", lambda time: when(time) or "in flight"),
    Column("tries", "tries", right=True),
    Column("prompt", "question", _short),
    Column("by", "answered by"),
)


def question(one: Question) -> dict[str, Any]:
    """Return a question as JSON."""
    return {
        "run": one.run,
        "token": one.token,
        "asked": iso(one.asked),
        "expires": one.expires and iso(one.expires),
        "prompt": one.prompt,
        "schema": None if one.schema is None else dict(one.schema),
        "child": one.child,
        "key": one.key,
    }


def action(one: ActionInfo) -> dict[str, Any]:
    """Return an action as JSON."""
    return {
        "number": one.number,
        "key": one.key,
        "begun": iso(one.begun),
        "ended": one.ended and iso(one.ended),
        "tries": one.tries,
        "prompt": one.prompt,
        "by": one.by,
        "arguments": one.arguments,
        "run": one.run,
    }


@click.command("waiting")
@click.argument("prefix", default="")
@with_output
@with_store
def waiting(store: Store, out: Output, prefix: str) -> None:
    """List what runs wait for.

    PREFIX is how the runs' ids begin. One request a run, several at a time, besides the listing.
    """
    failed = looked_at = 0

    def rows() -> Iterator[Document]:
        nonlocal failed, looked_at
        ids = (info.id for info in store.runs(prefix))
        with out.progress("runs", lambda: sum(1 for _ in store.runs(prefix))) as advance:
            for outcome in fleet.each(store, _questions, ids):
                advance(1)
                looked_at += 1
                if outcome.value is not None:
                    yield from map(question, outcome.value)
                elif not isinstance(outcome.error, RunDeletedError):  # one that waits for nothing any more
                    failed += 1
                    complain(str(outcome.error))

    out.rows(rows(), FOR_PEOPLE if out.pretty else QUESTIONS)
    if not looked_at:
        none_there(store, prefix)
    if failed:
        raise click.exceptions.Exit(NO)


def _questions(store: Store, run: str) -> list[Question]:
    return store.run(run).questions()


@click.command("answer")
@run_argument("run", "RUN")
@click.argument("value", metavar="VALUE")
@click.option("--token", help="Which question, where the run waits for several answers.")
@click.option("--by", help="Who answers. [default: this user on this host]")
@with_output
@with_store
def answer(store: Store, out: Output, run: str, value: str, *, token: str | None, by: str | None) -> None:
    """Answer what a run waits for.

    VALUE is JSON where that is what the question takes, else text; yes and no will do for true
    and false. An answer counts once: a second one is refused, with who was first.
    """

    def give(one: Run) -> tuple[Question, object]:
        open_ = one.questions()
        asked = _asked(one, open_, token)
        meant = _meant(value, None if asked is None else asked.schema)
        # A token that is not among them was answered, or never was: the run says which, and by whom.
        return one.answer(token or (asked.token if asked else ""), meant, by=by), meant

    asked, meant = names.whole(store, run, give)
    told = json.dumps(meant, ensure_ascii=False)
    document = {**question(asked), "value": meant}
    out.done(f"{asked.prompt} {told}: run {asked.run!r} goes on with it when it is resumed", document)


def _asked(run: Run, open_: Iterable[Question], token: str | None) -> Question | None:
    """Return the question that is meant; None when it is none of those that are open.

    Raises:
        Failure: There is none, or more than one.
    """
    if token is not None:
        return next((one for one in open_ if one.token == token), None)
    found = [one for one in open_ if one.child is None]
    if not found:
        raise _answered(run)
    if len(found) > 1:
        for one in found:
            remark(f"{one.token}  {one.prompt}")
        raise Failure(
            f"the run waits for {len(found)} answers; say which: --token TOKEN run={run.id!r}", USAGE
        )
    return found[0]


def _answered(run: Run) -> Failure:
    """Return what is told of a run that waits for no answer; who was first, if somebody was."""
    text = f"the run waits for no answer run={run.id!r}"
    last = next((one for one in run.actions(limit=LOOKED_AT) if one.by is not None), None)
    if last is None:
        return Failure(text)
    return Failure(f"{text} last={last.prompt!r} by={last.by!r} when={last.ended and iso(last.ended)!r}")


def _meant(text: str, schema: Mapping[str, Any] | None) -> object:
    """Return the answer that a text stands for: the first reading that the question takes."""
    readings: list[object] = []
    try:
        readings.append(json.loads(text))
    except ValueError:
        if schema == {"type": "boolean"} and text.lower() in YES_NO:
            return YES_NO[text.lower()]
    readings.append(text)
    for reading in readings:
        try:
            check_answer(reading, schema)
        except InvalidInputError:
            continue
        return reading
    return readings[0]  # the run says what is wrong with it


@click.command("actions")
@run_argument("run", "RUN")
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="At most so many; 0 for all."
)
@with_output
@with_store
def actions(store: Store, out: Output, run: str, *, limit: int) -> None:
    """List what a run has done once, newest first.

    Its actions and its questions: when each was begun, and when it ended. One that has not ended is
    in flight: it is being done, or its process died in the middle.
    """
    found = names.whole(store, run, lambda one: one.actions(limit=limit + 1 if limit else None))
    some = found[: limit or None]
    out.rows(map(action, some), ACTIONS)
    if len(found) > len(some):
        remark(f"these are the newest {limit:,}; --limit 0 lists all")
