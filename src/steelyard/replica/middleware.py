"""The kit in front of an ASGI app."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from . import answers, offered
from .ahead import ReadAhead
from .asgi import Answer, App, Message, Receive, Scope, Send, path_of, respond
from .call import Call
from .state import READY
from .watch import Watch

if TYPE_CHECKING:
    from .kit import Kit

TRY_LATER = 1013  # the code of a web socket that is closed because the server cannot take it now


class Middleware:
    def __init__(self, kit: Kit, app: App) -> None:
        self.kit = kit
        self.app = app
        options = kit.options
        self._watch = Watch(app, options.ready_when, kit.readiness) if options.ready_when else None
        self._watching: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._lifespan(scope, receive, send)
        elif kind in ("http", "websocket"):
            self.kit.begin().meet(scope)
            self._begin_to_watch()
            await (self._request if kind == "http" else self._socket)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    # ------------------------------------------------------------------ requests

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        kit, path = self.kit, path_of(scope)
        if path in answers.PATHS:
            await self._answer(scope, send, answers.own(kit, scope["method"], path))
        elif path in kit.options.always:
            await self.app(scope, receive, send)
        elif kit.offers and (path == offered.MODELS or path.startswith(offered.MODELS + "/")):
            await self._answer(scope, send, await offered.answer(kit, scope, path))
        elif not kit.readiness.serves:
            await self._refuse(scope, send, kit.state, answers.too_early(kit))
        elif (offer := kit.offers.of(path)) is None:
            await self._take(scope, receive, send)
        elif offer.state != READY:
            await self._refuse(scope, send, offer.state, offered.not_loaded(offer))
        else:
            offer.in_flight += 1
            try:
                await self._take(scope, receive, send)
            finally:
                offer.in_flight -= 1

    async def _take(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.kit.turns.take():
            await self._call(scope, receive, send)
        else:
            await self._in_line(scope, receive, send)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """With a turn, which is given back whatever the app does."""
        try:
            await Call(self.kit, scope, send).run(self.app, receive)
        finally:
            self.kit.turns.give_back()
            self.kit.footprint.rest()

    async def _in_line(self, scope: Scope, receive: Receive, send: Send) -> None:
        turns = self.kit.turns
        place = turns.join()
        if place is None:
            await self._refuse(scope, send, "queue_full", answers.full(turns))
            return
        ahead = ReadAhead(receive)
        try:
            try:
                came = await ahead.until(place)
            except BaseException:
                turns.quit(place)
                raise
            if came:
                await self._call(scope, ahead, send)
            else:
                turns.quit(place)
        finally:
            ahead.close()

    async def _refuse(self, scope: Scope, send: Send, code: str, answer: Answer) -> None:
        self.kit.refused[code] = self.kit.refused.get(code, 0) + 1
        await self._answer(scope, send, answer)

    async def _answer(self, scope: Scope, send: Send, answer: Answer) -> None:
        if scope["type"] == "websocket" and "websocket.http.response" not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": TRY_LATER, "reason": "not ready"})
            return
        named = ((b"steelyard-instance", self.kit.instance.encode()), *answer.headers)
        await respond(scope, send, answer._replace(headers=named))

    # ------------------------------------------------------------------ web sockets

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        kit = self.kit
        if kit.readiness.serves:
            kit.turns.open_socket()
            runs = kit.footprint.peaks.open(asked=False)
            try:
                await self.app(scope, receive, send)
            finally:
                kit.footprint.peaks.close(runs)
                kit.turns.close_socket()
        else:
            await self._refuse(scope, send, kit.state, answers.too_early(kit))

    # ------------------------------------------------------------------ from start to end

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        life = self.kit.begin()
        ended = False

        async def heard() -> Message:
            nonlocal ended
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                ended = True
                await life.leave()
            return message

        async def told(message: Message) -> None:
            nonlocal ended
            if message["type"] == "lifespan.startup.complete":
                self._begin_to_watch(scope)
            elif message["type"] == "lifespan.startup.failed":
                ended = True
                await life.leave()
            await send(message)

        try:
            await self.app(scope, heard, told)
        finally:
            if ended:  # an app that has no lifespan raises here, and serves all the same
                self._end_watching()
                self.kit.end()

    def _begin_to_watch(self, lifespan: Scope | None = None) -> None:
        if self._watch is None or (self._watching is not None and not self._watching.done()):
            return
        if lifespan is not None:
            self._watch.state = lifespan.get("state") or {}
        self._watching = asyncio.get_running_loop().create_task(self._watch.run(), name="steelyard-ready-when")

    def _end_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
