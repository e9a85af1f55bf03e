"""Terraform's files as a tree of blocks.

Owns: what python-hcl2 makes of a file, without its quotes and marks. A `dynamic` block
counts as the block that it makes. It evaluates nothing: a value is its text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hcl2

_MARK = "__is_block__"
_OWN = (_MARK, "__comments__", "__inline_comments__")


@dataclass(frozen=True, slots=True)
class Block:
    """A block: its type and labels, what it sets, and what is in it."""

    type: str
    labels: tuple[str, ...]
    attributes: Mapping[str, Any]
    blocks: tuple[Block, ...] = ()
    path: Path = field(default=Path(), compare=False)

    @property
    def name(self) -> str:
        return ".".join((self.type, *self.labels))

    def inside(self, type: str) -> list[Block]:
        return [block for block in self.blocks if block.type == type]


def parse(text: str, path: Path = Path()) -> list[Block]:
    """Return the blocks of a file."""
    return _body(hcl2.loads(text), path)[1]


def blocks(folder: Path) -> list[Block]:
    """Return the blocks of a module: of the files in one folder."""
    return [block for path in sorted(folder.glob("*.tf")) for block in parse(path.read_text(), path)]


def modules(root: Path) -> list[Path]:
    """Return the folders that hold a module, examples too."""
    return sorted({path.parent for path in root.rglob("*.tf") if ".terraform" not in path.parts})


def _body(body: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], list[Block]]:
    attributes, found = {}, []
    for name, value in body.items():
        if name in _OWN:
            continue
        made = list(_labelled(name, (), value, path)) if isinstance(value, list) else []
        if made:
            found += made
        else:
            attributes[name] = value
    return attributes, found


def _labelled(type: str, labels: tuple[str, ...], value: Any, path: Path) -> Iterator[Block]:
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, Mapping):
            return
        if _MARK in one:
            attributes, found = _body(one, path)
            yield _made(Block(type, labels, attributes, tuple(found), path))
        else:
            for label, inner in one.items():
                if label.startswith('"'):
                    yield from _labelled(type, (*labels, label.strip('"')), inner, path)


def _made(block: Block) -> Block:
    if block.type != "dynamic":
        return block
    (content,) = block.inside("content")
    return Block(block.labels[0], (), content.attributes, content.blocks, block.path)
