"""The parts of `benchmarks.gpu_memory` that need no GPU: what is asked, what is counted, what is shown."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from benchmarks.gpu.device import MemoryMonitor
from benchmarks.gpu.fake_device import FakeDevice, FakeModel
from benchmarks.gpu.load import Answer
from benchmarks.gpu.plan import MAX_GIB, Planned, features_of, need, plan
from benchmarks.gpu.request_log import RequestRecord, read_records
from benchmarks.gpu.scores import HEADER, LEARNED_HEADER, figures, learned, quantile, reported_errors, tables, verdicts
from benchmarks.gpu.server import ExclusiveRuns
from benchmarks.gpu.testbed import RUNS, Setting, configuration

from steelyard.config import load_config
from steelyard.protocols.bodies.oip import infer_info

GIB = 1 << 30


def note(model: str, rows: int, problem: str = "") -> RequestRecord:
    return RequestRecord(model, (rows, 8192), 0.0, 1.0, None if problem else 300_000 * rows, problem)


def answer(due: float, seconds: float, status: int = 200) -> Answer:
    return Answer(Planned(due, "rows", (1, 8192)), status, seconds, "")


def test_the_plan_is_the_same_for_every_run() -> None:
    assert plan(48, 24, 6.0, 7) == plan(48, 24, 6.0, 7)
    assert plan(48, 24, 6.0, 7) != plan(48, 24, 6.0, 8)


def test_it_is_bursts_of_all_models() -> None:
    planned = plan(48, 24, 6.0, 7)
    assert planned == sorted(planned)
    assert [one.due >= 6.0 for one in planned].count(True) == 24
    assert all(one.due % 6.0 < 0.1 for one in planned)
    assert {one.model for one in planned[:24]} == set(MAX_GIB)


def test_what_is_asked_for_differs_a_hundredfold() -> None:
    planned = plan(320, 24, 6.0, 1)
    for model, largest in MAX_GIB.items():
        sizes = [need(model, one.shape) for one in planned if one.model == model]
        assert max(sizes) > 70 * min(sizes)
        assert 0.8 * largest < max(sizes) / GIB < 1.1 * largest
    sizes = [need(one.model, one.shape) for one in planned]
    assert max(sizes) > 100 * min(sizes)


@pytest.mark.parametrize("one", plan(24, 24, 6.0, 3), ids=lambda one: one.model)
def test_the_gateway_sees_the_size_in_the_body(one: Planned) -> None:
    seen = infer_info(one.body())
    assert seen is not None
    assert seen.features == features_of(one.shape)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("fake_device", [None, {"memory": GIB}])
def test_every_run_has_a_valid_configuration(tmp_path: Path, run: str, fake_device: dict[str, int] | None) -> None:
    setting = Setting(replicas=2, threads=3, workers=2, fake_device=fake_device)
    written = configuration(run, setting, 8080, 9080, {name: [9001, 9002] for name in MAX_GIB})
    path = tmp_path / "gateway.yaml"
    path.write_text(json.dumps(written), encoding="utf-8")
    config = load_config(path)
    assert set(config.models) == set(MAX_GIB)
    assert list(config.devices) == ([] if run == "without" else ["gpu0"])
    assert config.models["text"].policy == ("least_connections" if run == "without" else "least_work")


def test_notes_are_read_in_the_order_of_their_ends(tmp_path: Path) -> None:
    late, early = (
        RequestRecord("text", (1, 16), 0.0, 2.0, 5),
        RequestRecord("rows", (3, 8192), 0.5, 1.0, None, "CUDA out of memory. Tried"),
    )
    (tmp_path / "a.notes").write_text(late.line() + "\n", encoding="utf-8")
    (tmp_path / "b.notes").write_text(early.line() + "\n", encoding="utf-8")
    assert read_records(tmp_path) == [early, late]


@pytest.mark.parametrize(
    ("problem", "ran_out"),
    [
        ("CUDA out of memory. Tried to allocate 15.08 GiB.", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("mat1 and mat2 shapes cannot be multiplied", False),
        ("", False),
    ],
)
def test_running_out_of_memory_is_told_from_other_failures(problem: str, ran_out: bool) -> None:
    assert note("rows", 3, problem).ran_out is ran_out


def test_figures_count_what_clients_and_servers_saw() -> None:
    answers = [answer(0.0, 1.0), answer(0.0, 3.0), answer(2.0, 2.0, 507), answer(2.0, 0.5)]
    found = figures("with", answers, [note("rows", 1, "out of memory"), note("rows", 1)], 5 * GIB, 10 * GIB, 9 * GIB)
    assert (found.requests, found.answered, found.ran_out, found.statuses) == (4, 3, 1, {"507": 1})
    assert (found.seconds, found.p50, found.p99, found.small) == (4.0, 1.0, 3.0, 1.0)
    assert found.rate == 0.75
    assert len(found.row()) == len(HEADER)
    assert json.loads(json.dumps(found.plain()))["rate"] == 0.75


def test_what_was_learned_is_compared_with_later_requests_only() -> None:
    notes = [note("rows", 1000 * (1 + number % 40)) for number in range(120)]
    (one,) = learned(notes, after=100)
    assert (one.model, one.measured, one.samples, len(one.off)) == ("rows", 120, 100, 20)
    assert len(one.row()) == len(LEARNED_HEADER)
    assert all(value >= -0.001 for value in one.off)  # an upper bound


def test_requests_that_were_not_measured_teach_nothing() -> None:
    (one,) = learned([note("rows", 10, "out of memory"), note("rows", 10)], after=200)
    assert (one.measured, one.samples, one.off) == (1, 1, ())


def test_what_the_gateway_shows_is_compared_with_the_smallest_and_the_largest() -> None:
    sizes = [
        {"model": "rows", "smallest": 330_000, "largest": 300_000_000},
        {"model": "text", "smallest": 1, "largest": 1},
    ]
    assert reported_errors(sizes, [note("rows", 1000), note("rows", 1), note("rows", 9, "lost")]) == [
        "`rows` +10.0 % and +0.0 %"
    ]


def test_verdicts_and_tables() -> None:
    bad = figures("without", [answer(0.0, 1.0, 507)], [note("rows", 1, "out of memory")], 10 * GIB, 10 * GIB, 9 * GIB)
    good = figures("with", [answer(0.0, 1.0)], [note("rows", 1)], 8 * GIB, 10 * GIB, 9 * GIB)
    assert all(line.startswith("✓") for line in verdicts(bad, good, []))
    assert all(line.startswith("✗") for line in verdicts(good, bad, []))
    assert tables([bad, good], []).count("\n") == 3


def test_a_quantile_of_nothing_is_no_number() -> None:
    assert quantile([], 0.5) != quantile([], 0.5)


def test_who_ran_alone_is_told_from_who_did_not() -> None:
    alone = ExclusiveRuns(threads=2)
    with alone as first:
        assert alone.was(first)
    with alone as first:
        with alone as second:
            assert not alone.was(second)
        assert not alone.was(first)  # somebody else was there meanwhile


def test_no_more_run_at_once_than_there_are_threads() -> None:
    alone = ExclusiveRuns(threads=1)
    entered = threading.Event()

    def enter() -> None:
        with alone:
            entered.set()

    with alone:
        other = threading.Thread(target=enter)
        other.start()
        assert not entered.wait(0.05)
    other.join()
    assert entered.is_set()


def test_the_pretended_card_runs_out_too(tmp_path: Path) -> None:
    card = FakeDevice(tmp_path)
    model = FakeModel("rows", card)
    assert model.run((256, 8192)).bytes > 0
    with pytest.raises(MemoryError, match="out of memory"):
        model.run((10**9, 8192))


class Card:
    name = driver = torch = ""
    total = 100

    def __init__(self) -> None:
        self.looks = 0

    def used(self) -> int:
        self.looks += 1
        return 70 if self.looks == 2 else 50


def test_the_watch_keeps_the_most_it_saw() -> None:
    with MemoryMonitor(Card()) as watch:
        end = time.monotonic() + 20.0
        while watch.looks < 3 and time.monotonic() < end:
            time.sleep(0.01)
    assert watch.peak == 70
    assert max(used for _, used in watch.seen) == 70
