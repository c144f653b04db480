"""The proxies with probes: both are asked to look equally often, and at every replica."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.mocks.stub_fleet import address
from benchmarks.peers import Setting
from benchmarks.peers.health_checked import (
    HEALTH_CHECKED_PEERS,
    MODEL,
    PROBE_INTERVAL_SECONDS,
    PROBE_TIMEOUT_SECONDS,
    READY_PATH,
    ProbedSteelyard,
)

from steelyard.config import load_config

PORTS = (6001, 6002, 6003)


@pytest.mark.parametrize("name", HEALTH_CHECKED_PEERS)
def test_every_one_is_told_where_to_listen_and_of_every_replica(name: str, tmp_path: Path) -> None:
    start = HEALTH_CHECKED_PEERS[name].start("/bin/program", Setting(5555, PORTS, tmp_path))
    settings = Path(start.command[2]).read_text()
    assert start.command[0] == "/bin/program"
    assert all(str(port) in settings for port in (5555, *PORTS))
    assert HEALTH_CHECKED_PEERS[name].name == name
    assert HEALTH_CHECKED_PEERS[name].rule


@pytest.mark.parametrize("name", [name for name in HEALTH_CHECKED_PEERS if name.startswith("haproxy")])
def test_haproxy_looks_as_often_as_steelyard(name: str, tmp_path: Path) -> None:
    settings = Path(HEALTH_CHECKED_PEERS[name].start("haproxy", Setting(5555, PORTS, tmp_path)).command[2]).read_text()
    assert f"inter {PROBE_INTERVAL_SECONDS * 1000:.0f}ms fall 2 rise 1" in settings
    assert f"timeout check {PROBE_TIMEOUT_SECONDS * 1000:.0f}ms" in settings
    assert f"option httpchk GET {READY_PATH}" in settings


@pytest.mark.parametrize(("name", "workers"), [("steelyard", 1), ("steelyard-2", 2)])
def test_the_configuration_of_steelyard_says_what_is_meant(name: str, workers: int, tmp_path: Path) -> None:
    config = load_config(Path(HEALTH_CHECKED_PEERS[name].start("steelyard", Setting(5555, PORTS, tmp_path)).command[2]))
    model = config.models[MODEL]
    assert config.workers == workers
    assert (model.health.interval, model.health.timeout) == (PROBE_INTERVAL_SECONDS, PROBE_TIMEOUT_SECONDS)
    assert (model.health.rise, model.health.fall) == (1, 2)
    assert [replica.url for replica in model.replicas] == [f"http://127.0.0.1:{port}" for port in PORTS]


def test_a_crowd_can_go_without_probes(tmp_path: Path) -> None:
    peer = ProbedSteelyard("bare", {"enabled": False, "interval": "5s"})
    urls = [f"http://{address(place)}:7000" for place in range(1000)]
    config = load_config(Path(peer.before("steelyard", Setting(5555, (), tmp_path), urls).command[2]))
    assert not config.models[MODEL].health.enabled
    assert len({replica.name for replica in config.models[MODEL].replicas}) == 1000
