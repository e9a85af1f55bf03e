"""What a process says of its own run while another thread of it saves or does something once.

The change lands, then the other thread's commit on top of it; only after that does the first thread
come to tell the writer what it had changed. That is old by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cloudckpt.errors import StorageError, WaitingError
from cloudckpt.retention import Retention
from cloudckpt.run import Run
from cloudckpt.store import Store
from tests.protocol.scripted import ScriptedStorage, failing, fine, meanwhile


class Agent:
    """An agent that has saved once and asked one question."""

    def __init__(self) -> None:
        self.storage = ScriptedStorage()
        self.run = Store(lambda: self.storage).run("r")
        self.run.save({"n": 1})
        with pytest.raises(WaitingError) as asked:
            self.run.wait("Go on?")
        self.token = asked.value.token
        self.paid = 0

    def pay(self) -> int:
        self.paid += 1
        return self.paid

    def beside(self, said: Callable[[Run, str], Any], act: Callable[[], Any]) -> None:
        """Say something, and let `act` happen just after that has landed."""
        self.storage.writes.append(meanwhile(fine, act))
        said(self.run, self.token)


@pytest.fixture
def agent() -> Agent:
    return Agent()


SAID: dict[str, Callable[[Run, str], Any]] = {
    "tag": lambda run, _: run.tag("good", seq=1),
    "annotate": lambda run, _: run.annotate({"seen": True}),
    "hold": lambda run, _: run.hold("case 7", whole=True),
    "retain": lambda run, _: run.retain(Retention(keep_last=5)),
    "answer": lambda run, token: run.answer(token, "yes"),
}
every = pytest.mark.parametrize("said", SAID.values(), ids=SAID)


@every
def test_a_save_that_landed_meanwhile_is_no_strangers(agent: Agent, said: Callable[[Run, str], Any]) -> None:
    agent.beside(said, lambda: agent.run.save({"n": 2}))
    assert agent.run.save({"n": 3}).seq == 3
    assert agent.run.load() == {"n": 3}


@every
def test_an_action_that_was_done_meanwhile_is_not_done_again(
    agent: Agent, said: Callable[[Run, str], Any]
) -> None:
    """The older manifest does not know of it."""
    agent.beside(said, lambda: agent.run.once("pay", agent.pay))
    assert agent.run.once("pay", agent.pay) == 1
    assert agent.paid == 1


def test_what_was_said_stands_though_the_store_can_not_be_asked_again(agent: Agent) -> None:
    def act() -> None:
        agent.run.save({"n": 2})
        agent.storage.reads.append(failing(StorageError("on purpose")))

    agent.beside(SAID["tag"], act)
    assert not agent.storage.reads, "it asked"
    assert agent.run.save({"n": 3}).seq == 3
    assert agent.run.find(tag="good").seq == 1
