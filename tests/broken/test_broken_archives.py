"""Wrong variants of verification, repair and archives; each must fail the law that is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cloudckpt import archive_export, archive_import, repair, signing, tarball, verify
from cloudckpt.archive import Contents
from cloudckpt.archive_import import Importer
from cloudckpt.drafts import Draft
from cloudckpt.examine import Examination
from cloudckpt.pages import Pages
from cloudckpt.testing.faults import Effect
from tests.broken.caught import check_caught
from tests.protocol import (
    archived,
    test_archive,
    test_archive_changes,
    test_archive_import,
    test_edited_past,
    test_repair,
    test_verify,
)
from tests.protocol.archived import RUNS, exported
from tests.protocol.damaged import LONG, LongWorld
from tests.protocol.signers import KEYS
from tests.unit import test_signing

Patch = pytest.MonkeyPatch

long_world = archived.long_world
world = archived.world
archive = archived.archive


def holds(law: Callable[..., None], *args: Any) -> bool:
    """Say whether the law holds; a failure of any kind is one that the law's suite would show."""
    try:
        law(*args)
    except BaseException as error:  # pytest's own failures are no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        check_caught(error)
        print(f"broken: {error!r}"[:2000])
        return False
    return True


def test_the_right_ones_keep_the_laws(world: LongWorld, archive: bytes, monkeypatch: Patch) -> None:
    """Otherwise what follows proves nothing."""
    signed = exported(world.store, "gone", sign=KEYS[0])
    for law, args in (
        (
            test_verify.test_every_wrong_length_is_found_by_listing_and_every_wrong_byte_by_reading,
            (world, 12),
        ),
        (test_verify.test_damage_of_a_page_is_found_at_once_and_hides_nothing_else, (world,)),
        (test_verify.test_what_expires_meanwhile_is_not_taken_for_damage_and_what_is_damaged_is_told, ()),
        (test_edited_past.test_an_edit_of_the_past_is_found, (world, test_edited_past.second(step=99), EDIT)),
        (test_repair.test_a_save_that_comes_between_is_never_rolled_back, (world,)),
        (test_archive.test_a_run_that_is_written_to_meanwhile_is_archived_as_it_was_at_one_point, ()),
        (test_archive_changes.test_any_flipped_byte_of_a_small_archive_is_found_with_its_member, (signed,)),
        (test_archive_import.test_a_run_that_exists_is_never_overwritten, (world, archive)),
        (
            test_archive_import.test_the_token_of_a_lost_manifest_does_not_come_back_with_the_import,
            (archive,),
        ),
        (test_signing.test_a_signature_is_of_one_statement_by_one_key, ()),
        (CUT, (world, archive, Effect.CRASH_BEFORE, monkeypatch)),
    ):
        with world.restored():
            assert holds(law, *args), law


EDIT = {("chain", LONG - 1)}
CUT = test_archive_import.test_an_import_that_ends_anywhere_goes_on_where_it_stopped


def test_a_listing_without_lengths_misses_what_was_cut(world: LongWorld, monkeypatch: Patch) -> None:
    right = Examination._extent

    def there_is_enough(self: Examination, entry: Any, extent: Any) -> bool:
        return extent.key in (self._sizes or ()) or right(self, entry, extent)

    monkeypatch.setattr(Examination, "_extent", there_is_enough)
    law = test_verify.test_every_wrong_length_is_found_by_listing_and_every_wrong_byte_by_reading
    assert not holds(law, world, 12)


def test_a_verification_that_ends_at_the_first_damaged_page_hides_the_rest(
    world: LongWorld, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(verify.TolerantPages, "read", Pages.read)
    assert not holds(test_verify.test_damage_of_a_page_is_found_at_once_and_hides_nothing_else, world)


def test_without_a_second_look_what_expires_is_taken_for_damage(monkeypatch: Patch) -> None:
    async def never(*_: object) -> None:
        pass

    monkeypatch.setattr(verify, "_newer", never)
    law = test_verify.test_what_expires_meanwhile_is_not_taken_for_damage_and_what_is_damaged_is_told
    assert not holds(law)


def test_without_the_chain_an_edit_of_the_past_stays_unseen(world: LongWorld, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Examination, "_chain", lambda *_: None)
    assert not holds(
        test_edited_past.test_an_edit_of_the_past_is_found, world, test_edited_past.second(step=99), EDIT
    )


def test_a_repair_that_expects_nothing_rolls_a_newer_save_back(world: LongWorld, monkeypatch: Patch) -> None:
    monkeypatch.setattr(repair, "Draft", lambda expect, **rest: Draft(**rest))
    assert not holds(test_repair.test_a_save_that_comes_between_is_never_rolled_back, world)


def test_an_export_that_does_not_begin_again_fails_under_a_writer(monkeypatch: Patch) -> None:
    monkeypatch.setattr(archive_export, "REREADS", 0)
    assert not holds(test_archive.test_a_run_that_is_written_to_meanwhile_is_archived_as_it_was_at_one_point)


def test_an_export_without_the_ledger_lets_an_agent_do_again_what_it_did(
    world: LongWorld, monkeypatch: Patch
) -> None:
    async def forgotten(*_: object) -> None:
        pass

    monkeypatch.setattr(archive_export._ExportOfRun, "_ledger", forgotten)
    law = test_archive.test_what_is_imported_is_what_was_exported
    assert not holds(law, world, exported(world.store, *RUNS))


def test_a_reader_that_passes_over_padding_misses_changes(world: LongWorld, monkeypatch: Patch) -> None:
    def any_padding(self: tarball.TarReader) -> None:
        self._read(len(tarball.padding(self._at)), "somewhere")
        self._name, self._last = None, self._name

    monkeypatch.setattr(tarball.TarReader, "_padding", any_padding)
    signed = exported(world.store, "gone", sign=KEYS[0])
    assert not holds(
        test_archive_changes.test_any_flipped_byte_of_a_small_archive_is_found_with_its_member, signed
    )


def test_an_archive_without_a_look_at_the_index_may_lack_a_run(archive: bytes, monkeypatch: Patch) -> None:
    def believed(self: Contents, data: bytes) -> None:
        self._index = "seen"

    monkeypatch.setattr(Contents, "_check_index", believed)

    def other_order(parts: list[Any]) -> None:
        parts.insert(1, parts.pop(0))

    assert not holds(test_archive_changes.test_members_that_stand_otherwise_are_found, archive, other_order)


def test_an_import_that_writes_the_manifest_first_leaves_a_run_without_its_objects(
    world: LongWorld, archive: bytes, monkeypatch: Patch
) -> None:
    right_run, right_put = Importer._run, Importer._put

    async def later(self: Importer) -> None:
        pass

    async def manifest_first(self: Importer, item: Any) -> None:
        await right_run(self, item)
        await right_put(self)

    monkeypatch.setattr(archive_import, "PUTS_AT_ONCE", 1000)
    monkeypatch.setattr(Importer, "_put", later)
    monkeypatch.setattr(Importer, "_run", manifest_first)
    assert not holds(CUT, world, archive, Effect.CRASH_BEFORE, monkeypatch)


def test_an_import_that_puts_all_again_is_no_resumption(
    world: LongWorld, archive: bytes, monkeypatch: Patch
) -> None:
    async def nothing(*_: object) -> dict[str, int]:
        return {}

    monkeypatch.setattr(archive_import, "objects_in", nothing)
    assert not holds(CUT, world, archive, Effect.CRASH_BEFORE, monkeypatch)


def test_an_import_that_writes_over_what_stands_loses_a_run(
    world: LongWorld, archive: bytes, monkeypatch: Patch
) -> None:
    async def over(self: Importer, access: Any, manifest: Any, *, stands: bool) -> bool:
        base = await access.pointer.read()
        await access.pointer.swap(base, manifest, lambda _: True)
        return stands

    monkeypatch.setattr(Importer, "_create", over)
    assert not holds(test_archive_import.test_a_run_that_exists_is_never_overwritten, world, archive)


def test_an_import_of_the_very_bytes_brings_a_token_back(archive: bytes, monkeypatch: Patch) -> None:
    async def as_it_is(self: Importer, access: Any, manifest: Any, *, stands: bool) -> bool:
        await access.pointer.swap(None, manifest, lambda _: False)
        return stands

    monkeypatch.setattr(Importer, "_create", as_it_is)
    law = test_archive_import.test_the_token_of_a_lost_manifest_does_not_come_back_with_the_import
    assert not holds(law, archive)


def test_a_signature_that_does_not_say_of_what_passes_for_another(monkeypatch: Patch) -> None:
    monkeypatch.setattr(signing, "about_run", lambda run, seq, digest: {"digest": digest})
    monkeypatch.setattr(test_signing, "ABOUT", {"digest": "0" * 64})
    assert not holds(test_signing.test_a_signature_is_of_one_statement_by_one_key)
