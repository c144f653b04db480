"""The agent in front of an ASGI app."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..readiness import READY
from ..readiness_probe import ReadinessProbe
from . import endpoints, model_endpoints
from .app_request import AppRequest
from .asgi import AgentResponse, App, Message, Receive, Scope, Send, path_of, respond
from .read_ahead import ReadAhead

if TYPE_CHECKING:
    from ..agent import ReplicaAgent

WEBSOCKET_TRY_AGAIN_LATER = 1013  # close code


class Middleware:
    def __init__(self, agent: ReplicaAgent, app: App) -> None:
        self.agent = agent
        self.app = app
        options = agent.options
        self._watch = ReadinessProbe(app, options.ready_path, agent.readiness) if options.ready_path else None
        self._watching: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._lifespan(scope, receive, send)
        elif kind in ("http", "websocket"):
            self.agent.begin().learn_address(scope)
            self._begin_to_watch()
            await (self._request if kind == "http" else self._socket)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    # ------------------------------------------------------------------ requests

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        agent, path = self.agent, path_of(scope)
        if path in endpoints.AGENT_PATHS:
            await self._answer(scope, send, endpoints.agent_endpoint(agent, scope["method"], path))
        elif path in agent.options.bypass_paths:
            await self.app(scope, receive, send)
        elif agent.models and f"{path}/".startswith(f"{model_endpoints.MODELS_PATH}/"):
            await self._answer(scope, send, await model_endpoints.model_endpoint(agent, scope, path))
        elif not agent.readiness.serves:
            await self._refuse(scope, send, agent.state, self._not_ready())
        elif (loadable := agent.models.of(path)) is None:
            await self._take(scope, receive, send)
        elif loadable.state != READY:
            await self._refuse(
                scope, send, loadable.state, endpoints.not_ready(loadable.spec.model, loadable.state, loadable.reason)
            )
        else:
            loadable.in_flight += 1
            try:
                await self._take(scope, receive, send)
            finally:
                loadable.in_flight -= 1

    async def _take(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.agent.limiter.try_acquire():
            await self._call(scope, receive, send)
        else:
            await self._in_line(scope, receive, send)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """With a turn, which is always given back."""
        try:
            await AppRequest(self.agent, scope, send).run(self.app, receive)
        finally:
            self.agent.limiter.release()
            self.agent.footprint.learn_when_idle()

    async def _in_line(self, scope: Scope, receive: Receive, send: Send) -> None:
        turns = self.agent.limiter
        place = turns.enqueue()
        if place is None:
            await self._refuse(scope, send, "queue_full", endpoints.queue_full(turns))
            return
        ahead = ReadAhead(receive)
        try:
            try:
                came = await ahead.wait_for_turn(place)
            except BaseException:
                turns.abandon(place)
                raise
            if came:
                await self._call(scope, ahead, send)
            else:
                turns.abandon(place)
        finally:
            ahead.close()

    def _not_ready(self) -> AgentResponse:
        return endpoints.not_ready(self.agent.options.model, *self.agent.readiness.status)

    async def _refuse(self, scope: Scope, send: Send, code: str, answer: AgentResponse) -> None:
        self.agent.refused[code] = self.agent.refused.get(code, 0) + 1
        await self._answer(scope, send, answer)

    async def _answer(self, scope: Scope, send: Send, answer: AgentResponse) -> None:
        if scope["type"] == "websocket" and "websocket.http.response" not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": WEBSOCKET_TRY_AGAIN_LATER, "reason": "not ready"})
            return
        named = ((b"steelyard-instance", self.agent.instance.encode()), *answer.headers)
        await respond(scope, send, answer._replace(headers=named))

    # ------------------------------------------------------------------ web sockets

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        agent = self.agent
        if agent.readiness.serves:
            agent.limiter.open_socket()
            runs = agent.footprint.peaks.open(asked=False)
            try:
                await self.app(scope, receive, send)
            finally:
                agent.footprint.peaks.close(runs)
                agent.limiter.close_socket()
        else:
            await self._refuse(scope, send, agent.state, self._not_ready())

    # ------------------------------------------------------------------ from start to end

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        life = self.agent.begin()
        ended = False

        async def heard() -> Message:
            nonlocal ended
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                ended = True
                await life.leave()
            return message

        async def sending(message: Message) -> None:
            nonlocal ended
            if message["type"] == "lifespan.startup.complete":
                self._begin_to_watch(scope)
            elif message["type"] == "lifespan.startup.failed":
                ended = True
                await life.leave()
            await send(message)

        try:
            await self.app(scope, heard, sending)
        finally:
            if ended:  # an app without a lifespan raises here, and still serves
                if self._watching is not None:
                    self._watching.cancel()
                    self._watching = None
                self.agent.end()

    def _begin_to_watch(self, lifespan: Scope | None = None) -> None:
        if self._watch is None or (self._watching is not None and not self._watching.done()):
            return
        if lifespan is not None:
            self._watch.state = lifespan.get("state") or {}
        self._watching = asyncio.get_running_loop().create_task(self._watch.run(), name="steelyard-ready-when")
