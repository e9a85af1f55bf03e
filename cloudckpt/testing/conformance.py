"""The laws of the storage contract as a pytest class. Subclass it for an engine of your own.

    class TestMyStorage(StorageConformance):
        @pytest.fixture
        def make_storage(self, tmp_path):
            return lambda: MyStorage(tmp_path)

Owns: what every engine must do on every server. Invariant: a law is checked by
what the contract returns, never by a look inside the engine, and each test
keeps to keys of its own, so one store serves them all. Failures that only a
broken network brings (`AmbiguousError`, `ThrottledError`) are not provoked here.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from cloudckpt.errors import PreconditionFailedError
from cloudckpt.storage.contract import Data, Storage, Stored, Token
from cloudckpt.testing.changes import ChangeLaws
from cloudckpt.testing.driver import Client, Driver
from cloudckpt.testing.races import WIDTH, alternately, append_all, race

BIG = 8 * 2**20
INCREMENTS = 100
WORKERS = 4


class StorageConformance(ChangeLaws):
    """Laws of the storage contract. A subclass gives the fixture `make_storage`.

    Attributes:
        rounds: Races of each kind. Fewer where a lost race takes the server seconds.
        lists_by_whole_key: False for a server that lists folder by folder, as
            SeaweedFS does: ascending within a folder only. The protocol lists
            single folders, so it can live with that.
    """

    lists_by_whole_key = True
    rounds = 10

    @pytest.fixture
    def make_storage(self) -> Callable[[], Storage]:
        """Return what makes a client of the store under test; each call makes an independent one."""
        raise NotImplementedError("override the fixture make_storage")

    @pytest.fixture
    def connect(self, make_storage: Callable[[], Storage]) -> Iterator[Callable[[], Client]]:
        """Return what makes an independent client with plain methods, closed after the test."""
        with ExitStack() as stack:
            driver = Driver()
            stack.callback(driver.close)

            def one() -> Client:
                client = Client(driver, make_storage())
                stack.callback(client.close)
                return client

            yield one

    @pytest.fixture
    def client(self, connect: Callable[[], Client]) -> Client:
        return connect()

    @pytest.fixture
    def other(self, connect: Callable[[], Client]) -> Client:
        """Return a second client, independent of `client`."""
        return connect()

    @pytest.fixture
    def at(self) -> str:
        """Return a prefix that only this test uses."""
        return f"laws-{secrets.token_hex(8)}/"

    # What is written is read.

    def test_a_missing_key_reads_as_none(self, client: Client, at: str) -> None:
        assert client.read(f"{at}nothing") is None
        assert client.read(f"{at}nothing", offset=3, length=5) is None
        assert client.read(f"{at}nothing", length=0) is None, "a range of nothing still tells absence"

    def test_a_created_value_is_read_with_its_token(self, client: Client, at: str) -> None:
        token = client.create(f"{at}k", b"value")
        stored = client.read(f"{at}k")
        assert stored is not None
        assert stored.data == b"value"
        assert type(stored.data) is bytes
        assert stored.token == token

    def test_a_put_value_is_read(self, client: Client, at: str) -> None:
        assert client.put(f"{at}k", b"value") is None  # type: ignore[func-returns-value]
        assert client.value(f"{at}k") == b"value"

    def test_putting_the_same_twice_is_fine(self, client: Client, at: str) -> None:
        """An engine that puts by a conditional write must take the refusal as success."""
        client.put(f"{at}k", b"value")
        client.put(f"{at}k", b"value")
        assert client.value(f"{at}k") == b"value"

    def test_small_values_come_back_as_they_are(self, client: Client, at: str) -> None:
        """Empty bodies, and bodies that look like a chunked transfer's framing."""
        values = (b"", b"\0", b"x", bytes(range(256)), b"\r\n", b"a\r\n0\r\n\r\n")
        for n, value in enumerate(values):
            token = client.create(f"{at}{n}/created", value)
            token = client.replace(f"{at}{n}/created", value + b"!", token)
            client.replace(f"{at}{n}/created", value, token)
            client.put(f"{at}{n}/put", value)
            assert client.value(f"{at}{n}/created") == value
            assert client.value(f"{at}{n}/put") == value
            assert client.value(f"{at}{n}/put", offset=0, length=10) == value[:10]

    def test_a_big_value_comes_back_as_it_is(self, client: Client, at: str) -> None:
        """8 MiB is past the size where SDKs begin to send parts, which drops conditions."""
        value = secrets.token_bytes(BIG)
        digest = hashlib.sha256(value).digest()
        token = client.create(f"{at}created", value)
        client.put(f"{at}put", value)
        assert hashlib.sha256(client.value(f"{at}created")).digest() == digest
        assert hashlib.sha256(client.value(f"{at}put")).digest() == digest
        assert client.value(f"{at}put", offset=BIG - 7, length=100) == value[-7:]
        with pytest.raises(PreconditionFailedError):
            client.create(f"{at}created", value[::-1])
        changed = client.replace(f"{at}created", value[::-1], token)
        with pytest.raises(PreconditionFailedError):
            client.replace(f"{at}created", value, token)
        stored = client.read(f"{at}created")
        assert stored is not None
        assert (stored.token, stored.data == value[::-1]) == (changed, True)

    @pytest.mark.parametrize("kind", [bytearray, memoryview])
    def test_any_bytes_like_value_is_taken(
        self, client: Client, at: str, kind: Callable[[bytes], Data]
    ) -> None:
        token = client.create(f"{at}created", kind(b"first"))
        client.replace(f"{at}created", kind(b"second"), token)
        client.put(f"{at}put", kind(b"third"))
        client.put(f"{at}slice", kind(b"0123456789")[2:5])
        assert client.value(f"{at}created") == b"second"
        assert client.value(f"{at}put") == b"third"
        assert client.value(f"{at}slice") == b"234"

    @pytest.mark.parametrize("op", ["create", "replace", "put"])
    def test_a_value_is_taken_at_call_time(self, client: Client, at: str, op: str) -> None:
        """What the caller writes into its buffer while the request is under way must not be stored."""
        key, buffer = f"{at}k", bytearray(b"as it was" * 1000)
        storage, before = client.storage, bytes(buffer)
        token = client.create(key, b"old") if op == "replace" else ""
        calls: dict[str, Callable[[], Coroutine[Any, Any, Token | None]]] = {
            "create": partial(storage.create, key, buffer),
            "replace": partial(storage.replace, key, buffer, token),
            "put": partial(storage.put, key, buffer),
        }
        call = calls[op]

        async def overwritten_under_way() -> None:
            task = asyncio.ensure_future(call())
            await asyncio.sleep(0)  # it has begun, and waits for the network
            buffer[:] = bytes(len(buffer))
            await task

        if storage.blocking:
            client.run(call())
            buffer[:] = bytes(len(buffer))
        else:
            client.run(overwritten_under_way())
        assert client.value(key) == before

    # Conditional writes.

    def test_a_second_create_of_a_key_is_refused(self, client: Client, other: Client, at: str) -> None:
        token = client.create(f"{at}k", b"first")
        for each in (client, other):
            with pytest.raises(PreconditionFailedError):
                each.create(f"{at}k", b"second")
        assert client.read(f"{at}k") == Stored(b"first", token)

    def test_a_create_after_a_put_is_refused(self, client: Client, at: str) -> None:
        client.put(f"{at}k", b"first")
        with pytest.raises(PreconditionFailedError):
            client.create(f"{at}k", b"second")
        assert client.value(f"{at}k") == b"first"

    def test_a_replace_with_the_right_token_is_done(self, client: Client, other: Client, at: str) -> None:
        """The right token is one that was returned by a write or by a read, of any client."""
        client.create(f"{at}k", b"first")
        read = other.read(f"{at}k")
        assert read is not None
        token = other.replace(f"{at}k", b"second", read.token)
        token = client.replace(f"{at}k", b"third", token)
        assert other.read(f"{at}k") == Stored(b"third", token)

    def test_a_replace_with_a_stale_token_is_refused(self, client: Client, other: Client, at: str) -> None:
        first = client.create(f"{at}k", b"first")
        second = client.replace(f"{at}k", b"second", first)
        for each in (client, other):
            with pytest.raises(PreconditionFailedError):
                each.replace(f"{at}k", b"third", first)
        assert client.read(f"{at}k") == Stored(b"second", second)

    def test_a_replace_of_a_missing_key_is_refused(self, client: Client, at: str) -> None:
        """S3 answers 404 here and not 412; a key that was deleted is not brought back."""
        token = client.create(f"{at}k", b"first")
        client.delete(f"{at}k")
        with pytest.raises(PreconditionFailedError):
            client.replace(f"{at}k", b"second", token)
        with pytest.raises(PreconditionFailedError):
            client.replace(f"{at}never", b"second", token)
        assert client.read(f"{at}k") is None
        assert client.read(f"{at}never") is None

    def test_a_token_changes_with_the_bytes(self, client: Client, at: str) -> None:
        """Else a writer that read an older version could overwrite a newer one."""
        tokens = [client.create(f"{at}k", b"0")]
        for n in range(1, 6):
            tokens.append(client.replace(f"{at}k", b"%d" % n, tokens[-1]))
        assert len(set(tokens)) == len(tokens)

    # Ranges.

    def test_a_range_gives_what_there_is_of_it(self, client: Client, at: str) -> None:
        """HTTP has no range of zero bytes and answers 416 past the end; here neither is an error."""
        value = b"0123456789"
        token = client.create(f"{at}k", value)
        for offset in (0, 3, 9, 10, 11, 99):
            for length in (None, 0, 1, 4, 10, 100):
                stored = client.read(f"{at}k", offset=offset, length=length)
                end = None if length is None else offset + length
                assert stored == Stored(value[offset:end], token), f"{offset=} {length=}"

    # Listings.

    def test_a_listing_of_nothing_is_empty(self, client: Client, at: str) -> None:
        assert client.keys(f"{at}nothing/") == []
        assert client.keys(f"{at}noth") == []

    def test_a_listing_is_complete_and_ascending_at_any_size(self, client: Client, at: str) -> None:
        """A page holds 1,000 rows, so one answer is not the listing; nor is one delete request enough."""
        keys = [f"{at}many/{n:04}" for n in range(1050)]
        outcomes = client.together([partial(client.storage.put, key, b"x") for key in keys], width=WIDTH)
        assert [x for x in outcomes if x is not None] == []
        pages = list(client.pages(f"{at}many/"))
        assert max(len(page.rows) for page in pages) <= 1000
        assert [row.key for page in pages for row in page.rows] == keys
        client.delete(*keys)
        assert client.keys(f"{at}many/") == []

    def test_a_listing_over_folders_is_complete_and_ascending(self, client: Client, at: str) -> None:
        """In ASCII ``!``, ``-`` and ``.`` come before ``/``; a walk by folders gives ``a/`` too early.

        A page that ends inside a folder must go on where it ended, in either order.
        """
        folders = ("a!20b", "a-b", "a.b", "a", "a/b", "a0", "a_b", "aa")
        keys = [f"{at}{folder}/{n:03}" for folder in folders for n in range(150)]
        outcomes = client.together([partial(client.storage.put, key, b"x") for key in keys], width=WIDTH)
        assert [x for x in outcomes if x is not None] == []
        found = client.keys(at)
        assert sorted(found) == sorted(keys)
        if self.lists_by_whole_key:
            assert found == sorted(keys)
        assert client.keys(f"{at}a-b/") == sorted(key for key in keys if key.startswith(f"{at}a-b/"))

    def test_a_prefix_is_neither_a_folder_nor_a_pattern(self, client: Client, at: str) -> None:
        for name in ("a/b/1", "a/b/2", "a/bc/1", "a/c", "b"):
            client.put(f"{at}{name}", b"x")
        assert client.keys(f"{at}a/b/") == [f"{at}a/b/1", f"{at}a/b/2"]
        assert client.keys(f"{at}a/b") == [f"{at}a/b/1", f"{at}a/b/2", f"{at}a/bc/1"]
        assert client.keys(f"{at}a/b/1") == [f"{at}a/b/1"]
        assert client.keys(f"{at}a/?") == []
        assert client.keys(f"{at}a/*") == []

    def test_a_listing_tells_size_and_time(self, client: Client, at: str) -> None:
        """The time is the store's own and aware; a naive one shifts by the zone of whoever reads it."""
        client.put(f"{at}empty", b"")
        client.create(f"{at}full", bytes(1234))
        empty, full = client.rows(at)
        assert (empty.key, empty.size) == (f"{at}empty", 0)
        assert (full.key, full.size) == (f"{at}full", 1234)
        for row in (empty, full):
            assert row.modified.tzinfo is not None
            assert abs(datetime.now(UTC) - row.modified) < timedelta(hours=1)

    # Deletes.

    def test_a_deleted_key_is_gone_and_may_be_created_again(self, client: Client, at: str) -> None:
        client.create(f"{at}a", b"first")
        client.put(f"{at}b", b"first")
        client.put(f"{at}c", b"kept")
        client.delete(f"{at}a", f"{at}b")
        assert client.read(f"{at}a") is None
        assert client.keys(at) == [f"{at}c"]
        client.create(f"{at}a", b"second")
        client.put(f"{at}b", b"second")
        assert client.value(f"{at}a") == b"second"
        assert client.value(f"{at}b") == b"second"

    def test_deleting_what_is_not_there_is_fine(self, client: Client, at: str) -> None:
        client.put(f"{at}k", b"x")
        client.delete(f"{at}never", f"{at}k", f"{at}k")
        client.delete(f"{at}k")
        client.delete()
        assert client.keys(at) == []

    # Keys.

    def test_every_key_that_the_layout_makes_is_taken(self, client: Client, at: str) -> None:
        """The characters of `cloudckpt.keys`, none of them decoded, folded or normalised on the way."""
        keys = (
            "abcdefghijklmnopqrstuvwxyz0123456789-_.json",
            "nightly!20!e2!82!ac!z/1-0",
            "-/_/!/0",
            "a./a.b/-..c",
            "a..b/a...",
            f"{'m' * 180}/{'o' * 180}/{'9' * 140}",
            f"{'!25' * 60}/{'!2f' * 60}.json",
        )
        for key in (f"{at}{key}" for key in keys):
            token = client.create(key, b"first")
            assert client.read(key) == Stored(b"first", token)
            token = client.replace(key, b"second", token)
            assert client.read(key) == Stored(b"second", token)
            assert client.keys(at) == [key]
            assert client.keys(key) == [key]
            client.delete(key)
            assert client.keys(at) == []

    # Several clients.

    def test_a_write_is_seen_by_another_client_at_once(self, client: Client, other: Client, at: str) -> None:
        """Also by one that has looked before: a cached absence or listing hides another machine's write."""
        assert other.read(f"{at}k") is None
        assert other.keys(at) == []
        token = client.create(f"{at}k", b"first")
        assert other.value(f"{at}k") == b"first"
        assert other.keys(at) == [f"{at}k"]
        client.replace(f"{at}k", b"second, longer", token)
        assert other.value(f"{at}k") == b"second, longer"
        assert [row.size for row in other.rows(at)] == [14]
        client.delete(f"{at}k")
        assert other.read(f"{at}k") is None
        assert other.keys(at) == []

    def test_a_race_to_create_has_one_winner(self, client: Client, other: Client, at: str) -> None:
        """Check-then-write lets two win now and then, hence the barrier and the rounds."""
        storages = alternately(client, other)
        race(
            client,
            {f"{at}{n}": [partial(x.create, f"{at}{n}") for x in storages] for n in range(self.rounds)},
        )

    def test_a_race_to_replace_has_one_winner(self, client: Client, other: Client, at: str) -> None:
        storages = alternately(client, other)
        tokens = {f"{at}{n}": client.create(f"{at}{n}", b"start") for n in range(self.rounds)}
        race(
            client,
            {key: [partial(x.replace, key, token=token) for x in storages] for key, token in tokens.items()},
        )

    def test_every_one_of_many_increments_survives(self, client: Client, other: Client, at: str) -> None:
        """Compare-and-swap by several workers: none may be lost, and none counted twice."""
        key = f"{at}counter"
        client.create(key, b"")
        empty = client.read(key)
        assert empty is not None
        names = [f"{n}" for n in range(INCREMENTS)]
        workers = alternately(client, other)[:WORKERS]
        calls = [partial(append_all, each, key, names[n::WORKERS], empty) for n, each in enumerate(workers)]
        errors = [x for x in client.together(calls) if x is not None]
        assert not errors
        assert sorted(client.value(key).decode().split()) == sorted(names)

    # The end.

    def test_closing_twice_is_fine(self, client: Client, other: Client, at: str) -> None:
        """And another client of the same store goes on."""
        client.put(f"{at}k", b"x")
        client.close()
        client.close()
        assert other.value(f"{at}k") == b"x"

    def test_closing_an_unused_storage_is_fine(self, client: Client) -> None:
        client.close()

    def test_the_url_has_a_scheme(self, client: Client) -> None:
        scheme, separator, _ = client.storage.url.partition("://")
        assert scheme
        assert separator
