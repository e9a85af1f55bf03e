"""Names in the store. Pure.

Owns: how a run id becomes part of a key, and the three kinds of keys. Invariant:
two ids never share a key, not even on a file system that ignores case; every
key is made of ``a-z 0-9 - _ . ! /`` and no segment is longer than 180
characters or starts with a dot.

A lower-case letter, digit, ``-``, ``_`` or inner ``.`` stands for itself; every
other byte of the id's UTF-8 is ``!`` and two hex digits, and so is a dot at
either end. An encoding longer than 180 is cut and ends in ``!z`` and the sha256
of the id: such an id is read from its manifest.
"""

from __future__ import annotations

import hashlib
import re

from cloudckpt.errors import InvalidInputError

MAX_RUN_ID = 1024
"""Longest run id, in characters."""

STORE_KEY = "cloudckpt.json"
SETTINGS_KEY = "settings.json"
MANIFESTS = "manifests/"
OBJECTS = "objects/"
PROBES = "probe/"

_MAX_SEGMENT = 180
_CUT = "!z"
_KEPT = _MAX_SEGMENT - len(_CUT) - 64
_SUFFIX = ".json"
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.")
_WHOLE = re.compile(r"(?:[a-z0-9_.-]|![0-9a-f]{2})+")
_CUT_SEGMENT = re.compile(r"[a-z0-9_!-][a-z0-9_.!-]*!z[0-9a-f]{64}")
_OBJECT = re.compile(r"(?:h?[1-9][0-9]*|r)-[0-9a-f]{64}-[0-9a-f]+")


def check_run_id(run: str) -> str:
    """Return `run` if it can be a run id.

    Raises:
        InvalidInputError: It is not a str, empty, or longer than `MAX_RUN_ID`.
    """
    if not isinstance(run, str):
        raise InvalidInputError("a run id must be a str", got=type(run).__name__)
    if not run:
        raise InvalidInputError("a run id must not be empty; name the run, such as 'nightly-42'")
    if len(run) > MAX_RUN_ID:
        raise InvalidInputError("a run id is too long; shorten it", characters=len(run), at_most=MAX_RUN_ID)
    return check_text(run, "run id")


def check_text(text: str, path: str) -> str:
    """Return `text` if UTF-8 and JSON give it back as it is.

    Raises:
        InvalidInputError: It holds a surrogate pair as two characters, which both join into one.
    """
    if (
        not text.isascii()
        and text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") != text
    ):
        raise InvalidInputError(
            "the text holds a surrogate pair as two characters; decode it first", path=path
        )
    return text


def _escaped(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    out = "".join(chr(b) if b in _PLAIN else f"!{b:02x}" for b in raw)
    return f"!2e{out[1:]}" if out.startswith(".") else out  # no hidden files, no `..`


def encode_run(run: str) -> str:
    """Return the run id as one key segment."""
    out = _escaped(check_run_id(run))
    if out.endswith("."):  # Azure and Windows let go of a dot at the end of a name
        out = f"{out[:-1]}!2e"
    if len(out) > _MAX_SEGMENT:
        digest = hashlib.sha256(run.encode("utf-8", "surrogatepass")).hexdigest()
        out = f"{out[:_KEPT]}{_CUT}{digest}"
    return out


def decode_run(segment: str) -> str | None:
    """Return the run id of a key segment, or None when it was cut (see the module).

    Raises:
        InvalidInputError: No run id encodes to this segment.
    """
    if len(segment) == _MAX_SEGMENT and segment[_KEPT:].startswith(_CUT):
        return None
    if _WHOLE.fullmatch(segment):
        raw = re.sub(r"!(..)", lambda m: chr(int(m[1], 16)), segment).encode("latin-1")
        try:
            run = raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            run = ""
        if run and encode_run(run) == segment:
            return run
    raise InvalidInputError("this is not the name of a run", segment=segment)


def manifest_key(run: str) -> str:
    """Return the key of the run's manifest."""
    return manifest_of(encode_run(run))


def manifest_of(segment: str) -> str:
    """Return the key of the manifest of the run that has this segment."""
    return f"{MANIFESTS}{segment}{_SUFFIX}"


def manifest_prefix(prefix: str) -> str:
    """Return a key prefix that holds every run whose id starts with `prefix`, and perhaps more."""
    prefix = prefix.rstrip(".")  # which at the end of an id is written in another way
    return MANIFESTS + (_escaped(prefix) if prefix else "")[:_KEPT]


def cut_run(segment: str) -> str:
    """Return what the key of a run with a long id tells of it: the beginning, and an ellipsis."""
    raw = re.sub(r"!(..)", lambda m: chr(int(m[1], 16)), re.sub(r"!.?$", "", segment[:_KEPT]))
    return raw.encode("latin-1").decode("utf-8", "ignore") + "…"


def is_segment(segment: str) -> bool:
    """Whether some run has this segment."""
    try:
        return decode_run(segment) is not None or _CUT_SEGMENT.fullmatch(segment) is not None
    except InvalidInputError:
        return False


def run_segment(key: str) -> str | None:
    """Return the run's segment of a manifest key, or None when the key is something else."""
    if not (key.startswith(MANIFESTS) and key.endswith(_SUFFIX)):
        return None
    return key[len(MANIFESTS) : -len(_SUFFIX)]


def objects_prefix(run: str) -> str:
    """Return the prefix of the run's objects."""
    return f"{OBJECTS}{encode_run(run)}/"


def object_key(run: str, seq: int, digest: str, attempt: str) -> str:
    """Return the key of a payload object: used once, for these bytes, by this try only.

    Args:
        run: The run's id.
        seq: The checkpoint's number.
        digest: sha256 of the object's bytes, in hex.
        attempt: Random hex, new for every try.
    """
    return f"{objects_prefix(run)}{seq}-{digest}-{attempt}"


def page_name(newest: int, digest: str, attempt: str) -> str:
    """Return the name of a history object, see `page_key`.

    Args:
        newest: The highest seq in it.
        digest: sha256 of the object's bytes, in hex.
        attempt: Random hex, new for every try.
    """
    return f"h{newest}-{digest}-{attempt}"


def result_name(digest: str, attempt: str) -> str:
    """Return the name of an object that holds an action's result, see `page_key`."""
    return f"r-{digest}-{attempt}"


def page_key(run: str, name: str) -> str:
    """Return the key of a history object: among the run's payloads, and written once as they are."""
    return f"{objects_prefix(run)}{name}"


def is_object_of(key: str, run: str) -> bool:
    """Whether `key` is one of the run's objects: a payload, a page of history, a result."""
    return is_object_in(key, encode_run(run))


def is_object_in(key: str, segment: str) -> bool:
    """Whether `key` is an object of the run that has this segment."""
    prefix = f"{OBJECTS}{segment}/"
    return key.startswith(prefix) and _OBJECT.fullmatch(key, len(prefix)) is not None


def is_page(key: str) -> bool:
    """Whether an object's key is that of a history object."""
    return key.rpartition("/")[2].startswith("h")


def is_result(key: str) -> bool:
    """Whether an object's key is that of an action's result."""
    return key.rpartition("/")[2].startswith("r")


def object_digest(key: str) -> str:
    """Return the sha256 that an object's key promises for the whole object."""
    return key.rpartition("/")[2].split("-")[1]


def object_seq(key: str) -> int:
    """Return the seq of the checkpoint that a payload object was written for."""
    return int(key.rpartition("/")[2].split("-")[0])
