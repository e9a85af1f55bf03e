"""What a provider's resources and data sources take, as the bindings of CDK Terrain tell it.

Owns: the versions, and the reading of their generated Python, which is parsed and never
imported (it would start Node). A class per body says which names there are; one
without a default is required; one whose type is a class of the module is a block.
It knows nothing of values.
"""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tests.servers import fetched
from tests.terraform.hcl import Block

PACKAGES = {"google": "cdktn-provider-google==21.1.0", "azurerm": "cdktn-provider-azurerm==18.9.0"}
"""They carry hashicorp/google 8.7.0 and hashicorp/azurerm 5.10.0."""

META = {"count", "depends_on", "for_each", "lifecycle", "provider", "connection", "provisioner"}
"""What Terraform itself takes in each resource."""

_BASE = "TerraformMetaArguments"


@dataclass(frozen=True, slots=True)
class Body:
    """What a body takes: names to whether they are required, and the blocks among them.

    `told` is what can be read of it; only of a whole resource or data source.
    """

    required: Mapping[str, bool]
    blocks: Mapping[str, Body]
    told: frozenset[str] = frozenset()


class Provider:
    """One provider's schema.

    Args:
        wheel: The package.
    """

    def __init__(self, wheel: Path) -> None:
        self._zip = zipfile.ZipFile(wheel)
        self._root = wheel.name.split("-")[0]
        self._known: dict[str, Body | None] = {}

    def body(self, kind: str, type: str) -> Body | None:
        """Return what a `resource` or `data` of this type takes, or None when there is no such type."""
        name = ("data_" + type) if kind == "data" else type.partition("_")[2]
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def _read(self, name: str) -> Body | None:
        try:
            text = self._zip.read(f"{self._root}/{name}/__init__.py").decode()
        except KeyError:
            return None
        tree = ast.parse(text)
        structs = {
            node.name: node
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            and any("jsii.data_type" in ast.unparse(made) for made in node.decorator_list)
        }
        (top,) = (name for name, node in structs.items() if _BASE in ast.unparse(node.decorator_list[0]))
        return replace(_body(top, structs), told=_properties(tree))


def _body(name: str, structs: Mapping[str, ast.ClassDef]) -> Body:
    (init,) = (
        node for node in structs[name].body if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )
    required, found = {}, {}
    for argument, default in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True):
        required[argument.arg] = default is None
        assert argument.annotation is not None
        inner = [word for word in re.findall(r"\w+", ast.unparse(argument.annotation)) if word in structs]
        if inner:
            found[argument.arg] = _body(inner[0], structs)
    return Body(required, found)


def _properties(tree: ast.Module) -> frozenset[str]:
    """Return the properties of the class that stands for the resource."""
    return frozenset(
        method.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and re.search(r"\.Terraform(Resource|DataSource)$", _bases(node))
        for method in node.body
        if isinstance(method, ast.FunctionDef) and any(_is_property(made) for made in method.decorator_list)
    )


def _bases(node: ast.ClassDef) -> str:
    return " ".join(map(ast.unparse, node.bases))


def _is_property(made: ast.expr) -> bool:
    return ast.unparse(made) in ("property", "builtins.property")


def faults(block: Block, body: Body, *, top: bool = True) -> list[str]:
    """Return what the provider would not take of a resource, a data source, or a block in one."""
    own = META if top else set()
    given = {*block.attributes, *(inner.type for inner in block.blocks)}
    told = [f"{block.name}: knows no '{name}'" for name in sorted(given - own - {*body.required})]
    told += [
        f"{block.name}: '{name}' is missing"
        for name, needed in body.required.items()
        if needed and name not in given
    ]
    told += [f"{block.name}: '{name}' is a block" for name in block.attributes if name in body.blocks]
    for inner in block.blocks:
        if inner.type in body.blocks:
            told += faults(inner, body.blocks[inner.type], top=False)
        elif inner.type in body.required and inner.type not in own:
            told.append(f"{block.name}: '{inner.type}' is no block")
    return told


@cache
def provider(name: str) -> Provider:
    """Return a provider's schema.

    Raises:
        Unavailable: Its package can't be had here.
    """
    package = PACKAGES[name]
    target = fetched.cache() / package.replace("==", "-")
    if not target.exists():
        fetched.wheels([package], target, print)
    (wheel,) = target.glob("*.whl")
    return Provider(wheel)
