"""The fake replica of `python -m tests.replica.fake_replica`: what it takes, and what it says it saw."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from ..harness.waiting import wait_until
from ..real.processes import Program
from .fake_replica.ballast import sizes
from .fake_replica.work import Work, wanted_by
from .programs import answers, demo, ends, get, lines, load, running


def test_it_works_and_says_what_it_saw(tmp_path: Path) -> None:
    with running(demo(tmp_path, "--load-seconds", 0, "--model", "m", "--seconds", 0)) as program:
        program.wait()
        infer = json.dumps({"inputs": [], "parameters": {"seconds": 0.01}}).encode()
        status, body = get(program, "/v2/models/m/infer", "POST", infer)
        assert (status, body["model_name"], body["outputs"][0]["data"]) == (200, "m", [0.01])
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


MIB = 1 << 20


@pytest.mark.parametrize(
    ("query", "body", "expected"),
    [
        ({}, b"", Work(0.5, 0)),
        ({"seconds": "1", "bytes": "2MiB"}, b'{"seconds": 3, "bytes": 4}', Work(1.0, 2 * MIB)),
        ({}, b'{"seconds": 3, "bytes": 4}', Work(3.0, 4)),
        ({}, b'{"parameters": {"bytes": "1KiB"}, "inputs": []}', Work(0.5, 1024)),
        ({}, b'{"inputs": [{"shape": [2, 3]}, {"shape": [4]}]}', Work(0.5, 100)),
        ({}, b'{"parameters": {"bytes": 7}, "inputs": [{"shape": [2, 3]}]}', Work(0.5, 67)),
    ],
)
def test_what_a_request_wants(query: dict[str, str], body: bytes, expected: Work) -> None:
    assert wanted_by(query, body, usual=0.5, per_element=10) == expected


@pytest.mark.parametrize(
    "body",
    [b'{"bytes": -1}', b'{"bytes": "much"}', b'{"inputs": [{"name": "x"}]}', b'{"inputs": [{"shape": "long"}]}'],
)
def test_what_a_request_cannot_want(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        wanted_by({}, body, 0.5, 10)


def test_models_with_their_sizes() -> None:
    assert sizes("a=256MiB, org/b=1GiB") == {"a": 256 * MIB, "org/b": 1024 * MIB}
    for wrong in ("a", "=1MiB", "a=much"):
        with pytest.raises(ValueError):  # noqa: PT011
            sizes(wrong)


def resident(program: Program) -> int:
    return int(load(program)["memory"]["held"])


def statuses(program: Program) -> list[int]:
    """Of what has ended; the line is written after the answer."""
    return [line["status"] for line in lines(program) if line["event"] == "ended"]


def test_its_requests_really_take_memory_and_give_it_back(tmp_path: Path) -> None:
    options = ("--allocate", "--load-seconds", 0, "--weights", "64MiB", "--limit", "400MiB", "--bytes-per-element", 4)
    with running(demo(tmp_path, *options)) as program:
        program.wait()
        before = resident(program)
        assert before > 64 * MIB
        thread = threading.Thread(target=get, args=(program, "/work?bytes=128MiB&seconds=1000", "POST"), daemon=True)
        thread.start()
        wait_until(lambda: resident(program) > before + 120 * MIB, "the memory of the request")
        infer = json.dumps({"inputs": [{"shape": [16, MIB]}], "parameters": {"seconds": 0}}).encode()
        assert get(program, "/v2/models/demo/infer", "POST", infer)[0] == 200  # 64 MiB more
        wait_until(lambda: resident(program) < before + 140 * MIB, "its memory to be given back")
        status, body = get(program, "/work?bytes=300MiB", "POST")
        assert (status, body["error"]["code"]) == (507, "out_of_memory")
        assert get(program, "/work?bytes=64MiB", "POST")[0] == 200  # and it goes on
        ended = wait_until(lambda: (found := statuses(program)) and len(found) == 3 and found, "the last line")
        assert sorted(ended) == [200, 200, 507]


def test_told_to_die_it_dies_of_it(tmp_path: Path) -> None:
    with running(demo(tmp_path, "--allocate", "--load-seconds", 0, "--limit", "200MiB", "--die")) as program:
        program.wait()
        assert get(program, "/work?bytes=32MiB", "POST")[0] == 200
        assert get(program, "/work?bytes=300MiB", "POST")[0] == 0
        assert ends(program) == 137


def test_models_on_demand_share_the_limit(tmp_path: Path) -> None:
    # Together they are more than the limit, whatever the process itself takes; each alone is not.
    options = ("--models", "a=96MiB,b=176MiB", "--load-seconds", 0, "--limit", "256MiB", "--allocate")
    with running(demo(tmp_path, *options)) as program:
        program.wait()
        before = resident(program)
        assert get(program, "/v2/models/a/infer", "POST")[0] == 503
        status, body = get(program, "/steelyard/models/a/load?wait=20", "POST")
        assert (status, round(body["bytes"] / MIB / 16)) == (200, 6)
        assert resident(program) > before + 90 * MIB
        assert get(program, "/v2/models/a/infer", "POST")[1]["model_name"] == "a"
        status, body = get(program, "/steelyard/models/b/load?wait=20", "POST")
        assert (status, body["error"]["code"]) == (500, "out_of_memory")
        assert get(program, "/steelyard/models/a/unload?wait=20", "POST")[0] == 200
        assert resident(program) < before + 16 * MIB
        assert get(program, "/steelyard/models/b/load?wait=20", "POST")[0] == 200
        assert get(program, "/steelyard/models/b/ready")[0] == 200
    events = [(line["event"], line.get("model")) for line in lines(program) if line["event"].endswith("loaded")]
    assert events == [("loaded", "a"), ("unloaded", "a"), ("loaded", "b")]
