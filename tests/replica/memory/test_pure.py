"""What decides without sockets, clocks or signals: renewals, the drain, options, places, memory."""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.errors import OptionError
from steelyard.replica import ReplicaAgent
from steelyard.replica.lifecycle import DrainProgress
from steelyard.replica.memory.gpu import GpuMemory
from steelyard.replica.memory.meter import MemoryMeter, ProcessMemory, memory_limit_bytes, resident_bytes
from steelyard.replica.registration.own_address import address_from_request, replica_name
from steelyard.replica.registration.renewal import MAX_RETRY_SECONDS, MIN_RETRY_SECONDS, REFUSED_RETRY_SECONDS, Renewal

GATEWAY = "http://127.0.0.1:9080"

# ---------------------------------------------------------------------- renewals


def renewal(seed: int = 1) -> Renewal:
    return Renewal(GATEWAY, 15.0, Random(seed))


@given(seconds=st.one_of(st.none(), st.floats(), st.floats(0.1, 100)), seed=st.integers())
def test_a_lease_is_renewed_well_before_it_ends(seconds: float | None, seed: int) -> None:
    then = renewal(seed).granted(seconds)
    held = seconds if seconds is not None and 0 < seconds <= 86_400 else 15.0
    assert 0.2 <= then.wait <= max(0.2, held / 3)


@given(outcomes=st.lists(st.sampled_from(["away", 401, 404, 408, 429, 500, 503]), min_size=1, max_size=30))
def test_who_may_recover_is_asked_again_soon(outcomes: list[Any]) -> None:
    kept = renewal()
    for outcome in outcomes:
        then = kept.unreachable("refused") if outcome == "away" else kept.refused(outcome, "")
        assert MIN_RETRY_SECONDS / 2 <= then.wait <= MAX_RETRY_SECONDS
    assert kept.granted(15.0).succeeded
    assert kept.unreachable("refused").wait <= MIN_RETRY_SECONDS  # and begins from the start after a success


def test_the_waits_grow() -> None:
    kept = renewal()
    waits = [kept.unreachable("refused").wait for _ in range(40)]
    assert waits[0] <= MIN_RETRY_SECONDS
    assert MAX_RETRY_SECONDS / 2 <= waits[-1] <= MAX_RETRY_SECONDS
    assert len(set(waits)) > 30  # not all replicas at the same moment


@pytest.mark.parametrize("status", [400, 403, 405, 409, 413, 422])
def test_a_mistake_is_tried_again_slowly(status: int) -> None:
    then = renewal().refused(status, "url: not allowed")
    assert REFUSED_RETRY_SECONDS / 2 <= then.wait <= REFUSED_RETRY_SECONDS
    assert "url: not allowed" in then.message
    assert not then.succeeded


def test_each_problem_is_said_once_and_again_after_it_was_gone() -> None:
    kept = renewal()
    assert kept.unreachable("refused").message
    assert not kept.unreachable("refused").message
    assert kept.unreachable("no answer in 5 s").message
    assert kept.granted(15.0).message
    assert not kept.granted(15.0).message
    assert kept.unreachable("refused").message


# ---------------------------------------------------------------------- the drain


def test_a_drain_ends_when_nothing_is_left_to_lose() -> None:
    drain = DrainProgress(began=100.0, grace=30.0, quiet=1.0, settle=5.0)
    assert not drain.is_over(100.5, 0, 90.0, withdrawn=True)  # not quiet yet
    assert drain.is_over(101.0, 0, 90.0, withdrawn=True)
    assert not drain.is_over(104.0, 0, 90.0, withdrawn=False)  # those who probe have not noticed
    assert drain.is_over(105.0, 0, 90.0, withdrawn=False)
    assert not drain.is_over(110.0, 1, 90.0, withdrawn=True)  # something runs
    assert not drain.is_over(110.0, 0, 109.5, withdrawn=True)  # something came or ended just now
    assert drain.is_over(110.5, 0, 109.5, withdrawn=True)
    assert drain.is_over(130.0, 7, 130.0, withdrawn=False)  # the grace is over


# ---------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"model": ""}, "model"),
        ({"model": "a\nb"}, "model"),
        ({"gateway": "127.0.0.1:9080"}, "gateway: '127.0.0.1:9080'"),
        ({"gateway": "http://user:secret@host:9080"}, "gateway"),
        ({"gateway": "http://host:99999"}, "gateway"),
        ({"gateway": ["http://ok:1", "ftp://x"]}, "gateway"),
        ({"url": "10.0.0.1:8001"}, "url"),
        ({"url": "http://10.0.0.1:8001/predict"}, "url"),
        ({"id": "a b"}, "id"),
        ({"id": "a" * 129}, "id"),
        ({"zone": "a\nb"}, "zone"),
        ({"weight": 0}, "weight"),
        ({"weight": float("nan")}, "weight"),
        ({"weight": True}, "weight"),
        ({"lease": 0.1}, "lease"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"max_queue": -1}, "max_queue"),
        ({"drain_timeout": -1}, "drain_timeout"),
        ({"drain_idle": "1"}, "drain_idle"),
        ({"deregistration_delay": float("inf")}, "deregistration_delay"),
        ({"ready_path": "health"}, "ready_path"),
        ({"bypass_paths": ["docs"]}, "bypass_paths"),
        ({"bypass_paths": "/docs"}, "bypass_paths"),
        ({"token": "two words"}, "token"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], word: str) -> None:
    with pytest.raises(OptionError, match=word) as problem:
        ReplicaAgent(**{"model": "m", **options})
    assert "two words" not in str(problem.value)


def test_the_environment_fills_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_GATEWAY", "http://a:9080, http://b:9080/")
    monkeypatch.setenv("STEELYARD_URL", "http://10.0.0.1:8001/")
    monkeypatch.setenv("STEELYARD_TOKEN", "abc\n")  # as a file that was read into it has
    found = ReplicaAgent("m").options
    assert found.gateways == ("http://a:9080", "http://b:9080")
    assert found.url == "http://10.0.0.1:8001"
    assert found.token == "abc"
    given = ReplicaAgent("m", gateway=(), url="", token="").options
    assert (given.gateways, given.url, given.token) == ((), "", "")


def test_an_agent_can_be_sent_to_another_process_and_begins_there_anew() -> None:
    agent = ReplicaAgent("m", gateway=(), concurrency=3, token="abc", ready_path="/health")
    agent.ready()
    agent.begin()
    other = pickle.loads(pickle.dumps(agent.middleware)).__self__
    assert other.options == agent.options
    assert (other.state, other.instance, other.limiter.limit) == ("loading", "", 3)


# ---------------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("server", "gateway", "expected"),
    [
        (("127.0.0.1", 8001), "http://localhost:9080", "http://127.0.0.1:8001"),
        (("127.0.0.1", 8001), "unix:/run/admin.sock", "http://127.0.0.1:8001"),
        (("127.0.0.1", 8001), "http://10.0.0.9:9080", ""),
        (("10.0.0.1", 8001), "http://10.0.0.9:9080", "http://10.0.0.1:8001"),
        (("fd00::1", 8001), "http://gateway:9080", "http://[fd00::1]:8001"),
        (("/run/model.sock", None), "http://localhost:9080", ""),
        (None, "http://localhost:9080", ""),
    ],
)
def test_where_a_request_found_us(server: Any, gateway: str, expected: str) -> None:
    assert address_from_request({"type": "http", "scheme": "http", "server": server}, [gateway]) == expected


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://10.0.0.1:8001", "10.0.0.1:8001"),
        ("https://model.example", "model.example:443"),
        ("http://[fd00::1]:8001", "[fd00::1]:8001"),
        ("unix:/run/model.sock", "unix:/run/model.sock"),
    ],
)
def test_a_replica_without_a_name_is_called_as_the_gateway_would(url: str, name: str) -> None:
    from steelyard.config import ReplicaConfig

    assert replica_name(url) == name == ReplicaConfig(url=url).name


# ---------------------------------------------------------------------- memory


def test_this_process_has_memory() -> None:
    used, most = resident_bytes(), memory_limit_bytes()
    assert used is not None
    assert most is not None
    assert 1 << 20 < used < most


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8 << 30),
        ({"proc/self/cgroup": "0::/pod/x\n", "cgroup/pod/x/memory.max": "max\n"}, 8 << 30),
        ({"proc/self/cgroup": "0::/pod/x\n", "cgroup/pod/x/memory.max": "1073741824\n"}, 1 << 30),
        ({"proc/self/cgroup": "0::/pod/x\n", "cgroup/pod/memory.max": "536870912\n"}, 1 << 29),
        ({"proc/self/cgroup": "0::/../..\n", "cgroup/memory.max": "1073741824\n"}, 1 << 30),
        ({"proc/self/cgroup": "4:cpu,memory:/d\n", "cgroup/memory/d/memory.limit_in_bytes": "1048576"}, 1 << 20),
        ({"proc/self/cgroup": "4:memory:/d\n", "cgroup/memory/d/memory.limit_in_bytes": f"{2**63 - 4096}"}, 8 << 30),
        ({"proc/self/cgroup": "nonsense\n"}, 8 << 30),
    ],
)
def test_the_least_limit_holds(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, text in {"proc/meminfo": "MemTotal: 8388608 kB\n", "proc/self/statm": "9 7 1", **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert memory_limit_bytes(tmp_path / "proc", tmp_path / "cgroup") == expected
    assert resident_bytes(tmp_path / "proc") == 7 * 4096


def test_where_there_is_no_proc_nothing_is_claimed(tmp_path: Path) -> None:
    assert resident_bytes(tmp_path) is None
    assert memory_limit_bytes(tmp_path, tmp_path) is None
    assert ProcessMemory().scarcest == (None, None)


def test_a_look_is_kept_for_a_second() -> None:
    looks: list[float] = []

    def devices() -> tuple[GpuMemory, ...]:
        looks.append(1)
        return (GpuMemory("cuda:0", len(looks), 10),)

    meter = MemoryMeter(devices)
    assert [meter.read(now).devices[0].used for now in (100.0, 100.5, 100.99, 101.0, 101.5, 102.1)] == [
        1,
        1,
        1,
        2,
        2,
        3,
    ]


def test_the_fullest_accelerator_counts() -> None:
    devices = (GpuMemory("cuda:0", 10, 100), GpuMemory("cuda:1", 9, 10))
    assert ProcessMemory(1, 1000, devices).scarcest == (9, 10)
    assert ProcessMemory(1, 1000).scarcest == (1, 1000)
