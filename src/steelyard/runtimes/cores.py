"""Which cores a replica gets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress

# How many threads the usual libraries start: without these, as many as the machine has cores, on the few we give.
THREAD_COUNT_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


def choose_cpus(wanted: int, allowed: Collection[int], taken: Iterable[Collection[int]]) -> tuple[int, ...]:
    """Those that the fewest replicas have; all, where there are not so many."""
    held = Counter(core for cores in taken for core in cores)
    return tuple(sorted(sorted(allowed, key=lambda core: (held[core], core))[:wanted]))


@contextmanager
def pinned_to(cores: Collection[int]) -> Iterator[None]:
    """What this thread starts meanwhile may run on these cores only. It is for a few lines without an `await`."""
    before = os.sched_getaffinity(0)
    try:
        if cores:
            with suppress(OSError):  # one was taken from us just now: then it runs where we do
                os.sched_setaffinity(0, cores)
        yield
    finally:
        if cores:
            with suppress(OSError):
                os.sched_setaffinity(0, before)
