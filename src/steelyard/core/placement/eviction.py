"""Which models to unload so that another fits: the set with the least total loss.

Formula: minimise Σ loss with Σ size ≥ needed (a knapsack cover). Branch and bound, starting from the greedy set by loss
per byte. Limits: above MAX_EXHAUSTIVE_CANDIDATES candidates the greedy set is used.
"""

from __future__ import annotations

from collections.abc import Sequence

MAX_EXHAUSTIVE_CANDIDATES = 12  # of more, the cheapest per byte are taken


def least_loss_set(losses: Sequence[float], sizes: Sequence[int], needed: int) -> tuple[int, ...] | None:
    """Positions of those that free `needed` bytes at the least loss; None: all together do not."""
    if sum(sizes) < needed:
        return None
    order = sorted(range(len(sizes)), key=lambda i: (losses[i] / max(1, min(sizes[i], needed)), i))
    greedy = _drop_redundant(_greedy_prefix(order, sizes, needed), losses, sizes, needed)
    if len(sizes) > MAX_EXHAUSTIVE_CANDIDATES:
        return tuple(sorted(greedy))
    return tuple(sorted(_exhaustive_search(order, losses, sizes, needed, greedy)))


def _greedy_prefix(order: Sequence[int], sizes: Sequence[int], needed: int) -> list[int]:
    chosen: list[int] = []
    freed = 0
    for i in order:
        if freed >= needed:
            break
        chosen.append(i)
        freed += sizes[i]
    return chosen


def _drop_redundant(chosen: list[int], losses: Sequence[float], sizes: Sequence[int], needed: int) -> list[int]:
    freed = sum(sizes[i] for i in chosen)
    for i in sorted(chosen, key=lambda i: (-losses[i], i)):
        if freed - sizes[i] >= needed:
            chosen.remove(i)
            freed -= sizes[i]
    return chosen


def _exhaustive_search(
    order: Sequence[int], losses: Sequence[float], sizes: Sequence[int], needed: int, known: list[int]
) -> list[int]:
    """Branch and bound; of equals, the smaller set."""
    best = known
    least = (sum(losses[i] for i in known), len(known))

    def look(at: int, chosen: list[int], freed: int, lost: float) -> None:
        nonlocal best, least
        if freed >= needed:
            if (lost, len(chosen)) < least:
                best, least = chosen, (lost, len(chosen))
            return
        if at == len(order) or (lost, len(chosen)) >= least:
            return
        i = order[at]
        look(at + 1, [*chosen, i], freed + sizes[i], lost + losses[i])
        look(at + 1, chosen, freed, lost)

    look(0, [], 0, 0.0)
    return best
