"""An HTTP proxy that takes conditions off requests, and keeps a record of those that came.

    with StrippingProxy(minio.endpoint) as proxy:
        ...  # the store behind it never hears of a condition
        assert proxy.requests[-1].headers["x-amz-storage-class"] == "STANDARD"

Without conditions any store lets every write win: as a gateway that does not know
them, or drops them. A signature may cover what is taken off, so the store behind it
must take anonymous requests, or check no signatures. With ``strip=()`` it only
records. It knows bodies of a known length and no others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.servers.canned import Answer, Asked, give

CONDITIONS = ("If-Match", "If-None-Match", "ifGenerationMatch")
"""Headers, and parameters of the query: of S3 and Azure, and of Google."""

OF_ONE_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class StrippingProxy:
    """The proxy, in threads of its own, from `with` to its end.

    Attributes:
        endpoint: ``http://127.0.0.1:PORT``.
        requests: Every request so far, as the client sent it.
    """

    def __init__(self, target: str, *, strip: Iterable[str] = CONDITIONS) -> None:
        parts = urlsplit(target)
        self.requests: list[Asked] = []
        self._target = (parts.hostname or "", parts.port)
        self._strip = {name.lower() for name in strip}
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                proxy._pass_on(self)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = pass_on

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def _pass_on(self, client: BaseHTTPRequestHandler) -> None:
        body = client.rfile.read(int(client.headers.get("Content-Length", 0)))
        asked = Asked(client.command, client.path, client.headers, body)
        self.requests.append(asked)
        made_up = self.made_up(asked)
        if made_up is not None:
            give(client, made_up)
            return
        server = HTTPConnection(*self._target, timeout=30)
        try:
            path = self._without_conditions(client.path)
            server.putrequest(client.command, path, skip_host=True, skip_accept_encoding=True)
            for name, value in client.headers.items():
                if name.lower() not in self._strip:
                    server.putheader(name, value)
            server.endheaders(body)
            answer = server.getresponse()
            data = answer.read()
        finally:
            server.close()
        client.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in OF_ONE_HOP:
                client.send_header(name, value)
        length = answer.headers.get("Content-Length") if client.command == "HEAD" else None
        client.send_header("Content-Length", length or str(len(data)))
        client.end_headers()
        client.wfile.write(data)

    def made_up(self, asked: Asked) -> Answer | None:
        """Return what the client gets instead of the store's answer; None to pass the request on."""
        return None

    def _without_conditions(self, path: str) -> str:
        before, _, query = path.partition("?")
        left = [each for each in query.split("&") if each.partition("=")[0].lower() not in self._strip]
        return f"{before}?{'&'.join(left)}" if query else before

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="strip-proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
