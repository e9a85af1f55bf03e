"""moto's S3 in a process of its own: exact about answers, in memory, ready in a second.

It works off one request at a time, on one thread. moto checks a condition and
writes in two steps, so with two threads both writers of a race can win; served
serially its conditions are atomic, and a race on it proves nothing about the
client. Each answer closes its connection (werkzeug speaks HTTP/1.0 then), and a
connection that says nothing is closed after `SILENCE` seconds, so a client that
holds one open can't block the others.

Run as a program it serves on the port that it is given.
"""

from __future__ import annotations

import sys
import time

from tests.servers.base import Server, free_ports, new_folder, ready, spawn

SILENCE = 2.0


def start() -> Server:
    """Start it.

    Raises:
        Unavailable: With the reason.
    """
    started = time.monotonic()
    [port] = free_ports(1)
    process = spawn([sys.executable, "-m", "tests.servers.moto", str(port)], new_folder("moto"))
    server = Server("moto", f"http://127.0.0.1:{port}", races=False, process=process)
    return ready(server, timeout=60, started=started)


def main() -> None:
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):
        timeout = SILENCE

        def log_request(self, *_: object) -> None:
            pass

    app = DomainDispatcherApplication(create_backend_app)
    make_server("127.0.0.1", int(sys.argv[1]), app, threaded=False, request_handler=Handler).serve_forever()


if __name__ == "__main__":
    main()
