"""From what clients, servers and the card saw to figures and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from steelyard.core.memory.request_size import RequestSizeModel

from ..testbed.docs_pages import markdown_table
from .load import Answer
from .plan import GIB, SMALL_GIB, Planned, need
from .request_log import RequestRecord

ENDPOINT = "infer"  # what the dialect calls these requests
GOAL_LEARNED_ERROR = 0.15  # how far what was learned may be from what was measured
HEADER = ["run", "answered", "out of memory", "peak use", "line", "answered/s", "p50", "p99", "p50 of small ones"]
LEARNED_HEADER = [
    "model",
    "measured",
    "learned from",
    "compared with",
    "GiB",
    "median off",
    "p95 off",
    "worst",
    "too low",
]


@dataclass(frozen=True)
class Figures:
    """Of one run."""

    run: str
    requests: int
    answered: int
    ran_out: int  # as the servers saw it
    statuses: dict[str, int]  # of what was not answered
    seconds: float  # from the first request to the last answer
    p50: float
    p99: float
    small: float  # p50 of requests that need little
    peak: int  # bytes of the card in use
    line: int  # the card without its headroom
    total: int

    @property
    def rate(self) -> float:
        return self.answered / self.seconds

    def row(self) -> list[str]:
        times = [f"{value:.1f} s" for value in (self.p50, self.p99, self.small)]
        memory = [f"{value / GIB:.1f} GiB" for value in (self.peak, self.line)]
        answered = f"{self.answered} of {self.requests}"
        return [self.run, answered, str(self.ran_out), *memory, f"{self.rate:.2f}", *times]

    def plain(self) -> dict[str, Any]:
        return {**asdict(self), "rate": self.rate}


def figures(
    run: str, answers: Sequence[Answer], notes: Sequence[RequestRecord], peak: int, total: int, line: int
) -> Figures:
    good = sorted(answer.seconds for answer in answers if answer.status == 200)
    small = sorted(answer.seconds for answer in answers if answer.status == 200 and is_small(answer.planned))
    bad = Counter(str(answer.status) for answer in answers if answer.status != 200)
    ends = [answer.planned.due + answer.seconds for answer in answers]
    return Figures(
        run=run,
        requests=len(answers),
        answered=len(good),
        ran_out=sum(note.ran_out for note in notes),
        statuses=dict(bad),
        seconds=max(ends) - min(answer.planned.due for answer in answers),
        p50=quantile(good, 0.5),
        p99=quantile(good, 0.99),
        small=quantile(small, 0.5),
        peak=peak,
        line=line,
        total=total,
    )


def is_small(planned: Planned) -> bool:
    return need(planned.model, planned.shape) < SMALL_GIB * GIB


@dataclass(frozen=True)
class Learned:
    """What the ledger would have said of later requests, against what they were measured to need."""

    model: str
    measured: int  # requests of which it is known what they needed
    samples: int  # of them, those it was learned from
    off: tuple[float, ...]  # needs ÷ measured - 1, of each later one
    smallest: int  # bytes, of all that were measured
    largest: int

    def row(self) -> list[str]:
        sizes = f"{self.smallest / GIB:.2g}–{self.largest / GIB:.2g}"
        away = sorted(map(abs, self.off))
        shares = [f"{100 * value:.1f} %" for value in (quantile(away, 0.5), quantile(away, 0.95), max(away, default=0))]
        low = sum(value < 0 for value in self.off)
        return [self.model, str(self.measured), str(self.samples), str(len(self.off)), sizes, *shares, str(low)]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def learned(notes: Sequence[RequestRecord], after: int) -> list[Learned]:
    """Learn as the supervisor does from the first `after` requests, and compare with later ones."""
    found = []
    for model in sorted({note.model for note in notes}):
        sizes, samples, off = RequestSizeModel(), 0, []
        mine = [(number, note) for number, note in enumerate(notes) if note.model == model and note.bytes is not None]
        for number, note in mine:
            assert note.bytes is not None
            if number < after:
                sizes.observe(note.features, ENDPOINT, note.bytes)
                samples += 1
            else:
                off.append(sizes.upper_bound(note.features, ENDPOINT) / note.bytes - 1.0)
        all_of = [note.bytes for _, note in mine if note.bytes is not None]
        found.append(Learned(model, len(mine), samples, tuple(off), min(all_of, default=0), max(all_of, default=0)))
    return found


def reported_errors(sizes: Sequence[Mapping[str, Any]], notes: Sequence[RequestRecord]) -> list[str]:
    """What the gateway itself said at the end of the smallest and the largest requests, against the measured."""
    said = []
    for one in sizes:
        measured = sorted(note.bytes for note in notes if note.model == one["model"] and note.bytes)
        if measured:
            off = [
                f"{100 * (one[key] / of - 1.0):+.1f} %"
                for key, of in (("smallest", measured[0]), ("largest", measured[-1]))
            ]
            said.append(f"`{one['model']}` {' and '.join(off)}")
    return said


def quantile(values: Sequence[float], share: float) -> float:
    """Of sorted ones; NaN: there are none."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def verdicts(without: Figures | None, within: Figures | None, sizes: Sequence[Learned]) -> list[str]:
    said = []
    if without is not None:
        said.append((without.ran_out > 0, f"without the ledger {without.ran_out} requests ran out of memory (> 0)"))
    if within is not None:
        said.append((within.ran_out == 0, f"with it {within.ran_out} did (goal 0)"))
        said.append((within.answered == within.requests, f"with it {within.answered} of {within.requests} answered"))
        share = within.peak / within.line
        said.append((share <= 1.0, f"peak use with it is {100 * share:.1f} % of the headroom line (goal ≤ 100 %)"))
    for one in sizes:
        off = quantile(sorted(map(abs, one.off)), 0.95)
        words = (
            f"learned bytes of `{one.model}` are within {100 * off:.1f} % of 95 % of the measured peaks (goal ≤ 15 %)"
        )
        said.append((off <= GOAL_LEARNED_ERROR, words))
    return [f"{'✓' if good else '✗'} {words}" for good, words in said]


def tables(runs: Sequence[Figures], sizes: Sequence[Learned]) -> str:
    parts = [markdown_table(HEADER, [one.row() for one in runs])]
    if sizes:
        parts.append(markdown_table(LEARNED_HEADER, [one.row() for one in sizes]))
    return "\n\n".join(parts)
