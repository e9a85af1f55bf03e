"""What an import costs: a serverless agent pays for it at each cold start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import cloudckpt
from cloudckpt.codec import Redacted, encode

HEAVY = (
    *("asyncio", "concurrent.futures", "logging", "ssl", "socket", "http", "email", "urllib.request"),
    *("fsspec", "s3fs", "gcsfs", "adlfs", "obstore", "boto3", "botocore", "aiobotocore", "aiohttp"),
    *("click", "rich", "numpy", "pydantic", "msgspec", "attrs", "attr", "msgpack", "zstandard", "pytest"),
)


def loaded_by(code: str, names: tuple[str, ...] = HEAVY) -> set[str]:
    """Return which of the modules a fresh interpreter has after the code."""
    program = f"{code}\nimport json, sys; print(json.dumps([n for n in {names!r} if n in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{program}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(json.loads(done.stdout))


UNUSED_BY_A_LOAD = (
    *("asyncio", "concurrent.futures", "logging", "ssl", "socket", "getpass", "pickle"),
    *("cloudckpt.codec.encoding", "cloudckpt.codec.reading", "cloudckpt.codec.redaction"),
    *(
        "cloudckpt.commit",
        "cloudckpt.drafts",
        "cloudckpt.collect",
        "cloudckpt.curate",
        "cloudckpt.storage.probe",
    ),
)


def test_the_package_imports_nothing_heavy() -> None:
    assert loaded_by("import cloudckpt") == set()


def test_an_error_is_caught_without_an_engine() -> None:
    assert loaded_by("from cloudckpt import FencedError, StorageError") == set()


@pytest.mark.parametrize("url", ["memory://x", "/tmp/never-written"])
def test_a_store_in_memory_or_a_folder_needs_no_engine_of_others(url: str) -> None:
    code = f"import cloudckpt; cloudckpt.open({url!r}).run('r').load()"
    assert not loaded_by(code) & {
        *("fsspec", "s3fs", "botocore", "aiohttp", "click", "rich", "numpy", "pydantic", "msgspec", "attr"),
        "pytest",
    }


def test_a_load_by_an_engine_that_blocks_needs_no_loop_and_nothing_that_saves(tmp_path: Path) -> None:
    """It is all that a process does before it goes on, and asyncio alone is half of a cold start."""
    cloudckpt.open(tmp_path).run("r").save({"step": 1})
    code = f"import cloudckpt; assert cloudckpt.open({str(tmp_path)!r}).run('r').load() == {{'step': 1}}"
    assert loaded_by(code, UNUSED_BY_A_LOAD) == set()


def test_a_process_that_only_decodes_knows_what_was_redacted() -> None:
    """Its class is registered by a module that a load of plain values does without."""
    data = encode(Redacted).data
    loaded_by(f"from cloudckpt.codec import decode; assert repr(decode({data!r})) == 'Redacted'")
