"""`concurrency: auto`: how many requests a replica should take at once, read off the learned batching curve.

With n at once a replica completes n / slowdown(n) requests per second of a lone one. The limit is the smallest n that
reaches 90 % of the best of these: past that knee more requests at once only wait inside the replica, where they cannot
be moved to another. A serial server gets 1, an engine that batches gets its batch. The curve reaches to twice the n
seen so far, so a limit that still pays grows by itself. docs/decisions/0004 compares it with Gradient2.
"""

from __future__ import annotations

from .curve import BatchingCurve

START = 32  # before anything is known
KNEE = 0.9


def knee(curve: BatchingCurve) -> int:
    if curve.flat:
        return START
    slowdown = curve.slowdown
    served = [n / slowdown[n] for n in range(1, len(slowdown))]
    enough = KNEE * max(served)
    return next(n for n, rate in enumerate(served, start=1) if rate >= enough)
