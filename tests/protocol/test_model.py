"""The whole public API against an oracle that shares no code with it: any calls in any order.

The short form; ``python -m tests.soak model`` is the long one.
"""

from __future__ import annotations

import itertools
import secrets
import shutil
import tempfile
from collections.abc import Callable

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from cloudckpt.storage.contract import Storage
from cloudckpt.storage.file import FileStorage
from cloudckpt.storage.memory import MemoryStorage, _spaces
from tests.protocol.model import Model
from tests.protocol.model.small import at_once
from tests.protocol.model.surface import uncalled

_names = itertools.count()


class InMemory(Model):
    """With small windows, so that histories have pages of several levels."""

    sizes = (0, 100, 300, 1200)

    def make_place(self) -> tuple[Callable[[], Storage], Callable[[], object]]:
        name = f"model-{next(_names)}"
        return lambda: MemoryStorage(name), lambda: _spaces.pop(name, None)


class OnAFolder(Model):
    """With the product's own sizes."""

    def make_place(self) -> tuple[Callable[[], Storage], Callable[[], object]]:
        folder = tempfile.mkdtemp(prefix="cloudckpt-model-")
        return lambda: FileStorage(folder), lambda: shutil.rmtree(folder)


def explore(machine: type[Model], *, seed: int, examples: int, steps: int, shrink: bool) -> None:
    """Run the model on that many sequences of calls; the same ones for the same arguments."""
    phases = (Phase.explicit, Phase.generate, *((Phase.shrink,) if shrink else ()))
    with at_once(small=machine is InMemory):
        run_state_machine_as_test(
            hypothesis.seed(seed)(type(machine.__name__, (machine,), {})),
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                phases=phases,
                report_multiple_bugs=False,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


EXAMPLES = {InMemory: 200, OnAFolder: 40}
STEPS = 50


@pytest.mark.parametrize("machine", EXAMPLES)
def test_any_calls_in_any_order_answer_as_the_oracle(machine: type[Model]) -> None:
    """What fails is not made smaller here, which takes minutes: the soak does that, by the seed."""
    seed = secrets.randbelow(10**6)
    try:
        explore(machine, seed=seed, examples=EXAMPLES[machine], steps=STEPS, shrink=False)
    except BaseException as error:
        error.add_note(f"{seed=}; python -m tests.soak model --seed {seed} makes it smaller")
        raise


def test_all_that_is_public_has_a_rule() -> None:
    """A method that is added and forgotten here is one that no random sequence ever meets."""
    for seed in range(10):
        if uncalled():
            explore(InMemory, seed=seed, examples=20, steps=STEPS, shrink=False)
    assert uncalled() == [], "give each a rule, or a reason in `surface.EXCEPTIONS`"
