"""`cloudckpt forget` and `cloudckpt restore`, as a person and as a script use them."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import cloudckpt
from cloudckpt import keys
from cloudckpt.cli import frame
from cloudckpt.cli.commands import cli
from cloudckpt.sealed import unseal
from cloudckpt.storage.memory import MemoryStorage
from tests.servers.base import Server

BODY = random.Random(0).randbytes(50_000)
_names = itertools.count()


@pytest.fixture
def url(tmp_path: Path) -> str:
    with cloudckpt.open(tmp_path / "store", keep_last=2) as store, store.run("nightly") as run:
        for step in range(3):
            run.save({"step": step, "image": BODY})
    return str(tmp_path / "store")


def call(*arguments: str, answer: str | None = None, options: Any = None) -> Result:
    more = ["--storage-options", json.dumps(options)] if options else []
    return CliRunner().invoke(cli, [*arguments, *more], input=answer)


def test_a_dry_run_counts_and_erases_nothing(url: str) -> None:
    done = call("forget", "nightly", "--store", url, "--why", "asked", "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert plan["dry_run"] is True
    assert plan["erased"]["values"] == 2
    assert plan["erased"]["bytes"] > 2 * len(BODY)
    assert cloudckpt.open(url).run("nightly").load() is not None


def test_it_asks_before_it_destroys(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("forget", "nightly", "--store", url, "--why", "asked")
    nobody = call(*arguments)
    assert nobody.exit_code == 2
    assert "--yes" in nobody.stderr
    monkeypatch.setattr(frame, "somebody_answers", lambda: True)
    no = call(*arguments, answer="n\n")
    assert no.exit_code == 1
    assert "2 values" in no.stderr
    assert cloudckpt.open(url).run("nightly").load() is not None
    yes = call(*arguments, answer="y\n")
    assert yes.exit_code == 0, yes.output
    assert not [path for path in Path(url, "objects").rglob("*") if path.is_file()]


def test_a_script_gets_the_receipt_and_a_sealed_file(url: str, tmp_path: Path) -> None:
    receipt = tmp_path / "receipt.json"
    more = ("--by", "clerk", "--yes", "--json", "--receipt", str(receipt))
    done = call("forget", "nightly", "--store", url, "--why", "asked", *more)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told == unseal(receipt.read_bytes())
    assert (told["complete"], told["why"], told["by"]) == (True, "asked", "clerk")
    assert len(told["erased"]["rows"]) == 2


def test_a_receipt_that_can_not_be_written_is_not_lost(url: str, tmp_path: Path) -> None:
    """The run is erased by then: nothing could make it again."""
    done = call(
        "forget",
        "nightly",
        "--store",
        url,
        "--why",
        "asked",
        "--yes",
        "--receipt",
        str(tmp_path / "no" / "r"),
    )
    assert done.exit_code == 1
    assert "could not be written" in done.stderr
    assert unseal(done.stdout.strip().encode())["complete"] is True


def test_no_receipt_takes_the_place_of_another(url: str, tmp_path: Path) -> None:
    """The second tells that it erased nothing: what the first did was told nowhere any more."""
    receipt = tmp_path / "receipt.json"
    how = ("forget", "nightly", "--store", url, "--why", "asked", "--receipt", str(receipt))
    assert call(*how, "--dry-run").exit_code == 0
    assert not receipt.exists()
    assert call(*how, "--yes").exit_code == 0
    first = receipt.read_bytes()
    again = call(*how, "--yes")
    assert (again.exit_code, "there is a file" in again.stderr) == (2, True)
    assert call(*how, "--dry-run").exit_code == 0
    assert receipt.read_bytes() == first
    assert len(unseal(first)["erased"]["rows"]) == 2


def test_a_receipt_may_go_into_a_device(url: str) -> None:
    done = call("forget", "nightly", "--store", url, "--why", "asked", "--yes", "--receipt", os.devnull)
    assert done.exit_code == 0, done.output
    assert not Path(os.devnull).is_file()


def test_a_pipe_gets_a_line_a_field(url: str) -> None:
    done = call("forget", "nightly", "--store", url, "--why", "asked", "--yes")
    lines = dict(line.split("\t") for line in done.stdout.splitlines())
    assert lines["run"] == "nightly"
    assert (lines["values"], lines["left"], lines["complete"]) == ("2", "0", "yes")


def test_a_reason_is_asked_for(url: str) -> None:
    done = call("forget", "nightly", "--store", url, "--yes")
    assert done.exit_code == 2
    assert "--why" in done.stderr


def test_a_hold_is_an_answer_no_and_is_named(url: str) -> None:
    cloudckpt.open(url).run("nightly").hold("a lawsuit", by="the lawyer", whole=True)
    done = call("forget", "nightly", "--store", url, "--why", "asked", "--yes")
    assert done.exit_code == 1
    assert "the lawyer" in done.stderr
    assert "a lawsuit" in done.stderr
    assert cloudckpt.open(url).run("nightly").load() is not None


def test_a_near_miss_is_suggested(url: str) -> None:
    done = call("forget", "nigthly", "--store", url, "--why", "asked", "--yes")
    assert done.exit_code == 3
    assert "did you mean 'nightly'?" in done.stderr


def test_what_stays_is_named_and_the_answer_is_no(minio_server: Server) -> None:
    options, bucket = (
        minio_server.storage_options(),
        f"cli-{next(_names)}-{random.SystemRandom().randrange(10**9)}",
    )
    minio_server.client().create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    with cloudckpt.open(f"s3://{bucket}", storage_options=options, lock="governance:3d") as store:
        store.run("nightly").save({"step": 1})
    arguments = ("forget", "nightly", "--store", f"s3://{bucket}", "--why", "asked", "--yes")
    done = call(*arguments, options=options)
    assert done.exit_code == 1
    assert "stays: objects/nightly/1-" in done.stderr
    assert "object lock (governance) keeps it, until " in done.stderr
    assert "complete\tno" in done.stdout


# ---- restore


def test_what_can_be_read_is_told_so(url: str) -> None:
    done = call("restore", "nightly@2", "--store", url, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["run"], told["seq"], told["ready"]) == ("nightly", 2, True)
    assert [one["state"] for one in told["objects"]] == ["warm"]


def test_glacier_is_asked_for(moto_server: Server) -> None:
    options, url = (
        moto_server.storage_options(),
        f"{moto_server.url}/cli-{next(_names)}-{random.SystemRandom().random()}",
    )
    with cloudckpt.open(url, storage_options=options, storage_class="GLACIER") as store:
        store.run("nightly").save({"image": BODY})
        refused = call("cat", "nightly", "--store", url, options=options)
        assert refused.exit_code == 4
        assert "cloudckpt restore RUN@1" in refused.stderr
        done = call(
            "restore", "nightly@1", "--days", "2", "--tier", "bulk", "--wait", "--store", url, options=options
        )
        assert done.exit_code == 0, done.output
        assert "nightly@1 can be read" in done.stderr
        assert done.stdout.split("\t")[:2] == ["1", "warm"]
        assert store.run("nightly").load() == {"image": BODY}


def test_as_long_as_it_is_cold_the_answer_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that `cloudckpt restore ... && cloudckpt cat ...` reads nothing too early."""
    from cloudckpt.storage.cold import Warmth

    name = f"cli-cold-{next(_names)}"
    cloudckpt.open(f"memory://{name}").run("r").save({"image": BODY})

    async def warmth(_self: object, key: str) -> Warmth:
        return Warmth.COMING if keys.OBJECTS in key else Warmth.WARM

    async def rewarm(_self: object, _key: str, **_: object) -> None:
        pass

    monkeypatch.setattr(MemoryStorage, "warmth", warmth, raising=False)
    monkeypatch.setattr(MemoryStorage, "rewarm", rewarm, raising=False)
    done = call("restore", "r", "--store", f"memory://{name}")
    assert done.exit_code == 1
    assert "\tcoming\t" in done.stdout or done.stdout.split("\t")[1] == "coming"


def test_a_tier_that_is_none_is_refused(url: str) -> None:
    done = call("restore", "nightly", "--tier", "soon", "--store", url)
    assert done.exit_code == 2
    assert "expedited" in done.stderr
