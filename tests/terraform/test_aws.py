"""The AWS module by Terraform itself: its form, its plans, and a bucket that it makes and takes away."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.servers.base import ROOT, Server
from tests.terraform.tools import Terraform, found

MODULE = "terraform/aws"
APPLIED = "tests/terraform/root"
EXAMPLES = sorted(f"{MODULE}/examples/{each.name}" for each in (ROOT / MODULE / "examples").iterdir())
PLANS = sorted(f"tests/{each.name}" for each in (ROOT / MODULE / "tests").glob("*.tftest.hcl"))
CLI = ("-c", "from cloudckpt.cli import main; main()")


# ---- without a bucket


@pytest.mark.parametrize("folder", ["terraform", APPLIED])
def test_the_modules_are_written_as_the_formatter_writes_them(terraform: Terraform, folder: str) -> None:
    done = terraform(folder, "fmt", "-check", "-diff", "-recursive", "-no-color")
    assert done.code == 0, done.shown


@pytest.mark.parametrize("folder", [MODULE, APPLIED, *EXAMPLES])
def test_a_module_and_each_example_are_valid_by_the_provider_itself(
    terraform: Terraform, folder: str
) -> None:
    """Also without a warning: what is deprecated today is gone in the next version of the range."""
    terraform.init(folder)
    told = json.loads(terraform(folder, "validate", "-json").shown)
    assert (told["valid"], told["diagnostics"]) == (True, [])


@pytest.mark.parametrize("plans", PLANS)
def test_each_variable_does_what_it_says(terraform: Terraform, plans: str) -> None:
    terraform.init(MODULE)
    done = terraform(MODULE, "test", "-no-color", f"-filter={plans}")
    assert done.code == 0, done.shown
    assert re.search(r"Success! [1-9][0-9]* passed, 0 failed", done.shown), done.shown


def names(kind: str) -> list[str]:
    """Return what the module's variables or outputs are called."""
    lines = (ROOT / MODULE / f"{kind}s.tf").read_text().splitlines()
    return [line.split('"')[1] for line in lines if line.startswith(f"{kind} ")]


def test_the_page_has_every_variable_and_output_and_no_other() -> None:
    page = (ROOT / MODULE / "README.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| ", page.partition("## Variables")[2], re.MULTILINE) == names(
        "variable"
    )
    told = page.partition("\nOutputs: ")[2].partition(".")[0]
    assert sorted(re.findall(r"`(\w+)`", told)) == sorted(names("output"))


def test_the_usage_on_the_page_is_valid(terraform: Terraform) -> None:
    """As a reader pastes it, with the module where it says."""
    [usage] = re.findall(r"```hcl\n(.*?)```", (ROOT / MODULE / "README.md").read_text(), re.DOTALL)
    pasted = terraform.home / "pasted"
    pasted.mkdir()
    (pasted / "main.tf").write_text(usage.replace("./cloudckpt/", "../"))
    assert terraform("pasted", "fmt", "-check", "-diff", "-no-color").shown == ""
    terraform.init("pasted")
    told = json.loads(terraform("pasted", "validate", "-json").shown)
    assert (told["valid"], told["diagnostics"]) == (True, [])


def test_every_variable_has_a_plan() -> None:
    """One that no plan names may do nothing at all."""
    plans = "".join((ROOT / MODULE / each).read_text() for each in PLANS)
    assert names("variable")
    assert [
        name for name in names("variable") if not re.search(rf"^\s*{name}\s+=", plans, re.MULTILINE)
    ] == []


def test_a_machine_without_the_provider_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tests.terraform import tools

    program = tmp_path / "terraform"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(tools, "_folders", lambda: [tmp_path])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tools.Missing, match="CLOUDCKPT_TF_PLUGIN_DIR"):
        found()
    (tmp_path / "registry.terraform.io/hashicorp/aws").mkdir(parents=True)
    assert found() == (str(program), tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(tools.Missing, match="on PATH"):
        found()


# ---- with a bucket

BUCKET = "terraform-checkpoints"


@dataclass(frozen=True)
class Applied:
    """What the module made."""

    server: Server
    store: dict[str, Any]
    variables: tuple[str, ...]

    def by(self, role: str) -> Server:
        """Return the server as a role signs for it."""
        return replace(self.server, access_key=role)

    def beside_s3(self, service: str) -> Any:
        """Return a client of another service."""
        return boto3.client(
            service,
            aws_access_key_id=self.server.access_key,
            aws_secret_access_key=self.server.secret_key,
            region_name=self.server.region,
            endpoint_url=self.server.endpoint,
        )


@pytest.fixture(scope="module")
def applied(terraform: Terraform, judging_server: Server) -> Applied:
    named = {"endpoint": judging_server.endpoint, "bucket": BUCKET, "prefix": "agents"}
    variables = tuple(f"-var={name}={value}" for name, value in named.items())
    terraform.init(APPLIED)
    done = terraform(APPLIED, "apply", "-auto-approve", "-input=false", "-no-color", *variables)
    assert done.code == 0, done.shown
    return Applied(judging_server, terraform.outputs(APPLIED)["store"], variables)


def cloudckpt(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *CLI, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **server.environment()},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_what_is_applied_is_what_the_outputs_tell(applied: Applied) -> None:
    store = applied.store
    assert store["store_url"] == f"s3://{BUCKET}/agents"
    assert store["environment"] == {"CLOUDCKPT_URL": store["store_url"]}
    assert set(store["policy_arns"]) == {"writer", "reader", "maintainer"}
    assert store["run_policy_arns"].keys() == {"team-a-"}
    iam = applied.beside_s3("iam")
    for arn in (*store["policy_arns"].values(), *store["run_policy_arns"]["team-a-"].values()):
        assert iam.get_policy(PolicyArn=arn)["Policy"]["Arn"] == arn
    assert applied.beside_s3("kms").describe_key(KeyId=store["kms_key_arn"])["KeyMetadata"]["Enabled"]


def test_a_second_plan_changes_nothing(terraform: Terraform, applied: Applied) -> None:
    """A module that is never at rest hides the change that somebody else made."""
    done = terraform(APPLIED, "plan", "-detailed-exitcode", "-input=false", "-no-color", *applied.variables)
    assert done.code == 0, done.shown
    assert "No changes." in done.shown


def outcome(call: Any, **parameters: Any) -> int:
    """Return the status of the answer to a request."""
    try:
        answer = call(Bucket=BUCKET, **parameters)
    except ClientError as error:
        answer = error.response
    status: int = answer["ResponseMetadata"]["HTTPStatusCode"]
    return status


def test_the_bucket_denies_what_would_break_the_promise(applied: Applied) -> None:
    """By the server's answers to real requests, each beside one that is let through."""
    writer, maintainer = applied.by("writer").client(), applied.by("maintainer").client()
    pointer, payload = "agents/manifests/denied.json", "agents/objects/denied/1-x"
    assert outcome(writer.put_object, Key=pointer, Body=b"1") == 403
    assert outcome(writer.put_object, Key=pointer, Body=b"1", IfNoneMatch="*") == 200
    tag = writer.head_object(Bucket=BUCKET, Key=pointer)["ETag"]
    assert outcome(writer.put_object, Key=pointer, Body=b"2") == 403
    assert outcome(writer.put_object, Key=pointer, Body=b"2", IfMatch=tag) == 200
    assert outcome(writer.put_object, Key=pointer, Body=b"3", IfMatch=tag) == 412

    assert outcome(writer.put_object, Key=payload, Body=b"1", IfNoneMatch="*") == 200
    tag = writer.head_object(Bucket=BUCKET, Key=payload)["ETag"]
    assert outcome(writer.put_object, Key=payload, Body=b"2", IfMatch=tag) == 403
    assert outcome(writer.delete_object, Key=payload) == 403
    assert outcome(maintainer.delete_object, Key=pointer) == 403
    assert outcome(maintainer.delete_object, Key=payload) == 204


def test_the_doctor_passes_all_that_the_module_sets(applied: Applied) -> None:
    done = cloudckpt(applied.by("maintainer"), "doctor", applied.store["store_url"], "--json")
    told = json.loads(done.stdout)
    facts = {each["check"]: each["facts"] for each in told["findings"]}
    # How fast the machine is, and who one is on a server that can't tell, is not the module's.
    levels = {each["check"]: each["level"] for each in told["findings"]}
    assert {levels[check] for check in levels.keys() - {"identity", "latency-put", "latency-get"}} == {"ok"}
    assert (told["left"], facts["versioning"]["status"]) == ([], "Enabled")
    assert facts["bucket-policy"] == {"tls_only": True, "conditional_only": True, "deletes_guarded": True}
    assert facts["lifecycle"]["aborts_uploads"] is True
    assert facts["public-access"]["lacking"] == []
    assert facts["encryption"]["algorithm"] == "aws:kms"


def test_an_agent_is_killed_and_resumed_in_the_bucket_by_a_writer_who_may_not_delete(
    applied: Applied,
) -> None:
    writer = applied.by("writer")
    arguments = ("--kills", "2", "--modules", "4", "--seed", "1", "--json")
    done = cloudckpt(writer, "demo", applied.store["store_url"], *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = applied.by("reader").client().list_objects_v2(Bucket=BUCKET, Prefix="agents/manifests/demo-")
    assert kept["KeyCount"] == 2


def test_destroy_leaves_nothing(terraform: Terraform, applied: Applied) -> None:
    done = terraform(APPLIED, "destroy", "-auto-approve", "-input=false", "-no-color", *applied.variables)
    assert done.code == 0, done.shown
    assert BUCKET not in [each["Name"] for each in applied.by("reader").client().list_buckets()["Buckets"]]
    assert applied.beside_s3("iam").list_policies(Scope="Local")["Policies"] == []
