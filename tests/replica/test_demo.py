"""The demo replica of `python -m steelyard.replica.demo`: what it takes, and what it says it saw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..harness.waiting import wait_until
from .programs import answers, demo, get, lines, running


def test_it_works_and_says_what_it_saw(tmp_path: Path) -> None:
    with running(demo(tmp_path, "--load-seconds", 0, "--model", "m", "--seconds", 0)) as program:
        program.wait()
        infer = json.dumps({"inputs": [], "parameters": {"seconds": 0.01}}).encode()
        status, told = get(program, "/v2/models/m/infer", "POST", infer)
        assert (status, told["model_name"], told["outputs"][0]["data"]) == (200, "m", [0.01])
        assert get(program, "/work?seconds=0.02", "POST")[1]["outputs"][0]["data"] == [0.02]
        assert get(program, "/work", "POST", b'{"seconds": 0.03}')[1]["outputs"][0]["data"] == [0.03]
        assert get(program, "/work", "POST")[1]["outputs"][0]["data"] == [0.0]
    seen = lines(program)
    assert [line["event"] for line in seen[:2]] == ["started", "loaded"]
    assert [line["state"] for line in seen[:2]] == ["loading", "ready"]
    assert [line["path"] for line in seen if line["event"] == "came"] == ["/v2/models/m/infer", *["/work"] * 3]
    assert all(line["whole"] and line["status"] == 200 for line in seen if line["event"] == "ended")


@pytest.mark.parametrize("body", [b"[1]", b"no json", b'{"seconds": "long"}', b'{"seconds": -1}', b'{"seconds": null}'])
def test_what_it_cannot_do_it_says(tmp_path: Path, body: bytes) -> None:
    with running(demo(tmp_path, "--load-seconds", 0)) as program:
        program.wait()
        assert get(program, "/work", "POST", body)[0] == 422


def test_what_came_too_early_is_told(tmp_path: Path) -> None:
    with running(demo(tmp_path, "--load-seconds", 1000)) as program:
        answers(program)
        assert get(program, "/work", "POST")[0] == 503
        wait_until(lambda: len(lines(program)) >= 3, "the line that it ended, which is written after the answer")
    assert [(line["event"], line["state"]) for line in lines(program)] == [
        ("started", "loading"),
        ("came", "loading"),
        ("ended", "loading"),
    ]
