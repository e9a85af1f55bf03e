"""Each resource and data source of the Google and Azure modules is one that the provider takes.

There is no such provider where the tests run; its schema comes from a Python package.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.servers import fetched
from tests.servers.base import ROOT as PROJECT
from tests.servers.base import Unavailable
from tests.terraform import hcl, schemas, waiting
from tests.terraform.hcl import Block

ROOT = PROJECT / "terraform"
PROVIDERS = {"gcp": "google", "azure": "azurerm"}
MODULES = [path for cloud in PROVIDERS for path in hcl.modules(ROOT / cloud)]


@pytest.fixture(autouse=True)
def patient(pytestconfig):
    """The schemas are 110 MB, which are got once."""
    waiting.allow(pytestconfig, 2 * fetched.SECONDS)


def _id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _faults(blocks: list[Block], provider: schemas.Provider) -> list[str]:
    told = []
    for block in blocks:
        if block.type in ("resource", "data"):
            body = provider.body(block.type, block.labels[0])
            told += [f"{block.name}: no such type"] if body is None else schemas.faults(block, body)
    return told


def _provider(name: str) -> schemas.Provider:
    try:
        return schemas.provider(name)
    except Unavailable as error:
        pytest.skip(f"no schema of the provider {name}: {error}")


@pytest.mark.parametrize("module", MODULES, ids=_id)
def test_a_module_sets_only_what_the_provider_takes(module):
    provider = _provider(PROVIDERS[module.relative_to(ROOT).parts[0]])
    assert _faults(hcl.blocks(module), provider) == []


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("force_destroy ", "force_destroyed ", "knows no 'force_destroyed'"),
        ("retention_duration_seconds", "retention_seconds", "knows no 'retention_seconds'"),
        ("days_since_noncurrent_time", "days_since_noncurrent", "knows no 'days_since_noncurrent'"),
        ("  location = var.location\n", "", "'location' is missing"),
        ("  versioning {", "  versioning = {", "'versioning' is a block"),
        ('"google_storage_bucket" "store"', '"google_storage_buckets" "store"', "no such type"),
    ],
)
def test_a_misspelt_word_is_found(right, wrong, told):
    """In an attribute, in a block, in a dynamic block, and in a type."""
    provider = _provider("google")
    text = (ROOT / "gcp" / "main.tf").read_text()
    assert right in text
    assert told in "\n".join(_faults(hcl.parse(text.replace(right, wrong)), provider))


@pytest.mark.parametrize("module", MODULES, ids=_id)
def test_a_variable_is_typed_and_described_and_an_output_described(module):
    for block in hcl.blocks(module):
        if block.type == "variable":
            assert {"type", "description"} <= {*block.attributes}, block.name
        elif block.type == "output":
            assert "description" in block.attributes, block.name


@pytest.mark.parametrize("module", MODULES, ids=_id)
def test_a_module_bounds_the_versions_that_it_needs(module):
    """From both sides: the next major version of a provider renames things."""
    (terraform,) = (block for block in hcl.blocks(module) if block.type == "terraform")
    wanted = [terraform.attributes["required_version"]]
    for needed in terraform.inside("required_providers"):
        wanted += [value["version"] for value in needed.attributes.values()]
    assert all(">=" in version and "<" in version.replace("<=", "") for version in wanted), wanted


def _outputs(module: Path) -> set[str]:
    return {block.labels[0] for block in hcl.blocks(module) if block.type == "output"}


def _call_faults(blocks: list[Block], module: Path) -> list[str]:
    (call,) = (block for block in blocks if block.type == "module")
    known = {block.labels[0]: block for block in hcl.blocks(module) if block.type == "variable"}
    given = {*call.attributes} - {"source"}
    needed = {name for name, block in known.items() if "default" not in block.attributes}
    return [
        *(f"unknown: {name}" for name in given - {*known}),
        *(f"missing: {name}" for name in needed - given),
    ]


@pytest.mark.parametrize("example", [path for path in MODULES if "examples" in path.parts], ids=_id)
def test_an_example_gives_the_module_what_it_takes(example):
    """An example that forgets a variable, or names one that is gone, is found by its reader first."""
    assert _call_faults(hcl.blocks(example), example.parents[1]) == []


@pytest.mark.parametrize("cloud", PROVIDERS)
def test_the_usage_in_a_readme_gives_the_module_what_it_takes(cloud):
    (usage,) = re.findall(
        r"^```hcl\n(.*?)^```", (ROOT / cloud / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert _call_faults(hcl.parse(usage), ROOT / cloud) == []
    assert _faults(hcl.parse(usage), _provider(PROVIDERS[cloud])) == []
    assert "missing: location" in _call_faults(
        hcl.parse(usage.replace("  location ", "  place ")), ROOT / cloud
    )


@pytest.mark.parametrize("cloud", PROVIDERS)
def test_a_readme_names_each_permission_that_is_given(cloud):
    """What `grants/` gives is in the table, and what the table says is given."""
    text = (ROOT / cloud / "README.md").read_text()
    rows = re.findall(r"^\| `((?:storage\.|blobs/)[\w./]+)` \|", text, re.MULTILINE)
    (grants,) = (path for path in MODULES if path == ROOT / cloud / "grants")
    given = re.findall(
        r'"(?:\$\{local\.)?(storage\.objects\.\w+|blobs\}/[\w/]+)"', (grants / "main.tf").read_text()
    )
    assert {*rows} == {name.replace("}", "") for name in given}


_REFERENCE = re.compile(
    r"(?<![\w.\"/-])((?:data\.)?(?:google|azurerm)_\w+)\.(\w+)(?:\[[^\]]+\])?(?:\.(\w+))?"
)


def _reference_faults(text: str, provider: schemas.Provider) -> list[str]:
    """Return the names in a module that nothing declares, and the attributes that no provider tells."""
    blocks = hcl.parse(text)
    named = {".".join(("data",) * (one.type == "data") + one.labels) for one in blocks}
    known = {f"var.{one.labels[0]}" for one in blocks if one.type == "variable"}
    known |= {f"local.{name}" for one in blocks if one.type == "locals" for name in one.attributes}
    known |= {f"module.{one.labels[0]}" for one in blocks if one.type == "module"}
    told = {*re.findall(r"(?<![\w.])(?:var|local|module)\.\w+", text)} - known
    for what, name, attribute in _REFERENCE.findall(text):
        kind, _, bare = what.rpartition(".")
        body = provider.body(kind or "resource", bare)
        if f"{what}.{name}" not in named:
            told.add(f"{what}.{name}")
        elif attribute and body is not None and attribute not in body.told:
            told.add(f"{what}.{attribute}")
    return sorted(told)


@pytest.mark.parametrize("module", MODULES, ids=_id)
def test_a_module_refers_only_to_what_there_is(module):
    """Without the provider nothing else finds a name that is misspelt, or that was renamed in one place."""
    provider = _provider(PROVIDERS[module.relative_to(ROOT).parts[0]])
    text = "\n".join(path.read_text() for path in sorted(module.glob("*.tf")))
    assert _reference_faults(text, provider) == []
    wrong = {
        "each.value.role].id": "each.value.role].ident",
        "local.path": "local.paths",
        "var.image": "var.imag",
    }
    for right in wrong.keys() & {word for word in wrong if word in text}:
        assert _reference_faults(text.replace(right, wrong[right]), provider)


@pytest.mark.parametrize("module", MODULES, ids=_id)
def test_a_module_reads_only_outputs_that_there_are(module):
    text = "\n".join(path.read_text() for path in module.glob("*.tf"))
    for call in (block for block in hcl.blocks(module) if block.type == "module"):
        outputs = _outputs(module / call.attributes["source"].strip('"'))
        assert {*re.findall(rf"module\.{call.labels[0]}\.(\w+)", text)} <= outputs


def test_what_is_read_of_a_file_is_all_of_it():
    """A parser that loses a block lets anything pass."""
    (block,) = hcl.parse("""
        resource "a_b" "c" {
          one = [1, 2]
          two { deep { x = "y" } }
          dynamic "three" {
            for_each = var.some
            content { z = three.value }
          }
        }
    """)
    assert (block.name, set(block.attributes)) == ("resource.a_b.c", {"one"})
    two, three = block.blocks
    assert [inner.type for inner in two.blocks] == ["deep"]
    assert (three.type, set(three.attributes)) == ("three", {"z"})
