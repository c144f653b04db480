"""One request of the app: headers added to its answer, and a 507 where it ran out of memory."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ..memory.out_of_memory import clear_frames, is_out_of_memory
from ..memory.peaks import current_request
from ..readiness import DRAINING
from . import endpoints
from .asgi import App, Message, Receive, Scope, Send, header, respond
from .load_report import REQUEST_HEADER, RESPONSE_HEADER, load_report

if TYPE_CHECKING:
    from ..agent import ReplicaAgent

RESPONSE_START, RESPONSE_BODY = "http.response.start", "http.response.body"
MAX_HELD_BODY_BYTES = 64 << 10  # of a 500 that is held back
HOLD_LOOP_STEPS = 3  # of the loop: a framework that answers an exception with a 500 raises it in the same step
log = logging.getLogger("steelyard.replica")


class AppRequest:
    def __init__(self, agent: ReplicaAgent, scope: Scope, send: Send) -> None:
        self._agent = agent
        self._scope = scope
        self._send = send
        self._wanted = header(scope, REQUEST_HEADER)
        self._peak = agent.footprint.peaks.open(bool(self._wanted) and not agent.footprint.in_other_process)
        self._begun = False  # the answer
        self._streams = False
        self._kept: list[Message] = []
        self._releasing: asyncio.Task[None] | None = None

    async def run(self, app: App, receive: Receive) -> None:
        token = current_request.set(self._peak)
        try:
            if await self._runs_out(app, receive):
                await self._agent.footprint.make_room()
                await respond(self._scope, self._pass_on, endpoints.out_of_memory())
            elif self._agent.footprint.may_trim:
                await self._agent.footprint.trim()
        finally:
            current_request.reset(token)
            self._agent.footprint.peaks.close(self._peak)
            if self._releasing is not None:
                self._releasing.cancel()

    async def _runs_out(self, app: App, receive: Receive) -> bool:
        """Of memory, before its answer. Afterwards the exception and all that it held are gone."""
        try:
            await app(self._scope, receive, self._app_send)
        except Exception as problem:
            if not is_out_of_memory(problem):
                await self._release()
                raise
            self._agent.footprint.out_of_memory_count += 1
            if self._begun:
                raise
            self._kept.clear()
            log.error("out of memory in a request for %s", self._scope.get("path"), exc_info=problem)
            clear_frames(problem)
            return True
        if self._kept or self._releasing is not None:
            await self._release()
        return False

    # ------------------------------------------------------------------ what the app sends

    async def _app_send(self, message: Message) -> None:
        """Holds back a 500, which may hide an out-of-memory error, and the start of a stream whose memory is wanted."""
        if message["type"] == RESPONSE_START:
            self._streams = not any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
            if message["status"] == 500 or (self._streams and self._peak.wanted):
                self._kept.append(message)
                return
        elif self._kept and self._kept[0]["status"] == 500 and _is_last(message):
            self._kept.append(message)
            self._releasing = asyncio.get_running_loop().create_task(self._release_soon())
            return
        elif self._kept:
            await self._release()
        await self._pass_on(message)

    async def _release_soon(self) -> None:
        """The app may go on with other work."""
        for _ in range(HOLD_LOOP_STEPS):
            await asyncio.sleep(0)
        await self._release()

    async def _release(self) -> None:
        while self._kept:
            await self._pass_on(self._kept.pop(0))
        if self._releasing is not None and self._releasing is not asyncio.current_task():
            await self._releasing

    async def _pass_on(self, message: Message) -> None:
        if message["type"] == RESPONSE_START:
            self._begun = True
            if self._agent.footprint.may_trim and not self._streams:
                await self._agent.footprint.trim()
            self._add_headers(message)
        await self._send(message)

    def _add_headers(self, message: Message) -> None:
        agent = self._agent
        more = []
        # The memory of an error says nothing of other requests.
        needed = agent.footprint.peaks.request_bytes(self._peak) if message["status"] < 400 else None
        if self._wanted and (report := load_report(self._wanted, agent, needed)):
            more.append((RESPONSE_HEADER, report))
        if agent.state == DRAINING and self._scope.get("http_version", "1.1") in ("1.0", "1.1"):
            more.append((b"connection", b"close"))  # or the next request meets a closing connection
        if more:
            message["headers"] = [*message.get("headers", ()), *more]


def _is_last(message: Message) -> bool:
    small = len(message.get("body", b"")) <= MAX_HELD_BODY_BYTES
    return message["type"] == RESPONSE_BODY and not message.get("more_body", False) and small
