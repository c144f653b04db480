"""What the kit answers of the models that are offered: /steelyard/models and what is beneath it."""

from __future__ import annotations

import hmac
import math
import time
from typing import TYPE_CHECKING

from .answers import RETRY_AFTER, error
from .asgi import Answer, Scope, header, to_json
from .offers import FAILED, LOADING, READY, UNLOADED, UNLOADING, Offer
from .state import DRAINING

if TYPE_CHECKING:
    from .kit import Kit

MODELS = "/steelyard/models"
BEARER = ((b"www-authenticate", b"Bearer"),)
LONGEST = 3600.0  # seconds that a call may wait


async def answer(kit: Kit, scope: Scope, path: str) -> Answer:
    """To a request for MODELS or a path beneath."""
    model, _, what = path.removeprefix(MODELS).removeprefix("/").rpartition("/")
    method = scope["method"]
    if path == MODELS:
        return _list(kit) if method in ("GET", "HEAD") else _method(path, "GET, HEAD")
    offer = kit.offers.get(model)
    if offer is None or what not in ("ready", "load", "unload"):
        return error(404, "not_found", f"There is nothing at {path}; {MODELS} lists what can be loaded.")
    if what == "ready":
        return ready(kit, offer) if method in ("GET", "HEAD") else _method(path, "GET, HEAD")
    if method != "POST":
        return _method(path, "POST")
    if not _allowed(kit, scope):
        return error(
            401, "unauthorized", "This needs the control token of the kit.", ((b"www-authenticate", b"Bearer"),)
        )
    given = _query(scope)
    wait = _seconds(given.get("wait", "0"))
    if wait is None:
        return error(422, "wait", f"wait: give a number of seconds from 0 to {LONGEST:g}.")
    if what == "load":
        return await _load(kit, offer, wait)
    return await _unload(kit, offer, wait, given.get("force") in ("1", "true"))


def _list(kit: Kit) -> Answer:
    now = time.monotonic()
    return Answer(200, to_json({"instance": kit.instance, "models": [offer.told(now) for offer in kit.offers]}))


def ready(kit: Kit, offer: Offer) -> Answer:
    told = {**offer.told(time.monotonic()), "instance": kit.instance}
    state, reason = kit.readiness.told
    if state == DRAINING:
        told |= {"state": state, "reason": reason}
    elif offer.state == READY:
        return Answer(200, to_json(told))
    return Answer(503, to_json(told), headers=RETRY_AFTER)


def not_loaded(offer: Offer) -> Answer:
    return error(503, offer.state, f"The model {offer.terms.model!r} is not ready here: {offer.reason}.", RETRY_AFTER)


async def _load(kit: Kit, offer: Offer, wait: float) -> Answer:
    if kit.state == DRAINING:
        return error(503, DRAINING, "This server is about to end.", RETRY_AFTER)
    if offer.state == UNLOADING:
        return error(409, UNLOADING, f"The model {offer.terms.model!r} is being unloaded.", RETRY_AFTER)
    offer.load(kit.footprint.change)
    await offer.settled(wait)
    return _so_far(offer, READY)


async def _unload(kit: Kit, offer: Offer, wait: float, force: bool) -> Answer:
    if offer.state == LOADING:
        return error(409, LOADING, f"The model {offer.terms.model!r} is being loaded.", RETRY_AFTER)
    if offer.state == READY and offer.in_flight and not force:
        sentence = f"{offer.in_flight} requests for the model {offer.terms.model!r} are here."
        return error(409, "in_use", sentence, RETRY_AFTER)
    offer.unload(kit.footprint.change)
    await offer.settled(wait)
    return _so_far(offer, UNLOADED)


def _so_far(offer: Offer, wanted: str) -> Answer:
    told = offer.told(time.monotonic())
    if offer.state == wanted:
        return Answer(200, to_json(told))
    if offer.state == FAILED:
        sentence = f"The model {offer.terms.model!r}: {offer.reason}."
        return Answer(500, to_json({**told, "error": {"code": offer.code, "message": sentence}}))
    return Answer(202, to_json(told))


def _query(scope: Scope) -> dict[str, str]:
    from urllib.parse import parse_qsl

    return dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))


def _seconds(given: str) -> float | None:
    try:
        seconds = float(given)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and 0 <= seconds <= LONGEST else None


def _allowed(kit: Kit, scope: Scope) -> bool:
    token = kit.options.control_token
    kind, _, given = header(scope, b"authorization").partition(b" ")
    return not token or (kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), token.encode()))


def _method(path: str, allowed: str) -> Answer:
    return error(405, "method", f"{path} takes {allowed}.", ((b"allow", allowed.encode()),))
