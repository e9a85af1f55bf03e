"""A server that hands out temporary credentials of AWS's: a container's endpoint, and STS.

    with Logins() as logins:
        gate.answers = logins.check        # a store behind a `Gate` takes the newest ones only
        environment = logins.container()   # or .web_identity(folder), or .process(folder)

Owns: which credentials were handed out. Each set lasts for a minute, so that a client
asks for new ones whenever it needs some; `revoke` ends all that were handed out.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.canned import Answer, Asked, give
from tests.servers.gate import refusal

_STS = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{AccessKeyId}</AccessKeyId>
<SecretAccessKey>{SecretAccessKey}</SecretAccessKey><SessionToken>{Token}</SessionToken>
<Expiration>{Expiration}</Expiration></Credentials><AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn>
<AssumedRoleId>a:s</AssumedRoleId></AssumedRoleUser></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""
_KEY = re.compile(r"Credential=([^/]+)/")


class Logins:
    """The server, in threads of its own, from `with` to its end.

    Attributes:
        endpoint: ``http://127.0.0.1:PORT``.
        handed_out: How many sets of credentials were.
        failures: So many requests for more fail first.
        used: The access keys that the store has taken.
    """

    def __init__(self) -> None:
        self.handed_out = 0
        self.failures = 0.0
        self.used: set[str] = set()
        self._lock = threading.Lock()
        self._valid: set[str] = set()
        logins = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                give(self, logins._answer(self.command))

            do_GET = do_POST = answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def revoke(self) -> None:
        """Let all that were handed out so far be expired."""
        with self._lock:
            self._valid.clear()

    def check(self, asked: Asked) -> Answer | None:
        """Answer a request to a store for it: None when its credentials are valid."""
        found = _KEY.search(asked.headers.get("Authorization", ""))
        with self._lock:
            if found is None or found[1] not in self._valid:
                return refusal(400, "ExpiredToken")
            self.used.add(found[1])
        return None

    def container(self, folder: Path) -> dict[str, str]:
        """Return the environment of a container whose role's credentials come from here."""
        token = folder / "container-token"
        token.write_text("token")
        return {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.endpoint}/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
        }

    def web_identity(self, folder: Path) -> dict[str, str]:
        """Return the environment of a pod that trades its token for credentials here."""
        token = folder / "web-token"
        token.write_text("token")
        return {
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
            "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/agents",
            "AWS_ROLE_SESSION_NAME": "agents",
            "AWS_ENDPOINT_URL_STS": self.endpoint,
        }

    def process(self, folder: Path) -> dict[str, str]:
        """Return the environment with a profile whose credentials come from a program that asks here."""
        ask = f"import urllib.request as u; print(u.urlopen('{self.endpoint}/process').read().decode())"
        config = folder / "aws-config"
        config.write_text(f'[profile agents]\ncredential_process = {sys.executable} -ISc "{ask}"\n')
        return {"AWS_CONFIG_FILE": str(config), "AWS_PROFILE": "agents"}

    def _answer(self, method: str) -> Answer:
        with self._lock:
            if self.failures > 0:
                self.failures -= 1
                return refusal(500, "InternalFailure")
            self.handed_out += 1
            key = f"KEY{self.handed_out}"
            self._valid.add(key)
        until = datetime.now(UTC) + timedelta(seconds=60)
        found = {
            "Version": 1,
            "AccessKeyId": key,
            "SecretAccessKey": "secret",
            "Token": "token",
            "SessionToken": "token",
            "Expiration": until.isoformat(timespec="seconds").replace("+00:00", "Z"),
        }
        if method == "POST":
            return Answer(200, _STS.format(**found).encode(), {"Content-Type": "text/xml"})
        return Answer(200, json.dumps(found).encode(), {"Content-Type": "application/json"})

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), name="logins", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
