"""One simulated batching engine, by small conversations with exact times."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random
from typing import Any

import pytest

from steelyard.core.outcome import Outcome
from steelyard.documents import Seconds
from steelyard.simulate.engine.job import Job, TokenJob
from steelyard.simulate.llm.kv_cache import KvCache
from steelyard.simulate.llm.model import ENGINES, EngineModel, TokenMix, find_engine, token_mix
from steelyard.simulate.llm.server import SLACK_TOKENS, EngineServer

A, B, K, C = 0.01, 0.001, 1e-6, 1e-5


def model(**sizes: Any) -> EngineModel:
    return EngineModel(
        step_base=Seconds(A),
        per_sequence=Seconds(B),
        per_context_token=Seconds(K),
        per_prefill_token=Seconds(C),
        **sizes,
    )


class Talk:
    """Speaks to one engine as the simulation does, and writes down when first and last tokens came."""

    def __init__(self, block_tokens: int = 64, **sizes: Any) -> None:
        self.server = EngineServer("e", model(**sizes), block_tokens)
        self.first: dict[str, float] = {}
        self.last: dict[str, float] = {}
        self.refused: list[str] = []
        self.lost: list[Job] = []
        self._events: list[tuple[float, int, Job]] = []
        self._scheduled = 0

    def schedule(self, when: float, job: Job) -> None:
        self._scheduled += 1
        heappush(self._events, (when, self._scheduled, job))

    def send(
        self, name: str, prompt: int, output: int, at: float = 0.0, blocks: tuple[int, ...] | None = None
    ) -> TokenJob:
        self.until(at)
        size = self.server.kv.block_tokens
        if blocks is None:
            blocks = tuple(hash((name, n)) for n in range((prompt + output) // size))
        job = TokenJob(at, 1.0, prompt, output, blocks, size)
        job.id = name
        self.server.accept(job, at, self.schedule)
        return job

    def until(self, when: float) -> None:
        while self._events and self._events[0][0] <= when:
            at, _, job = heappop(self._events)
            if job.finish != at:
                continue
            job.finish = -1.0
            if job.planned_outcome is Outcome.ERROR:
                self.refused.append(job.id)
                continue
            self.server.ended(job, at, self.schedule)
            for started in self.server.take_started():
                assert started.id not in self.first, "a second first token"
                started.first_token_at = at
                self.first[started.id] = at
            for done in self.server.take_finished():
                assert done.id not in self.last, "it ended twice"
                self.last[done.id] = at

    def rest(self) -> Talk:
        self.until(float("inf"))
        assert not self.server.busy
        assert not self.server.queue
        assert self.server.kv.held == 0
        return self


# Steps


def test_a_lone_request_takes_the_steps_of_the_formula() -> None:
    talk = Talk()
    talk.send("a", prompt=1000, output=4)
    talk.rest()
    first = A + C * 1000
    assert talk.first["a"] == pytest.approx(first)
    assert talk.last["a"] == pytest.approx(first + sum(A + B + K * context for context in (1000, 1001, 1002)))


def test_the_first_token_follows_the_last_chunk_of_the_prompt() -> None:
    talk = Talk(prefill_budget=400)
    talk.send("a", prompt=1000, output=1)
    talk.rest()
    assert talk.first["a"] == talk.last["a"] == pytest.approx(3 * A + 1000 * C)


def test_steps_serve_those_that_decode_beside_the_prompt_of_another() -> None:
    talk = Talk(prefill_budget=500)
    talk.send("a", prompt=100, output=10)
    first = A + 100 * C
    talk.send("b", prompt=1000, output=1, at=first / 2)  # during a step: it waits for the next
    talk.rest()
    chunks = (A + B + K * 100 + 500 * C) + (A + B + K * 101 + 500 * C)
    assert talk.first["b"] == pytest.approx(first + chunks)
    alone = sum(A + B + K * context for context in range(102, 109))
    assert talk.last["a"] == pytest.approx(first + chunks + alone)


def test_a_budget_goes_to_prompts_in_their_order() -> None:
    talk = Talk(prefill_budget=1000)
    talk.send("a", prompt=10, output=100)
    talk.send("b", prompt=1500, output=1, at=0.001)
    talk.send("c", prompt=400, output=1, at=0.002)
    talk.rest()
    assert talk.first["b"] == talk.first["c"]  # 1000 of b, then 500 of b and 400 of c


@pytest.mark.parametrize("seed", range(3))
def test_many_steps_at_once_are_the_same_as_one_by_one(seed: int) -> None:
    """Arrivals that change nothing cut the jumps into pieces."""
    rng = Random(seed)
    arrivals = sorted((rng.uniform(0, 3), rng.randint(10, 3000), rng.randint(1, 300)) for _ in range(30))

    def run(interrupted: bool) -> dict[str, float]:
        talk = Talk(max_sequences=20)
        for n, (at, prompt, output) in enumerate(arrivals):
            talk.send(f"r{n}", prompt, output, at)
        if interrupted:
            for tick in range(1000):
                talk.until(3.0 + tick * 0.0137)
                talk.server.set_speed(1.0, 3.0 + tick * 0.0137, talk.schedule)
        return talk.rest().last

    alone, cut = run(False), run(True)
    assert alone.keys() == cut.keys()
    for name, when in alone.items():
        assert cut[name] == pytest.approx(when, rel=1e-9)


def test_more_than_max_sequences_wait() -> None:
    talk = Talk(max_sequences=2)
    for name in "abc":
        talk.send(name, prompt=10, output=50)
    talk.rest()
    assert talk.first["b"] < talk.last["a"] < talk.first["c"]


def test_a_slow_engine_takes_longer_from_the_next_step_on() -> None:
    talk = Talk()
    talk.send("a", prompt=1000, output=3)
    talk.server.slow_down(2.0, 0.001, talk.schedule)
    talk.rest()
    assert talk.first["a"] == pytest.approx(A + 1000 * C)
    further = 2 * (A + B) + K * (1000 + 1001)
    assert talk.last["a"] == pytest.approx(A + 1000 * C + 2 * further)


# Memory


def test_a_request_waits_until_there_is_room_for_its_prompt() -> None:
    talk = Talk(kv_tokens=3000)
    talk.send("a", prompt=1500, output=100)
    talk.send("b", prompt=1500, output=10, at=0.001)
    talk.rest()
    assert talk.server.preemptions == 0
    assert talk.first["b"] > talk.last["a"]


def test_the_last_one_admitted_is_preempted_and_computed_again() -> None:
    talk = Talk(kv_tokens=2000)
    talk.send("a", prompt=900, output=200)
    talk.send("b", prompt=900, output=200)
    talk.rest()
    assert talk.server.preemptions == 1
    assert talk.first["b"] < talk.last["a"] < talk.last["b"]  # one first token, from before
    assert talk.server.served == 2


def test_what_can_never_fit_is_refused() -> None:
    talk = Talk(kv_tokens=2000)
    talk.send("a", prompt=1990, output=10)
    talk.send("b", prompt=1000, output=10)
    talk.rest()
    assert talk.refused == ["a"]
    assert list(talk.last) == ["b"]


# The prefix cache


def test_a_prefix_that_is_held_or_cached_is_not_computed_again() -> None:
    talk = Talk()
    shared = tuple(range(10))
    talk.send("a", 640, 100, blocks=shared)
    b = talk.send("b", 1000, 100, at=0.05, blocks=(*shared, 21, 22, 23, 24, 25))
    talk.until(100.0)
    c = talk.send("c", 660, 1, at=100.0, blocks=shared)
    talk.rest()
    assert (b.cached_tokens, c.cached_tokens) == (640, 640)
    assert talk.first["c"] == pytest.approx(100.0 + A + 20 * C)


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    talk = Talk()
    talk.send("a", 640, 1, blocks=tuple(range(10)))
    again = talk.send("b", 640, 1, at=1.0, blocks=tuple(range(10)))
    talk.rest()
    assert again.cached_tokens == 9 * 64


def test_generated_tokens_are_cached_too() -> None:
    talk = Talk()
    blocks = tuple(range(20))
    talk.send("a", 640, 641, blocks=blocks)  # the last token is never computed
    turn = talk.send("b", 1300, 1, at=100.0, blocks=blocks)
    talk.rest()
    assert turn.cached_tokens == 1280


def test_without_a_prefix_cache_nothing_is_found() -> None:
    talk = Talk(prefix_cache=False)
    talk.send("a", 640, 1, blocks=tuple(range(10)))
    again = talk.send("b", 640, 1, at=1.0, blocks=tuple(range(10)))
    talk.rest()
    assert again.cached_tokens == 0
    assert talk.server.kv.cached_blocks == 0


def test_running_sequences_take_the_room_of_those_cached_longest_ago() -> None:
    talk = Talk(kv_tokens=2048)
    old, recent = tuple(range(10)), tuple(range(100, 110))
    talk.send("old", 641, 1, blocks=old)
    talk.send("recent", 641, 1, at=1.0, blocks=recent)
    talk.send("large", 1200, 1, at=2.0)
    again = talk.send("again", 641, 1, at=3.0, blocks=recent)
    talk.until(4.0)
    gone = talk.send("gone", 641, 1, at=5.0, blocks=old)
    talk.rest()
    assert again.cached_tokens == 640
    assert gone.cached_tokens < 640


def test_the_end_of_a_prefix_goes_before_its_beginning() -> None:
    cache = KvCache(640, 64)
    cache.held = 640
    cache.fill(range(10), 0, 10)
    cache.release(range(10), 10, 10, 0)
    assert cache.held == 0
    cache.held = 320
    cache.trim()
    assert cache.match(range(10), 10) == 5


def test_shared_blocks_are_held_once() -> None:
    talk = Talk()
    shared = tuple(range(10))
    talk.send("a", 641, 100, blocks=shared)
    talk.until(0.1)
    before = talk.server.kv.held
    talk.send("b", 641, 100, at=0.1, blocks=shared)
    talk.until(0.2)
    assert talk.server.kv.held - before < 64 + SLACK_TOKENS
    talk.rest()


# Ends


def test_what_is_abandoned_gives_its_room_back() -> None:
    talk = Talk()
    running = talk.send("a", 640, 1000)
    talk.until(0.5)
    talk.server.abandon(running, 0.5, talk.schedule)
    talk.rest()
    assert not talk.last
    waiting = Talk(max_sequences=1)
    waiting.send("a", 10, 100)
    job = waiting.send("b", 10, 100)
    waiting.server.abandon(job, 0.0, waiting.schedule)
    assert list(waiting.rest().last) == ["a"]


def test_a_crash_loses_all_and_the_cache() -> None:
    talk = Talk(max_sequences=1)
    blocks = tuple(range(10))
    talk.send("a", 640, 1000, blocks=blocks)
    talk.send("b", 640, 1000)
    talk.until(0.5)
    assert [job.id for job in talk.server.clear()] == ["a", "b"]
    assert not talk.server.busy
    again = talk.send("c", 640, 1, at=1.0, blocks=blocks)
    assert list(talk.rest().last) == ["c"]
    assert again.cached_tokens == 0


@pytest.mark.parametrize("seed", range(5))
def test_every_request_ends_once_and_all_memory_comes_back(seed: int) -> None:
    """Crowded, with shared prefixes, preemptions and abandoned requests; `rest` counts what is held."""
    rng = Random(seed)
    talk = Talk(kv_tokens=6000, max_sequences=12, prefill_budget=512)
    sent, gone, at = [], set(), 0.0
    for n in range(300):
        at += rng.expovariate(8.0)
        prompt, output = rng.randint(1, 2500), rng.randint(1, 400)
        stem = rng.randint(1, 3) * 1000
        own = rng.randint(0, prompt // 64)
        blocks = [*range(stem, stem + own), *(n * 100_000 + i for i in range(own, (prompt + output) // 64))]
        sent.append(talk.send(f"r{n}", prompt, output, at, tuple(blocks)))
        if rng.random() < 0.1:
            leaver = rng.choice(sent)
            if leaver.id not in talk.last:
                talk.server.abandon(leaver, at, talk.schedule)
                gone.add(leaver.id)
        assert talk.server.kv.held <= 6000
    talk.rest()
    assert talk.server.preemptions > 0
    assert {job.id for job in sent} == talk.last.keys() | gone
    assert not talk.last.keys() & gone


# The model


def test_the_presets_have_the_published_coefficients() -> None:
    h100, a100 = ENGINES["8b-h100"], ENGINES["8b-a100"]
    assert [h100.step_base, h100.per_sequence, h100.per_context_token, h100.per_prefill_token] == pytest.approx(
        [6.8e-3, 10e-6, 0.076e-6, 20e-6]
    )
    assert [a100.step_base, a100.per_sequence, a100.per_context_token, a100.per_prefill_token] == pytest.approx(
        [10.5e-3, 35e-6, 0.125e-6, 66e-6]
    )
    assert h100.kv_tokens == a100.kv_tokens == 400_000


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="`engine` must be one of 8b-h100, 8b-a100"):
        find_engine("h100")


def test_a_saturated_engine_serves_its_capacity() -> None:
    talk = Talk(kv_tokens=100_000, max_sequences=64)
    rng = Random(1)
    requests = [(rng.randint(100, 1900), rng.randint(50, 350)) for _ in range(600)]
    for n, (prompt, output) in enumerate(requests):
        talk.send(f"r{n}", prompt, output)
    talk.rest()
    rate = len(requests) / max(talk.last.values())
    assert rate == pytest.approx(talk.server.model.requests_per_second(token_mix(requests)), rel=0.1)


def test_expected_hits_raise_the_capacity() -> None:
    mix = TokenMix(prompt=4000, output=100, context=4050)
    assert ENGINES["8b-h100"].requests_per_second(mix, 0.5) > 1.3 * ENGINES["8b-h100"].requests_per_second(mix)


def test_seconds_alone_are_those_of_an_empty_engine() -> None:
    talk = Talk()
    talk.send("a", prompt=5000, output=77)
    assert talk.rest().last["a"] == pytest.approx(talk.server.model.seconds_alone(5000, 77))


def test_the_tokens_between_events_are_those_of_the_steps_that_are_over() -> None:
    talk = Talk()
    job = talk.send("one", prompt=100, output=50)
    talk.until(A + 100 * C)
    assert list(talk.server.tokens_by(A + 100 * C)) == [(job, 1)]
    step = A + B  # and a little for its context
    assert list(talk.server.tokens_by(A + 100 * C + 3.5 * step)) == [(job, 4)]
    assert list(talk.server.tokens_by(100.0)) == [(job, 50)]
