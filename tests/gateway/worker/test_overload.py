"""What a worker does by the memory that is left to it (overload.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from steelyard.gateway.worker.overload import RESERVE_BYTES, MemoryMonitor
from steelyard.link import cgroup

from ..reading import answer, read_answer, request
from ..stage import Stage

OPENAI = "models: {m: {dialect: openai, replicas: [{url: 'http://a:1'}]}}"


def left(monkeypatch: pytest.MonkeyPatch, stage: Stage, size: int | None) -> None:
    """So much is, at the next look."""
    monkeypatch.setattr(MemoryMonitor, "measure", lambda _: size)
    stage.pass_time(1)


@pytest.fixture
def stage(staged: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = staged(OPENAI)
    monkeypatch.setattr(MemoryMonitor, "measure", lambda _: None)
    MemoryMonitor(stage.proxy)
    return stage


def test_with_very_little_left_only_what_is_answered_here_is_answered(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = stage.client()
    left(monkeypatch, stage, RESERVE_BYTES // 2 - 1)
    for _ in range(2):
        client.says(request("GET /v1/files"))
        response = read_answer(client.hears())
        assert (response.status, response["steelyard-reason"], response["retry-after"]) == (503, "memory_low", "1")
    client.says(request("GET /v1/models"))
    assert read_answer(client.hears()).status == 200
    other = stage.client()
    assert read_answer(other.hears())["steelyard-reason"] == "memory_low"
    assert other.closed
    assert [alarm.code for one in stage.proxy.resource_alarms if (alarm := one.alarm(stage.loop.now))] == ["memory_low"]
    left(monkeypatch, stage, None)
    client.says(request("GET /v1/files"))
    stage.replica().says(answer())
    assert read_answer(client.hears()).status == 200


def test_bodies_take_half_of_what_is_left_above_the_reserve(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    left(monkeypatch, stage, RESERVE_BYTES + 2000)
    body = b'{"model": "m", "input": "' + b"x" * 575 + b'"}'
    first, second = stage.client(), stage.client()
    for client in (first, second):
        client.says(request("POST /v1/embeddings", body=body))
    assert stage.proxy.held == len(body), "one that came in one piece counts too"
    response = read_answer(second.hears())
    assert (response.status, response["steelyard-reason"]) == (503, "memory_low")
    stage.replica().says(answer())
    assert read_answer(first.hears()).status == 200
    stage.check_idle(counted=2)


def test_files_that_the_kernel_gives_up_are_not_used_memory(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text(
        "anon 100\ninactive_file 300\nactive_file 450\nslab_reclaimable 50\nfile 750\n"
    )
    (folder, version) = cgroup.find_cgroup(str(tmp_path)) or pytest.fail("it is not found")
    assert list(cgroup.memory_limits(folder, version)) == [(tmp_path, 1000)]
    assert (cgroup.memory_used(folder, version), cgroup.memory_needed(folder, version)) == (600, 100)
