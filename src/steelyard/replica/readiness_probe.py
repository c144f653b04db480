"""Calls the app itself, without a network, to see whether it is ready."""

from __future__ import annotations

import asyncio
from typing import Any

from .http.asgi import App, Message
from .readiness import Readiness

UNREADY_INTERVAL_SECONDS, READY_INTERVAL_SECONDS = 0.25, 2.0
PROBE_TIMEOUT_SECONDS = 5.0
MAX_FAILURES = 2  # in a row, until a ready app counts as not ready


class ReadinessProbe:
    def __init__(self, app: App, path: str, readiness: Readiness) -> None:
        self._app = app
        self._path, _, self._query = path.partition("?")
        self._readiness = readiness
        self.state: dict[str, Any] = {}  # of the app's lifespan

    async def run(self) -> None:
        bad = MAX_FAILURES
        while True:
            reason = await self._ask()
            bad = bad + 1 if reason else 0
            if not reason:
                self._readiness.ready()
            elif bad >= MAX_FAILURES:
                self._readiness.loading(reason)
            await asyncio.sleep(UNREADY_INTERVAL_SECONDS if bad else READY_INTERVAL_SECONDS)

    async def _ask(self) -> str:
        """Why it is not ready; empty: it is."""
        try:
            status = await asyncio.wait_for(self._status(), PROBE_TIMEOUT_SECONDS)
        except TimeoutError:
            return f"{self._path} gave no answer in {PROBE_TIMEOUT_SECONDS:g} s"
        except Exception as problem:  # the app's own
            return f"{self._path} failed with {type(problem).__name__}"
        return "" if status == 200 else f"{self._path} answers {status}"

    async def _status(self) -> int:
        status = 0
        asked = False

        async def receive() -> Message:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()  # the client stays
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]

        await self._app(self._scope(), receive, send)
        return status

    def _scope(self) -> dict[str, Any]:
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": self._query.encode(),
            "root_path": "",
            "headers": [(b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 0),
            "state": dict(self.state),
        }
