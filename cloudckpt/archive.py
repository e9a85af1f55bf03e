"""Runs in one tar file, verified without a store.

Owns: what is in an archive, and reading one from its beginning to its end. A member is
named by its key in the store: a run's objects come first and its manifest after them,
as in a store; then an index of all members, then perhaps signatures. Invariants: no
byte passes unchecked: it is covered by the digest in a key or of a document, by the
index, or by the one form that a tar file of ours has; damage is told with the
member's name. docs/archives.md shows how it is used, docs/FORMAT.md what it holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from cloudckpt import keys, signing
from cloudckpt.clock import SystemClock
from cloudckpt.entries import int_in, str_in
from cloudckpt.errors import CorruptCheckpointError, DataError, InvalidInputError
from cloudckpt.examine import Examination, Problem, Verified, problem_of
from cloudckpt.format import decode_manifest
from cloudckpt.model import Manifest, Page
from cloudckpt.runner import drive, make_runner
from cloudckpt.sealed import DIGEST, unseal
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.tarball import Member, TarReader
from cloudckpt.verify import TolerantPages

ARCHIVE_FORMAT = 1
INDEX = "archive/index.json"
SIGNATURES = "archive/signatures.json"

MAX_OBJECT = 1 << 30
"""An object is held in memory to be put into a store; ours have an eighth of this at most."""


@dataclass(frozen=True, slots=True)
class Row:
    """What the index says of a member."""

    name: str
    size: int
    time: int
    digest: str

    def to_json(self) -> list[Any]:
        """Return it as JSON."""
        return [self.name, self.size, self.time, self.digest]

    @classmethod
    def from_json(cls, row: list[Any]) -> Row:
        """Return the row of its JSON.

        Raises:
            TypeError, ValueError: It is none.
        """
        name, size, time, digest = row
        return cls(str_in(name), int_in(size), int_in(time), str_in(digest))


@dataclass(frozen=True, slots=True)
class ArchivedObject:
    """An object of a run, on its way out of an archive.

    Attributes:
        key: Its key.
        segment: Of its run.
        is_sound: Whether its bytes match the digest in its key, as far as they were read.
        data: These, when somebody wants them.
    """

    key: str
    segment: str
    is_sound: bool
    data: bytes | None


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """A run of which all objects have passed, and what is known of it."""

    manifest: Manifest
    report: Verified


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What is known of an archive after a verification.

    Attributes:
        runs: A report for each run in it.
        members, bytes: How many members were looked at, and their bytes.
        signed_by: Fingerprint of the key that signed it: verified when a key was given, else as the
            archive says; None when it is not signed.
        problems: What is wrong, those of the runs too.
    """

    runs: tuple[Verified, ...]
    members: int
    bytes: int
    signed_by: str | None
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify_archive(
    file: BinaryIO, *, depth: int = 3, public_key: bytes | signing.PublicKey | None = None
) -> ArchiveReport:
    """Verify an archive, without a store or credentials. The file need not be seekable.

    Args:
        file: The archive, open for reading bytes.
        depth: 3: every byte. 1 and 2: the documents, and that all objects are there with the right
            length; of a file that is seekable, only these are read.
        public_key: The archive must be signed by this key: PEM, an ``ssh-ed25519`` line, or a key
            of `cryptography`.

    Raises:
        InvalidInputError: The key can't be used, or the file is not open for reading bytes.
    """
    contents = Contents(file, depth=depth, public_key=public_key)
    runs = [item.report for item in contents if isinstance(item, ArchivedRun)]
    problems = [problem for report in runs for problem in report.problems]
    return ArchiveReport(
        tuple(runs),
        len(contents.rows),
        sum(row.size for row in contents.rows.values()),
        contents.signed_by,
        (*problems, *contents.problems),
    )


@dataclass(slots=True)
class _Passing:
    """A run whose objects pass: their lengths, its pages, and what was wrong with them."""

    segment: str
    sizes: dict[str, int] = field(default_factory=dict)
    pages: dict[str, bytes] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


class _HeldPages(TolerantPages):
    """The history objects of a run that is examined, from memory."""

    def __init__(self, run: str, held: dict[str, bytes], examination: Examination) -> None:
        super().__init__(_nowhere, _effects, run, examination)
        self._held = held

    async def stored(self, page: Page) -> bytes:
        """Return the bytes of a page's object."""
        data = self._held.get(self.key(page))
        if data is None:
            raise CorruptCheckpointError("an object of the run's history is missing")
        return data


_nowhere = MemoryStorage("nothing is read here")
_effects = make_runner(blocking=True, clock=SystemClock()).effects


class Contents:
    """Reads an archive once; iterates over its objects, and over a run when all of it has passed.

    Args:
        file: The archive.
        depth: As in `verify_archive`.
        public_key: Likewise.
        keep: Whether objects come with their bytes.

    Attributes:
        rows: What was read, by name.
        problems: What is wrong beside the runs' own.
        signed_by: Fingerprint of the key that signed, or is said to have.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        depth: int = 3,
        public_key: bytes | signing.PublicKey | None = None,
        keep: bool = False,
    ) -> None:
        if not callable(getattr(file, "read", None)) or isinstance(file.read(0), str):
            raise InvalidInputError("an archive must be a file that is open for reading bytes")
        self._tar = TarReader(file)
        self._depth = depth
        self._key = None if public_key is None else signing.public_key(public_key)
        self._keep = keep
        self._passing: _Passing | None = None
        self._runs: dict[str, tuple[int, str]] = {}
        self._index: str | None = None
        self._told: set[str | None] = set()
        self.rows: dict[str, Row] = {}
        self.problems: list[Problem] = []
        self.signed_by: str | None = None

    def __iter__(self) -> Iterator[ArchivedObject | ArchivedRun]:
        signed = False
        try:
            while (member := self._tar.next()) is not None:
                if member.name in self.rows or signed or (self._index and member.name != SIGNATURES):
                    raise _broken("a member stands where none may be", member.name)
                if member.name == INDEX:
                    self._end_of_run()
                    self._check_index(self._document(member))
                elif member.name == SIGNATURES:
                    signed = True
                    self._check_signatures(self._document(member))
                elif keys.run_segment(member.name) is None:
                    yield self._object(member)
                elif (run := self._run(member)) is not None:
                    yield run
            if self._index is None:
                self._end_of_run()
                raise _broken("the archive has no index", INDEX)
            if self._key is not None and not signed:
                self._say("signature", "the archive is not signed", SIGNATURES)
        except CorruptCheckpointError as error:
            self._tell(problem_of(error, error.kind or "archive", run=None, key=None))

    def _say(self, kind: str, what: str, name: str) -> None:
        self._tell(Problem(kind, None, None, name, what))

    def _tell(self, *problems: Problem) -> None:
        self.problems += problems
        self._told.update(problem.key for problem in problems)

    # ---- members

    def _object(self, member: Member) -> ArchivedObject:
        segment = member.name.split("/")[1] if member.name.startswith(keys.OBJECTS) else ""
        known = keys.is_segment(segment) and keys.is_object_in(member.name, segment)
        if not known or member.size > MAX_OBJECT:
            raise _broken("a member does not belong in an archive", member.name)
        passing = self._passing
        if passing is None or passing.segment != segment:
            self._end_of_run()
            passing = self._passing = _Passing(segment)
        page = keys.is_page(member.name)
        digest = keys.object_digest(member.name)
        data = None
        if page or self._keep:
            data = self._tar.read()
            found = hashlib.sha256(data).hexdigest()
        elif self._depth > 2:
            found = self._hashed()
        else:
            self._tar.skip()
            found = digest
        if page and data is not None:
            passing.pages[member.name] = data
        elif found != digest:
            what = "an object's bytes do not match the digest in its name"
            result = keys.is_result(member.name)
            kind, seq = ("result", None) if result else ("object-bytes", keys.object_seq(member.name))
            passing.problems.append(Problem(kind, None, seq, member.name, what))
        passing.sizes[member.name] = member.size
        self._note(member, found)
        return ArchivedObject(member.name, segment, found == digest, data)

    def _hashed(self) -> str:
        digest = hashlib.sha256()
        for chunk in self._tar.chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def _run(self, member: Member) -> ArchivedRun | None:
        segment = keys.run_segment(member.name) or ""
        if self._passing is not None and self._passing.segment != segment:
            self._end_of_run()
        passing, self._passing = self._passing or _Passing(segment), None
        data = self._document(member)
        self._note(member, hashlib.sha256(data).hexdigest())
        try:
            manifest = decode_manifest(data, None)
            if keys.manifest_key(manifest.run) != member.name:
                raise CorruptCheckpointError("the manifest is of another run")
        except DataError as error:
            self._tell(*passing.problems, problem_of(error, "manifest", run=None, key=member.name))
            return None
        self._runs[manifest.run] = (manifest.seq, data[DIGEST].decode())
        report = self._examined(manifest, passing)
        self._told.update(problem.key for problem in report.problems)
        return ArchivedRun(manifest, report)

    def _examined(self, manifest: Manifest, passing: _Passing) -> Verified:
        examination = Examination(manifest, passing.sizes)
        drive(_walk(manifest, passing, examination))
        if self._depth > 2:
            examination.read = sum(passing.sizes.values())
        report = examination.verified(self._depth)
        own = [replace(problem, run=manifest.run) for problem in passing.problems]
        return replace(report, problems=(*report.problems, *own))

    def _end_of_run(self) -> None:
        """Note objects whose manifest did not come."""
        passing, self._passing = self._passing, None
        if passing is not None:
            self._tell(*passing.problems)
            self._say(
                "archive", "objects of a run come without its manifest", keys.manifest_of(passing.segment)
            )

    def _document(self, member: Member) -> bytes:
        if member.size > MAX_OBJECT:
            raise _broken("a member is too large", member.name)
        return self._tar.read()

    def _note(self, member: Member, digest: str) -> None:
        self.rows[member.name] = Row(member.name, member.size, member.time, digest)

    # ---- the end

    def _check_index(self, data: bytes) -> None:
        self._index = hashlib.sha256(data).hexdigest()
        document = _opened(data, INDEX)
        try:
            wanted = [Row.from_json(row) for row in document["members"]]
        except (KeyError, TypeError, ValueError) as error:
            raise _broken("the index is not as we write it", INDEX) from error
        for row in wanted:
            found = self.rows.get(row.name)
            if found == row or row.name in self._told:
                continue
            what = "a member that the index names is missing" if found is None else "a member was changed"
            self._say("archive", what, row.name)
        names = {row.name for row in wanted}
        for name in self.rows.keys() - names:
            self._say("archive", "a member is not in the index", name)
        if [row.name for row in wanted] != list(self.rows) and names == self.rows.keys():
            self._say("archive", "the members stand in another order than in the index", INDEX)

    def _check_signatures(self, data: bytes) -> None:
        document = _opened(data, SIGNATURES)
        try:
            self.signed_by = str_in(document["key"])
            archive, runs = str_in(document["archive"]), dict(document["runs"])
        except (KeyError, TypeError, ValueError) as error:
            raise _broken("the signatures are not as we write them", SIGNATURES) from error
        if self._key is None:
            return
        self.signed_by = signing.fingerprint(self._key)
        if not signing.is_signed(self._key, signing.about_archive(self._index or ""), archive):
            self._say("signature", "the archive was changed, or signed by another key", SIGNATURES)
        for run, (seq, digest) in self._runs.items():
            about = signing.about_run(run, seq, digest)
            if not signing.is_signed(self._key, about, str(runs.get(run))):
                name = keys.manifest_key(run)
                what = "the run was changed, or signed by another key"
                self._tell(Problem("signature", run, seq, name, what))


async def _walk(manifest: Manifest, passing: _Passing, examination: Examination) -> None:
    pages = _HeldPages(manifest.run, passing.pages, examination)
    async for _ in pages.checkpoints(manifest, ahead=1):
        pass
    async for _ in pages.ledger(manifest, ahead=1):
        pass


def _opened(data: bytes, name: str) -> dict[str, Any]:
    """Return a document of the archive itself."""
    try:
        document = unseal(data)
    except CorruptCheckpointError as error:
        raise _broken(error.message, name) from error
    version = document.get("format")
    if type(version) is not int:
        raise _broken("a document lacks its format", name)
    if version > ARCHIVE_FORMAT:
        raise CorruptCheckpointError("the archive has a newer format", key=name, kind="newer-format")
    return document


def _broken(message: str, name: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(message, key=name, kind="archive")
