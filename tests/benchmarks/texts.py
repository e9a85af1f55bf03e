"""Made-up texts of a given size and compressibility, and the transcripts made of them.

Owns: the recipe. Invariants: a text has exactly the characters asked for, all
ASCII; its zstd size is as near to the one asked for as the recipe gets (a few
per cent, at times 15 below 500 characters); the same arguments give the same text.

One knob goes from text that repeats itself, over text of words, to text of
random characters; a bisection finds where the wanted size lies.
"""

from __future__ import annotations

import json
import random
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zstandard import ZstdCompressor

SHAPES = Path(__file__).resolve().parents[1] / "data" / "transcript_shapes.json"

_BISECTIONS = 9
_NOISE = string.ascii_letters + string.digits + "+/"
_VOCABULARY = 4000
_REPEATED = 48
"""Characters of a piece that is repeated."""


def _words() -> list[str]:
    chance = random.Random("vocabulary")
    return [
        "".join(chance.choices("etaoinshrdlucmfwypvbgk", range(22, 0, -1), k=chance.randint(2, 9)))
        for _ in range(_VOCABULARY)
    ]


_WORDS = _words()
_COMPRESSOR = ZstdCompressor(level=3)


def zstd_size(text: str) -> int:
    """Return the bytes of the text's zstd frame."""
    return len(_COMPRESSOR.compress(text.encode()))


def make_text(chars: int, zstd: int, *, seed: str) -> str:
    """Return a text of `chars` characters that zstd brings to about `zstd` bytes."""
    low, high = 0.0, 2.0
    best, distance = "", float("inf")
    for _ in range(_BISECTIONS):
        knob = (low + high) / 2
        text = _mixed(chars, knob, random.Random(seed))
        size = zstd_size(text)
        if abs(size - zstd) < distance:
            best, distance = text, abs(size - zstd)
        low, high = (knob, high) if size < zstd else (low, knob)
    return best


def _mixed(chars: int, knob: float, chance: random.Random) -> str:
    """Return a text; `knob` 0 repeats itself, 1 is all words, 2 is all noise."""
    pieces: list[str] = []
    length = 0
    while length < chars:
        if knob < 1 and length > _REPEATED and chance.random() > knob:
            piece = chance.choice(pieces)
        elif knob > 1 and chance.random() < knob - 1:
            piece = "".join(chance.choices(_NOISE, k=_REPEATED))
        else:
            piece = " ".join(chance.choices(_WORDS, k=8)) + "\n"
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces)[:chars]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a transcript.

    Attributes:
        role: As in the shapes.
        text: Its content.
        arguments: Of each tool call that it makes.
    """

    role: str
    text: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation that was, in the sizes of its messages.

    Attributes:
        id: As in the shapes.
        opening: Messages before the model's first.
        steps: A model's message and what it was answered, for each step.
    """

    id: str
    opening: tuple[Message, ...]
    steps: tuple[tuple[Message, ...], ...]


def transcripts(count: int | None = None) -> list[Transcript]:
    """Return the transcripts of the shapes file, or the first `count` of them."""
    return [_made(shape) for shape in json.loads(SHAPES.read_text())["transcripts"][:count]]


def _made(shape: dict[str, Any]) -> Transcript:
    groups: list[list[Message]] = [[]]
    for number, each in enumerate(shape["messages"]):
        seed = f"{shape['id']} {number}"
        message = Message(
            each["role"],
            make_text(each["chars"], each["zstd"], seed=seed),
            tuple(
                make_text(chars, round(chars * 0.8), seed=f"{seed} {call}")
                for call, chars in enumerate(each.get("tool_calls", ()))
            ),
        )
        if message.role == "assistant":
            groups.append([])
        groups[-1].append(message)
    opening, *steps = map(tuple, groups)
    return Transcript(shape["id"], opening, tuple(steps))
