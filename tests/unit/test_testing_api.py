"""The names that an engine's author imports, and what stands behind those that judge."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloudckpt import testing
from cloudckpt.errors import InvalidInputError
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.concurrency import large
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.histories import Operation, Recorder, Save, read_history
from cloudckpt.testing.invariants import LawBrokenError
from cloudckpt.testing.linearity import HistoryBrokenError
from cloudckpt.testing.recorded import check_recorded

NEED_PYTEST = {"RunConformance", "StorageConformance"}


def test_every_public_name_is_there_listed_and_described() -> None:
    namespace: dict[str, Any] = {}
    exec("from cloudckpt.testing import *", namespace)
    assert set(testing.__all__) == namespace.keys() - {"__builtins__"}
    for name in testing.__all__:
        assert name in dir(testing)
        value = namespace[name]
        assert not (inspect.isclass(value) or callable(value)) or value.__doc__, name


def test_each_name_is_typed_as_what_it_is() -> None:
    """A type checker reads another list than Python does, and both must say the same."""
    source = Path(str(testing.__file__)).read_text().partition("if TYPE_CHECKING:")[2].partition("_HOMES")[0]
    typed = {line.split()[-1] for line in source.splitlines() if "import" in line}
    assert typed == set(testing.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        testing.Nothing  # noqa: B018 - it is looked up


def test_only_the_pytest_classes_need_pytest() -> None:
    """A process that is killed in a contest records, and need not carry a test runner."""
    names = ", ".join(sorted(set(testing.__all__) - NEED_PYTEST))
    blocked = "import sys; sys.modules['pytest'] = None"
    code = f"{blocked}; import cloudckpt.testing; from cloudckpt.testing import {names}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_failed_law_says_what_was_compared() -> None:
    """Asserts are rewritten in test files only, unless it is told before the import."""
    for name in ("concurrency", "conformance", "driver", "races", "runs"):
        module = importlib.import_module(f"cloudckpt.testing.{name}")
        assert "@pytest_ar" in vars(module), name


def test_a_store_is_made_of_what_makes_an_engine() -> None:
    """And not of an engine, which a forked child could not have one of its own of."""
    with Store(lambda: MemoryStorage("own")) as store:
        assert store.url == "memory://own"
    wrong: list[Any] = ["memory://own", MemoryStorage("own"), None]
    for make in wrong:
        with pytest.raises(InvalidInputError, match="makes an engine"):
            Store(make)
    for options in ({"timeout": -1}, {"latency": float("inf")}, {"keep_last": 0}):
        with pytest.raises(InvalidInputError):
            Store(MemoryStorage, **options)  # type: ignore[arg-type]


# ---- recorded histories


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[MemoryStorage, list[Operation]]:
    """Two processes that took turns, and the store they worked on."""
    storage = MemoryStorage(str(tmp_path))
    for name in ("one", "two"):
        recorder = Recorder(tmp_path / f"{name}.jsonl")
        with Store(lambda: storage) as store:
            run = store.run("r")
            for n in range(3):
                with recorder.saving(run, state := {"by": name, "n": n}) as told:
                    told(run.save(state))
            with recorder.loading(run) as loaded:
                loaded(run.load())
        recorder.close()
    return storage, read_history(tmp_path)


def test_a_sound_history_is_counted(recorded: tuple[MemoryStorage, list[Operation]]) -> None:
    figures = by_hand(check_recorded(*recorded))
    assert (figures.acknowledged, figures.loads, figures.refused) == (6, 2, 0)


def test_a_history_that_the_store_does_not_bear_out_is_told(
    recorded: tuple[MemoryStorage, list[Operation]],
) -> None:
    storage, operations = recorded
    unseen = [op for op in operations if not (isinstance(op, Save) and op.seq == 2)]
    with pytest.raises((HistoryBrokenError, LawBrokenError)):
        by_hand(check_recorded(storage, unseen))
    with pytest.raises(HistoryBrokenError):
        by_hand(check_recorded(MemoryStorage("empty, and told of saves"), operations))


def test_a_history_over_a_store_that_lost_an_object_is_told(tmp_path: Path) -> None:
    """What everybody was told agrees, and still nobody can load it any more."""
    storage = MemoryStorage(str(tmp_path))
    recorder = Recorder(tmp_path / "one.jsonl")
    with Store(lambda: storage) as store, recorder.saving(run := store.run("r"), state := large(1)) as told:
        told(run.save(state))
    recorder.close()
    by_hand(storage.delete([row.key for row in by_hand(storage.list("objects/")).rows]))
    with pytest.raises(LawBrokenError, match="L1"):
        by_hand(check_recorded(storage, read_history(tmp_path)))


def test_operations_of_several_runs_or_none_are_refused(
    recorded: tuple[MemoryStorage, list[Operation]],
) -> None:
    """A missing record would otherwise pass for a run of which nobody asked anything."""
    storage, operations = recorded
    for wrong in ([], [*operations, Save("p", "another", 0)]):
        with pytest.raises(ValueError, match="of one run"):
            by_hand(check_recorded(storage, wrong))
