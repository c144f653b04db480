"""A gateway as far as a replica sees it: a real HTTP server that speaks the lease API and remembers what it heard."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from ..harness.processes import free_port

TOKEN = "s3cret-of-the-tests"


class Heard(NamedTuple):
    method: str
    model: str
    replica: str
    instance: str
    body: dict[str, Any]


class FakeGateway:
    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.leases: dict[tuple[str, str], dict[str, Any]] = {}
        self.paths: list[str] = []  # as they came
        self.seconds = 0.6  # granted
        self.refusal: tuple[int, bytes] | None = None  # the answer to every PUT
        self.token = ""
        self.deleting = threading.Lock()  # who holds it keeps leases from being given up
        self.slow = threading.Event()  # DELETE is answered when this is set
        self.slow.set()
        self.port = free_port()  # none that the kernel gives to others while we are away
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Again, too: on the port it had."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def count(self, method: str) -> int:
        return sum(call.method == method for call in self.heard)

    def answer(self, call: Heard, authorization: str) -> tuple[int, dict[str, Any] | bytes]:
        if self.token and authorization != f"Bearer {self.token}":
            return 401, {"error": {"code": "unauthorized", "message": "No such token."}}
        if call.method == "DELETE":
            self.slow.wait(60)
            with self.deleting:
                known = self.leases.get((call.model, call.replica))
                if known is None or known["instance"] != call.instance:
                    return 404, {"error": {"message": "no such lease"}}
                del self.leases[call.model, call.replica]
                return 200, {}
        if self.refusal is not None:
            return self.refusal
        self.leases[call.model, call.replica] = call.body
        return 200, {"seconds": self.seconds}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def handle_call(self) -> None:
                parts = urlsplit(self.path)
                _, _, _, model, _, replica = parts.path.split("/")
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
                instance = parse_qs(parts.query).get("instance", [body.get("instance", "")])[0]
                call = Heard(self.command, unquote(model), unquote(replica), instance, body)
                gateway.paths.append(self.path)
                gateway.heard.append(call)
                status, answer = gateway.answer(call, self.headers.get("authorization", ""))
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_PUT = do_DELETE = handle_call

            def log_message(self, *args: Any) -> None:
                pass

        return Handler


@contextmanager
def gateway(**settings: Any) -> Iterator[FakeGateway]:
    fake = FakeGateway()
    for name, value in settings.items():
        setattr(fake, name, value)
    fake.start()
    try:
        yield fake
    finally:
        fake.slow.set()
        fake.stop()
