"""Request intake: what head and body say of a request, and the replies that need no replica.

Ends in `Dispatcher.submit`, or in a reply of the gateway's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...config import Config, ModelConfig
from ...core.decision import Reject
from ...core.prompt import Prompt
from ...core.reason import Reason
from ...core.request import INFINITY
from ...protocols.base import BodyInfo, LocalReply, ServedModel
from ...protocols.bodies.prompts import make_prompt
from ...protocols.repository import FORBIDDEN_CONTROL
from ..exchange import Exchange
from ..http import local_replies
from ..http.rewrite import add_trace_ids
from ..routing.client_identity import TrustPolicy, session_key
from ..routing.model_checks import mismatch
from ..routing.request_options import MAX_KEY_CHARS, apply_request_options
from ..routing.router import PROBE, SCALED_TO_ZERO_REPLY, Router

if TYPE_CHECKING:
    from .proxy import Proxy


class RequestIntake:
    def __init__(self, proxy: Proxy) -> None:
        self.fleet_view: Callable[[], Sequence[ServedModel]] = list  # set by the fleet
        self.shared_models: frozenset[str] = frozenset()  # models whose servers run others too, or can load them
        self.placed_models: frozenset[str] = frozenset()  # models that are placed, and those on the same servers
        self._proxy = proxy
        self._dispatcher = proxy.dispatcher
        self._recorder = proxy.recorder
        self._writer = proxy.writer
        self._router: Router = None  # type: ignore[assignment]  # until `configure`
        self._trust_policy: TrustPolicy = None  # type: ignore[assignment]
        self._tenant_header = b""

    def configure(self, config: Config, router: Router, trust_policy: TrustPolicy) -> None:
        self._router = router
        self._trust_policy = trust_policy
        self._tenant_header = config.tenant_header.lower().encode()

    def prepare(self, exchange: Exchange) -> None:
        """What the head alone tells. Raises MalformedMessageError."""
        route = exchange.route
        if route.host:
            exchange.header_lines = [line for line in exchange.header_lines if line[:5].lower() != b"host:"]
            exchange.header_lines.append(b"host: " + route.host)
            exchange.host = route.host
        add_trace_ids(exchange)
        recorder = self._recorder
        if recorder.traces and (exchange.has_traceparent or exchange.trace_lines[-19:-3] < recorder.trace_threshold):
            recorder.tracer.begin(exchange)
        exchange.forwarded_lines = exchange.client.forwarding.lines_for(exchange)
        if exchange.has_options and exchange.wanted_headers is not None:
            apply_request_options(exchange, exchange.wanted_headers, exchange.started_at)
        if self._proxy.draining:
            exchange.close = True

    def submit(self, exchange: Exchange, now: float) -> None:
        """Its body is there, or as much of it as may be kept."""
        route = exchange.route
        dialect, call = route.dialect, route.call
        if call.local:
            answer = dialect.local_reply(call, route.path, self.fleet_view())
            if answer is not None:
                self._reply(exchange, answer, now)
                return
        headers = exchange.wanted_headers
        body = exchange.body
        whole = b""
        if call.reads_body and body:
            whole = body[0] if len(body) == 1 else b"".join(body)
            if exchange.body_complete:
                peek = dialect.read_body(call, whole, headers or {})
            else:
                peek = dialect.estimate_body(call, max(exchange.length, exchange.body_size), whole, headers or {})
        else:
            peek = dialect.estimate_body(call, max(exchange.length, 0))
        exchange.kind = call.kind
        if dialect.knows_streams:
            exchange.streams = peek.streams
        if exchange.key is None and peek.key is not None:
            exchange.key = peek.key[:MAX_KEY_CHARS]
        name = route.model or peek.model
        twice = (route.model != "" and peek.model != "") or route.other_dialect_model != ""
        if headers is not None and b"steelyard-model" in headers:
            name = headers[b"steelyard-model"].decode("utf-8", "replace")
            twice = True
        self._identify_tenant(exchange)
        model = self._router.resolve(name)
        if route.control and (route.control == FORBIDDEN_CONTROL or model in self.placed_models):
            exchange.client.fail(exchange, local_replies.MODEL_CONTROL, now)
            return
        if model is None:
            self._reject_unknown_model(exchange, name, now)
            return
        exchange.model = model
        shared = model in self.shared_models
        problem = mismatch(exchange, peek, self._router, shared=shared) if twice or shared else None
        if problem is not None:
            exchange.client.fail(exchange, problem, now)
            return
        settings = self._router.models[model]
        if call.with_prompt:
            if model in self._router.prompt_models:
                self._set_prompt(exchange, peek, settings)
            elif peek.prompt is not None:  # for other policies, the body is read as ever
                peek = dialect.read_body(call._replace(with_prompt=False), whole, headers or {})
        exchange.features = peek.features
        if route.health_request and settings.runtime is not None:
            if not self._dispatcher.balancer.pool(model).members:
                self._reply_scaled_to_zero(exchange, now)
                return
            self._recorder.stats[model].health_requests += 1
        exchange.stats = self._recorder.stats[model]
        exchange.replayable = exchange.body_complete and not exchange.upgrade
        idempotent = call.idempotent if settings.idempotent is None else settings.idempotent
        exchange.idempotent = idempotent and exchange.replayable
        if settings.timeout is not None:
            named = exchange.deadline < INFINITY or exchange.first_byte_by < INFINITY
            if not (named and exchange.client.identity.trusted):
                exchange.first_byte_by = min(exchange.first_byte_by, exchange.started_at + settings.timeout)
        self._dispatcher.submit(exchange, now)

    @staticmethod
    def _set_prompt(exchange: Exchange, peek: BodyInfo, settings: ModelConfig) -> None:
        if peek.prompt is None:  # it could not be read
            exchange.prompt = Prompt(int(peek.features[0]))
            return
        tenant = exchange.fair_share_key if settings.cache_salt == "tenant" else ""
        exchange.prompt = make_prompt(peek.prompt, peek.model or exchange.model, tenant)

    def _identify_tenant(self, exchange: Exchange) -> None:
        """Tenant, fair share and priority, as far as the client may choose them (client_identity.py)."""
        rights = exchange.client.identity
        exchange.tenant = rights.tenant
        exchange.fair_share_key = rights.share
        headers = exchange.wanted_headers
        if headers is not None:
            if self._tenant_header and not rights.tenant:
                exchange.tenant = headers.get(self._tenant_header, b"")[:256].decode("latin-1")
                if rights.trusted:
                    exchange.fair_share_key = exchange.tenant
            if (
                exchange.fair_share_key
                and exchange.key is not None
                and (b"steelyard-session" in headers or b"x-session-id" in headers)
            ):
                exchange.key = session_key(exchange.fair_share_key, exchange.key)
        if exchange.priority > self._trust_policy.lowest_ceiling:
            exchange.priority = min(exchange.priority, self._trust_policy.ceiling(rights, exchange.tenant))

    def _reply(self, exchange: Exchange, answer: LocalReply, now: float) -> None:
        exchange.status = answer.status
        message = local_replies.encode_reply(
            answer, head=exchange.route.is_head, close=exchange.close, old=exchange.http10
        )
        exchange.bytes_out = len(message)
        self._writer.write(exchange.client.transport, message)
        exchange.end("", "", now)
        exchange.client.response_done(exchange, now)

    def _reply_scaled_to_zero(self, exchange: Exchange, now: float) -> None:
        if exchange.route.health_request == PROBE:
            self._reply(exchange, SCALED_TO_ZERO_REPLY, now)
        else:
            self._dispatcher.reject(exchange, Reject(exchange, Reason.NO_REPLICA), now)

    def _reject_unknown_model(self, exchange: Exchange, name: str, now: float) -> None:
        if name:
            problem = local_replies.UNKNOWN_MODEL
        elif exchange.body_complete:
            problem = local_replies.NO_MODEL
        else:
            problem = local_replies.MODEL_BEYOND_BUFFER
        exchange.client.fail(exchange, problem, now)
