"""The gauntlet's pure parts: where kills are aimed, what counts as wrong, what an effect is."""

from __future__ import annotations

import fcntl
import json
import threading
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cloudckpt.crashtest import Options, effect, run_gauntlet
from cloudckpt.crashtest.aims import AtCall, AtLine, AtTime, Line, Profile, every_call, random_aims
from cloudckpt.crashtest.effects import EFFECTS, Happened, read_effects
from cloudckpt.crashtest.lives import Fell, Life, Stay
from cloudckpt.crashtest.places import Saved
from cloudckpt.crashtest.points import NEVER, parse_point
from cloudckpt.crashtest.target import function_command
from cloudckpt.crashtest.verdict import MEANINGS, baseline, judge, kills_of
from cloudckpt.errors import InvalidInputError

# ---- aims

LINES = tuple(Line("agent.py", number, number % 3 + 1, number > 4) for number in range(1, 25))
PROFILE = Profile(LINES, calls=3)


def test_a_seed_gives_the_same_life_again_however_many_kills_are_left() -> None:
    """A failed life is replayed alone; were its aims those of a longer series, it would not fail."""
    for seed in range(50):
        aims = list(random_aims(seed, PROFILE))
        assert 1 <= len(aims) <= 3
        assert list(random_aims(seed, PROFILE)) == aims
        assert list(islice(random_aims(seed, PROFILE), 1)) == aims[:1]


@pytest.mark.parametrize("count", range(1, 21))
def test_lives_in_a_row_come_to_different_lines(count: int) -> None:
    """By chance alone, 20 kills would leave out seven of 20 lines, and the wrong one may be one of them."""
    profile = replace(PROFILE, lines=LINES[-count:])
    for start in (0, 123_456):
        aims = [next(random_aims(seed, profile)) for seed in range(start, start + count)]
        lines = [aim.line for aim in aims if isinstance(aim, AtLine)]
        assert len(set(lines)) == len(lines)
        assert count < 10 or len(lines) > count / 2


def test_an_aim_is_a_line_and_a_time_that_an_undisturbed_run_comes_to() -> None:
    counts = {line.number: line.count for line in LINES}
    for seed in range(300):
        for aim in random_aims(seed, PROFILE):
            if isinstance(aim, AtLine):
                assert 1 <= aim.count <= counts[aim.line]
            else:
                assert isinstance(aim, AtTime)
                assert 0 <= aim.share <= 1


def test_an_agent_whose_lines_are_not_seen_is_killed_by_time() -> None:
    aims = [aim for seed in range(20) for aim in random_aims(seed, replace(PROFILE, lines=()))]
    assert {type(aim) for aim in aims} == {AtTime}


def test_every_call_is_crashed_on_both_sides() -> None:
    found = list(every_call(PROFILE))
    assert found == [AtCall(n, when) for n in range(3) for when in ("before", "after")]
    assert [parse_point(str(point)) for point in found] == [(point.number, point.when) for point in found]
    assert parse_point(NEVER) is None


@pytest.mark.parametrize("text", ["", "7", "7:", "7:during", ":after", "-1:after", "x:before", "²:before"])
def test_a_crash_point_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="7:before"):
        parse_point(text)


# ---- effects


def test_an_effect_is_told_whole_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EFFECTS, str(tmp_path / "log"))
    assert read_effects(tmp_path / "log") == []
    assert effect("mailed", to="a\nb", size=3)
    assert effect("mailed", size=3, to="a\nb")
    first, second = read_effects(tmp_path / "log")
    assert first == second == Happened("mailed", None, '{"size": 3, "to": "a\\nb"}')


def test_elsewhere_nothing_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EFFECTS, raising=False)
    assert effect("mailed", key="k")


def test_of_all_that_use_one_key_one_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that ask at once must not both be told so: the other side would refuse one of them."""
    monkeypatch.setenv(EFFECTS, str(tmp_path / "log"))
    told: list[bool] = []
    ask = threading.Thread(target=lambda: told.append(effect("paid", key="invoice-1")))
    with open(tmp_path / "log", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # another process is about to write
        ask.start()
        ask.join(0.3)
        assert told == [], "it looked while somebody else was at it"
    ask.join()
    assert told == [True]
    assert not effect("paid", key="invoice-1")
    assert effect("paid", key="invoice-2")
    assert effect("refunded", key="invoice-1")
    assert len(read_effects(tmp_path / "log")) == 4


# ---- verdict


def stay(steps: str, effects: int = 0, **facts: Any) -> Stay:
    """Return a process that saved a state at each of these steps; a letter makes it another state."""
    saved = tuple(Saved("run", n + 1, int(each[0]), each) for n, each in enumerate(steps.split()))
    usual: dict[str, Any] = {
        "aim": None,
        "fell": None,
        "code": 0,
        "hung": False,
        "began": 0.0,
        "begun": 0.0,
        "ended": 1.0,
        "lost": 0.5,
        "working": True,
        "calls": 9,
        "output": "",
        "file": None,
        "said": "",
    }
    return Stay(**{**usual, "saved": saved, "effects": effects, **facts})


KILLED = {"code": None, "fell": Fell("agent.py:7", "work()", None)}
PAID, SENT = Happened("paid", "k", "{}"), Happened("sent", None, '{"to": "ann"}')
WHOLE = Life(0, "one", (stay("1 2 3 4", 2),), (PAID, SENT))
BASE = baseline(WHOLE, WHOLE, "four")


def wrong(
    *stays: Stay, effects: tuple[Happened, ...] = (PAID, SENT), result: str = "four", **how: Any
) -> list[str]:
    options = {"redo": 1, "doubled": False, **how}
    found = judge(BASE, Life(2, "two", stays, effects), result, **options)
    assert {problem.kind for problem in found} <= MEANINGS.keys()
    return [problem.kind for problem in found]


def test_a_life_that_went_on_where_it_was_is_right() -> None:
    assert wrong(stay("1 2 3 4")) == []
    assert wrong(stay("1 2", **KILLED), stay("3 4")) == []
    assert wrong(stay("", **KILLED), stay("1", **KILLED), stay("2 3 4")) == []
    assert wrong(stay("1 2 3 4", **KILLED), stay("")) == [], "all was done before the kill"


@pytest.mark.parametrize(
    ("stays", "kinds"),
    [
        ((stay("1 2 3", **KILLED), stay("3 4")), ["redone"]),
        ((stay("1 2", **KILLED), stay("4")), ["skipped"]),
        ((stay("1 2", **KILLED), stay("3x 4")), ["state"]),
        ((stay("1 2", **KILLED), stay("3 4x")), ["final-state", "state"]),
        ((stay("1 2", **KILLED), stay("3")), ["final-state"]),
        ((stay("", **KILLED), stay("")), ["runs"]),
        ((stay("1 2", **KILLED), stay("3", code=1, said="Oh\nno")), ["failed"]),
        ((stay("1 2", **KILLED), stay("3", code=None, hung=True)), ["hung"]),
    ],
)
def test_each_way_to_go_on_wrong_has_its_name(stays: tuple[Stay, ...], kinds: list[str]) -> None:
    assert wrong(*stays) == kinds


@pytest.mark.parametrize(
    ("effects", "kinds"),
    [
        ((PAID, PAID, SENT), []),
        ((PAID, SENT, SENT), ["effect-doubled"]),
        ((PAID,), ["effect-missing"]),
        ((SENT,), ["effect-missing"]),
        ((PAID, SENT, Happened("rung", None, "{}")), ["effect-other"]),
        ((PAID, SENT, Happened("paid", "k", '{"amount": 2}')), ["effect-other", "effect-other"]),
    ],
)
def test_an_effect_happens_once_and_a_retry_under_its_key_is_none(
    effects: tuple[Happened, ...], kinds: list[str]
) -> None:
    assert wrong(stay("1 2", **KILLED), stay("3 4"), effects=effects) == kinds


def test_what_is_allowed_is_not_wrong() -> None:
    assert wrong(stay("1 2 3", **KILLED), stay("3 4"), redo=2) == []
    assert wrong(stay("1 2 3 4"), effects=(PAID, SENT, SENT), doubled=True) == []
    assert wrong(stay("1 2 3 4"), result="five") == ["result"]


def test_what_differs_without_any_kill_is_not_compared() -> None:
    """A state with a time in it is never the same twice."""
    other = Life(1, "two", (stay("1 2y 3 4y", 2),), (PAID, SENT))
    base = baseline(WHOLE, other, "four")
    life = Life(2, "three", (stay("1 2z", **KILLED), stay("3 4z")), (PAID, SENT))
    assert judge(base, life, "four", redo=1, doubled=False) == []
    life = replace(life, stays=(stay("1x 2z", **KILLED), stay("3 4z")))
    assert [each.kind for each in judge(base, life, "four", redo=1, doubled=False)] == ["state"]


@pytest.mark.parametrize(
    ("before", "after", "redone"),
    [("1 4", "5 9", 1), ("1 4", "6 9", 1), ("1 4 6", "5 9", 2), ("1 4 9", "", 0)],
)
def test_a_step_that_undisturbed_lives_did_not_save_is_not_done_again(
    before: str, after: str, redone: int
) -> None:
    """Saves that are made behind an agent give way to newer ones: no two lives save the same steps."""
    base = baseline(Life(0, "one", (stay("1 4 9"),), ()), Life(1, "two", (stay("1 3 8 9"),), ()), "nine")
    life = Life(2, "three", (stay(before, **KILLED), stay(after)), ())
    assert [kill.redone for kill in kills_of(base, life)] == [redone]


def test_a_state_that_is_committed_again_at_the_end_is_one_state() -> None:
    """`save(state)` and then `finish(state)` are two checkpoints of one step."""
    ended = Life(0, "one", (stay("1 2 2"),), ())
    base = baseline(ended, ended, "two")
    assert base.tracks["run"].steps == (1, 2)
    after_the_save = Life(2, "three", (stay("1 2", **KILLED), stay("2")), ())
    assert [kill.redone for kill in kills_of(base, after_the_save)] == [0]


def test_states_without_a_step_are_known_by_their_bytes() -> None:
    def bare(life: Life) -> Life:
        bared = [
            replace(each, saved=tuple(replace(one, step=None) for one in each.saved)) for each in life.stays
        ]
        return replace(life, stays=tuple(bared))

    base = baseline(bare(WHOLE), bare(WHOLE), "four")
    right = Life(2, "two", (stay("1 2", **KILLED), stay("3 4")), (PAID, SENT))
    back = Life(3, "two", (stay("1 2 3", **KILLED), stay("2 3 4")), (PAID, SENT))
    other = Life(4, "two", (stay("1 2", **KILLED), stay("3x 4")), (PAID, SENT))
    found = [judge(base, bare(life), "four", redo=1, doubled=False) for life in (right, back, other)]
    assert [[each.kind for each in problems] for problems in found] == [[], ["redone"], ["state"]]


def test_a_kill_is_charged_with_what_came_after_it() -> None:
    life = Life(
        2, "two", (stay("1 2", 1, **KILLED), stay("2 3", 3, **KILLED), stay("4", 4)), (SENT, SENT, PAID, SENT)
    )
    assert [(kill.number, kill.redone, kill.doubled) for kill in kills_of(BASE, life)] == [
        (1, 2, 1),
        (2, 1, 1),
    ]
    idle = replace(life, stays=(stay("1 2", 1, working=False, **KILLED), stay("3 4")))
    assert [kill.redone for kill in kills_of(BASE, idle)] == [0], "the save had landed"


# ---- what can't be tried


@pytest.mark.parametrize(
    "options",
    [{"kills": -1}, {"redo": -1}, {"timeout": 0}, {"result": "last"}, {"bring": (Path("/no/such"),)}],
)
def test_options_that_are_not_usable_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Options(**options)


def test_a_store_that_ends_with_its_process_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="folder or a bucket"):
        run_gauntlet(["true"], Options(url="memory://x"))
    with pytest.raises(InvalidInputError, match="name the command"):
        run_gauntlet([])


def test_a_function_that_another_process_can_not_find_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="top of a file"):
        function_command(lambda: 1)
    with pytest.raises(InvalidInputError, match="JSON values"):
        function_command(stay, [object()])
    assert json.loads(function_command(stay, ["x"])[-1]) == ["x"]


def test_an_argument_that_is_too_long_to_be_a_name_is_passed_on(tmp_path: Path) -> None:
    """The demo's settings are one, and asking the file system for it is an error on Linux."""
    from cloudckpt.crashtest.machine import _placed

    argument = '{"job": "' + "x" * 300 + '"}'
    assert _placed(argument, tmp_path) == argument
