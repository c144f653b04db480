"""Conversations on engines, through the balancer: closed loop, what it is told, what is counted."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from steelyard.core.balancer import Balancer
from steelyard.core.outcome import Outcome
from steelyard.documents import DocumentError, Seconds, parse
from steelyard.simulate import run
from steelyard.simulate.engine.job import TokenJob, prefix_hashes
from steelyard.simulate.llm.conversations import BLOCK_TOKENS, ConversationDraws, ConversationJob, conversation_mix
from steelyard.simulate.scenario.catalog import find_scenarios
from steelyard.simulate.scenario.conversations import Conversations, SharedPrompts, TokenCount
from steelyard.simulate.scenario.file import load_scenarios, to_yaml
from steelyard.simulate.scenario.schema import Fault, ReplicaGroup, Scenario, Trace, Workload

from ..watched import Watched, watch

TALK = Conversations(
    turns=4.0,
    think=Seconds(5.0),
    shared=SharedPrompts(count=2, tokens=1024),
    prompt=TokenCount(mean=600),
    text=TokenCount(mean=100),
    output=TokenCount(mean=100),
)


def scenario(**changes: Any) -> Scenario:
    base = Scenario(
        name="talk",
        requests=400,
        fleet=(ReplicaGroup(count=3, engine="8b-h100"),),
        workload=Workload(conversations=TALK),
        warmup=0.0,
    )
    return msgspec.structs.replace(base, **changes)


def by_conversation(watched: Watched) -> dict[int, list[ConversationJob]]:
    found: dict[int, list[ConversationJob]] = defaultdict(list)
    for sent in watched.sent:
        assert isinstance(sent.job, ConversationJob)
        found[sent.job.conversation.number].append(sent.job)
    return found


def test_the_next_turn_comes_after_the_answer_and_begins_with_all_that_was_said() -> None:
    _, watched = watch(scenario(), "least_connections", 0.6)
    ended = {job: when for when, job, _ in watched.ended}
    pairs = [pair for jobs in by_conversation(watched).values() for pair in pairwise(jobs)]
    assert len(pairs) > 100
    for turn, following in pairs:
        assert isinstance(turn, TokenJob)
        said = turn.prompt_tokens + turn.output_tokens
        assert following.intended_at > ended[turn]
        assert following.prompt_tokens > said
        assert following.blocks[: said // BLOCK_TOKENS] == turn.blocks
        assert turn.prompt is not None
        assert following.prompt is not None
        assert following.prompt.blocks[: len(turn.prompt.blocks)] == turn.prompt.blocks
        assert following.key == turn.key


def test_conversations_share_blocks_of_their_system_prompt_only() -> None:
    _, watched = watch(scenario(), "least_connections", 0.6)
    firsts = [jobs[0].blocks for jobs in by_conversation(watched).values()]
    stems = {blocks[:16] for blocks in firsts}
    assert len(stems) == 2
    rest = [block for blocks in firsts for block in blocks[16:]]
    assert len(rest) == len(set(rest))


class Listening(Balancer):
    """Writes down what it is told of answers."""

    told: ClassVar[list[str]] = []

    def response_started(self, request: Any, replica: Any, now: float) -> Any:
        assert request.first_byte == now
        self.told.append(f"first {request.key}")
        return super().response_started(request, replica, now)

    def finish(self, request: Any, outcome: Outcome, now: float, **more: Any) -> Any:
        assert request.usage.prompt == request.prompt_tokens
        assert request.usage.output == request.output_tokens
        assert request.usage.cached == request.cached_tokens
        self.told.append(f"last {request.key}")
        return super().finish(request, outcome, now, **more)


def test_the_balancer_hears_of_first_tokens_and_of_usage_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "Balancer", Listening)
    monkeypatch.setattr(Listening, "told", [])
    _, watched = watch(scenario(requests=50), "least_connections", 0.6)
    assert len(Listening.told) == 2 * len(watched.sent) == 100
    for key in {sent.job.key for sent in watched.sent}:
        mine = [word.split()[0] for word in Listening.told if word.endswith(f" {key}")]
        assert mine == ["first", "last"] * (len(mine) // 2)


def test_the_balancer_knows_bytes_and_hashes() -> None:
    _, watched = watch(scenario(requests=50), "least_connections", 0.6)
    for sent in watched.sent:
        assert isinstance(sent.job, TokenJob)
        assert sent.job.features == (4.0 * sent.job.prompt_tokens, 1024.0, 1.0)
        assert sent.job.prompt is not None
        assert sent.job.prompt.text_bytes == 4 * sent.job.prompt_tokens
        assert len(sent.job.prompt.blocks) == sent.job.prompt_tokens // 512


def test_a_deadline_is_that_of_each_turn() -> None:
    workload = Workload(conversations=TALK, deadline=Seconds(1.5))
    result, watched = watch(scenario(workload=workload), "least_connections", 0.6)
    assert all(sent.job.deadline == sent.job.intended_at + 1.5 for sent in watched.sent)
    assert result.within_slo < result.latency.count


def test_every_512_tokens_are_a_hash_whatever_the_blocks() -> None:
    small, large = tuple(range(40)), tuple(range(5))
    assert len(prefix_hashes(small, 64 * 40, 64)) == 5
    assert len(prefix_hashes(large, 512 * 5 + 100, 512)) == 5
    assert prefix_hashes(small, 1023, 64) == prefix_hashes(small, 512, 64)


def test_the_answer_that_is_cached_saves_the_next_turn_its_prompt() -> None:
    sticky, _ = watch(scenario(), "consistent_hash", 0.6)
    spread, _ = watch(scenario(), "round_robin", 0.6)
    assert sticky.tokens is not None
    assert spread.tokens is not None
    assert sticky.tokens.hit_share > spread.tokens.hit_share + 0.05


def test_the_figures_are_those_of_the_requests() -> None:
    result, watched = watch(scenario(), "least_connections", 0.6)
    ended = {job: when for when, job, _ in watched.ended}
    jobs = [job for job in ended if isinstance(job, TokenJob)]
    assert result.tokens is not None
    assert result.tokens.first_token.count == len(jobs) == result.requests == 400
    assert result.tokens.first_token.total == pytest.approx(sum(job.first_token_at - job.intended_at for job in jobs))
    assert result.tokens.prompt_tokens == sum(job.prompt_tokens for job in jobs)
    assert result.tokens.cached_tokens == sum(job.cached_tokens for job in jobs)
    further = [(ended[job] - job.first_token_at) / (job.output_tokens - 1) for job in jobs if job.output_tokens > 1]
    assert result.tokens.per_token.total == pytest.approx(sum(further))
    assert result.within_slo == result.latency.count  # at this load


def test_the_slo_is_of_both_the_first_token_and_the_others() -> None:
    strict = parse("first_byte: 60ms", type(scenario().stream_slo))
    easy, _ = watch(scenario(), "least_connections", 0.6)
    hard, _ = watch(scenario(stream_slo=strict), "least_connections", 0.6)
    assert 0 < hard.within_slo < easy.within_slo


@pytest.mark.parametrize("kind", ["crash", "errors", "slow", "join"])
@pytest.mark.parametrize("hedging", [False, True])
def test_every_request_is_counted_once_through_faults(kind: Any, hedging: bool) -> None:
    faulty = scenario(faults=(Fault(kind=kind, replica=1, at=Seconds(3), duration=Seconds(4), cold_start=Seconds(1)),))
    if hedging:
        faulty = msgspec.structs.replace(faulty, balancing=msgspec.structs.replace(faulty.balancing, hedging=True))
    result, watched = watch(faulty, "least_connections", 0.8)
    assert watched.left_over() == 0
    assert set(watched.counts.values()) == {1}
    assert sum(watched.counts.values()) == result.requests == result.measured_requests
    if kind == "crash":
        lost = [outcome for _, job, outcome in watched.ended if outcome is not Outcome.OK]
        assert Outcome.TRUNCATED in lost  # after the first token: no retry


def test_the_same_conversations_whatever_the_policy() -> None:
    one, two = (ConversationDraws(TALK, 5) for _ in range(2))
    assert [one.draw().turns for _ in range(20)] == [two.draw().turns for _ in range(20)]


def test_no_conversation_outgrows_the_context() -> None:
    draws = ConversationDraws(msgspec.structs.replace(TALK, max_context=2000, prompt=TokenCount(mean=900, cv=2.0)), 1)
    for _ in range(300):
        for prompt, output, _ in draws.draw().turns:
            assert prompt >= 1
            assert output >= 1
            assert prompt + output <= 2000


def test_the_mean_number_of_turns_is_as_asked() -> None:
    _, turns = conversation_mix(TALK)
    assert turns == pytest.approx(4.0, rel=0.1)


def test_the_load_is_steady_from_the_start() -> None:
    _, watched = watch(scenario(requests=1500), "least_connections", 0.6)
    times = [sent.when for sent in watched.sent]
    span = times[-1]
    early = sum(1 for when in times if when < span / 3)
    assert early / len(times) == pytest.approx(1 / 3, abs=0.08)


# The schema


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("fleet: [{engine: h100}]\nworkload: {conversations: {}}", "fleet[0]", "8b-h100, 8b-a100"),
        ("fleet: [{engine: {kv_tokens: 5}}]\nworkload: {conversations: {}}", "kv_tokens", "at least 1024"),
        ("fleet: [{engine: 8b-h100, slots: 4}]\nworkload: {conversations: {}}", "slots", "left out beside `engine`"),
        ("fleet: [{engine: 8b-h100}]", "workload", "`conversations` or a `trace`"),
        ("fleet: [{engine: 8b-h100}, {count: 1}]\nworkload: {conversations: {}}", "fleet", "engines only"),
        ("workload: {conversations: {}}", "fleet", "of engines"),
        ("workload: {conversations: {turns: 0}}", "turns", "at least 1"),
        ("workload: {conversations: {prompt: {mean: 0}}}", "mean", "at least 1"),
    ],
)
def test_a_wrong_key_is_named(text: str, key: str, problem: str) -> None:
    with pytest.raises(DocumentError) as refused:
        parse(text, Scenario)
    assert key in str(refused.value)
    assert problem in str(refused.value)


def test_an_engine_may_be_given_by_its_coefficients() -> None:
    text = "fleet: [{engine: {step_base: 20ms, per_prefill_token: 100us}}]\nworkload: {conversations: {}}"
    engine = parse(text, Scenario).fleet[0].engine
    assert not isinstance(engine, str)
    assert engine is not None
    assert (engine.step_base, engine.per_prefill_token) == pytest.approx((0.02, 1e-4))
    assert engine.max_sequences == 256


def test_w6_and_w7_have_engines_equal_and_uneven() -> None:
    for name in ("W6", "W7"):
        fleets = [scenario.fleet for scenario in find_scenarios(name)]
        assert all(scenario.has_engines for scenario in find_scenarios(name))
        assert {len(fleet) for fleet in fleets} == {1, 2}


def test_a_trace_of_tokens_runs_on_engines() -> None:
    recorded = scenario(requests=200, workload=Workload(trace=Trace(file="builtin:mooncake")))
    result, watched = watch(recorded, "least_connections", 0.7)
    jobs = [sent.job for sent in watched.sent]
    assert result.tokens is not None
    assert result.tokens.output_tokens == sum(job.output_tokens for job in jobs if isinstance(job, TokenJob))
    assert all(job.prompt is not None for job in jobs)


def test_a_scenario_of_conversations_is_shown_without_what_it_does_not_use() -> None:
    text = to_yaml(scenario())
    assert "sizes" not in text
    assert "features" not in text
    assert parse(text, Scenario) == scenario()


def test_a_trace_without_tokens_is_refused_for_engines(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("fleet: [{engine: 8b-h100}]\nworkload: {trace: {file: 'builtin:diffusion'}}\n")
    with pytest.raises(DocumentError, match=r"workload\.trace\.file: builtin:diffusion: has no tokens"):
        load_scenarios(file)
