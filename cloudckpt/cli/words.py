"""Sizes, times and texts as people read and write them. Pure.

Invariant: what is printed of a run's id, a tag or an error never moves a terminal's
cursor or breaks a line: characters that are not printable are shown as escapes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

_DOUBTFUL: Final = re.compile(r"[^\n -~]")
_SPAN: Final = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>[smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

LONGEST: Final = 36525 * 86400
"""Seconds of the longest span: a hundred years, so that every moment has a date."""


def shown(text: str) -> str:
    """Return a text on one line, with escapes for what is not printable."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def as_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON, readable in every language and safe on a terminal."""
    most = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # a state may hold a whole number of any size
    try:
        text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    finally:
        sys.set_int_max_str_digits(most)
    return _DOUBTFUL.sub(
        lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text
    )


def size(count: int | None) -> str:
    """Return bytes for people."""
    if count is None:
        return ""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:,.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """Return so many of something."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def rules_text(rules: Mapping[str, Any]) -> str:
    """Return rules of retention for people."""
    return ", ".join(f"{name}={value}" for name, value in rules.items())


def iso(time: datetime) -> str:
    """Return a time as in JSON: UTC, with all its digits."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def when(time: str | None) -> str:
    """Return a time of JSON for people: UTC, to the second."""
    return "" if time is None else re.sub(r"\.[0-9]+", "", time).replace("T", " ").removesuffix("Z")


def span(text: str) -> timedelta:
    """Return what ``90m``, ``24h``, ``7d`` or ``2w`` says.

    Raises:
        ValueError: It is none of these, or longer than a hundred years.
    """
    found = _SPAN.fullmatch(text)
    if found is None or found["count"].strip("0") == "":
        raise ValueError("not a span such as 90m, 24h, 7d or 2w")
    seconds = int(found["count"]) * _SECONDS[found["unit"]]
    if seconds > LONGEST:
        raise ValueError("a span is at most a hundred years, such as 5200w")
    return timedelta(seconds=seconds)


def moment(text: str, *, now: datetime) -> datetime:
    """Return what a date, a time (UTC unless it says otherwise) or a span before now says.

    Raises:
        ValueError: It is none of these.
    """
    if _SPAN.fullmatch(text):
        return now - span(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "not a time such as 2026-01-31, 2026-01-31T12:00:00Z, or 24h for a day ago"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def shortened(text: str, most: int) -> str:
    """Return at most so many characters of a text."""
    return text if len(text) <= most else text[: most - 1] + "…"
