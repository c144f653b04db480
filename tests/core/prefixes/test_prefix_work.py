"""Where a prompt goes: to whom has read it, unless too much waits there; and what is learned of speed and size."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from steelyard.core.balancer import Balancer
from steelyard.core.decision import Send
from steelyard.core.outcome import Outcome
from steelyard.core.policies.base import Policy
from steelyard.core.policies.prefix_work import PrefixWork
from steelyard.core.prefixes.engine_load import EngineLoad
from steelyard.core.prefixes.prefill import PrefillModel
from steelyard.core.prompt import BLOCK_BYTES, Prompt, TokenUsage
from steelyard.core.replica import Event, Replica
from steelyard.core.request import Attempt, Request

from ..driving import NO_EJECTION, fleet, refused, replica, runs_on, sent, start


def engines(*ids: str, **options) -> Balancer:
    return fleet(*(ids or "ab"), policy="prefix_work", outlier_detection=NO_EJECTION, slow_start=0.0, **options)


def prompt(*blocks: int, size: int = 0) -> Prompt:
    return Prompt(size or len(blocks) * BLOCK_BYTES, blocks)


def load(balancer: Balancer, id: str) -> EngineLoad:
    notes = replica(balancer, id).notes
    assert isinstance(notes, EngineLoad)
    return notes


def model(balancer: Balancer) -> PrefillModel:
    policy = balancer.pool().policy
    assert isinstance(policy, PrefixWork)
    return policy.prefill


def answer(balancer: Balancer, request: Request, now: float, seconds: float = 1.0, **usage: int) -> None:
    assert request.attempt is not None
    balancer.response_started(request, request.attempt.replica, now)
    if usage:
        request.usage = TokenUsage(**usage)
    balancer.finish(request, Outcome.OK, now + seconds)


def test_a_prompt_goes_where_its_prefix_is_cached() -> None:
    balancer = engines(*"abcdefgh")
    first = start(balancer, prompt=prompt(1, 2, 3))
    home = runs_on(first)
    answer(balancer, first, 0.1)
    for turn in range(10):
        again = start(balancer, 1.0 + turn, prompt=prompt(1, 2, 3, 4 + turn))
        assert runs_on(again) == home
        answer(balancer, again, 1.1 + turn)


def test_a_hot_prefix_spreads_once_its_replica_has_too_much_to_read() -> None:
    balancer = engines()
    warm = start(balancer, prompt=prompt(1, 2))
    home = runs_on(warm)
    answer(balancer, warm, 0.1)
    for _ in range(3):  # 3 × 1,536 tokens to read that are not cached
        assert runs_on(start(balancer, 1.0, prompt=prompt(1, 2, 7, 8, 9))) == home or len(balancer.pool().open) == 2
    places = {runs_on(start(balancer, 1.0, prompt=prompt(1, 2, 50 + i, 60 + i, 70 + i))) for i in range(8)}
    assert places == {"a", "b"}


def test_tokens_that_wait_count_and_not_requests() -> None:
    balancer = engines()
    long = runs_on(start(balancer, prompt=Prompt(100_000)))
    short = [runs_on(start(balancer, prompt=Prompt(2_000))) for _ in range(10)]
    assert long not in short


def test_what_is_counted_is_given_back_once_however_an_attempt_ends() -> None:
    balancer = engines("a")
    counted = load(balancer, "a")

    def accounts() -> tuple[float, ...]:
        return counted.uncached_tokens, counted.attempts - counted.prompts, counted.context_tokens

    begun, silent, failed = (start(balancer, prompt=prompt(i, size=8_000)) for i in (1, 2, 3))
    at_once = start(balancer, prompt=prompt(4, size=8_000), streams=False)
    assert accounts() == (8_000.0, 0, 8_000.0)
    where = replica(balancer, "a")
    balancer.response_started(begun, where, 0.5)
    balancer.response_started(begun, where, 0.6)  # told twice
    balancer.response_started(at_once, where, 0.6)  # no stream: its beginning is its end
    assert accounts() == (6_000.0, 1, 8_000.0)
    balancer.finish(failed, Outcome.ERROR, 0.7, retry=False)
    balancer.cancel(silent, 0.7)
    balancer.finish(at_once, Outcome.OK, 0.8)
    assert accounts() == (0.0, 1, 2_000.0)
    balancer.finish(begun, Outcome.OK, 1.0)
    assert accounts() == (0.0, 0, 0.0)


def test_a_request_that_does_not_stream_counts_as_read_after_a_while() -> None:
    balancer = engines("a")
    request = start(balancer, prompt=Prompt(40_000), streams=False)  # 10,000 tokens, at first 0.2 s
    assert load(balancer, "a").uncached_tokens == 10_000.0
    other = start(balancer, 0.3, prompt=Prompt(4_000))
    assert load(balancer, "a").uncached_tokens == 1_000.0
    balancer.finish(request, Outcome.OK, 1.0)
    balancer.finish(other, Outcome.OK, 1.0)
    assert model(balancer).first_bytes == 0


def train(balancer: Balancer, seconds_per_token: dict[str, float], rounds: int = 60) -> float:
    now = 0.0
    for _ in range(rounds):
        for id, each in seconds_per_token.items():
            request = Request(prompt=Prompt(8_000))
            request.avoid = tuple(r for r in balancer.pool().members if r.id != id)
            assert sent(balancer.submit(request, now)) == id
            answer(balancer, request, now + 2_000 * each, 0.0)
            now += 0.5
            balancer.expire(now)
    return now


def test_a_slower_engine_is_found_out_by_its_first_bytes() -> None:
    balancer = engines()
    now = train(balancer, {"a": 2e-5, "b": 6e-5})
    assert load(balancer, "b").speed / load(balancer, "a").speed == pytest.approx(3.0, rel=0.25)
    where = [runs_on(start(balancer, now, prompt=Prompt(8_000))) for _ in range(40)]
    assert 0.65 < where.count("a") / 40 < 0.85


def test_a_weight_is_believed_until_first_bytes_are_heard() -> None:
    balancer = engines("a")
    balancer.add_replica("b", weight=3.0, now=0.0)
    balancer.expire(2.0)
    where = [runs_on(start(balancer, 2.0, prompt=Prompt(8_000))) for _ in range(80)]
    assert where.count("b") / 80 == pytest.approx(0.75, abs=0.05)


def test_a_first_byte_that_is_told_only_at_the_end_teaches_the_same() -> None:
    balancer = engines("a")
    for i in range(20):
        request = start(balancer, float(i), prompt=Prompt(8_000))
        request.first_byte = i + 0.2
        balancer.finish(request, Outcome.OK, i + 0.9)
    assert model(balancer).seconds_per_token == pytest.approx(1e-4, rel=0.05)


def test_an_answer_that_begins_with_its_end_was_no_stream_and_teaches_nothing() -> None:
    balancer = engines("a")
    request = start(balancer, prompt=Prompt(8_000))
    request.first_byte = 30.0
    balancer.finish(request, Outcome.OK, 30.0)
    assert model(balancer).first_bytes == 0


def test_what_another_balancer_decided_on_counts_by_whether_its_answer_has_begun() -> None:
    balancer = engines("a")
    for first_byte in (0.0, 2.0):
        request = Request(prompt=Prompt(8_000))
        request.first_byte = first_byte
        balancer.adopt(request, replica(balancer, "a"), 1.0, 5.0, 5.0, now=10.0)
    counted = load(balancer, "a")
    assert (counted.attempts, counted.prompts, counted.uncached_tokens) == (2, 1, 2_000.0)
    assert counted.context_tokens == 4_000.0
    balancer.finish(request, Outcome.OK, 11.0)
    assert model(balancer).first_bytes == 0


class Noting(Policy):
    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        return candidates[0]

    def sent(self, attempt: Attempt, now: float) -> None:
        attempt.notes = "mine"


def test_notes_of_an_earlier_policy_at_a_removed_replica_do_no_harm() -> None:
    balancer = fleet("ab", policy=f"{__name__}:Noting")
    request = start(balancer, prompt=prompt(1, 2))
    home = request.attempt.replica if request.attempt is not None else None
    assert home is not None
    balancer.remove_replica(home.id, now=1.0)
    balancer.set_policy("", "prefix_work", now=1.0)
    balancer.response_started(request, home, 1.5)
    balancer.finish(request, Outcome.OK, 2.0)
    assert model(balancer).first_bytes == 0


def test_a_restart_forgets_cache_and_speed_and_an_ejection_does_not() -> None:
    balancer = engines()
    train(balancer, {"a": 2e-5, "b": 6e-5})
    held = start(balancer, 100.0, prompt=prompt(1, 2, 3))
    home = runs_on(held)
    balancer.eject(home, 1.0, now=101.0)
    for second in range(102, 106):
        balancer.expire(float(second))
    assert model(balancer).match(prompt(1, 2, 3)) == {load(balancer, home).slot: 3}
    assert load(balancer, home).ahead_seen > 0.0
    for event in (Event.LOST, Event.LOADED):
        balancer.report(home, event, now=107.0)
    assert model(balancer).match(prompt(1, 2, 3)) == {}
    assert load(balancer, home).ahead_seen == 0.0
    balancer.finish(held, Outcome.OK, 108.0)
    assert load(balancer, home).context_tokens == 0.0


def test_a_removed_replica_leaves_nothing_behind() -> None:
    balancer = engines()
    requests = [start(balancer, prompt=prompt(i, i + 1)) for i in range(10)]
    for id in ("a", "b"):
        balancer.remove_replica(id, now=1.0)
    assert model(balancer).index.entries == 0
    for request in requests:
        balancer.finish(request, Outcome.OK, 2.0)


def test_bytes_per_token_are_learned_from_usage() -> None:
    balancer = engines("a")
    for i in range(200):
        answer(balancer, start(balancer, float(i), prompt=Prompt(6_000)), i + 0.1, 0.1, prompt=3_000, output=10)
    assert model(balancer).tokens_per_byte == pytest.approx(0.5, rel=0.02)
    for nonsense in (TokenUsage(-5, 0), TokenUsage(10**9, 0), TokenUsage(0, 0)):
        request = start(balancer, 300.0, prompt=Prompt(100))
        request.usage = nonsense
        balancer.finish(request, Outcome.OK, 300.1)
    assert model(balancer).tokens_per_byte == pytest.approx(0.5, rel=0.02)


def test_a_cache_is_as_large_as_its_engine_says() -> None:
    balancer = engines("a")
    balancer.report_kv_tokens("a", 2_048, now=0.0)
    balancer.expire(1.0)
    answer(balancer, start(balancer, 1.0, prompt=prompt(*range(20))), 1.1)
    assert model(balancer).index.entries == 4  # 4 blocks of 512 tokens


def test_requests_of_others_count_as_much_as_ours_usually_do() -> None:
    balancer = engines()
    for i in range(50):
        answer(balancer, start(balancer, float(i), prompt=Prompt(8_000)), i + 0.1, 0.1)
    balancer.report_peer_load("a", 5, now=60.0)
    assert [runs_on(start(balancer, 60.0, prompt=Prompt(8_000))) for _ in range(3)] == ["b"] * 3


def test_a_deadline_of_the_first_byte_is_judged_by_what_is_to_be_read() -> None:
    balancer = engines("a")
    train(balancer, {"a": 1e-4})
    answer(balancer, start(balancer, 50.0, prompt=prompt(*range(20))), 51.0)
    fresh = Request(prompt=prompt(*range(100, 120)), first_byte_by=60.5)  # 10,240 tokens: 1 s
    assert refused(balancer.submit(fresh, 60.0)) == "deadline"
    assert fresh.predicted_seconds == pytest.approx(1.02, rel=0.1)
    assert isinstance(balancer.submit(Request(prompt=prompt(*range(20)), first_byte_by=60.5), 60.0), Send)


def test_requests_without_a_prompt_go_by_work() -> None:
    balancer = engines()
    where = [runs_on(start(balancer, features=(1.0,))) for _ in range(10)]
    assert where.count("a") == 5


def test_in_a_large_fleet_the_replica_that_has_read_a_prompt_is_still_found() -> None:
    balancer = engines(*(f"r{i}" for i in range(200)))
    first = start(balancer, prompt=prompt(*range(8)))
    answer(balancer, first, 0.5)
    home = replica(balancer, "r0").notes and next(
        r.id for r in balancer.pool().members if model(balancer).index.blocks_of(r.notes.slot)
    )
    for turn in range(5):
        request = start(balancer, 1.0 + turn, prompt=prompt(*range(9)))
        assert runs_on(request) == home
        answer(balancer, request, 1.5 + turn)
