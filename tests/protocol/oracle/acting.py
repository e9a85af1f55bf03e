"""What an agent does once, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.protocol.oracle.values import Act, Fates, Life, Refused, Saved, Waiting
from tests.protocol.oracle.world import numbers
from tests.protocol.oracle.writer import Writer


class Acting(Writer):
    """Who holds a run, and does things once."""

    def once(
        self,
        key: str,
        arg: Any,
        fates: Fates,
        *,
        policy: str,
        seen: tuple[bool, Any] | None,
        does: Callable[[], Any],
    ) -> Any:
        """Do something once; return its result.

        Args:
            key: Its name.
            arg: What it is called with.
            fates: Of its writes.
            policy: What to do about one in flight.
            seen: What whoever looks says: whether it happened, with which result; None when nobody looks.
            does: It.
        """
        self.check_open()
        self.become(fates)
        act = self.look().action(key)
        if act is not None:
            if act.args != ("once", arg):
                raise Refused("InvalidInputError")
            if act.ended:
                return act.result
            happened, result = seen or self._decided(act, policy, fates)
            if happened:
                self.record(replace(act, ended=True, result=result), fates)
                return result
        begun = self.record(Act(0, key, ("once", arg), next(numbers)), fates)
        value = does()
        self.record(replace(begun, ended=True, result=value), fates)
        return value

    def _decided(self, act: Act, policy: str, fates: Fates) -> tuple[bool, Any]:
        if policy == "fail":
            raise Refused("InFlightError")
        if policy == "retry":
            return False, None
        key = f"{act.key}?{act.tries}"
        return self._answer_to(Act(0, key, ("ask", key), next(numbers), prompt="?"), fates) is True, None

    def record(self, act: Act, fates: Fates) -> Act:
        """Commit that an action begins, once more if it did before, or how it ended."""

        def make(base: Life) -> tuple[Life, Act]:
            old = base.action(act.key)
            tries = 1 if old is None else old.tries + (not act.ended)
            new = base.with_action(replace(old or act, **{**vars(act), "tries": tries, **_number(old)}))
            made = new.action(act.key)
            assert made is not None
            return new, made

        return self.commit(make, fates)

    def wait(self, ask: Act, saved: Saved | None, fates: Fates) -> Any:
        """Return the answer to a question, which is asked if it was not yet."""
        self.check_open()
        self.become(fates)
        return self._answer_to(ask, fates, saved)

    def _answer_to(self, ask: Act, fates: Fates, saved: Saved | None = None) -> Any:
        act = self.reread().action(ask.key)
        if act is None:
            if ask.expires is not None:
                ask = replace(ask, asked=self.world.time())
            if saved is None:
                self.record(ask, fates)
            else:
                self.save(saved, fates, also=lambda life: life.with_action(ask))
            raise Waiting(ask.attempt)
        if act.args != ask.args:
            raise Refused("InvalidInputError")
        if act.ended and not act.expired:
            return act.result
        if not act.ended and saved is not None:
            self.save(saved, fates)
        if not act.ended and self.expired(act):
            self.adopt(self.world.amend(self.run, self._ended(act), fates))
            raise Waiting(act.attempt, "expired")
        raise Waiting(act.attempt, "expired" if act.expired else None)

    def _ended(self, act: Act) -> Callable[[Life], Life]:
        return lambda life: life.with_action(replace(act, ended=True, expired=True))

    def expired(self, act: Act) -> bool:
        """Whether it has, by the store's own clock, or did for the run."""
        if act.ended or act.expires is None or act.asked is None:
            return act.expired
        return (self.world.time() - act.asked).total_seconds() >= act.expires

    def wait_for(self, child: str, fates: Fates) -> Any:
        """Return the last state of another run, once it is done; None for one without a state."""
        if child == self.run:
            raise Refused("InvalidInputError")
        self.check_open()
        self.become(fates)
        act = self.look().action(f"run:{child}")
        other = self.world.get(child)
        if other is not None and (other.deleted or other.status == "done"):
            if act is not None and not act.ended:
                self.record(replace(act, ended=True, result="done"), fates)
            if other.deleted:
                raise Refused("RunDeletedError")
            return self.world.load(child, {})
        if act is None:
            act = self.record(
                Act(0, f"run:{child}", ("child", child), next(numbers), prompt="child", child=child), fates
            )
        raise Waiting(act.attempt)


def _number(old: Act | None) -> dict[str, int]:
    return {} if old is None else {"number": old.number}
