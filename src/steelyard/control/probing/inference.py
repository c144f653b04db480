"""A real inference as a probe: a request whose answer must be right."""

from __future__ import annotations

from ...config import Asking, Inference
from .errors import AskError, CannotAskError, SilentError
from .round import instance_of, named
from .seen import Tried
from .target import Target
from .tls import Contexts
from .way import Way, compose, method_of

LIMIT = 8 << 20  # bytes of an answer that are looked into
BUSY = (429, 503)  # declined: a server at its limit may say so


async def infer(target: Target, contexts: Contexts) -> Tried:
    """Ask once, and look at the answer. On the replica's own port, like real requests."""
    wanted = target.health.inference
    assert wanted is not None
    what = named(method_of(wanted), wanted.path)
    way = Way(target, contexts)
    try:
        request = compose(way, wanted, target.health.headers)
        reply = await way.ask(request, timeout=wanted.timeout, limit=LIMIT, cut=True)
    except AskError as problem:
        return failed(what, problem, wanted)
    instance = instance_of(reply)
    if wrong := _wrong(wanted, reply.status, reply.body):
        return Tried(f"{what}: {wrong}", doubtful=reply.status in BUSY, instance=instance)
    return Tried(instance=instance)


def _wrong(wanted: Inference, status: int, body: bytes) -> str:
    if status != wanted.status:
        return f"answers {status}, not {wanted.status}"
    if wanted.contains and wanted.contains.encode() not in body:
        return f"its answer does not contain {wanted.contains!r}"
    return ""


def failed(what: str, problem: AskError, asking: Asking) -> Tried:
    """There was no answer."""
    silent = isinstance(problem, SilentError)
    limit = f" ({asking.timeout:g} s)" if silent else ""
    return Tried(f"{what}: {problem}{limit}", doubtful=silent, void=isinstance(problem, CannotAskError))
