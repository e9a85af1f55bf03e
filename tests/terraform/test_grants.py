"""The levels of the Google and Azure modules: each is enough for its work, and for no more."""

from __future__ import annotations

import json
import secrets
import shutil
from itertools import count

import pytest

import cloudckpt
from cloudckpt import keys
from cloudckpt.errors import PermissionDeniedError
from tests.terraform.grants import CALLS, LEVELS, ROOT, Grants, Held, begins, grants, holds, terraform

CLOUDS = ("gcp", "azure")
RUN, OTHER = "team-a-1", "team-b-1"
WRITES = tuple(call for call in CALLS if call not in ("get", "list"))

_numbers = count(1)


@pytest.fixture(params=CLOUDS)
def cloud(request):
    return request.param


@pytest.fixture(params=["", "agents/prod"], ids=["bucket", "prefix"])
def prefix(request):
    return request.param


@pytest.fixture(params=["", "team-a-"], ids=["store", "run-prefix"])
def given(request, cloud, prefix) -> Grants:
    return grants(cloud, prefix, request.param)


class Place:
    """A store in memory, opened by people who are held to their level."""

    def __init__(self, given: Grants) -> None:
        self.given = given
        self.name = f"grants-{next(_numbers)}"
        self.denied: list[tuple[str, str]] = []

    def open(self, level: str, **options) -> cloudckpt.Store:
        may = lambda call, key: self.given.may(level, call, key)  # noqa: E731
        return cloudckpt.Store(lambda: Held(self.name, may, self.denied), **options)


@pytest.fixture
def place(given) -> Place:
    return Place(given)


def _save(place: Place, steps: int = 8) -> None:
    with place.open("writer", keep_last=2) as store, store.run(RUN) as run:
        for step in range(steps):
            run.save({"step": step, "text": secrets.token_bytes(50_000)})


def test_a_writer_saves_loads_and_expires(place):
    """What it may not do is to delete: what expired waits for the maintainer's collect."""
    _save(place)
    with place.open("writer", keep_last=2) as store, store.run(RUN) as run:
        assert run.load()["step"] == 7
        assert [one.seq for one in run.history()] == [8, 7]
        assert [info.id for info in store.runs("team-a-")] == [RUN]
    assert {call for call, _ in place.denied} <= {"delete"}
    assert {key.split("/")[0] for _, key in place.denied} <= {"objects", "probe"}


def test_a_reader_sees_runs_history_and_verify(place):
    _save(place)
    place.denied.clear()
    with place.open("reader") as store:
        assert [info.id for info in store.runs("team-a-")] == [RUN]
        run = store.run(RUN)
        assert len(list(run.history())) == 2
        assert run.load()["step"] == 7
        assert run.verify(depth=3).ok
        assert all(report.ok for report in store.verify("team-a-"))
    assert place.denied == []


def test_a_maintainer_collects_and_forgets(place):
    _save(place)
    place.denied.clear()
    with place.open("maintainer") as store:
        if place.given.may("maintainer", "create", keys.SETTINGS_KEY):
            store.set_retention(cloudckpt.Retention(keep_last=5))
        store.collect(RUN)
        assert store.forget(RUN, why="done").complete
    assert place.denied == []


def test_only_a_maintainer_of_the_whole_store_sets_its_settings(cloud, prefix):
    whole, part = grants(cloud, prefix), grants(cloud, prefix, "team-a-")
    assert whole.may("maintainer", "replace", keys.SETTINGS_KEY)
    for given, level in [(whole, "writer"), (whole, "reader"), *((part, level) for level in LEVELS)]:
        assert not any(given.may(level, call, keys.SETTINGS_KEY) for call in WRITES)
        assert given.may(level, "get", keys.SETTINGS_KEY)


def test_a_reader_writes_nothing(given):
    for key in (keys.manifest_key(RUN), keys.objects_prefix(RUN) + "1", keys.PROBES + "1", keys.STORE_KEY):
        assert not any(given.may("reader", call, key) for call in WRITES)


def test_a_writer_deletes_no_payload(given):
    assert not given.may("writer", "delete", keys.objects_prefix(RUN) + "1")
    assert given.may("writer", "put", keys.objects_prefix(RUN) + "1")


def test_what_the_cloud_lets_a_writer_do_beyond_that_is_known(prefix):
    """The READMEs say so: Google wants the right to delete to replace, Azure's to create can replace."""
    google, azure = grants("gcp", prefix), grants("azure", prefix)
    pointer, payload = keys.manifest_key(RUN), keys.objects_prefix(RUN) + "1"
    assert google.may("writer", "delete", pointer)
    assert not google.may("writer", "replace", payload)
    assert not azure.may("writer", "delete", pointer)
    assert azure.may("writer", "replace", payload)


@pytest.mark.parametrize("level", LEVELS)
def test_a_run_prefix_keeps_out_of_other_runs(cloud, prefix, level):
    given = grants(cloud, prefix, "team-a-")
    for key in (keys.manifest_key(OTHER), keys.objects_prefix(OTHER) + "1"):
        calls = [call for call in CALLS if not (cloud == "gcp" and call == "list")]
        assert not any(given.may(level, call, key) for call in calls)
        assert grants(cloud, prefix).may(level, "get", key)


@pytest.mark.parametrize("level", LEVELS)
def test_a_prefix_keeps_out_of_the_rest_of_the_bucket(cloud, level):
    given = grants(cloud, "agents/prod")
    outside = Grants(cloud, "agents/", given.roles, given.given)
    calls = [call for call in CALLS if not (cloud == "gcp" and call == "list")]
    assert not any(outside.may(level, call, keys.manifest_key(RUN)) for call in calls)


def test_somebody_without_the_right_is_stopped(place):
    """A store that lets everything through would prove nothing above."""
    with pytest.raises(PermissionDeniedError), place.open("reader") as store, store.run(RUN) as run:
        run.save({"step": 1})
    assert place.denied


def test_a_condition_that_is_not_understood_raises():
    with pytest.raises(ValueError, match="not known"):
        begins('resource.name.endsWith("x")', "x")
    with pytest.raises(ValueError, match="not known"):
        holds("@Resource[elsewhere] StringLike 'x'", "read", "x", call="get")


# ---- variables


RIGHT = {
    "gcp": {"project": "my-project", "bucket_name": "my-bucket", "location": "EU"},
    "azure": {"resource_group_name": "agents", "location": "westeurope", "account_name": "ckpts"},
}
WHO = {"gcp": {"member": "user:x"}, "azure": {"principal_id": "x"}}
WRONG = [
    ("gcp", {"project": "No"}),
    ("gcp", {"bucket_name": "Upper"}),
    ("gcp", {"location": ""}),
    ("gcp", {"soft_delete_days": 3}),
    ("gcp", {"noncurrent_days": 0}),
    ("gcp", {"cold_objects": {"after_days": 1, "storage_class": "GLACIER"}}),
    ("gcp", {"kms_key_name": "my-key"}),
    ("gcp", {"role_id_prefix": "a-b"}),
    ("gcp", {"service_account": {"account_id": "x"}}),
    ("gcp", {"kubernetes_writers": {"a": {"namespace": "", "service_account": "x"}}}),
    ("azure", {"resource_group_name": "ends-in-a-dot."}),
    ("azure", {"location": ""}),
    ("azure", {"account_name": "with-hyphen"}),
    ("azure", {"container_name": "two--hyphens"}),
    ("azure", {"replication": "RAID"}),
    ("azure", {"soft_delete_days": 0}),
    ("azure", {"version_days": 1.5}),
    ("azure", {"cool_objects_days": 0}),
    *((cloud, {"prefix": prefix}) for cloud in CLOUDS for prefix in ("/a", "a/", "a//b", "a'b", 'a"b')),
    *(
        (cloud, {f"{level}s": {"one": {**WHO[cloud], "run_prefix": run}}})
        for cloud in CLOUDS
        for level in LEVELS
        for run in ("Team", "ends.", "a/b", "a'", 'a"')
    ),
]


def _complaint(cloud, given, tmp_path) -> str:
    shutil.copy(ROOT / cloud / "variables.tf", tmp_path)
    (tmp_path / "given.auto.tfvars.json").write_text(json.dumps({**RIGHT[cloud], **given}))
    return terraform(tmp_path, "init") or terraform(tmp_path, "plan")


@pytest.mark.parametrize(("cloud", "given"), WRONG, ids=[f"{cloud}-{given}" for cloud, given in WRONG])
def test_a_wrong_value_is_refused_with_a_word(cloud, given, tmp_path):
    (name,) = given
    told = _complaint(cloud, given, tmp_path)
    assert "Invalid value for variable" in told
    assert f"var.{name}" in told


def test_the_right_values_are_taken(cloud, tmp_path):
    levels = {f"{level}s": {"one": {**WHO[cloud], "run_prefix": "team-a-"}} for level in LEVELS}
    assert _complaint(cloud, {"prefix": "agents/prod", **levels}, tmp_path) == ""


def test_a_run_prefix_is_written_in_keys_as_it_is():
    """The modules put it into names of keys as it stands; an escaped one would match no key."""
    assert keys.encode_run("team-a-1").startswith("team-a-")
    assert keys.encode_run("a_b.c-1").startswith("a_b.c-")
