"""What one manifest promises, held against what is there. Pure.

Owns: the words for what is wrong with a run, and the checks of checkpoints and pages
of history. Invariants: a check never stops at the first fault; it takes each
checkpoint once, from the newest to the oldest. Where bytes come from is for
`verify.py` (a store) and `archive.py` (a file).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cloudckpt import keys
from cloudckpt.entries import entry_digest
from cloudckpt.errors import (
    ArchivedError,
    CloudckptError,
    CorruptCheckpointError,
    InvalidInputError,
    UnsupportedFormatError,
)
from cloudckpt.model import Action, Entry, Extent, Manifest, Page
from cloudckpt.pages import branch_page, leaf_page, ledger_page

DEPTHS = (1, 2, 3)

_RESTORE = "bring its object back from a copy or an earlier version; or repair the run"
_EDITED = "somebody changed the past: compare with an archive or an earlier version of the manifest"

ADVICE = {
    "manifest": "bring back an earlier version of this key, or import the run from an archive",
    "manifest-missing": "do a copy or an import that was interrupted again; else bring back the manifest, "
    "import the run from an archive, or forget what is left of it",
    "newer-format": "upgrade cloudckpt to look at it",
    "order": _EDITED,
    "chain": _EDITED,
    "page": "bring its object back from a copy or an earlier version; or repair the run with drop_damaged",
    "page-reference": _EDITED,
    "ledger": "bring its object back from a copy or an earlier version: nothing else says what was done",
    "result": "bring its object back from a copy or an earlier version",
    "archived": "restore it, then look again",
    "object-key": _EDITED,
    "object-missing": _RESTORE,
    "object-length": _RESTORE,
    "object-bytes": _RESTORE,
    "archive": "take another copy of the archive",
    "signature": "trust it no further than its digests; ask for it again where it was made",
}
"""Each kind of problem, and what to do about it."""

PAYLOAD_KINDS = frozenset({"object-key", "object-missing", "object-length", "object-bytes"})
"""Those of which a checkpoint can't be loaded."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        kind: A stable word for programs, one of `ADVICE`.
        run: The run's id; None when it is about a whole archive.
        seq: The checkpoint; of a page of history its newest one; None for a manifest.
        key: Key in the store, or name in the archive.
        what: What is wrong, in a sentence.
    """

    kind: str
    run: str | None
    seq: int | None
    key: str | None
    what: str

    @property
    def do(self) -> str:
        """What to do about it."""
        return ADVICE[self.kind]

    def __str__(self) -> str:
        where = (("run", self.run), ("seq", self.seq), ("key", self.key))
        facts = [f"{name}={value!r}" for name, value in where if value is not None]
        return " ".join([f"{self.what}; {self.do}", *facts])


@dataclass(frozen=True, slots=True)
class Verified:
    """What is known of one run after a verification.

    Attributes:
        run: Its id; of one whose id is too long for its key and whose manifest is damaged, the
            beginning, followed by an ellipsis.
        depth: 1: documents and chain. 2: also that objects exist with the right length. 3: all bytes.
        deleted: Whether it has a tombstone.
        checkpoints: How many retained checkpoints were looked at.
        objects, bytes: The objects that they and their history refer to, riding payloads aside.
        read: Bytes that were read and hashed.
        unreferenced, unreferenced_bytes: Objects that nothing refers to, from depth 2: no damage.
            A crash left them, or a save is under way; `Store.collect` removes them.
        problems: What is wrong, newest checkpoints first.
    """

    run: str
    depth: int
    deleted: bool = False
    checkpoints: int = 0
    objects: int = 0
    bytes: int = 0
    read: int = 0
    unreferenced: int = 0
    unreferenced_bytes: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def check_depth(depth: int, *, deep: bool) -> int:
    """Return the depth that is asked for.

    Raises:
        InvalidInputError: There is no such depth.
    """
    if type(depth) is not int or depth not in DEPTHS:
        raise InvalidInputError("depth must be 1, 2 or 3", got=depth)
    return DEPTHS[-1] if deep else depth


def problem_of(error: CloudckptError, kind: str, *, run: str | None, key: str | None) -> Problem:
    """Return the problem that an error tells of."""
    if isinstance(error, UnsupportedFormatError):
        kind = "newer-format"
    elif isinstance(error, ArchivedError):
        kind = "archived"
    seq = error.seq if isinstance(error, CorruptCheckpointError) else error.facts.get("seq")
    what = re.split(r"[;:] ", error.message)[0]
    return Problem(kind, run, seq, error.facts.get("key", key), what)


class Examination:
    """One look at one run.

    Args:
        manifest: The run's.
        sizes: The run's objects with their lengths; None when nobody asks for them.

    Attributes:
        broken: Names of the pages of history that are missing or damaged.
        read: Bytes that were read and hashed.
    """

    def __init__(self, manifest: Manifest, sizes: Mapping[str, int] | None) -> None:
        self.broken: set[str] = set()
        self.read = 0
        self._manifest = manifest
        self._sizes = sizes
        self._problems: list[Problem] = []
        self._checkpoints = 0
        self._used: dict[str, int] = {}
        self._newer: Entry | None = None
        self._blind = False
        self._document()

    def say(self, kind: str, what: str, *, seq: int | None = None, key: str | None = None) -> None:
        """Note a problem."""
        self._problems.append(Problem(kind, self._manifest.run, seq, key, what))

    def note(self, error: CloudckptError, kind: str, key: str) -> None:
        """Note the problem that an error tells of."""
        self._problems.append(problem_of(error, kind, run=self._manifest.run, key=key))

    def _document(self) -> None:
        manifest = self._manifest
        key = keys.manifest_key(manifest.run)
        if manifest.status == "deleted":
            if manifest.checkpoints or manifest.history:
                self.say("order", "a deleted run has checkpoints", key=key)
            return
        newest = manifest.head.seq if manifest.head else 0
        if newest != manifest.seq or (manifest.history and not newest):
            self.say(
                "order", "the newest checkpoint is not the one that the manifest names", seq=newest, key=key
            )

    # ---- pages of history

    def page_is_broken(self, page: Page, key: str, error: CloudckptError) -> None:
        """Note a page of history that can't be read."""
        self._unread(page, key)
        problem = problem_of(error, "page", run=self._manifest.run, key=key)
        if problem.kind != "archived":
            self.broken.add(page.name)
        self._problems.append(replace(problem, seq=page.newest))

    def _unread(self, page: Page, key: str) -> None:
        self._used[key] = page.size
        self._blind = True

    def page(self, page: Page, key: str, entries: tuple[Entry, ...], below: tuple[Page, ...]) -> None:
        """Check that a page is what its reference says."""
        self._used[key] = page.size
        self.read += page.size
        if entries:
            found = leaf_page(page.name, page.size, entries)
        elif below:
            found = branch_page(page.name, page.size, below)
        else:
            self.say("page-reference", "a page of the history is empty", seq=page.newest, key=key)
            return
        self._compare(page, found, key, seq=page.newest)

    def _compare(self, page: Page, found: Page, key: str, *, seq: int | None) -> None:
        if found != page:
            wrong = [name for name in Page.__slots__ if getattr(found, name) != getattr(page, name)]
            what = f"a page is not what its reference says: {', '.join(wrong)}"
            self.say("page-reference", what, seq=seq, key=key)

    # ---- the ledger

    def ledger_is_broken(self, page: Page, key: str, error: CloudckptError) -> None:
        """Note a page of the ledger that can't be read."""
        self._unread(page, key)
        problem = problem_of(error, "ledger", run=self._manifest.run, key=key)
        what = problem.what.replace("history", "ledger")
        self._problems.append(replace(problem, seq=None, what=what))

    def ledger_page(self, page: Page, key: str, actions: tuple[Action, ...], below: tuple[Page, ...]) -> None:
        """Check that a page of the ledger is what its reference says."""
        self._used[key] = page.size
        self.read += page.size
        if actions:
            self._compare(page, ledger_page(page.name, page.size, actions), key, seq=None)
        elif below:
            self._compare(page, branch_page(page.name, page.size, below), key, seq=None)
        else:
            self.say("page-reference", "a page of the ledger is empty", key=key)

    def action(self, action: Action) -> bool:
        """Check an action; return whether its result may be read."""
        whose = f"the result of action {action.key!r}"
        sound = [self._extent(extent, whose, None, "result") for extent in action.extents]
        return all(sound)

    # ---- checkpoints

    def entry(self, entry: Entry) -> bool:
        """Check the next older checkpoint; return whether its payload may be read."""
        self._checkpoints += 1
        self._order(entry)
        newer, self._newer = self._newer, entry
        if newer is not None:
            self._chain(newer, entry)
        commit = self._manifest.commit_of(entry.seq)
        if commit is not None and commit != entry.commit:
            self.say("chain", "the manifest knows another commit of this number", seq=entry.seq)
        whose = "a checkpoint's object"
        sound = [self._extent(x, whose, entry.seq) for x in entry.extents]  # each one, so that all are told
        return all(sound)

    def _order(self, entry: Entry) -> None:
        newer = self._newer
        if newer is not None and newer.seq <= entry.seq:
            self.say("order", f"a checkpoint stands behind number {newer.seq}", seq=entry.seq)
        if entry.epoch > (newer.epoch if newer else self._manifest.epoch):
            self.say("order", "a checkpoint is of a later writer than what came after it", seq=entry.seq)
        if entry.parent != (entry.seq - 1 or None):
            self.say("chain", f"a checkpoint names {entry.parent} as the one before it", seq=entry.seq)
        if sum(extent.length for extent in entry.extents) != entry.size:
            self.say("order", "a checkpoint's parts do not add up to its size", seq=entry.seq)

    def _chain(self, newer: Entry, entry: Entry) -> None:
        if newer.parent == entry.seq and newer.parent_digest != entry_digest(entry):
            self.say(
                "chain",
                f"a checkpoint is not the one that number {newer.seq} was saved on top of",
                seq=entry.seq,
            )

    def _extent(self, extent: Extent, whose: str, seq: int | None, kind: str | None = None) -> bool:
        """Check where bytes are; `kind` is that of the problem, whatever is wrong."""
        key = extent.key
        if not keys.is_object_of(key, self._manifest.run):
            self.say(kind or "object-key", f"{whose} is no object of its run", seq=seq, key=key)
            return False
        if key in self._manifest.inline:
            return True
        end = extent.offset + extent.length
        self._used[key] = max(end, self._used.get(key, 0))
        if self._sizes is None:
            return True
        size = self._sizes.get(key)
        if size is None:
            self.say(kind or "object-missing", f"{whose} is missing", seq=seq, key=key)
        elif size < end or (size > end and is_whole(extent)):
            self.say(kind or "object-length", f"{whose} has {size} bytes instead of {end}", seq=seq, key=key)
        else:
            return True
        return False

    # ---- the end

    def verified(self, depth: int) -> Verified:
        """Return what was found."""
        spare = (
            {} if self._sizes is None else {k: n for k, n in self._sizes.items() if k not in self._known()}
        )
        if self._blind:
            spare = {}  # nobody can tell what the pages that can't be read refer to
        return Verified(
            run=self._manifest.run,
            depth=depth,
            deleted=self._manifest.status == "deleted",
            checkpoints=self._checkpoints,
            objects=len(self._used),
            bytes=sum(self._used.values()),
            read=self.read,
            unreferenced=len(spare),
            unreferenced_bytes=sum(spare.values()),
            problems=tuple(sorted(self._problems, key=_newest_first)),
        )

    def _known(self) -> set[str]:
        return self._used.keys() | self._manifest.inline.keys()


def is_whole(extent: Extent) -> bool:
    """Whether a part of a payload is a whole object: the key of one names its digest."""
    return extent.offset == 0 and keys.object_digest(extent.key) == extent.digest


def _newest_first(problem: Problem) -> tuple[float, str, str]:
    seq = float("inf") if problem.seq is None else problem.seq
    return -seq, problem.kind, problem.key or ""
