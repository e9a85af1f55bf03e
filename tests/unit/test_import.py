"""What an import costs: a serverless agent pays for it at each cold start."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = (
    *("asyncio", "concurrent.futures", "logging", "ssl", "socket", "http", "email", "urllib.request"),
    *("fsspec", "s3fs", "gcsfs", "adlfs", "obstore", "boto3", "botocore", "aiobotocore", "aiohttp"),
    *("click", "rich", "numpy", "pydantic", "msgspec", "attrs", "attr", "msgpack", "zstandard", "pytest"),
)


def loaded_by(code: str) -> set[str]:
    """Return which of `HEAVY` a fresh interpreter has after the code."""
    program = f"{code}\nimport json, sys; print(json.dumps([n for n in {HEAVY!r} if n in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{program}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(json.loads(done.stdout))


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
