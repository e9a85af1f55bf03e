"""What runs wait for, answers, and the ledger: ``waiting``, ``answer``, ``actions``."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

import pytest

from cloudckpt import ledger
from cloudckpt.cli import failures
from cloudckpt.errors import InFlightError, InvalidInputError, WaitingError
from tests.unit.cli_lab import Lab, agent, counted, new_lab


@pytest.fixture
def lab() -> Lab:
    lab = new_lab()
    agent(lab, "idle", 1)
    return lab


def asked(lab: Lab, run: str, prompt: str, **options: Any) -> None:
    with lab.store.run(run) as one, pytest.raises(WaitingError):
        one.wait(prompt, **options)


def given(lab: Lab, run: str, prompt: str, **options: Any) -> Any:
    with lab.store.run(run) as one:
        return one.wait(prompt, **options)


def test_every_question_of_every_run_is_listed_and_no_other_run(lab: Lab) -> None:
    asked(lab, "a", "Pay 300 EUR?", schema=bool, state={"step": 1})
    asked(lab, "b", "Which\nway?", schema=["left", "right"], expires=timedelta(days=2))
    asked(lab, "b", "Why?", key="why")
    with lab.store.run("c") as run, pytest.raises(WaitingError):
        run.wait_for("a")
    agent(lab, "gone", 1)
    lab.store.delete("gone")
    rows = lab("waiting", "--json").rows
    assert [(row["run"], row["prompt"], row["schema"], row["child"]) for row in rows] == [
        ("a", "Pay 300 EUR?", {"type": "boolean"}, None),
        ("b", "Which\nway?", {"enum": ["left", "right"]}, None),
        ("b", "Why?", None, None),
        ("c", "the end of run a", None, "a"),
    ]
    assert [row["expires"] is not None for row in rows] == [False, True, False, False]
    assert [row["token"] for row in rows] == [
        one.token for name in "abc" for one in lab.store.run(name).questions()
    ]
    told = lab("waiting", "b")
    assert [line[4] for line in told.lines] == ["Which\\nway?", "Why?"]
    assert (told.code, told.err) == (0, "")


def test_a_terminal_shows_what_may_be_answered(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(lab, "a", "Pay 300 EUR?", schema=bool)
    asked(lab, "b", "Which way?", schema=["left", 3])
    shown = lab.terminal(monkeypatch, "waiting").out
    assert "yes, no" in shown
    assert "left, 3" in shown


def test_a_damaged_run_hides_no_other_that_waits(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(lab, "z", "Go on?")
    storage = lab.store._core.storage
    key = "manifests/idle.json"
    stored: Any = lab.store._core.call(storage.read(key))
    lab.store._core.call(storage.replace(key, b"{}", stored.token))
    told = lab("waiting")
    assert (told.code, [line[0] for line in told.lines]) == (failures.NO, ["z"])
    assert told.err.startswith("error: ")


@pytest.mark.parametrize(
    ("schema", "text", "meant"),
    [
        (bool, "yes", True),
        (bool, "No", False),
        (bool, "true", True),
        (str, "yes", "yes"),
        (str, "5", "5"),
        (str, '"5"', "5"),
        (int, "5", 5),
        (float, "5", 5),
        (["left", 5], "left", "left"),
        (["left", 5], "5", 5),
        (["left", "5"], "5", "5"),
        (None, "5", 5),
        (None, "yes", "yes"),
        (None, '{"days": 3}', {"days": 3}),
        (None, "a long answer, with: commas", "a long answer, with: commas"),
    ],
)
def test_an_answer_is_read_as_the_question_takes_it(lab: Lab, schema: Any, text: str, meant: Any) -> None:
    asked(lab, "a", "Well?", schema=schema)
    told = lab("answer", "a", text, "--by", "ann", "--json").json
    assert (told["value"], told["prompt"]) == (meant, "Well?")
    got = given(lab, "a", "Well?", schema=schema)
    assert (type(got), got) == (type(meant), meant)


@pytest.mark.parametrize(("schema", "text"), [(bool, "perhaps"), (bool, "1"), (int, "1.5"), (["left"], "up")])
def test_an_answer_that_does_not_fit_is_refused_and_the_run_still_waits(
    lab: Lab, schema: Any, text: str
) -> None:
    asked(lab, "a", "Well?", schema=schema)
    told = lab("answer", "a", text)
    assert told.code == failures.USAGE
    assert "the answer" in told.err
    assert len(lab("waiting").lines) == 1


def test_of_several_questions_one_must_be_named(lab: Lab) -> None:
    asked(lab, "a", "One?", key="one")
    asked(lab, "a", "Two?", key="two")
    told = lab("answer", "a", "x")
    tokens = {row["prompt"]: row["token"] for row in lab("waiting", "--json").rows}
    assert told.code == failures.USAGE
    assert [line.split("  ") for line in told.err.splitlines()[:2]] == [
        [tokens["One?"], "One?"],
        [tokens["Two?"], "Two?"],
    ]
    assert lab("answer", "a", "x", "--token", tokens["Two?"]).out == (
        "Two? \"x\": run 'a' goes on with it when it is resumed\n"
    )
    assert given(lab, "a", "Two?", key="two") == "x"
    assert lab("answer", "a", "y").code == 0, "only one is left"
    assert given(lab, "a", "One?", key="one") == "y"


def test_the_end_of_another_run_is_not_a_question_to_a_person(lab: Lab) -> None:
    with lab.store.run("a") as run, pytest.raises(WaitingError):
        run.wait_for("idle")
    told = lab("answer", "a", "yes")
    assert (told.code, "waits for no answer" in told.err) == (failures.NO, True)


def test_a_second_answer_is_told_who_was_first(lab: Lab) -> None:
    asked(lab, "a", "Pay?", schema=bool)
    [row] = lab("waiting", "--json").rows
    lab("answer", "a", "no", "--by", "ann")
    named = lab("answer", "a", "yes", "--by", "bob", "--token", row["token"])
    assert named.code == failures.NO
    assert "by='ann'" in named.err
    plain = lab("answer", "a", "yes", "--by", "bob")
    assert plain.code == failures.NO
    assert "last='Pay?' by='ann'" in plain.err
    assert given(lab, "a", "Pay?", schema=bool) is False
    assert lab("answer", "idle", "yes").err == "error: the run waits for no answer run='idle'\n"
    assert lab("answer", "a", "yes", "--token", "0" * 16).code == failures.ABSENT
    assert lab("answer", "idel", "yes").code == failures.ABSENT


def test_actions_are_listed_newest_first_with_what_is_in_flight(lab: Lab) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    with lab.store.run("a") as run:
        run.once("first", int)
        with pytest.raises(ZeroDivisionError):
            run.once("second", broken)
        with pytest.raises(InFlightError):
            run.once("second", broken)
        run.once("third", int)
    asked(lab, "a", "Go on?")
    lab("answer", "a", "yes", "--by", "ann")
    rows = lab("actions", "a", "--json").rows
    assert [(row["number"], row["key"].partition(":")[0], row["by"]) for row in rows] == [
        (4, "ask", "ann"),
        (3, "third", None),
        (2, "second", None),
        (1, "first", None),
    ]
    assert [row["ended"] is None for row in rows] == [False, False, True, False]
    told = lab("actions", "a", "--limit", "2")
    assert [line[0] for line in told.lines] == ["4", "3"]
    assert told.err == "these are the newest 2; --limit 0 lists all\n"
    assert [line[0] for line in lab("actions", "a", "--limit", "0").lines] == ["4", "3", "2", "1"]
    assert lab("actions", "idle").out == ""
    assert lab("actions", "no-such").code == failures.ABSENT


def test_pages_of_the_ledger_are_read_only_as_far_as_needed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was long in flight moves to a page late, behind newer ones; the order stays that of the begins."""
    monkeypatch.setattr(ledger, "WINDOW_BYTES", 2000)
    monkeypatch.setattr(ledger, "WINDOW_LEFT", 500)
    monkeypatch.setattr("cloudckpt.pages.FAN", 3)

    def nested(depth: int) -> int:
        if depth:
            return run.once(f"within-{depth}", nested, depth - 1)
        for number in range(60):
            run.once(f"quick-{number}", int, number)
        return depth

    with lab.store.run("a") as run:
        nested(60)
        every = run.actions()
    assert [one.key for one in every] == [
        *(f"quick-{number}" for number in reversed(range(60))),
        *(f"within-{depth}" for depth in range(1, 61)),
    ]
    costs = {}
    for limit in (1, 70, None):
        with counted(monkeypatch) as calls:
            found = lab.store.run("a").actions(limit=limit)
        assert found == every[:limit]
        costs[limit] = len(calls)
    assert 1 < costs[1] < costs[70] < costs[None]


def test_a_ledger_goes_through_json_as_it_is(lab: Lab) -> None:
    with lab.store.run("a") as run:
        run.once("ключ\n", int)
    [line] = lab("actions", "a").out.splitlines()
    assert "\\n" in line
    assert json.loads(lab("actions", "a", "--json").out)["key"] == "ключ\n"


def test_a_schema_without_its_package_says_what_to_install(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    words = r'pip install "cloudckpt\[schema\]"'
    with lab.store.run("r") as run, pytest.raises(InvalidInputError, match=words):
        run.wait("how many?", schema={"type": "integer", "minimum": 1})
