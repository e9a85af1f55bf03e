"""Rules of agents that do things once, and wait; and of those who answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from cloudckpt.acting import Happened
from cloudckpt.errors import CloudckptError
from tests.protocol.model import surface
from tests.protocol.model.frame import ASYNC, IDS, SYNC, Boom, Held, ats, fates, forms, outcome, plain, ways
from tests.protocol.model.working import WorkingRules
from tests.protocol.oracle import Act, Fate, Fates, Refused

PROMPTS = ("go?", "stop?")
SCHEMAS = (None, [1, 2], bool)
ANSWERS = (1, 2, True, "x")
NOBODYS = -1


def fits(act: Act, value: Any) -> bool:
    """Whether an answer is as a question asks for."""
    schema = bool if act.prompt == "?" else act.schema
    if schema is None:
        return True
    return type(value) is bool if schema is bool else type(value) is int and value in schema


class ActingRules(WorkingRules):
    """What is done once, and what is waited for."""

    @rule(
        at=ats,
        key=st.sampled_from(("pay-0", "pay-1", "q")),
        arg=st.integers(0, 1),
        policy=st.sampled_from(("fail", "retry", "ask")),
        seen=st.sampled_from((None, None, True, False)),
        ends=st.sampled_from(("well", "well", "large", "badly")),
        by=st.sampled_from(("once", "once", "step")),
        way=ways,
        chosen=fates,
    )
    def once(
        self,
        at: int,
        key: str,
        arg: int,
        policy: str,
        seen: bool | None,
        ends: str,
        by: str,
        way: str,
        chosen: tuple[Fate, ...],
    ) -> None:
        """However often it is asked for: as often as the oracle says, and no more."""
        self._once(
            self.a_run(at), key, arg, policy=policy, seen=seen, ends=ends, by=by, way=way, chosen=chosen
        )

    def _once(
        self,
        held: Held,
        key: str,
        arg: int,
        *,
        policy: str,
        seen: bool | None,
        ends: str,
        by: str = "once",
        way: str = SYNC,
        chosen: tuple[Fate, ...] = (),
    ) -> None:
        value = {"n": self.state(("plain", 0)).state["n"], "pad": b"\1\2\3" * (90 if ends == "large" else 1)}
        done: list[str] = []

        def does(who: str) -> Any:
            done.append(who)
            if ends == "badly":
                raise Boom
            return value

        async def aworks(_: int) -> Any:
            return does("product")

        def works(_: int) -> Any:
            return does("product")

        looked = Happened(value) if seen else None
        options: dict[str, Any] = {"policy": policy, "verify": None if seen is None else lambda _: looked}
        fn: Any = aworks if way == ASYNC else works

        def product() -> Any:
            if by == "once":
                return self.call(way, held.run, "once", key, fn, arg, **options)
            surface.note(held.run, "step")
            step = held.run.step(key=key, **options)(fn)
            return asyncio.run(step(arg)) if way == ASYNC else step(arg)

        told = self.both_or_overtaken(
            held,
            chosen,
            lambda fates: held.oracle.once(
                key,
                arg,
                fates,
                policy=policy,
                seen=None if seen is None else (seen, value if seen else None),
                does=lambda: does("oracle"),
            ),
            product,
        )
        assert done.count("product") == done.count("oracle")
        if told is not None:
            assert told[0] == told[1]
        self.figures["actions done"] += bool(done)

    def both_or_overtaken(
        self, held: Held, chosen: tuple[Fate, ...], oracle: Callable[[Fates], Any], call: Callable[[], Any]
    ) -> tuple[Any, Any] | None:
        """As `both`; whoever was overtaken may learn it from what it reads, or say it once more."""
        told, life = None, held.oracle.world.get(held.run.id)
        knows = held.oracle.base is not None or held.oracle.conflict is not None
        if life is None or not knows or not (life.deleted or life.epoch != held.oracle.epoch):
            return self.both(held.opened, chosen, oracle, call)
        held.opened.machine.arm()
        self.sound = False
        wanted, refusal = outcome(lambda: oracle(Fates()))
        try:
            told = call(), wanted
            assert refusal is None
        except (CloudckptError, Boom) as error:
            name = type(error).__name__
            if refusal is None or name not in getattr(refusal, "names", ("Boom",)):
                if name != ("RunDeletedError" if life.deleted else "FencedError"):
                    raise
                with contextlib.suppress(Refused):
                    held.oracle._check_ours(life)
        self.sound = True
        return told

    @rule(at=ats, times=st.integers(2, 5))
    def act_on_and_on(self, at: int, times: int) -> None:
        """Under keys of their own, as an agent does most of the time."""
        for _ in range(times):
            self._once(self.a_run(at), f"job-{self.count}", 0, policy="fail", seen=None, ends="well")
            self.all_is_as_the_oracle_says()

    @rule(at=ats, policy=st.sampled_from(("fail", "retry", "ask")), ends=st.sampled_from(("well", "badly")))
    def act_again(self, at: int, policy: str, ends: str) -> None:
        """Under the same key, after it was done or cut off, as a run does that was resumed."""
        key = f"again-{self.count}"
        for end in (ends, "well"):
            self._once(self.a_run(at), key, 0, policy=policy, seen=None, ends=end)
            self.all_is_as_the_oracle_says()

    @rule(at=ats, way=ways, limit=st.none() | st.integers(1, 4))
    def actions(self, at: int, way: str, limit: int | None) -> None:
        held = self.a_run(at)
        told = self.both(
            held.opened,
            (),
            lambda _: held.oracle.world.existing(held.run.id).actions,
            lambda: (
                self.call(way, held.run, "actions", limit=limit),
                self.call(way, held.run, "in_flight"),
                self.call(way, held.run, "questions"),
            ),
        )
        if told is None:
            return
        (listed, in_flight, questions), acts = told
        newest = acts[::-1][:limit]
        assert [(one.number, one.tries, one.by, one.ended is not None) for one in listed] == [
            (act.number, act.tries, act.by, act.ended) for act in newest
        ]
        named = [(one.key, act.key) for one, act in zip(listed, newest, strict=True)]
        assert all(one == act or act.startswith("ask:") for one, act in named)
        begun = [act for act in acts if not act.ended and act.prompt is None]
        assert [(one.key, one.tries) for one in in_flight] == [(act.key, act.tries) for act in begun]
        open_ = [act for act in acts if not act.ended and act.prompt is not None]
        assert len(questions) == len(open_)
        for one, act in zip(questions, open_, strict=True):
            self.is_token(act.attempt, one.token)
            assert one.child == act.child
            assert one.prompt == act.prompt or act.prompt in ("?", "child")
            left = one.expires and (one.expires - one.asked).total_seconds()
            assert left == act.expires
            assert act.asked in (None, one.asked)

    @rule(
        at=ats,
        prompt=st.sampled_from(PROMPTS),
        key=st.sampled_from((None, None, "q", "pay-1")),
        form=st.none() | forms,
        schema=st.integers(0, 2),
        expires=st.sampled_from((None, None, 3600.0)),
        way=ways,
        chosen=fates,
    )
    def wait(
        self,
        at: int,
        prompt: str,
        key: str | None,
        form: tuple[str, int] | None,
        schema: int,
        expires: float | None,
        way: str,
        chosen: tuple[Fate, ...],
    ) -> None:
        held = self.a_run(at)
        saved = None if form is None else self.state(form)
        self.count += 1
        ask = Act(
            0,
            key or f"ask:{prompt}",
            ("ask", prompt),
            -1 - self.count,
            prompt=prompt,
            schema=SCHEMAS[schema],
            expires=expires,
        )
        told = self.both(
            held.opened,
            chosen,
            lambda fates: held.oracle.wait(ask, saved, fates),
            lambda: self.call(
                way,
                held.run,
                "wait",
                prompt,
                key=key,
                state=saved and saved.state,
                schema=SCHEMAS[schema],
                expires=expires,
            ),
        )
        if told is not None:
            assert told[0] == told[1]

    @rule(
        at=ats,
        value=st.sampled_from(ANSWERS),
        schema=st.integers(0, 2),
        expires=st.sampled_from((None, 3600.0)),
        late=st.booleans(),
    )
    def wait_until_it_is_answered(
        self, at: int, value: Any, schema: int, expires: float | None, late: bool
    ) -> None:
        """As an agent does most of the time; and by two people, of whom the first that fits counts."""
        options = {"key": f"ask-{self.count}", "form": None, "schema": schema, "expires": expires}
        for turn in range(3):
            self.wait(at, PROMPTS[0], **options, way=SYNC, chosen=())
            self.all_is_as_the_oracle_says()
            if turn < 2:
                self.seconds += 3600 * late
                self.answer(at, 0, (value, ANSWERS[0])[turn], SYNC, ())

    @rule(at=ats, pick=ats, value=st.sampled_from(ANSWERS), way=ways, chosen=fates)
    def answer(self, at: int, pick: int, value: Any, way: str, chosen: tuple[Fate, ...]) -> None:
        """On any machine, whether it writes the run or not; and once."""
        held = self.a_run(at)
        asked = [act for act in held.oracle.life.actions if act.prompt and act.attempt in self.tokens]
        attempt = asked[-1 - pick % len(asked)].attempt if asked and pick < 50 else NOBODYS
        token = self.tokens.get(attempt, "nobody's")
        told = self.both(
            held.opened,
            chosen,
            lambda fates: held.oracle.answer(attempt, value, "me", lambda act: fits(act, value), fates),
            lambda: self.call(way, held.run, "answer", token, value, by="me"),
        )
        if told is not None:
            assert told[0].token == token
            self.figures["questions answered"] += 1

    @rule(at=ats, child=st.sampled_from(IDS), way=ways, chosen=fates)
    def wait_for(self, at: int, child: str, way: str, chosen: tuple[Fate, ...]) -> None:
        held = self.a_run(at)

        def oracle(fates: Fates) -> Any:
            return self.seen(held.oracle.wait_for(child, fates))

        told = self.both_or_overtaken(
            held, chosen, oracle, lambda: self.call(way, held.run, "wait_for", child)
        )
        if told is not None:
            assert plain(told[0]) == told[1]
