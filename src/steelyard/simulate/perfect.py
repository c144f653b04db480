"""The placement of one who knows: how popular each model is, before the first request, and that it stays so.

Every model has a copy; the rest of the places go, one by one, to the model whose copies have the most to gain; then the
copies are laid out so that all servers have about the same to do. Nothing is ever moved.
"""

from __future__ import annotations

from collections.abc import Sequence


def perfect_placement(shares: Sequence[float], rooms: Sequence[int]) -> list[list[int]]:
    """For each server, the models it holds. `shares`: of all work, by model; `rooms`: models that fit, by server."""
    counts = _copy_counts(shares, rooms)
    held: list[list[int]] = [[] for _ in rooms]
    work = [0.0] * len(rooms)
    for model in sorted(range(len(shares)), key=lambda m: (-shares[m] / max(1, counts[m]), m)):
        for _ in range(counts[model]):
            able = [s for s in range(len(rooms)) if len(held[s]) < rooms[s] and model not in held[s]]
            if not able:
                break
            server = min(able, key=lambda s: (work[s], s))
            held[server].append(model)
            work[server] += shares[model] / counts[model]
    return held


def _copy_counts(shares: Sequence[float], rooms: Sequence[int]) -> list[int]:
    """What a copy more takes off each of the others is share / n - share / (n + 1)."""
    places = sum(rooms)
    counts = [0] * len(shares)
    for model in sorted(range(len(shares)), key=lambda m: (-shares[m], m))[:places]:
        counts[model] = 1
    for _ in range(places - sum(counts)):
        able = [m for m in range(len(shares)) if 0 < counts[m] < len(rooms)]
        if not able:
            break
        counts[max(able, key=lambda m: (shares[m] / (counts[m] * (counts[m] + 1)), -m))] += 1
    return counts
