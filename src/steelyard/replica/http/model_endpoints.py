"""/steelyard/models and all below it: the loadable models."""

from __future__ import annotations

import hmac
import math
import time
from typing import TYPE_CHECKING

from ..loadable_models import FAILED, LOADING, READY, UNLOADED, UNLOADING, LoadableModel
from ..readiness import DRAINING
from .asgi import AgentResponse, Scope, header, to_json
from .endpoints import RETRY_AFTER_HEADER, error

if TYPE_CHECKING:
    from ..agent import ReplicaAgent

MODELS_PATH = "/steelyard/models"
BEARER_CHALLENGE = ((b"www-authenticate", b"Bearer"),)
MAX_WAIT_SECONDS = 3600.0


async def model_endpoint(agent: ReplicaAgent, scope: Scope, path: str) -> AgentResponse:
    model, _, what = path.removeprefix(MODELS_PATH).removeprefix("/").rpartition("/")
    method = scope["method"]
    if path == MODELS_PATH:
        return _list(agent) if method in ("GET", "HEAD") else _method_not_allowed(path, "GET, HEAD")
    loadable = agent.models.get(model)
    if loadable is None or what not in ("ready", "load", "unload"):
        return error(404, "not_found", f"There is nothing at {path}; {MODELS_PATH} lists what can be loaded.")
    if what == "ready":
        return ready(agent, loadable) if method in ("GET", "HEAD") else _method_not_allowed(path, "GET, HEAD")
    if method != "POST":
        return _method_not_allowed(path, "POST")
    if not _allowed(agent, scope):
        return error(401, "unauthorized", "This needs the control token of the agent.", BEARER_CHALLENGE)
    given = _query(scope)
    wait = _seconds(given.get("wait", "0"))
    if wait is None:
        return error(422, "wait", f"wait: give a number of seconds from 0 to {MAX_WAIT_SECONDS:g}.")
    if what == "load":
        return await _load(agent, loadable, wait)
    return await _unload(agent, loadable, wait, given.get("force") in ("1", "true"))


def _list(agent: ReplicaAgent) -> AgentResponse:
    models = [loadable.as_json(time.monotonic()) for loadable in agent.models.values()]
    return AgentResponse(200, to_json({"instance": agent.instance, "models": models}))


def ready(agent: ReplicaAgent, loadable: LoadableModel) -> AgentResponse:
    status = {**loadable.as_json(time.monotonic()), "instance": agent.instance}
    state, reason = agent.readiness.status
    if state == DRAINING:
        status |= {"state": state, "reason": reason}
    elif loadable.state == READY:
        return AgentResponse(200, to_json(status))
    return AgentResponse(503, to_json(status), headers=RETRY_AFTER_HEADER)


async def _load(agent: ReplicaAgent, loadable: LoadableModel, wait: float) -> AgentResponse:
    if agent.state == DRAINING:
        return error(503, DRAINING, "This server is about to end.", RETRY_AFTER_HEADER)
    if loadable.state == UNLOADING:
        return error(409, UNLOADING, f"The model {loadable.spec.model!r} is being unloaded.", RETRY_AFTER_HEADER)
    loadable.load(agent.footprint.measure_step)
    await loadable.wait_finished(wait)
    return _progress(loadable, READY)


async def _unload(agent: ReplicaAgent, loadable: LoadableModel, wait: float, force: bool) -> AgentResponse:
    if loadable.state == LOADING:
        return error(409, LOADING, f"The model {loadable.spec.model!r} is being loaded.", RETRY_AFTER_HEADER)
    if loadable.state == READY and loadable.in_flight and not force:
        sentence = f"{loadable.in_flight} requests for the model {loadable.spec.model!r} are here."
        return error(409, "in_use", sentence, RETRY_AFTER_HEADER)
    loadable.unload(agent.footprint.measure_step)
    await loadable.wait_finished(wait)
    return _progress(loadable, UNLOADED)


def _progress(loadable: LoadableModel, wanted: str) -> AgentResponse:
    status = loadable.as_json(time.monotonic())
    if loadable.state == wanted:
        return AgentResponse(200, to_json(status))
    if loadable.state == FAILED:
        sentence = f"The model {loadable.spec.model!r}: {loadable.reason}."
        return AgentResponse(500, to_json({**status, "error": {"code": loadable.code, "message": sentence}}))
    return AgentResponse(202, to_json(status))


def _query(scope: Scope) -> dict[str, str]:
    from urllib.parse import parse_qsl

    return dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))


def _seconds(given: str) -> float | None:
    try:
        seconds = float(given)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and 0 <= seconds <= MAX_WAIT_SECONDS else None


def _allowed(agent: ReplicaAgent, scope: Scope) -> bool:
    token = agent.options.control_token
    kind, _, given = header(scope, b"authorization").partition(b" ")
    return not token or (kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), token.encode()))


def _method_not_allowed(path: str, allowed: str) -> AgentResponse:
    return error(405, "method", f"{path} takes {allowed}.", ((b"allow", allowed.encode()),))
