"""The table of peers, and the request they all get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.load.chat_request import ANSWER_BYTES, BODY_BYTES, answer, body, head
from benchmarks.peers import PEERS, Setting
from benchmarks.peers.base import PEERS_VARIABLE


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_is_told_where_to_listen_and_of_every_replica(name: str, tmp_path: Path) -> None:
    setting = Setting(5555, (6001, 6002, 6003), tmp_path, extra=(7001, 7002))
    start = PEERS[name].start("/bin/program", setting)
    assert start.command[0] == "/bin/program"
    settings = " ".join(start.command) + "".join(path.read_text() for path in tmp_path.iterdir() if path.is_file())
    assert all(str(port) in settings for port in (5555, 6001, 6002, 6003))
    assert PEERS[name].name == name
    assert PEERS[name].rule


def test_a_peer_is_found_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "vllm-router"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv(PEERS_VARIABLE, str(tmp_path))
    assert PEERS["vllm-router"].find() == str(program)


def test_the_request_is_what_it_is_said_to_be() -> None:
    text = body()
    assert len(text.encode()) == BODY_BYTES
    assert json.loads(text)["model"] == "bench"
    lines = head(80, "/x", len(text)).decode().strip().split("\r\n")
    assert len(lines) - 1 == 9  # headers
    assert len(answer().encode()) == ANSWER_BYTES
    assert json.loads(answer())["object"] == "chat.completion"
