"""Checkpoints and pages of history to JSON and back (docs/FORMAT.md). Pure.

Owns: the JSON of `Entry`, `Page` and what they are made of. Invariants: an entry
that comes back has equal JSON; fields that this release does not know survive; an
entry's digest covers what was saved and not what may be said of it later.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from cloudckpt.model import Action, Entry, Expired, Extent, Hold, Lease, Origin, Page, Tombstone
from cloudckpt.sealed import canonical

T = TypeVar("T")

_LATER = ("tags", "hold", "notes")
_FIELDS = frozenset(f.name for f in fields(Entry)) - {"extra", "cached"}


def entry_bytes(entry: Entry) -> bytes:
    """Return the entry as canonical JSON; made once, as a run's entries are written again and again."""
    if entry.cached is None:
        # Derived from what can't change, so the value stays the same to all who look at it.
        object.__setattr__(entry, "cached", canonical(_entry_out(entry)))
    return entry.cached or b""


def entry_digest(entry: Entry) -> str:
    """Return the digest that the next checkpoint's entry keeps of this one."""
    return hashlib.sha256(
        canonical({name: value for name, value in _entry_out(entry).items() if name not in _LATER})
    ).hexdigest()


def _entry_out(entry: Entry) -> dict[str, Any]:
    out = {
        **entry.extra,
        "seq": entry.seq,
        "step": entry.step,
        "commit": entry.commit,
        "epoch": entry.epoch,
        "parent": entry.parent,
        "parent_digest": entry.parent_digest,
        "digest": entry.digest,
        "size": entry.size,
        "encoded_digest": entry.encoded_digest,
        "encoded_size": entry.encoded_size,
        "codec": entry.codec,
        "schema": entry.schema,
        "schema_version": entry.schema_version,
        "fingerprint": None if entry.fingerprint is None else dict(entry.fingerprint),
        "time": time_out(entry.time),
        "tags": list(entry.tags),
        "metadata": dict(entry.metadata),
        "extents": extents_out(entry.extents),
    }
    if entry.origin is not None:
        out["origin"] = [entry.origin.run, entry.origin.seq, entry.origin.store]
    if entry.hold is not None:
        out["hold"] = hold_out(entry.hold)
    if entry.notes:
        out["notes"] = dict(entry.notes)
    return out


def entry_in(item: dict[str, Any]) -> Entry:
    """Return the checkpoint of its JSON.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: It is not one.
    """
    return Entry(
        seq=int_in(item["seq"]),
        step=item["step"],
        commit=str_in(item["commit"]),
        epoch=int_in(item["epoch"]),
        parent=item["parent"],
        parent_digest=item["parent_digest"],
        digest=str_in(item["digest"]),
        size=int_in(item["size"]),
        encoded_digest=str_in(item["encoded_digest"]),
        encoded_size=int_in(item["encoded_size"]),
        codec=str_in(item["codec"]),
        schema=item["schema"],
        schema_version=item["schema_version"],
        fingerprint=optional(_digests, item["fingerprint"]),
        time=time_in(item["time"]),
        tags=tuple(str_in(tag) for tag in item["tags"]),
        metadata=dict(item["metadata"]),
        extents=extents_in(item["extents"]),
        origin=optional(_origin_in, item.get("origin")),
        hold=optional(hold_in, item.get("hold")),
        notes=dict(item.get("notes", ())),
        extra={key: value for key, value in item.items() if key not in _FIELDS},
    )


def action_out(action: Action) -> dict[str, Any]:
    """Return an action of the ledger as JSON."""
    out: dict[str, Any] = {
        "number": action.number,
        "key": action.key,
        "arguments": action.arguments,
        "attempt": action.attempt,
        "tries": action.tries,
        "epoch": action.epoch,
        "begun": time_out(action.begun),
    }
    if action.ended is not None:
        out["ended"] = time_out(action.ended)
    if action.by is not None:
        out["by"] = action.by
    if action.result is not None:
        out["result"] = base64.b64encode(action.result).decode("ascii")
    if action.extents:
        out["extents"] = extents_out(action.extents)
    if action.question is not None:
        out["question"] = dict(action.question)
    return out


def action_in(item: dict[str, Any]) -> Action:
    """Return the action of its JSON; raises as `entry_in`."""
    return Action(
        number=int_in(item["number"]),
        key=str_in(item["key"]),
        arguments=str_in(item["arguments"]),
        attempt=str_in(item["attempt"]),
        tries=int_in(item["tries"]),
        epoch=int_in(item["epoch"]),
        begun=time_in(item["begun"]),
        ended=optional(time_in, item.get("ended")),
        by=optional(str_in, item.get("by")),
        result=optional(lambda data: base64.b64decode(data, validate=True), item.get("result")),
        extents=extents_in(item.get("extents", ())),
        question=optional(dict, item.get("question")),
    )


def extents_out(extents: Iterable[Extent]) -> list[list[Any]]:
    """Return where a payload is as JSON."""
    return [[x.key, x.offset, x.length, x.digest] for x in extents]


def extents_in(items: Iterable[Any]) -> tuple[Extent, ...]:
    """Return where a payload is; raises as `entry_in`."""
    return tuple(Extent(str_in(k), int_in(o), int_in(n), str_in(d)) for k, o, n, d in items)


def page_out(page: Page) -> list[Any]:
    """Return a reference to a history object as JSON: a list, as a manifest holds dozens."""
    return [
        page.name,
        page.size,
        page.level,
        page.count,
        page.held,
        page.newest,
        page.oldest,
        time_out(page.since),
        time_out(page.until),
        None if page.steps is None else list(page.steps),
        None if page.tags is None else list(page.tags),
        page.stored,
    ]


def page_in(item: list[Any]) -> Page:
    """Return the reference of its JSON; raises as `entry_in`."""
    name, size, level, count, held, newest, oldest, since, until, steps, tags, stored = item
    return Page(
        name=str_in(name),
        size=int_in(size),
        level=int_in(level),
        count=int_in(count),
        held=int_in(held),
        newest=int_in(newest),
        oldest=int_in(oldest),
        since=time_in(since),
        until=time_in(until),
        steps=optional(lambda pair: (int_in(pair[0]), int_in(pair[1])), steps),
        tags=optional(lambda names: tuple(str_in(tag) for tag in names), tags),
        stored=int_in(stored),
    )


def hold_out(hold: Hold) -> list[str]:
    """Return a hold as JSON."""
    return [hold.by, hold.why, time_out(hold.since)]


def hold_in(item: list[Any]) -> Hold:
    """Return the hold of its JSON; raises as `entry_in`."""
    by, why, since = item
    return Hold(str_in(by), str_in(why), time_in(since))


def tombstone_out(tombstone: Tombstone) -> list[str]:
    """Return a tombstone as JSON."""
    return [tombstone.by, tombstone.why, time_out(tombstone.time), tombstone.digest]


def tombstone_in(item: list[Any]) -> Tombstone:
    """Return the tombstone of its JSON; raises as `entry_in`."""
    by, why, time, digest = item
    return Tombstone(str_in(by), str_in(why), time_in(time), str_in(digest))


def expired_out(expired: Expired) -> list[Any]:
    """Return what is told of expired checkpoints as JSON."""
    return [expired.first, expired.last, time_out(expired.time), expired.rule]


def expired_in(item: list[Any]) -> Expired:
    """Return what is told of expired checkpoints; raises as `entry_in`."""
    first, last, time, rule = item
    return Expired(int_in(first), int_in(last), time_in(time), str_in(rule))


def lease_out(lease: Lease) -> list[Any]:
    """Return a lease as JSON."""
    return [lease.seconds, lease.beat]


def lease_in(item: list[Any]) -> Lease:
    """Read a lease."""
    seconds, beat = item
    if seconds is not None and (type(seconds) not in (int, float) or not seconds > 0):
        raise ValueError(seconds)
    return Lease(seconds, int_in(beat))


def _origin_in(item: list[Any]) -> Origin:
    run, seq, store = item
    return Origin(str_in(run), int_in(seq), optional(str_in, store))


def _digests(value: Mapping[str, Any]) -> dict[str, str]:
    return {str_in(name): str_in(digest) for name, digest in value.items()}


def optional(read: Callable[[Any], T], value: Any) -> T | None:
    """Return None for None, else what `read` makes of it."""
    return None if value is None else read(value)


def time_out(time: datetime) -> str:
    """Return a time as JSON: ISO 8601 in UTC."""
    return time.astimezone(UTC).isoformat(timespec="microseconds")


def time_in(value: str) -> datetime:
    """Return the time of its JSON."""
    return datetime.fromisoformat(value)


def str_in(value: Any) -> str:
    """Return a str as it is; raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def int_in(value: Any) -> int:
    """Return an int as it is; raises TypeError for anything else, a bool too."""
    if type(value) is not int:
        raise TypeError(value)
    return value
