"""Naming a checkpoint: what each form means, ids that hold an @, and near misses."""

from __future__ import annotations

from typing import Any

import pytest

from cloudckpt.cli.names import LOOKED_AT, Name, at, near_misses, readings, whole
from cloudckpt.errors import CheckpointNotFoundError, InvalidInputError, RunDeletedError, RunNotFoundError
from cloudckpt.run import Run
from tests.unit.cli_lab import Lab, agent, counted, new_lab


@pytest.fixture
def lab() -> Lab:
    return new_lab()


def seq_of(lab: Lab, text: str) -> tuple[str, int]:
    def look(run: Run, point: dict[str, Any]) -> tuple[str, int]:
        return run.id, run.find(**point).seq

    return at(lab.store, text, look)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("r", Name("r", {})),
        ("r@3", Name("r", {"seq": 3})),
        ("r@seq:3", Name("r", {"seq": 3})),
        ("r@step:17", Name("r", {"step": 17})),
        ("r@best", Name("r", {"tag": "best"})),
        ("r@tag:3", Name("r", {"tag": "3"})),
        ("r@tag:-1", Name("r", {"tag": "-1"})),
        ("r@-1", Name("r", {}, 1)),
        ("r@-0", Name("r", {}, 0)),
        ("r@", Name("r", {})),
        ("a b/c@d@3", Name("a b/c@d", {"seq": 3})),
        ("a@b@", Name("a@b", {})),
        ("@3", Name("@3", {})),
        ("r@" + "x" * 200, Name("r@" + "x" * 200, {})),
    ],
)
def test_a_name_is_read_from_its_last_at(text: str, first: Name) -> None:
    found = readings(text)
    assert found[0] == first
    assert Name(text, {}) in found[:2]


@pytest.mark.parametrize(
    ("text", "seq"),
    [("r", 5), ("r@2", 2), ("r@-1", 4), ("r@-0", 5), ("r@best", 3), ("r@step:4", 4), ("r@", 5), ("r@-4", 1)],
)
def test_each_form_finds_its_checkpoint(lab: Lab, text: str, seq: int) -> None:
    agent(lab, "r", 5, tags={3: ("best",), 1: ("best",)})
    assert seq_of(lab, text) == ("r", seq)


def test_back_counts_what_is_retained(lab: Lab) -> None:
    """After expiry the one before the newest may be many numbers away."""
    agent(lab, "r", 9, tags={2: ("kept",)}, keep_last=1)
    assert seq_of(lab, "r@-1") == ("r", 2)
    with pytest.raises(CheckpointNotFoundError, match="not so many"):
        seq_of(lab, "r@-2")


def test_an_id_that_holds_an_at_needs_nothing_special(lab: Lab) -> None:
    agent(lab, "bob@example.com", 3, tags={1: ("first",)})
    assert seq_of(lab, "bob@example.com") == ("bob@example.com", 3)
    assert seq_of(lab, "bob@example.com@2") == ("bob@example.com", 2)
    assert seq_of(lab, "bob@example.com@first") == ("bob@example.com", 1)
    agent(lab, "a b/c@1", 2)
    assert seq_of(lab, "a b/c@1") == ("a b/c@1", 2)


def test_where_both_readings_are_there_one_more_at_decides(lab: Lab) -> None:
    agent(lab, "a", 3)
    agent(lab, "a@2", 1)
    assert seq_of(lab, "a@2") == ("a", 2)
    assert seq_of(lab, "a@2@") == ("a@2", 1)
    agent(lab, "a@9", 4)
    assert seq_of(lab, "a@9") == ("a@9", 4)  # `a` has no such checkpoint


def test_what_is_missing_is_said_of_the_likeliest_reading(lab: Lab) -> None:
    agent(lab, "a", 3)
    with pytest.raises(CheckpointNotFoundError) as caught:
        seq_of(lab, "a@7")
    assert (caught.value.facts["run"], caught.value.facts["seq"]) == ("a", 7)
    with pytest.raises(CheckpointNotFoundError) as caught:
        seq_of(lab, "a@nothing")
    assert caught.value.facts["tag"] == "nothing"
    with pytest.raises(InvalidInputError, match="from 1"):
        seq_of(lab, "a@0")
    lab.store.delete("a")
    with pytest.raises(RunDeletedError):
        seq_of(lab, "a@1")
    with lab.store.run("empty"):
        pass
    for text in ("empty", "empty@-0", "empty@-3"):
        with pytest.raises(CheckpointNotFoundError, match="no checkpoint yet"):
            seq_of(lab, text)


def test_a_tag_that_holds_an_at_is_found_by_it(lab: Lab) -> None:
    """`tag r seen-by:ann@desk` went well, and no command found it by `r@seen-by:ann@desk`."""
    agent(lab, "r", 4, tags={1: ("ann@desk",), 2: ("a@b@c",), 3: ("@",)})
    agent(lab, "bob@home", 2, tags={1: ("ann@desk",)})
    for text, seq in (("r@ann@desk", 1), ("r@tag:ann@desk", 1), ("r@a@b@c", 2), ("r@@", 3)):
        assert seq_of(lab, text) == ("r", seq)
    assert seq_of(lab, "bob@home@ann@desk") == ("bob@home", 1)
    agent(lab, "r@ann@desk", 4)
    assert seq_of(lab, "r@ann@desk") == ("r@ann@desk", 4)  # an id goes before a tag
    with pytest.raises(CheckpointNotFoundError) as caught:
        seq_of(lab, "r@ann@home")
    assert (caught.value.facts["run"], caught.value.facts["tag"]) == ("r", "ann@home")


def test_an_id_whose_end_is_no_checkpoint_is_found(lab: Lab) -> None:
    """There is no seq 0 and no empty tag: that refuses the one reading, and not the run `worker@0`."""
    agent(lab, "worker@0", 2)
    agent(lab, "worker@tag:", 1)
    assert seq_of(lab, "worker@0") == ("worker@0", 2)
    assert seq_of(lab, "worker@tag:") == ("worker@tag:", 1)


@pytest.mark.parametrize(
    "text", ["nigtly-42", "nightly-24", "nightly42", "Nightly-42", "nigtly-42@3", "nightly-42x"]
)
def test_a_near_miss_suggests_the_right_run(lab: Lab, text: str) -> None:
    for run in ("nightly-42", "weekly-1", "x"):
        agent(lab, run, 1)
    with pytest.raises(RunNotFoundError, match=r"did you mean 'nightly-42'\?") as caught:
        seq_of(lab, text)
    assert caught.value.facts["run"] == text.removesuffix("@3")


def test_nothing_is_suggested_that_does_not_resemble(lab: Lab) -> None:
    agent(lab, "weekly-1", 1)
    with pytest.raises(RunNotFoundError) as caught:
        seq_of(lab, "nightly-42")
    assert "did you mean" not in str(caught.value)


def test_a_suggestion_costs_two_listings_at_most(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may hold millions of runs, and a typo must not list them all."""
    storage = lab.store.run("x").access.storage
    for number in range(LOOKED_AT + 500):
        lab.store._core.call(storage.put(f"manifests/night-{number:05}.json", b""))
    with counted(monkeypatch) as calls:
        assert near_misses(lab.store, ["day-00001"]) == []
    assert [name for name, _ in calls] == ["list", "list"]
    with counted(monkeypatch) as calls:
        assert "night-00001" in near_misses(lab.store, ["night-00001x"])
    assert [name for name, _ in calls] == ["list"]


def test_a_run_alone_is_its_id_as_it_is(lab: Lab) -> None:
    agent(lab, "a", 1)
    agent(lab, "a@1", 1)
    ids = [whole(lab.store, text, lambda run: run.summary().id) for text in ("a", "a@1", "a@")]
    assert ids == ["a", "a@1", "a"]


def test_a_name_that_is_right_costs_no_more_than_its_command(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent(lab, "a", 3, tags={2: ("t",)})
    for text in ("a", "a@1", "a@t", "a@step:3"):
        with counted(monkeypatch) as calls:
            seq_of(lab, text)
        assert [name for name, _ in calls] == ["read"]


@pytest.mark.parametrize(
    "args",
    [
        ("show", "none"),
        ("show", "none@3"),
        ("history", "none"),
        ("history", "none", "--tag", "x"),
        ("cat", "none"),
        ("diff", "none"),
        ("diff", "r@1", "none"),
        ("size", "none"),
        ("size", "none", "--history"),
        ("size", "r@1", "--history"),
        ("watch", "none", "--once"),
        ("answer", "none", "yes"),
        ("actions", "none"),
        ("offer", "none"),
        ("tag", "none", "x"),
        ("annotate", "none", "a=1"),
        ("hold", "none", "--why", "x"),
        ("release", "none"),
        ("rollback", "none@1", "--yes"),
        ("fork", "none", "new"),
        ("restore", "none"),
        ("retain", "none", "--keep-last", "1", "--yes"),
        ("collect", "none"),
        ("delete", "none", "--yes"),
        ("forget", "none", "--why", "x", "--yes"),
        ("verify", "none"),
        ("repair", "none", "--yes"),
        ("export", "none", "--output", "-"),
    ],
    ids=" ".join,
)
def test_a_run_that_is_not_there_is_exit_code_3_of_every_command(lab: Lab, args: tuple[str, ...]) -> None:
    """An empty list and code 0 look like a run that has nothing."""
    agent(lab, "r", 1)
    told = lab(*args)
    assert (told.code, told.out) == (3, "")
    assert told.err.startswith("error: there is no such run in this store")
    assert "run='none'" in told.err or "run='r@1'" in told.err
    assert [one.id for one in lab.store.runs()] == ["r"]
