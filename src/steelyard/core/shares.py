"""Who of several equally good replicas: by their weights."""

from __future__ import annotations

from collections.abc import Sequence

from .replica import Replica


def weighted_choice(tied: Sequence[Replica], random_value: float) -> Replica:
    """One of several equally good replicas, by their weights. `random_value` is uniform in [0, 1)."""
    if len(tied) == 1:
        return tied[0]
    total = 0.0
    for replica in tied:
        total += replica.effective_weight
    left = random_value * total
    for replica in tied:
        left -= replica.effective_weight
        if left < 0.0:
            return replica
    return tied[-1]
