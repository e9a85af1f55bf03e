"""The laws of what an engine may have beside the contract, for every engine: `StorageConformance` has them.

Owns: that a change is seen, by whatever request the engine has for it.
"""

from __future__ import annotations

import pytest

from cloudckpt.storage.answers import AbsentError
from cloudckpt.storage.changed import Changes, Watchable
from cloudckpt.storage.contract import Stored
from cloudckpt.testing.driver import Client


class ChangeLaws:
    """Laws of `cloudckpt.storage.changed`, also of an engine that has no request for it.

    Attributes:
        brings_nothing: False for a server that sends an unchanged value again, as fake-gcs-server does.
    """

    brings_nothing = True

    def test_an_unchanged_value_does_not_travel(self, client: Client, at: str) -> None:
        engine = client.storage
        if isinstance(engine, Watchable) and self.brings_nothing:
            for data in (b"value", b""):
                token = client.create(f"{at}{len(data)}", data)
                assert client.run(engine.changed(f"{at}{len(data)}", token)) is None

    def test_a_value_that_has_not_changed_is_not_read(self, client: Client, at: str) -> None:
        token = client.create(f"{at}k", b"value")
        assert client.run(Changes(client.storage).since(f"{at}k", token)) is None
        empty = client.create(f"{at}empty", b"")
        assert client.run(Changes(client.storage).since(f"{at}empty", empty)) is None

    def test_a_change_by_another_client_is_seen(self, client: Client, other: Client, at: str) -> None:
        """By an engine that asks a cache, or compares times, a writer would not learn that it was fenced."""
        before = client.create(f"{at}k", b"value")
        after = other.replace(f"{at}k", b"other", before)
        changes = Changes(client.storage)
        assert client.run(changes.since(f"{at}k", before)) == Stored(b"other", after)
        assert client.run(changes.since(f"{at}k", after)) is None

    def test_a_key_that_is_gone_is_no_unchanged_one(self, client: Client, at: str) -> None:
        token = client.create(f"{at}k", b"value")
        client.delete(f"{at}k")
        with pytest.raises(AbsentError):
            client.run(Changes(client.storage).since(f"{at}k", token))
