"""From the engine arena's runs to its tables, and the goals checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from ..load.conversation_load import Outcome, StreamTimes
from ..load.open_loop import p99
from ..testbed.docs_pages import markdown_table
from ..testbed.rounds import verdict
from .arena import MAX_LAG_SECONDS

OURS = "steelyard-vllm"
GOAL_EQUAL_RATIO = 1.03  # to the best of the others, of each figure
GOAL_UNEVEN_RATIO = 0.7  # of the first token's p99
HEADER = ["proxy", "TTFT p50", "TTFT p99", "TPOT p99", "cached", "failed", "valid runs"]


@dataclass(frozen=True)
class Run:
    """Figures of one proxy with one seed, after the warm-up. Seconds."""

    first_p50: float
    first_p99: float
    per_token_p99: float
    cached: float  # share of prompt tokens
    failed: float  # share of requests
    lag: float
    requests: int
    statuses: dict[str, int]
    ports: dict[int, int]

    @classmethod
    def of(cls, outcome: Outcome, warmup: float) -> Run:
        answers = [answer for answer in outcome.answers if answer.due >= warmup]
        failed = sum(due >= warmup for due in outcome.failures) + outcome.statuses["no answer"]
        prompts = sum(answer.prompt_tokens for answer in answers)
        first = sorted(answer.first_token for answer in answers)
        return cls(
            first[len(first) // 2] if first else float("inf"),
            quantile99(answers, lambda answer: answer.first_token),
            quantile99(answers, lambda answer: answer.per_token),
            sum(answer.cached_tokens for answer in answers) / prompts if prompts else 0.0,
            failed / max(1, failed + len(answers)),
            outcome.lag,
            len(answers) + failed,
            dict(outcome.statuses),
            dict(sorted(outcome.ports.items())),
        )

    @property
    def valid(self) -> bool:
        return self.lag <= MAX_LAG_SECONDS


def quantile99(answers: list[StreamTimes], figure: Callable[[StreamTimes], float]) -> float:
    return p99([figure(answer) for answer in answers]) if answers else float("inf")


@dataclass
class EngineScores:
    names: list[str]
    missing: list[str]
    runs: dict[tuple[str, str], list[Run]] = field(default_factory=dict)  # by contest and proxy
    broken: dict[str, str] = field(default_factory=dict)

    def add(self, contest: str, name: str, run: Run) -> None:
        self.runs.setdefault((contest, name), []).append(run)

    def valid(self, contest: str, name: str) -> list[Run]:
        return [run for run in self.runs.get((contest, name), ()) if run.valid]

    def figure(self, contest: str, name: str, figure: Callable[[Run], float]) -> float:
        runs = self.valid(contest, name)
        return mean(figure(run) for run in runs) if runs else float("nan")

    def rows(self, contest: str) -> list[list[str]]:
        return [*(self._row(contest, name) for name in self.names), *([name, "not installed"] for name in self.missing)]

    def _row(self, contest: str, name: str) -> list[str]:
        runs, valid = self.runs.get((contest, name), []), self.valid(contest, name)
        if not valid:
            return [name, "did not run" if name in self.broken else "benchmark late"]

        def over_seeds(figure: Callable[[Run], float]) -> float:
            return self.figure(contest, name, figure)

        count = str(len(valid)) + (f" of {len(runs)}" if len(valid) < len(runs) else "")
        return [
            f"**{name}**" if name == OURS else name,
            f"{over_seeds(lambda run: run.first_p50):.3f} s",
            f"{over_seeds(lambda run: run.first_p99):.2f} s",
            f"{over_seeds(lambda run: run.per_token_p99) * 1000:.0f} ms",
            f"{over_seeds(lambda run: run.cached):.0%}",
            f"{over_seeds(lambda run: run.failed):.1%}",
            count,
        ]

    def verdicts(self, contest: str, uneven: bool) -> list[str]:
        """Against the best of the others, in each figure by itself."""
        others = [name for name in self.names if name != OURS and self.valid(contest, name)]
        if not others or not self.valid(contest, OURS):
            return []
        goals: list[tuple[str, Callable[[Run], float], float]] = [
            ("TTFT p50", lambda run: run.first_p50, GOAL_EQUAL_RATIO),
            ("TTFT p99", lambda run: run.first_p99, GOAL_UNEVEN_RATIO if uneven else GOAL_EQUAL_RATIO),
            ("TPOT p99", lambda run: run.per_token_p99, GOAL_EQUAL_RATIO),
        ]
        lines = []
        for title, figure, limit in goals:
            best = min(others, key=lambda name: self.figure(contest, name, figure))
            ratio = self.figure(contest, OURS, figure) / self.figure(contest, best, figure)
            lines.append(verdict(f"{contest}: {title} of {OURS} ÷ {best}'s", ratio, limit))
        return lines

    def markdown(self, contests: list[tuple[str, bool]]) -> str:
        parts: list[str] = []
        for contest, uneven in contests:
            rows = [row + [""] * (len(HEADER) - len(row)) for row in self.rows(contest)]
            parts += ["", f"**{contest}**", "", markdown_table(HEADER, rows), ""]
            parts += [f"- {line}" for line in self.verdicts(contest, uneven)]
        parts += [f"- {name}: {problem.splitlines()[0]}" for name, problem in self.broken.items()]
        return "\n".join(parts)

    def raw(self) -> list[dict[str, Any]]:
        return [
            {"contest": contest, "peer": name, **vars(run)}
            for (contest, name), runs in self.runs.items()
            for run in runs
        ]
