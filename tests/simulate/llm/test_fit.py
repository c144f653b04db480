"""Coefficients of an engine from a decision log: found again, with an honest error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from steelyard.cli import main
from steelyard.core.errors import OptionError
from steelyard.link.decision_log.lines import DecisionLine, LoggedAttempt
from steelyard.simulate.llm.fit import COEFFICIENTS, fit_engine
from steelyard.simulate.llm.fit_report import same_order
from steelyard.simulate.llm.model import ENGINES, EngineModel
from steelyard.simulate.llm.recorded import RecordedAnswer, replay

from ..recorder import fleet_line


def answers(model: EngineModel, count: int = 600, rate: float = 4.0, seed: int = 1) -> list[RecordedAnswer]:
    """What two engines of this model did with prompts of very different lengths, some half cached."""
    rng, now, sent = Random(seed), 0.0, []
    for _ in range(count):
        now += rng.expovariate(rate)
        prompt, output = int(rng.lognormvariate(0.0, 0.9) * 1500) + 1, int(rng.lognormvariate(0.0, 0.8) * 150) + 1
        cached = rng.choice([0, 0, prompt // 2])
        sent.append(RecordedAnswer(f"r{rng.randrange(2)}", now, 0.0, 0.0, prompt, output, cached, True))
    times = replay(sent, model)
    return [replace(answer, first=first, last=last) for answer, (first, last) in zip(sent, times, strict=True)]


@pytest.mark.parametrize("name", ENGINES)
def test_the_coefficients_are_found_again(name: str) -> None:
    fit = fit_engine(answers(ENGINES[name]))
    for coefficient in ("step_base", "per_context_token", "per_prefill_token"):
        assert getattr(fit.model, coefficient) == pytest.approx(getattr(ENGINES[name], coefficient), rel=0.1)
    assert fit.end_to_end.mean < 0.03
    assert fit.first_byte.mean < 0.15


def test_an_overhead_of_each_request_is_found() -> None:
    slow = msgspec.structs.replace(ENGINES["8b-h100"], request_overhead=0.02)
    found = fit_engine(answers(slow, rate=1.0)).model.request_overhead
    assert found == pytest.approx(0.02, rel=0.25)


def test_the_error_says_when_the_log_is_not_of_such_an_engine() -> None:
    """The replicas became three times slower halfway: neither half predicts the other."""
    log = answers(ENGINES["8b-h100"])
    slower = [replace(a, first=a.sent + 3 * (a.first - a.sent), last=a.sent + 3 * (a.last - a.sent)) for a in log]
    assert fit_engine([*log[:300], *slower[300:]]).end_to_end.mean > 0.5


def test_a_replay_gives_a_request_the_hits_that_it_had() -> None:
    cold = RecordedAnswer("r", 0.0, 0.0, 0.0, 2000, 1, 0, True)
    (first, _), (hit, _) = replay([cold], EngineModel())[0], replay([replace(cold, cached=1500)], EngineModel())[0]
    assert first - hit == pytest.approx(1500 * EngineModel().per_prefill_token)


def test_a_difference_within_the_tolerance_is_no_other_order() -> None:
    one = [("a", 1.0), ("b", 1.02), ("c", 2.0)]
    assert same_order(one, [("b", 1.0), ("a", 1.5), ("c", 2.0)])
    assert not same_order(one, [("c", 1.0), ("a", 2.0), ("b", 2.1)])


# The command


def write_log(path: Path, log: list[RecordedAnswer], **changed: Any) -> Path:
    lines = [msgspec.json.encode(fleet_line(["r0", "r1"], "least_connections", "llama"))]
    for n, answer in enumerate(log):
        line = DecisionLine(
            id=str(n),
            time="2026-11-16T00:00:00Z",
            at=5000.0 + answer.sent,
            worker=0,
            model="llama",
            policy="least_connections",
            verdict="met",
            seconds=answer.last - answer.sent,
            estimate=1.0,
            status=200,
            first_byte=answer.first - answer.sent,
            attempts=(LoggedAttempt(answer.replica, 0.0, 1.0, seconds=answer.last - answer.sent),),
        )
        tokens = {"prompt_tokens": answer.prompt, "output_tokens": answer.output, "cached_tokens": answer.cached}
        known = {name: value for name, value in (tokens | changed).items() if value is not None}
        lines.append(msgspec.json.encode(msgspec.to_builtins(line) | known))
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def fit(path: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["simulate", "--fit", str(path), *more])


def test_the_command_prints_an_engine_its_errors_and_whether_policies_rank_the_same(tmp_path: Path) -> None:
    done = fit(write_log(tmp_path / "log.jsonl", answers(ENGINES["8b-h100"])))
    assert done.exit_code == 0, done.output
    assert "llama: 600 answers of 2 replicas" in done.output
    assert all(f"  {name}: " in done.output for name in COEFFICIENTS)
    for word in ("first byte: mean", "end to end: mean", "policies rank", "kv_tokens 400,000"):
        assert word in done.output
    assert "note:" not in done.output


def test_it_says_which_counts_are_missing(tmp_path: Path) -> None:
    log = answers(ENGINES["8b-h100"], count=200)
    without = fit(write_log(tmp_path / "none.jsonl", log, prompt_tokens=None, output_tokens=None))
    assert without.exit_code != 0
    assert "prompt_tokens and output_tokens missing" in without.output
    done = fit(write_log(tmp_path / "no-hits.jsonl", log, cached_tokens=None))
    assert "note: cached_tokens is missing" in done.output


def test_few_answers_are_refused() -> None:
    with pytest.raises(OptionError, match="20 answers with token counts are too few"):
        fit_engine(answers(ENGINES["8b-h100"], count=20))


def test_it_goes_with_a_model_only(tmp_path: Path) -> None:
    done = fit(tmp_path / "log.jsonl", "--policy", "random")
    assert done.exit_code == 2
    assert "--fit goes with --model only, not with --policy" in done.output
