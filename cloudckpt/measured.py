"""How large the parts of a state are, as a frozen value. Pure; `codec/sizes.py` makes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """How many bytes a part of a state takes. Made by `cloudckpt.measure`; `str` shows the fattest parts.

    Attributes:
        path: Where it is, such as ``state.messages[4].image``.
        type: Name of its class.
        encoded: Bytes before compression.
        compressed: Bytes when it is stored by itself.
        share: Its part of the whole state's `encoded`, from 0 to 1.
        children: Its own parts, the fattest first; not those below a thousandth of the state.
    """

    path: str
    type: str
    encoded: int
    compressed: int
    share: float
    children: tuple[Size, ...] = ()

    def render(self, *, limit: int = 12) -> str:
        """Return the `limit` fattest parts, one a line, each below what it is in.

        A part that is hardly more than one of its own parts is left to that one's line.
        """
        fattest, left = self.fattest(limit)
        lines = [f"{'share':>6} {'encoded':>11} {'compressed':>11}  part"]
        lines += [part._line() for part in fattest]
        if left:
            lines.append(f"and {left} smaller parts")
        return "\n".join(lines)

    def fattest(self, limit: int) -> tuple[list[Size], int]:
        """Return the `limit` fattest parts, each after what it is in, and how many are left out.

        A part that is hardly more than one of its own parts is not among them.
        """
        parts = [self, *(part for part in self._all() if part is not self and not part._is_wrapping())]
        fattest = sorted(range(len(parts)), key=lambda place: -parts[place].encoded)[:limit]
        return [parts[place] for place in sorted(fattest)], max(0, len(parts) - limit)

    def _all(self) -> Iterator[Size]:
        yield self
        for child in self.children:
            yield from child._all()

    def _is_wrapping(self) -> bool:
        return bool(self.children) and self.children[0].encoded > 0.9 * self.encoded

    def _line(self) -> str:
        path = self.path if len(self.path) <= 80 else f"{self.path[:40]}...{self.path[-37:]}"
        sizes = f"{_bytes(self.encoded):>11} {_bytes(self.compressed):>11}"
        return f"{self.share:6.1%} {sizes}  {path}: {self.type}"

    def __str__(self) -> str:
        return self.render()


def _bytes(count: int) -> str:
    if count < 1 << 10:
        return f"{count} B"
    return f"{count / (1 << 10):,.1f} KiB" if count < 1 << 20 else f"{count / (1 << 20):,.1f} MiB"
