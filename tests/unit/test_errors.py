"""The exception tree: what a handler may rely on."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from cloudckpt import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]

BUILTIN = {
    "NotFoundError": KeyError,
    "SerializationError": TypeError,
    "InvalidInputError": ValueError,
    "CloudckptError": Exception,
}


def drawn_tree() -> dict[str, str | None]:
    """Return each class of the drawing in the module's docstring with the class above it."""
    above: list[str] = []
    tree: dict[str, str | None] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ([│├└─ ]*)(\w+Error)\b", line)
        if found:
            depth = len(found[1]) // 4
            del above[depth:]
            tree[found[2]] = above[-1] if above else None
            above.append(found[2])
    return tree


def test_the_tree_is_as_drawn() -> None:
    """The drawing is what a user reads; a class moved in the code alone would change their handlers."""
    tree = drawn_tree()
    assert sorted(tree) == sorted(errors.__all__)
    for name, above in tree.items():
        bases = getattr(errors, name).__mro__
        ours = [base.__name__ for base in bases[1:] if base.__name__ in tree]
        assert (ours[0] if ours else None) == above, name
        assert issubclass(getattr(errors, name), BUILTIN.get(name, Exception))


def test_every_class_is_listed_and_described() -> None:
    found = [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == errors.__name__
    ]
    assert sorted(found) == errors.__all__
    assert all(error.__doc__ for error in CLASSES)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("copied", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_every_error_crosses_a_process_whole(cls: type[errors.CloudckptError], copied: object) -> None:
    """The default reduces an exception to its args: keywords lost, or a TypeError in the parent."""
    arguments = {
        errors.OutcomeUnknownError: {"commit": "c0ffee"},
        errors.CorruptCheckpointError: {"run": "r", "seq": 3, "key": "k", "newest_intact": 2},
        errors.SerializationError: {"paths": ("state.a", "state.b[0]")},
    }.get(cls, {})
    kind = {} if arguments else {"kind": "a-kind"}
    error = cls("say what to do", found=7, nothing=None, **arguments, **kind)
    error.facts["later"] = True
    again = copied(error)  # type: ignore[operator]
    assert type(again) is cls
    assert vars(again) == vars(error)
    assert (str(again), repr(again.args)) == (str(error), repr(error.args))
    for name, value in arguments.items():
        assert getattr(again, name) == value


def test_a_message_is_followed_by_its_facts() -> None:
    error = errors.StorageError("the disk is full; free some space", kind="disk-full", path="/x y", n=None)
    assert str(error) == "the disk is full; free some space path='/x y'"
    assert (error.kind, error.facts) == ("disk-full", {"path": "/x y"})


def test_a_missing_run_reads_as_a_sentence() -> None:
    """KeyError shows the repr of its argument, quotes and all."""
    assert str(errors.RunNotFoundError("no such run; check the id", run="r")) == (
        "no such run; check the id run='r'"
    )


def test_attributes_of_an_error_are_facts_too() -> None:
    error = errors.CorruptCheckpointError("damaged; go back", run="r", seq=4, key="objects/r/4")
    assert str(error) == "damaged; go back run='r' seq=4 key='objects/r/4'"
    assert (error.run, error.seq, error.key, error.newest_intact) == ("r", 4, "objects/r/4", None)
    assert errors.OutcomeUnknownError("read first", commit="c1", run="r").facts == {
        "commit": "c1",
        "run": "r",
    }
