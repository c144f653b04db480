"""A real inference as a probe: a request whose answer must be right."""

from __future__ import annotations

from ...config import InferenceProbe, SyntheticRequest
from .client.errors import LocalFailureError, ReplicaRequestError, ResponseTimeoutError
from .client.origin import ProbeOrigin, TlsContexts, build_configured_request, method_of
from .probe import CheckResult, ProbeTarget
from .probe_sequence import describe_request, instance_of

MAX_INFERENCE_BODY_BYTES = 8 << 20  # bytes of an answer that are looked into
BUSY_STATUSES = (429, 503)  # declined: a server at its limit may say so


async def run_inference_check(target: ProbeTarget, contexts: TlsContexts) -> CheckResult:
    """Ask once, and look at the answer. On the replica's own port, like real requests."""
    wanted = target.health.inference
    assert wanted is not None
    what = describe_request(method_of(wanted), wanted.path)
    way = ProbeOrigin(target, contexts)
    try:
        request = build_configured_request(way, wanted, target.health.headers)
        reply = await way.send(request, timeout=wanted.timeout, limit=MAX_INFERENCE_BODY_BYTES, cut=True)
    except ReplicaRequestError as problem:
        return failed_check(what, problem, wanted)
    instance = instance_of(reply)
    if wrong := _mismatch(wanted, reply.status, reply.body):
        return CheckResult(f"{what}: {wrong}", ambiguous=reply.status in BUSY_STATUSES, instance=instance)
    return CheckResult(instance=instance)


def _mismatch(wanted: InferenceProbe, status: int, body: bytes) -> str:
    if status != wanted.status:
        return f"answers {status}, not {wanted.status}"
    if wanted.contains and wanted.contains.encode() not in body:
        return f"its answer does not contain {wanted.contains!r}"
    return ""


def failed_check(what: str, problem: ReplicaRequestError, asking: SyntheticRequest) -> CheckResult:
    """There was no answer."""
    silent = isinstance(problem, ResponseTimeoutError)
    limit = f" ({asking.timeout:g} s)" if silent else ""
    return CheckResult(
        f"{what}: {problem}{limit}", ambiguous=silent, inconclusive=isinstance(problem, LocalFailureError)
    )
