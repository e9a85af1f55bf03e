"""Lean states and secrets through `open`, `run` and `save`: what is in the store, and what comes back."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from zstandard import ZstdDecompressor

import cloudckpt
from cloudckpt import Checkpoint, InvalidInputError, Redacted, Run, SerializationError
from cloudckpt.codec import MAX_STATE_BYTES, encode
from cloudckpt.codec.intake import LEAST

SECRET = "sk-abcdefghij0123456789"
KEY = re.compile(r"sk-[A-Za-z0-9]{20,}")
ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass
class User:
    name: str
    token: str = ""


@dataclass
class Research:
    user: User
    messages: list[dict[str, Any]] = field(default_factory=list)
    images: dict[str, bytes] = field(default_factory=dict)
    noise: bytes = b""
    step: int = 0


def research(noise: int = 10) -> Research:
    return Research(
        user=User("a", SECRET),
        messages=[{"role": "tool", "content": f"export KEY={SECRET}; run", "api_key": SECRET}],
        images={"a": b"image"},
        noise=os.urandom(noise),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def contents(folder: Path) -> Iterator[bytes]:
    """Yield every byte string that is in a store: files as they are, riders and payloads opened too."""
    for file in folder.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            yield data
            pieces = [data]
            if file.suffix == ".json":
                pieces += map(base64.b64decode, json.loads(data).get("inline", {}).values())
            for piece in pieces:
                if ZSTD in piece:
                    yield ZstdDecompressor().decompress(piece[piece.index(ZSTD) :])


def holds_secret(folder: Path) -> bool:
    return any(SECRET.encode() in data for data in contents(folder))


# ---- secrets


def save_all(store: cloudckpt.Store, **options: Any) -> Run:
    """Save a state that rides and one that doesn't, with all that is saved beside them."""
    run = store.run("r", **options)
    beside = {"metadata": {"a": [f"x {SECRET}"], SECRET: 1, "token": SECRET}, "tags": [f"t-{SECRET}", "best"]}
    run.save(research(), **beside)

    async def later() -> None:
        await run.asave(research(40_000), **beside)

    asyncio.run(later())
    return run


@pytest.mark.parametrize("at", ["store", "run", "both"])
def test_no_secret_is_anywhere_in_the_store(folder: Path, at: str) -> None:
    """The whole point: payloads, riders, metadata and tags, sync and async, and rules add up."""
    paths = ["user.token", "**.api_key", "token"]
    of_store, of_run = {"store": ([*paths, KEY], []), "run": ([], [*paths, KEY]), "both": (paths, [KEY])}[at]
    with cloudckpt.open(folder, redact=of_store) as store:
        save_all(store, redact=of_run)
    assert not holds_secret(folder)


@pytest.mark.parametrize(
    "redact", [[], ["user.token", "**.api_key"], ["nothing.such", re.compile("sk-[0-9]+")]]
)
def test_a_secret_that_no_rule_names_is_found_by_this_search(folder: Path, redact: list[Any]) -> None:
    """Without it the test above would pass on a search that sees nothing."""
    with cloudckpt.open(folder, redact=redact) as store:
        save_all(store)
    assert holds_secret(folder)


def test_what_was_redacted_comes_back_as_the_marker_and_the_rest_as_it_was() -> None:
    store = cloudckpt.open("memory://redacted", redact=["user.token", "**.api_key", KEY])
    state = research()
    info = save_all(store).save(state, metadata={"a": [f"x {SECRET}"], SECRET: 1}, tags=[SECRET])
    assert (info.tags, dict(info.metadata)) == (("[redacted]",), {"a": ["x [redacted]"], "[redacted]": 1})
    assert state.user.token == SECRET
    loaded = store.run("r").load(Research)
    assert loaded is not None
    assert loaded.user == User("a", Redacted)  # type: ignore[arg-type]
    content = "export KEY=[redacted]; run"
    assert loaded.messages == [{"role": "tool", "content": content, "api_key": Redacted}]
    assert (loaded.images, loaded.noise) == (state.images, state.noise)


def test_a_loaded_marker_is_saved_again_by_a_run_without_rules() -> None:
    store = cloudckpt.open("memory://again")
    store.run("r", redact=["user.token"]).save(research())
    loaded = store.run("r").load(Research)
    store.run("r").save(loaded)
    again = store.run("r").load(Research)
    assert again == loaded
    assert again.user.token is Redacted
    assert store.run("r").load().user.token is Redacted


def test_the_ready_made_state_keeps_no_secret_either(folder: Path) -> None:
    with cloudckpt.open(folder, redact=[KEY]) as store:
        state = Checkpoint.new(f"use {SECRET}")
        state.apply({"content": "", "tool_calls": [{"id": "c1", "name": "f", "arguments": {"key": SECRET}}]})
        state.record("c1", {"answer": SECRET})
        state.save("r", store=store)
        loaded = Checkpoint.load("r", store=store)
        assert loaded is not None
        assert loaded.task == "use [redacted]"
        loaded.step += 1
        loaded.save("r", store=store)
    assert not holds_secret(folder)


def test_a_state_has_one_digest_whatever_was_redacted_from_it() -> None:
    """Equal states as saved give equal bytes."""
    store = cloudckpt.open("memory://digest", redact=["token"])
    one, other = (store.run("r").save({"token": token, "step": 1}) for token in ("a", "b"))
    assert one.digest == other.digest


# ---- what is decorative


def test_what_is_excluded_is_not_in_the_store_and_comes_back_as_default_or_absent(folder: Path) -> None:
    with cloudckpt.open(folder) as store:
        run = store.run("r", exclude=["**.token", "state.messages[*].content", "**.api_key"])
        state = research()
        run.save(state)
        loaded = run.load(Research)
        assert loaded is not None
        assert loaded.user == User("a", "")
        assert loaded.messages == [{"role": "tool"}]
        assert state.messages[0]["content"]
        assert store.run("r").load().user.fields == {"name": "a"}
    assert not holds_secret(folder)


def test_what_can_t_be_excluded_is_refused_before_anything_is_written(folder: Path) -> None:
    store = cloudckpt.open(folder)
    for path in ("user", "messages[0]"):
        with pytest.raises(InvalidInputError, match="excluded"):
            store.run("r", exclude=[path]).save(research())
    assert not list(contents(folder))


# ---- rules that are none


@pytest.mark.parametrize(
    "make",
    [
        lambda bad: cloudckpt.open("memory://bad", redact=bad),
        lambda bad: cloudckpt.open("memory://bad").run("r", redact=bad),
        lambda bad: cloudckpt.open("memory://bad").run("r", exclude=bad),
    ],
    ids=["open", "run", "exclude"],
)
@pytest.mark.parametrize("bad", ["a.b", ["a..b"], [5], 5, [""]])
def test_a_bad_rule_is_refused_at_once(make: Callable[[Any], Any], bad: Any) -> None:
    """Not at the first save, twenty minutes into a run."""
    with pytest.raises(InvalidInputError):
        make(bad)


# ---- the limit


def test_a_state_over_the_limit_is_refused_with_what_makes_it_large(folder: Path) -> None:
    """Nothing is written, and the message names what to leave out."""
    state = research(5000)
    with cloudckpt.open(folder, max_state_bytes=4000) as store:
        with pytest.raises(InvalidInputError) as caught:
            store.run("r").save(state)
        error = caught.value
        assert error.kind == "too-large"
        size = encode(state).encoded_size
        assert error.facts == {"encoded_size": size, "max_state_bytes": 4000}
        assert f"{5003 / size:.1%}" in str(error)
        assert "state.noise: bytes" in str(error)
        assert len(str(error).splitlines()) < 12
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        assert not list(contents(folder))
        assert store.run("r").load() is None


def test_the_limit_is_of_encoded_bytes_and_its_own_value_fits() -> None:
    state = {"a": "x" * 10_000}  # a few bytes when compressed
    size = encode(state).encoded_size
    cloudckpt.open("memory://fits", max_state_bytes=size).run("r").save(state)
    with pytest.raises(InvalidInputError, match="larger"):
        cloudckpt.open("memory://fits", max_state_bytes=size - 1).run("r").save(state)


def test_a_run_has_a_limit_of_its_own_or_the_stores() -> None:
    store = cloudckpt.open("memory://own", max_state_bytes=100)
    store.run("r", max_state_bytes=10_000).save({"a": "x" * 1000})
    for run in (store.run("r"), cloudckpt.open("memory://own").run("r", max_state_bytes=100)):
        with pytest.raises(InvalidInputError, match="larger"):
            run.save({"a": "x" * 1000})
        run.save({"a": "x"})


def test_what_is_excluded_does_not_count() -> None:
    run = cloudckpt.open("memory://count").run("r", max_state_bytes=100, exclude=["image"])
    run.save({"image": b"x" * 1000})


def test_a_message_about_the_size_holds_no_secret() -> None:
    """Keys are in paths, and messages are in logs."""
    run = cloudckpt.open("memory://message").run("r", max_state_bytes=10, redact=[KEY])
    with pytest.raises(InvalidInputError) as caught:
        run.save({SECRET: "x" * 100})
    assert SECRET not in str(caught.value)
    assert "[redacted]" in str(caught.value)


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, "1", MAX_STATE_BYTES + 1])
def test_a_limit_that_is_none_is_refused(bad: Any) -> None:
    """One above what a load takes would let states be saved that nobody can load."""
    with pytest.raises(InvalidInputError):
        cloudckpt.open("memory://bad", max_state_bytes=bad)
    with pytest.raises(InvalidInputError):
        cloudckpt.open("memory://bad").run("r", max_state_bytes=bad)


def test_what_can_t_be_carried_is_another_error_than_what_is_too_large() -> None:
    with pytest.raises(SerializationError):
        cloudckpt.open("memory://other", max_state_bytes=10).run("r").save({"a": object()})


# ---- explain


def test_a_save_explains_its_size_as_it_was_saved() -> None:
    run = cloudckpt.open("memory://explain").run("r", exclude=["images"], redact=["user.token"])
    state = research(3000)
    info = run.save(state, explain=True)
    assert info.measured is not None
    assert (info.measured.encoded, info.measured.compressed) == (info.encoded_size, info.size)
    assert info.measured.children[0].path == "state.noise"
    assert "state.images" not in info.measured.render(limit=99)
    assert info.measured.type == "Research"
    assert run.history() == [info]
    assert "measured" not in repr(info)

    async def later() -> Any:
        return (await run.asave(state, explain=True)).measured

    assert asyncio.run(later()) == info.measured


def test_only_who_asks_pays_for_an_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudckpt.codec.sizes.measure", None)
    run = cloudckpt.open("memory://pays").run("r")
    info = run.save(research())
    assert info.measured is None
    assert run.history() == [info]


# ---- growth


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return found


def test_a_transcript_that_only_grows_is_said_once_per_handle(caplog: pytest.LogCaptureFixture) -> None:
    """Said at every save it would be turned off; said never, it is 135 GB."""
    store = cloudckpt.open("memory://grows")
    for _ in range(2):
        run, state = store.run("r"), {"messages": ["x" * LEAST], "step": 0}
        for _ in range(50):
            state["messages"].append("y" * 500)  # type: ignore[attr-defined]
            run.save(state)
        (warning,) = warnings_of(caplog)
        assert warning.startswith(
            "the state of run='r' grew at each of its last 20 saves, by about 503 bytes"
        )
        assert "most of that is state.messages:" in warning


def test_a_state_that_stays_as_large_as_it_was_is_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    run = cloudckpt.open("memory://stays").run("r")
    for step in range(50):
        run.save({"messages": ["x" * LEAST], "step": step % 100})
    assert warnings_of(caplog) == []
