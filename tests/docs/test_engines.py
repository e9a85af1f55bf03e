"""docs/engines.md: what it shows is complete, and its tests catch an engine that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cloudckpt import testing
from tests.docs.pages import ROOT, files, run_tests

PAGE = ROOT / "docs/engines.md"
FILES = files(PAGE)
ENGINE = FILES.get("sqlite_engine.py", "")
FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)

COMPARES = "WHERE key = ? AND token = ?"
FORGETS = "WHERE key = ? AND ? IS NOT NULL"
BROKEN = {
    "replaces without a comparison": (
        COMPARES,
        FORGETS,
        [
            "test_sqlite_engine.py::TestRunsInSqlite::test_a_second_writer_fences_the_first",
            "test_histories.py::test_one_order_explains_what_all_were_told",
        ],
    ),
    "creates what is there": (
        "INSERT OR IGNORE",
        "INSERT OR REPLACE",
        [
            "test_sqlite_engine.py::TestSqliteStorage::test_a_race_to_create_has_one_winner",
            "test_sqlite_engine.py::TestRunsInSqlite::test_threads_that_save_to_one_run_all_land",
        ],
    ),
    "has one token for ever": (
        "secrets.token_hex(8)",
        "'v1'",
        [
            "test_sqlite_engine.py::TestSqliteStorage::test_a_token_changes_with_the_bytes",
            "test_crashes.py::test_no_fault_at_any_call_loses_a_step",
        ],
    ),
    "does not commit": (
        "as db, db:",
        "as db:",
        [
            "test_sqlite_engine.py::TestSqliteStorage::test_a_put_value_is_read",
            "test_histories.py::test_one_order_explains_what_all_were_told",
        ],
    ),
    "lists one page": (
        "found[-1].key if len(found) == 1000 else None",
        "None",
        ["test_sqlite_engine.py::TestSqliteStorage::test_a_listing_is_complete_and_ascending_at_any_size"],
    ),
}


def test_the_page_has_an_engine_and_a_test_of_each_kind() -> None:
    """Else every test below would be content with an empty page."""
    assert {"sqlite_engine.py", "test_sqlite_engine.py", "test_crashes.py", "test_histories.py"} <= set(FILES)
    assert len([line for line in ENGINE.partition("class ")[2].splitlines() if line.strip()]) <= 45


@pytest.mark.parametrize("variant", BROKEN)
def test_a_wrong_engine_fails_the_tests_of_the_page(variant: str, tmp_path: Path) -> None:
    right, wrong, caught = BROKEN[variant]
    assert ENGINE.count(right) == 1
    assert caught
    done = run_tests(tmp_path, {**FILES, "sqlite_engine.py": ENGINE.replace(right, wrong)}, *caught)
    assert set(FAILED.findall(done.stdout)) == set(caught), done.stdout + done.stderr


def test_what_the_page_says_of_an_engine_that_forgets_to_compare_is_so(tmp_path: Path) -> None:
    broken = {**FILES, "sqlite_engine.py": ENGINE.replace(COMPARES, FORGETS)}
    done = run_tests(tmp_path, broken, "test_sqlite_engine.py", "-k", "Storage")
    assert FAILED.findall(done.stdout) == FAILED.findall(PAGE.read_text()) != [], done.stdout + done.stderr


def test_every_name_that_the_page_imports_is_public() -> None:
    for line in re.findall(r"^from cloudckpt\.testing import (.+)$", PAGE.read_text(), re.MULTILINE):
        assert {name.strip() for name in line.split(",")} <= set(testing.__all__)
