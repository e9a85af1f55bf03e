"""Wrong variants of what is done beside saving and loading; each must disagree with `test_model.py`'s oracle.

Those of operators, of what is done once and of what is waited for; in whole sequences of calls,
as nobody would write them down. That the right one agrees is what that test says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from cloudckpt import (
    access,
    archive_import,
    asking,
    collect,
    commit,
    copying,
    curate,
    history,
    keeping,
    keys,
    leases,
    making,
    questions,
    retention,
)
from cloudckpt.commit import RunWriter
from cloudckpt.core import Core
from cloudckpt.drafts import Again, Draft
from cloudckpt.keeping import Keeping
from cloudckpt.model import Entry, Manifest
from cloudckpt.run import Run
from cloudckpt.store import Store
from cloudckpt.twins import awaited, waits
from tests.broken.test_broken_model import agrees

Patch = pytest.MonkeyPatch


def patch_both(monkeypatch: Patch, cls: type, name: str, wrong: Any) -> None:
    """Put a wrong coroutine in the place of a method and its twin."""
    monkeypatch.setattr(cls, name, waits(wrong))
    monkeypatch.setattr(cls, f"a{name}", awaited(wrong))


# ---- what is said of checkpoints


def test_a_hold_that_does_not_hold_against_the_rules(monkeypatch: Patch) -> None:
    right = retention.Planner.why

    def why(self: Any, entry: Entry) -> str | None:
        return right(self, replace(entry, hold=None))

    monkeypatch.setattr(retention.Planner, "why", why)
    assert not agrees()


def test_a_hold_of_the_run_that_does_not_hold_against_deletion(monkeypatch: Patch) -> None:
    async def nothing(*_: Any) -> None: ...

    monkeypatch.setattr(collect, "check_not_held", nothing)
    assert not agrees()


def test_a_second_hold_takes_the_place_of_the_first(monkeypatch: Patch) -> None:
    monkeypatch.setattr(curate, "held", lambda hold: lambda entry: replace(entry, hold=hold))
    assert not agrees()


def test_a_tag_on_another_checkpoint(monkeypatch: Patch) -> None:
    right = access.Access.edited

    async def edited(self: Any, manifest: Manifest, seq: int, change: Any) -> Any:
        older = max((entry.seq for entry in manifest.checkpoints if entry.seq < seq), default=seq)
        return await right(self, manifest, older, change)

    monkeypatch.setattr(access.Access, "edited", edited)
    assert not agrees()


def test_the_older_of_two_with_a_tag_is_found(monkeypatch: Patch) -> None:
    right = history.find

    async def find(pages: Any, manifest: Manifest, is_it: Any, may_be_in: Any) -> Any:
        found = [entry for entry in manifest.checkpoints if is_it(entry)]
        return found[-1] if found else await right(pages, manifest, is_it, may_be_in)

    monkeypatch.setattr(history, "find", find)
    assert not agrees()


def test_a_history_until_a_time_has_those_of_that_time(monkeypatch: Patch) -> None:
    right = history.Filter.holds

    def holds(self: Any, entry: Entry) -> bool:
        return right(self, entry) or (entry.time == self.until and right(replace(self, until=None), entry))

    monkeypatch.setattr(history.Filter, "holds", holds)
    assert not agrees()


def test_pages_that_may_hold_a_tag_are_passed_over(monkeypatch: Patch) -> None:
    monkeypatch.setattr(history.Which, "may_be_in", lambda self, page: self.tag is None and bool(page.count))
    assert not agrees()


# ---- rules, and going back


def test_retaining_drops_one_too_many(monkeypatch: Patch) -> None:
    right = curate.plan_expiry

    def plan(found: Any, **options: Any) -> Any:
        plan = right(found, **options)
        return replace(plan, kept=plan.kept[:-1]) if len(plan.kept) > 2 else plan

    monkeypatch.setattr(curate, "plan_expiry", plan)
    assert not agrees()


def test_a_dry_run_of_rules_sets_them(monkeypatch: Patch) -> None:
    right = Run._retain

    async def retain(self: Run, rules: Any = None, *, default: bool = False, dry_run: bool = False) -> Any:
        assert dry_run in (True, False)
        return await right(self, rules, default=default)

    patch_both(monkeypatch, Run, "retain", retain)
    assert not agrees()


def test_the_code_takes_the_place_of_an_operators_rules(monkeypatch: Patch) -> None:
    def settled(own: Any, code: Any, store: Any) -> Any:
        return retention.set_by("code", code) if code else retention.settled(own, code, store)

    monkeypatch.setattr(commit, "settled", settled)
    assert not agrees()


def test_runs_begin_with_the_rules_that_their_store_once_had(monkeypatch: Patch) -> None:
    right, first = Core.prepare, WeakKeyDictionary[Core, Any]()

    async def prepare(self: Core) -> Any:
        if self not in first:
            first[self] = await right(self)
        return first[self]

    monkeypatch.setattr(Core, "prepare", prepare)
    assert not agrees()


def test_a_rollback_keeps_the_newest_state(monkeypatch: Patch) -> None:
    right = making.Maker._again

    async def again(self: Any, manifest: Manifest, draft: Draft, seq: int) -> Entry:
        assert isinstance(draft.state, Again)
        await right(self, manifest, draft, seq)
        return await right(self, manifest, draft, manifest.seq)

    monkeypatch.setattr(making.Maker, "_again", again)
    assert not agrees()


def test_a_rollback_fences_nobody(monkeypatch: Patch) -> None:
    """The run's newest manifest is taken for one's own."""
    right = Run._rollback

    async def rollback(self: Run, **options: Any) -> Any:
        writer = self._writer
        if writer is not None and writer.is_writer:
            writer._epoch = (await writer.newest()).manifest.epoch
        return await right(self, **options)

    patch_both(monkeypatch, Run, "rollback", rollback)
    assert not agrees()


# ---- runs as a whole


def test_collecting_takes_pages_of_history(monkeypatch: Patch) -> None:
    right = collect.every_key

    async def every_key(*arguments: Any) -> dict[str, int]:
        return {key: size for key, size in (await right(*arguments)).items() if not keys.is_page(key)}

    monkeypatch.setattr(collect, "every_key", every_key)
    assert not agrees()


def test_collecting_without_a_fence(monkeypatch: Patch) -> None:
    """What a writer made ready aside is taken from under it."""
    monkeypatch.setattr(collect, "Edit", lambda _: None)
    assert not agrees()


def test_deleting_lets_the_id_begin_anew(monkeypatch: Patch) -> None:
    right = Keeping._delete

    async def delete(self: Store, run_id: str, **options: Any) -> Any:
        gone = await right(self, run_id, **options)
        if not options.get("dry_run"):
            await self._core.storage.delete([keys.manifest_key(run_id)])
        return gone

    patch_both(monkeypatch, Store, "delete", delete)
    assert not agrees()


def test_a_fork_shares_the_objects(monkeypatch: Patch) -> None:
    plain_load, plain_new = keeping.load, making.Maker._new
    shared: dict[str, Entry] = {}

    async def load(storage: Any, effects: Any, run_id: str, **options: Any) -> Any:
        loaded = await plain_load(storage, effects, run_id, **options)
        if loaded is not None:
            shared[run_id] = loaded.entry
        return loaded

    async def new(self: Any, manifest: Manifest, draft: Draft, encoded: Any) -> Entry:
        entry = await plain_new(self, manifest, draft, encoded)
        return entry if draft.origin is None else replace(entry, extents=shared[draft.origin.run].extents)

    monkeypatch.setattr(keeping, "load", load)
    monkeypatch.setattr(making.Maker, "_new", new)
    assert not agrees()


def test_a_fork_onto_a_run_that_has_a_past(monkeypatch: Patch) -> None:
    right = Keeping._begin

    async def begin(self: Any, run_id: str, draft: Draft) -> Any:
        return await right(self, run_id, replace(draft, expect=None))

    monkeypatch.setattr(Keeping, "_begin", begin)
    assert not agrees()


def test_a_copy_forgets_notes(monkeypatch: Patch) -> None:
    right = copying.as_copy

    def as_copy(manifest: Manifest, *arguments: Any) -> Manifest:
        entries = tuple(replace(entry, notes={}) for entry in manifest.checkpoints)
        return right(replace(manifest, checkpoints=entries), *arguments)

    monkeypatch.setattr(copying, "as_copy", as_copy)
    assert not agrees()


def test_a_copy_takes_the_place_of_a_run_that_has_a_writer(monkeypatch: Patch) -> None:
    monkeypatch.setattr(copying, "_check_copy", lambda *_: None)
    assert not agrees()


def test_an_import_takes_the_place_of_another_run(monkeypatch: Patch) -> None:
    async def create(_: Any, access: Any, manifest: Manifest, **__: Any) -> bool:
        base = await access.pointer.read()
        await access.pointer.swap(base, replace(manifest, nonce=access.effects.new_id()), lambda _: False)
        return False

    monkeypatch.setattr(archive_import.Importer, "_create", create)
    assert not agrees()


# ---- once, and waiting


def test_what_was_done_is_done_again(monkeypatch: Patch) -> None:
    right = Run._found

    async def found(self: Run, call: Any) -> Any:
        was = await right(self, call)
        return None if call.known else was

    monkeypatch.setattr(Run, "_found", found)
    assert not agrees()


def test_old_actions_are_forgotten(monkeypatch: Patch) -> None:
    async def shortened(_: Any, manifest: Manifest, __: Any) -> Manifest:
        return replace(manifest, actions=manifest.actions[:4])

    monkeypatch.setattr(making, "shortened", shortened)
    assert not agrees()


def test_what_is_in_flight_is_done_again(monkeypatch: Patch) -> None:
    async def decided(*_: Any) -> None: ...

    monkeypatch.setattr(Run, "_decided", decided)
    assert not agrees()


def test_an_answer_counts_twice(monkeypatch: Patch) -> None:
    right = Run._answer

    async def answer(self: Run, token: str, value: object, *, by: str | None = None) -> Any:
        async def forget(manifest: Manifest) -> Any:
            actions = tuple(
                replace(one, ended=None, result=None) if one.attempt == token else one
                for one in manifest.actions
            )
            changed = actions != manifest.actions
            return access.Edit(replace(manifest, actions=actions)) if changed else None

        await self.access.amend(forget)
        return await right(self, token, value, by=by)

    patch_both(monkeypatch, Run, "answer", answer)
    assert not agrees()


def test_an_answer_is_taken_whatever_was_asked_for(monkeypatch: Patch) -> None:
    monkeypatch.setattr(asking, "check_answer", lambda *_: None)
    assert not agrees()


def test_a_question_never_expires(monkeypatch: Patch) -> None:
    async def expired(*_: Any) -> bool:
        return False

    monkeypatch.setattr(questions, "has_expired", expired)
    assert not agrees()


def test_a_state_that_waits_is_not_saved(monkeypatch: Patch) -> None:
    right = Run._asked

    async def asked(self: Run, ask: Any, _: Any) -> Any:
        return await right(self, ask, None)

    monkeypatch.setattr(Run, "_asked", asked)
    assert not agrees()


def test_a_run_that_has_ended_once_has_ended_for_good(monkeypatch: Patch) -> None:
    right = making.Maker.next

    async def next_(self: Any, manifest: Manifest, draft: Draft) -> Any:
        made = await right(self, manifest, draft)
        return replace(made, manifest=replace(made.manifest, status="done")) if _ended(manifest) else made

    monkeypatch.setattr(making.Maker, "next", next_)
    assert not agrees()


def _ended(manifest: Manifest) -> bool:
    return manifest.status == "done"


def test_a_lease_keeps_nobody_off(monkeypatch: Patch) -> None:
    monkeypatch.setattr(leases.Sightings, "left", lambda *_: 0.0)
    assert not agrees()


def test_a_lease_that_was_ended_is_kept(monkeypatch: Patch) -> None:
    async def release(_: RunWriter) -> None: ...

    monkeypatch.setattr(RunWriter, "release", release)
    assert not agrees()


def test_a_repair_of_what_is_whole_becomes_the_writer(monkeypatch: Patch) -> None:
    right = Run._repair

    async def repair(self: Run, **options: Any) -> Any:
        told = await right(self, **options)
        await self._claimed().become()
        return told

    patch_both(monkeypatch, Run, "repair", repair)
    assert not agrees()
