"""The models of peers choose as their published rules say."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from steelyard.cli import main
from steelyard.core.balancer import Balancer
from steelyard.core.decision import Send
from steelyard.core.errors import OptionError
from steelyard.core.options import PoolOptions
from steelyard.core.outcome import Outcome
from steelyard.core.policies import POLICIES
from steelyard.core.replica import State
from steelyard.simulate.engine.job import TokenJob
from steelyard.simulate.llm.model import ENGINES
from steelyard.simulate.llm.server import EngineServer
from steelyard.simulate.peers import PEERS, policy_target
from steelyard.simulate.peers.base import PeerPolicy
from steelyard.simulate.report.formatting import policy_label
from steelyard.simulate.run import check_policy
from steelyard.simulate.scenario.catalog import find_scenarios
from steelyard.simulate.scenario.schema import Scenario

from ..watched import everything, watch

BLOCK = 64


class Fleet:
    """A balancer with one policy over engines that are told what they hold, and time that stands still."""

    def __init__(self, policy: str, count: int = 3, seed: int = 1) -> None:
        self.engines = [EngineServer(f"r{n}", ENGINES["8b-h100"], BLOCK) for n in range(count)]
        self.balancer = Balancer(Random(seed))
        self.balancer.add_model("", policy_target(policy), PoolOptions(slow_start=0.0))
        for engine in self.engines:
            self.balancer.add_replica(engine.id, state=State.READY, now=0.0)
        chosen = self.balancer.pool().policy
        assert isinstance(chosen, PeerPolicy)
        self.policy = chosen
        chosen.connect(self.engines)
        self.streams = iter(range(1_000_000))

    def send(self, tokens: int, stream: int | None = None) -> tuple[str, TokenJob]:
        """A prompt of its own, or the beginning of a stream that others begin with too."""
        job = self.job(tokens, stream)
        decision = self.balancer.submit(job, 0.0)
        assert isinstance(decision, Send)
        return decision.replica.id, job

    def job(self, tokens: int, stream: int | None = None) -> TokenJob:
        which = next(self.streams) + 1000 if stream is None else stream
        blocks = tuple(which * 10_000 + n for n in range(tokens // BLOCK))
        return TokenJob(0.0, 1.0, tokens, 10, blocks, BLOCK)

    def crowd(self, engine: str, count: int) -> None:
        """Requests that another balancer sent there."""
        replica = self.balancer.pool().replicas[engine]
        for _ in range(count):
            self.balancer.adopt(self.job(BLOCK), replica, 0.0, 1.0, 1.0, now=0.0)


# smg


def test_smg_follows_the_match_if_it_is_a_large_enough_share() -> None:
    fleet = Fleet("smg_cache_aware")
    home, _ = fleet.send(6400, stream=1)
    fleet.crowd(home, 10)
    assert fleet.send(6400, stream=1)[0] == home
    blocks = tuple(10_000 + n for n in range(20)) + tuple(range(80))
    little = TokenJob(0.0, 1.0, 6400, 10, blocks, BLOCK)  # 20 of 100 blocks match: not above 0.3
    decision = fleet.balancer.submit(little, 0.0)
    assert isinstance(decision, Send)
    assert decision.replica.id != home


def test_smg_takes_the_fewest_requests_once_the_difference_is_above_both_thresholds() -> None:
    fleet = Fleet("smg_cache_aware")
    home, _ = fleet.send(6400, stream=1)
    fleet.crowd(home, 63)  # 64 more than the others: not above
    assert fleet.send(6400, stream=1)[0] == home  # 65 more
    assert fleet.send(6400, stream=1)[0] != home


def test_smg_spreads_what_matches_nothing() -> None:
    fleet = Fleet("smg_cache_aware")
    assert {fleet.send(640)[0] for _ in range(3)} == {"r0", "r1", "r2"}


# llm-d


def test_llmd_adds_queue_kv_and_prefix() -> None:
    fleet = Fleet("llmd_default")
    home, _ = fleet.send(6400, stream=1)
    engine = next(engine for engine in fleet.engines if engine.id == home)
    assert fleet.send(6400, stream=1)[0] == home
    engine.kv.held = engine.kv.capacity  # 2 × 1 less
    fleet.policy.scrape(0.05)
    assert fleet.send(6400, stream=1)[0] == home  # 3 for the prefix
    engine.queue.append(fleet.send(64)[1])  # and 2 less, as the longest queue
    fleet.policy.scrape(0.10)
    assert fleet.send(6400, stream=1)[0] != home


def test_llmd_sees_metrics_only_when_it_scrapes() -> None:
    fleet = Fleet("llmd_default")
    for engine in fleet.engines[1:]:
        engine.kv.held = engine.kv.capacity
    assert len({fleet.send(64)[0] for _ in range(30)}) == 3
    fleet.policy.scrape(0.05)
    assert {fleet.send(64)[0] for _ in range(30)} == {"r0"}


def test_llmd_matches_only_the_beginning_of_a_long_prompt() -> None:
    fleet = Fleet("llmd_default")
    home, _ = fleet.send(4096, stream=1)
    engine = next(engine for engine in fleet.engines if engine.id == home)
    engine.kv.held = engine.kv.capacity
    fleet.policy.scrape(0.05)
    assert fleet.send(64_000, stream=1)[0] == home  # counted as wholly matched: 3 against 2


# Dynamo


def test_dynamo_weighs_uncached_prompts_and_active_blocks() -> None:
    fleet = Fleet("dynamo_cost", count=2)
    first, job = fleet.send(6400)
    other = "r1" if first == "r0" else "r0"
    assert fleet.send(3200)[0] == other  # 100 + 100 + … against 50 + 50
    assert fleet.send(640)[0] == other  # 200 + 20 against 100 + 20
    job.first_byte = 1.0  # its prompt is done: 100 there, 120 at the other
    assert fleet.send(64)[0] == first
    fleet.balancer.finish(job, Outcome.OK, 1.0)
    assert fleet.send(64)[0] == first


def test_dynamo_knows_what_is_cached_and_counts_shared_blocks_once() -> None:
    fleet = Fleet("dynamo_cost", count=2)
    blocks = tuple(10_000 + n for n in range(100))
    cached = fleet.engines[1].kv
    cached.fill(blocks, 0, 100)
    home, job = fleet.send(6400, stream=1)
    assert home == "r1"
    job.first_byte = 1.0
    assert fleet.send(6400, stream=1)[0] == "r1"  # 100 blocks that are active already, against 200
    assert fleet.send(6400)[0] == "r0"


def test_dynamo_forgets_a_request_that_was_cancelled() -> None:
    fleet = Fleet("dynamo_cost", count=2)
    first, job = fleet.send(64_000)
    fleet.balancer.cancel(job, 0.5)
    assert {fleet.send(64)[0] for _ in range(2)} == {"r0", "r1"}
    del first


# As policies of a scenario


def short(**changes: Any) -> Scenario:
    scenario = find_scenarios("W6")[2]
    return msgspec.structs.replace(scenario, requests=300, seeds=1, **changes)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_serves_all_and_is_the_same_when_run_again(name: str) -> None:
    result, watched = watch(short(), name, 0.8)
    assert watched.left_over() == 0
    assert result.requests == 300
    assert everything(watch(short(), name, 0.8)[0]) == everything(result)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_no_policy_of_the_core_needs_engines_and_is_marked(name: str) -> None:
    assert name not in POLICIES
    with pytest.raises(OptionError, match=r"needs engines"):
        check_policy(find_scenarios("W1")[0], name)
    check_policy(find_scenarios("W6")[0], name)
    assert policy_label(name) == f"{name} (model)"


def test_the_command_runs_a_peer_and_writes_what_it_found(tmp_path: Path) -> None:
    scenario = tmp_path / "talk.yaml"
    scenario.write_text(
        "name: talk\nrequests: 200\nseeds: 1\nloads: [0.7]\nfleet: [{count: 2, engine: 8b-h100}]\n"
        "workload: {conversations: {turns: 3, think: 1s}}\npolicies: [least_connections, smg_cache_aware]\n"
    )
    done = CliRunner().invoke(main, ["simulate", str(scenario), "--out", str(tmp_path / "out")], env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    assert re.search(r"smg_cache_aware \(model\)", done.output)
    assert all(title in done.output for title in ("TTFT p50", "TTFT p99", "TPOT p99", "cache hits"))
    assert "(model): of another project's published rule" in done.output
    header = (tmp_path / "out" / "results.csv").read_text().splitlines()[0]
    assert all(name in header for name in ("ttft_p50_s", "ttft_p99_s", "tpot_p99_s", "cache_hits"))
    assert "ttft_p99_s" in (tmp_path / "out" / "runs.csv").read_text()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "TTFT p99" in page
    assert "smg_cache_aware (model)" in page
