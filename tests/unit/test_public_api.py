"""The names that a user imports."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import cloudckpt
from cloudckpt import errors

NAMES = {"Checkpoint", "CheckpointInfo", "Clock", "Run", "RunInfo", "Store", "open"}


def test_every_public_name_is_there_and_listed() -> None:
    for name in {*NAMES, *errors.__all__}:
        assert getattr(cloudckpt, name).__name__ == name
        assert name in dir(cloudckpt)
    assert set(cloudckpt._HOMES) >= NAMES


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Not None, which `getattr` with a default and `from ... import` would take for an answer."""
    for name in ("Nothing", "NothingError", "_private"):
        with pytest.raises(AttributeError, match=name):
            getattr(cloudckpt, name)


def test_a_star_import_and_a_submodule_work() -> None:
    namespace: dict[str, Any] = {}
    exec("from cloudckpt import FencedError, open; import cloudckpt.testing.faults", namespace)
    assert namespace["open"] is cloudckpt.open


def test_the_version_is_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+([ab]\d+|rc\d+|\.dev\d+)?", cloudckpt.__version__)


@pytest.mark.parametrize("cls", [cloudckpt.Run, cloudckpt.Store])
def test_each_call_has_an_async_twin_with_the_same_arguments(cls: Any) -> None:
    """One implementation has two doors; an argument that one of them lacks would be found too late."""
    public = {
        name: value for name, value in vars(cls).items() if not name.startswith("_") and callable(value)
    }
    without = {"run"} | {name for name in public if name.startswith("a") and name[1:] in public}
    for name, call in public.items():
        if name in without:
            continue
        twin = public[f"a{name}"]
        ours, theirs = (list(inspect.signature(each).parameters.values()) for each in (call, twin))
        assert ours == theirs, name


@pytest.mark.parametrize(
    "call", [cloudckpt.open, cloudckpt.Run.save, cloudckpt.Run.load, cloudckpt.Store.run]
)
def test_options_are_keyword_only(call: Any) -> None:
    """So that one can be added without anybody's arguments moving."""
    optional = [
        p for p in inspect.signature(call).parameters.values() if p.default is not inspect.Parameter.empty
    ]
    positional = [p.name for p in optional if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert positional in ([], ["type"])


def test_everything_public_is_described() -> None:
    for cls in (cloudckpt.Run, cloudckpt.Store, cloudckpt.CheckpointInfo, cloudckpt.RunInfo, cloudckpt.open):
        assert cls.__doc__
        for name, value in vars(cls).items() if inspect.isclass(cls) else ():
            if callable(value) and not name.startswith("_"):
                assert value.__doc__, f"{cls.__name__}.{name}"
