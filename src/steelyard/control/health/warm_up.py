"""Requests that a replica gets before the first real one: kernels are compiled, caches filled, lazy parts loaded."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from ...config import WarmUpRequest
from .client.errors import ReplicaRequestError
from .client.origin import ProbeOrigin, TlsContexts, build_configured_request, method_of
from .inference_check import failed_check
from .probe import CheckResult, ProbeTarget
from .probe_sequence import describe_request, instance_of

MAX_WARM_UP_BODY_BYTES = 64 << 10  # bytes of an answer that are kept: nobody reads them
RETRYABLE_STATUSES = (408, 425, 429)  # of the 4xx: not now, but perhaps soon


class WarmUpRunner:
    """One after another, each as often as it says. What was answered is not asked again when a later one fails."""

    def __init__(self, target: ProbeTarget, contexts: TlsContexts) -> None:
        self._target = target
        self._way = ProbeOrigin(target, contexts)
        self._ends = list(accumulate(warm_up.times for warm_up in target.health.warm_up)) or [0]
        self._done = 0
        self._note = ""

    def forget(self) -> None:
        """It is cold again."""
        self._done, self._note = 0, ""

    async def run(self) -> CheckResult:
        """Go on with the first that was not answered yet.

        A server error or silence keeps the replica loading. An answer of 4xx does not: the request itself is wrong, no
        number of tries would help, and a mistake in a warm-up must not cost the whole fleet. It is told instead.
        """
        instance = ""
        while self._done < self._ends[-1]:
            warm_up = self._target.health.warm_up[bisect_right(self._ends, self._done)]
            what = f"warm-up {self._done + 1} of {self._ends[-1]}, {describe_request(method_of(warm_up), warm_up.path)}"
            try:
                status, instance = await self._ask(warm_up)
            except ReplicaRequestError as problem:
                return failed_check(what, problem, warm_up)
            if status >= 500 or status in RETRYABLE_STATUSES:
                return CheckResult(f"{what}: answers {status}", instance=instance)
            if status >= 300:
                self._note = f"{what}: answers {status}: check health.warm_up"
            self._done += 1
        return CheckResult(note=self._note, instance=instance)

    async def _ask(self, warm_up: WarmUpRequest) -> tuple[int, str]:
        request = build_configured_request(self._way, warm_up, self._target.health.headers)
        reply = await self._way.send(request, timeout=warm_up.timeout, limit=MAX_WARM_UP_BODY_BYTES, cut=True)
        return reply.status, instance_of(reply)
