"""Every Python block of README.md and docs/ compiles, and the complete ones run.

An example runs in a process of its own and in an empty folder, as a reader would run
it; the files of a page stand in one folder, and those that are tests are run there.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks, files, run, run_tests

WITH_TESTS = [page for page in PAGES if any(name.startswith("test_") for name in files(page))]


@pytest.mark.parametrize("block", [block for page in PAGES for block in blocks(page)], ids=str)
def test_an_example_works_as_it_stands(block: Block, tmp_path: Path) -> None:
    """Examples rot first: a renamed argument breaks no unit test, only the reader's day."""
    compile(block.code, "<example>", "exec")
    if block.kind == "example":
        done = run(tmp_path, "-c", block.code)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", WITH_TESTS, ids=lambda page: page.name)
def test_the_tests_that_a_page_shows_pass(page: Path, tmp_path: Path) -> None:
    done = run_tests(tmp_path, files(page))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_the_readme_has_a_complete_example() -> None:
    """Without it the test above would pass on a README whose examples nobody runs."""
    assert "<!-- example: loop -->" in (ROOT / "README.md").read_text()


def test_a_link_in_the_docs_leads_somewhere() -> None:
    """A page that was moved leaves its readers behind."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
