"""checkov's rules for the three clouds; an exception stands beside what it excuses, with its reason.

checkov pins what the tests' environment has in other versions, so it has a folder of its own,
and runs there without the site-packages of anybody else.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.servers import fetched
from tests.servers.base import ROOT as PROJECT
from tests.servers.base import Unavailable
from tests.terraform import waiting

PACKAGE = "checkov==3.3.30"
"""Exactly: a newer one has newer rules, and a test should not change by itself."""

ROOT = PROJECT / "terraform"
CLOUDS = ("aws", "gcp", "azure")
SKIP = re.compile(r"^\s*#checkov:skip=(\w+):(.*)$", re.MULTILINE)


SECONDS = 900
"""For one run, which takes ten on an idle machine."""


@pytest.fixture(autouse=True)
def patient(pytestconfig):
    waiting.allow(pytestconfig, fetched.SECONDS + 2 * SECONDS)


@cache
def _installed() -> Path:
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    target = fetched.cache() / f"{PACKAGE.replace('==', '-')}-py{version}"
    if not target.exists():
        fetched.uv_install(PACKAGE, target, print)
    return target


def _failed(folder: Path) -> dict[str, set[str]]:
    """Return what checkov says of a folder: the ids of rules that failed, to the resources."""
    try:
        installed = _installed()
    except Unavailable as error:
        pytest.skip(f"no checkov: {error}")
    options = ["--framework", "terraform", "--skip-download", "--compact", "--quiet", "--output", "json"]
    done = subprocess.run(
        [sys.executable, "-S", "-m", "checkov.main", "--directory", str(folder), *options],
        env={**os.environ, "PYTHONPATH": str(installed), "BC_API_KEY": "", "LOG_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.stdout.lstrip().startswith("{"), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["passed"] > 0  # else it read nothing
    assert report["summary"]["parsing_errors"] == 0
    found: dict[str, set[str]] = {}
    for row in report["results"]["failed_checks"]:
        found.setdefault(row["check_id"], set()).add(f"{row['resource']} in {row['file_path']}")
    return found


def _copy(to: Path, *clouds: str) -> Path:
    for cloud in clouds:
        shutil.copytree(ROOT / cloud, to / cloud, ignore=shutil.ignore_patterns(".terraform*"))
    return to


def test_no_module_and_no_example_breaks_a_rule(tmp_path):
    assert _failed(_copy(tmp_path, *CLOUDS)) == {}


def test_an_exception_is_needed_and_says_why(tmp_path):
    """One that outlives its cause would excuse the next one."""
    folder = _copy(tmp_path, *CLOUDS)
    excused = set()
    for path in folder.rglob("*.tf"):
        text = path.read_text()
        for rule, why in SKIP.findall(text):
            assert len(why.split()) >= 4, f"{rule} in {path.name} gives no reason"
            excused.add(rule)
        path.write_text(SKIP.sub("", text))
    assert {*_failed(folder)} == excused


def test_a_rule_that_is_broken_is_found(tmp_path):
    main = _copy(tmp_path, "gcp") / "gcp" / "main.tf"
    text = main.read_text()
    broken = re.sub(r'(public_access_prevention\s*= )"enforced"', r'\1"inherited"', text)
    assert broken != text
    main.write_text(broken)
    assert "CKV_GCP_114" in _failed(tmp_path)
