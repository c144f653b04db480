"""The routed model is the executed one.

A request may name a model in the header `steelyard-model`, its path and its body. The gateway routes by the first; the
server runs what the path or the body says, so the names must agree. On servers of several models the body must also be
unambiguous: else a request counted as one for a small model could run a large one, past the memory ledger.
"""

from __future__ import annotations

from ...protocols.base import BodyInfo
from ...protocols.bodies.ambiguity import NOT_JSON_SENTENCE, find_models
from ..exchange import Exchange
from ..http.local_replies import BODY_BEYOND_BUFFER, ErrorReply, body_ambiguous, model_contradiction
from .router import Router


def mismatch(exchange: Exchange, peek: BodyInfo, router: Router, *, shared: bool) -> ErrorReply | None:
    """Why the server might run another model; None: it will not. `shared`: its servers run others too, or can."""
    route, model = exchange.route, exchange.model
    strict = shared and router.counts_memory  # else a server may have a name of its own for the model
    for name in (route.model, route.other_dialect_model, peek.model):
        if name and router.resolve(name) != model and (strict or name in router.models):
            return model_contradiction(model, name)
    if not shared or not exchange.body:
        return None
    if route.call.reads_body:
        return _ambiguity(exchange, peek, counted=router.counts_memory)
    # A server may have endpoints that no dialect knows, and read the model from their bodies.
    others = (name for name in find_models(_joined_body(exchange)) if name in router.models and name != model)
    other = next(others, "") if route.dialect is router.plain else ""
    return model_contradiction(model, other) if other else None


def _ambiguity(exchange: Exchange, peek: BodyInfo, *, counted: bool) -> ErrorReply | None:
    """May the server find another model in the body? `counted`: memory is, so it must not."""
    if not exchange.body_complete:
        return BODY_BEYOND_BUFFER if counted and not peek.is_certain else None
    call, dialect = exchange.route.call, exchange.route.dialect
    if not peek.is_certain:
        return body_ambiguous(NOT_JSON_SENTENCE)
    doubt = dialect.body_ambiguity(call, _joined_body(exchange), exchange.wanted_headers or {})
    return body_ambiguous(doubt) if doubt else None


def _joined_body(exchange: Exchange) -> bytes:
    body = exchange.body
    return body[0] if len(body) == 1 else b"".join(body)
