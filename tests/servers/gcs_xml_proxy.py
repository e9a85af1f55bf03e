"""A translator between Google's XML interface, which obstore speaks, and the JSON one of fake-gcs-server.

    with XMLProxy(fake_gcs.endpoint) as proxy:
        ...  # obstore, with proxy.endpoint for its endpoint_url

Owns: how a request and its answer are worded; conditions, versions, ranges and pages
are the server's own. It knows what obstore sends and no more: PUT, GET, HEAD and DELETE
of one object, and ``list-type=2`` without a delimiter. What Google says otherwise than
the server behind it, such as to a bucket that does not exist, is not made up here.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Mapping
from datetime import datetime
from email.utils import format_datetime
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

PAGE_ROWS = 1000
CODES = {404: "NoSuchKey", 412: "PreconditionFailed", 416: "InvalidRange"}


class XMLProxy:
    """The translator, in threads of its own, from `with` to its end.

    Attributes:
        endpoint: ``http://127.0.0.1:PORT``.
    """

    def __init__(self, target: str) -> None:
        host = urlsplit(target).netloc

        class Handler(_Handler):
            server_behind = host

        class Server(ThreadingHTTPServer):
            request_queue_size = 128  # with the usual 5 a burst of connections waits a second
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="xml", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client's, and one to the server behind."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_behind = ""

    def setup(self) -> None:
        super().setup()
        self._behind = HTTPConnection(self.server_behind, timeout=60)

    def finish(self) -> None:
        self._behind.close()
        super().finish()

    def log_message(self, *_: object) -> None:
        pass

    # ---- what obstore asks

    def do_PUT(self) -> None:
        bucket, key = self._named()
        boundary = secrets.token_hex(16)
        kind = self.headers.get("Content-Type", "application/octet-stream")
        about = {"name": key, "contentType": kind, "cacheControl": self.headers.get("Cache-Control", "")}
        head = (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(about)}\r\n"
            f"--{boundary}\r\nContent-Type: {kind}\r\n\r\n"
        )
        data = self.rfile.read(int(self.headers["Content-Length"]))
        asked = {"uploadType": "multipart"}
        if "x-goog-if-generation-match" in self.headers:
            asked["ifGenerationMatch"] = self.headers["x-goog-if-generation-match"]
        answer, body = self._ask(
            "POST",
            f"/upload/storage/v1/b/{quote(bucket, safe='')}/o",
            asked,
            body=head.encode() + data + f"\r\n--{boundary}--".encode(),
            headers={"Content-Type": f"multipart/related; boundary={boundary}"},
        )
        if answer.status == 200:
            self._say(200, b"", _version(json.loads(body)))
        else:
            self._refuse(answer.status)

    def do_GET(self) -> None:
        bucket, key = self._named()
        if not key:
            self._list(bucket)
            return
        wanted = {"Range": self.headers["Range"]} if "Range" in self.headers else {}
        answer, body = self._ask("GET", _object(bucket, key), {"alt": "media"}, headers=wanted)
        if answer.status not in (200, 206):
            self._refuse(answer.status)
            return
        names = ("ETag", "x-goog-generation", "Last-Modified", "Content-Type", "Content-Range")
        told = {name: answer.headers[name] for name in names if name in answer.headers}
        self._say(answer.status, body, told)

    def do_HEAD(self) -> None:
        bucket, key = self._named()
        answer, body = self._ask("GET", _object(bucket, key), {})
        if answer.status != 200:
            self._refuse(answer.status)
            return
        found = json.loads(body)
        self._say(200, b"", {**_version(found), "Content-Length": str(found["size"])})

    def do_DELETE(self) -> None:
        bucket, key = self._named()
        answer, _ = self._ask("DELETE", _object(bucket, key), {})
        if answer.status in (200, 204):
            self._say(204, b"", {})
        else:
            self._refuse(answer.status)

    def _list(self, bucket: str) -> None:
        asked = dict(parse_qsl(urlsplit(self.path).query))
        after = asked.get("start-after", "")
        wanted = {
            "prefix": asked.get("prefix", ""),
            "startOffset": after,  # which is the first to come, not the last that came
            "pageToken": asked.get("continuation-token", ""),
            "maxResults": asked.get("max-keys", str(PAGE_ROWS)),
        }
        wanted = {name: value for name, value in wanted.items() if value}
        answer, body = self._ask("GET", f"/storage/v1/b/{quote(bucket, safe='')}/o", wanted)
        if answer.status != 200:
            self._refuse(answer.status)
            return
        document = json.loads(body)
        rows = [_row(found) for found in document.get("items", ()) if found["name"] != after]
        token = document.get("nextPageToken")
        more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        page = f"<ListBucketResult>{''.join(rows)}{more}</ListBucketResult>"
        self._say(200, page.encode(), {"Content-Type": "application/xml"})

    # ---- both ways

    def _named(self) -> tuple[str, str]:
        """Return the bucket and the key that the path names."""
        bucket, _, key = urlsplit(self.path).path[1:].partition("/")
        return unquote(bucket), unquote(key)

    def _ask(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str],
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[HTTPResponse, bytes]:
        url = f"{path}?{urlencode(parameters)}"
        self._behind.request(method, url, body=body, headers=dict(headers or {}))
        answer = self._behind.getresponse()
        told = answer.read()
        if answer.status == 416:  # fake-gcs-server hangs up after it, without saying so before
            self._behind.close()
        return answer, told

    def _refuse(self, status: int) -> None:
        code = CODES.get(status, "Other")
        self._say(status, f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode(), {})

    def _say(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _object(bucket: str, key: str) -> str:
    return f"/storage/v1/b/{quote(bucket, safe='')}/o/{quote(key, safe='')}"


def _version(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that tell which version of an object this is."""
    modified = datetime.fromisoformat(found["updated"])
    return {
        "ETag": json.dumps(found["etag"].strip('"')),
        "x-goog-generation": str(found["generation"]),
        "Last-Modified": format_datetime(modified, usegmt=True),
    }


def _row(found: Mapping[str, Any]) -> str:
    values = {
        "Key": found["name"],
        "Size": found["size"],
        "LastModified": found["updated"],
        "ETag": found["etag"],
        "Generation": found["generation"],
    }
    inside = "".join(f"<{name}>{escape(str(value))}</{name}>" for name, value in values.items())
    return f"<Contents>{inside}</Contents>"
