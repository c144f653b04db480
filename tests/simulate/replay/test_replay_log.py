"""Reading a decision log back: whatever state the file is in, a recording or one clear sentence."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from steelyard.core.errors import OptionError
from steelyard.link.decision_log.lines import DecisionLine, LoggedAttempt
from steelyard.simulate.replay import recording as recordings
from steelyard.simulate.replay.recording import read_recording

from ..recorder import CLOCK_START_SECONDS, LogLine, fleet_line, write


def line(at: float, model: str = "m", **more: object) -> DecisionLine:
    given: dict[str, object] = {
        "id": f"{at}",
        "time": "",
        "at": CLOCK_START_SECONDS + at,
        "worker": 0,
        "model": model,
        "policy": "least_work",
        "verdict": "met",
        "status": 200,
        "seconds": 0.1,
        "estimate": 0.1,
        "attempts": (LoggedAttempt("r0", 0.0, 0.1, seconds=0.1),),
        **more,
    }
    return DecisionLine(**given)  # type: ignore[arg-type]


def many(count: int = 30, start: float = 1.0, **more: object) -> list[LogLine]:
    return [line(start + n, **more) for n in range(count)]


def usual(**more: object) -> list[LogLine]:
    return [fleet_line(["r0"], "least_work"), *many(**more)]  # type: ignore[arg-type]


def test_a_recording(tmp_path: Path) -> None:
    recording = read_recording(write(tmp_path / "log", usual()))
    assert (recording.model, recording.policy) == ("m", "least_work")
    assert len(recording.requests) == 30
    assert recording.begin == CLOCK_START_SECONDS
    assert recording.seconds == pytest.approx(30.0)


def test_lines_are_written_when_requests_are_over_and_read_in_order_of_arrival(tmp_path: Path) -> None:
    lines = usual()
    recording = read_recording(write(tmp_path / "log", lines[::-1]))
    assert [one.at for one in recording.requests] == sorted(one.at for one in recording.requests)


def test_workers_decide_as_one_and_each_tells_of_the_fleet(tmp_path: Path) -> None:
    """Replayed with one balancer: the fleet as one of them tells of it, the requests of all."""
    fleets = [fleet_line(["r0"], "least_work", worker=worker, workers=2) for worker in range(2)]
    recording = read_recording(write(tmp_path / "log", [*fleets, *many(10), *many(10, start=1.5, worker=1)]))
    assert [line.worker for line in recording.fleet] == [0]
    assert len(recording.requests) == 20


def test_the_older_part_of_the_log_comes_first(tmp_path: Path) -> None:
    write(tmp_path / "log.1", usual())
    recording = read_recording(write(tmp_path / "log", [fleet_line(["r0"], "least_work", at=31.0), *many(start=32.0)]))
    assert len(recording.requests) == 60


def test_a_last_line_that_is_being_written_does_not_matter(tmp_path: Path) -> None:
    path = write(tmp_path / "log", usual())
    path.write_bytes(path.read_bytes()[:-20])
    recording = read_recording(path)
    assert len(recording.requests) == 29
    assert recording.unreadable_lines == 0


@pytest.mark.parametrize("text", [b"{}\n", b"nonsense\n", b"\xff\xfe\n", b'{"kind":"request"}\n', b"\n"])
def test_lines_that_are_none_of_ours_are_counted(tmp_path: Path, text: bytes) -> None:
    path = write(tmp_path / "log", usual())
    path.write_bytes(text + path.read_bytes())
    recording = read_recording(path)
    assert (len(recording.requests), recording.unreadable_lines) == (30, 1)


def test_a_line_without_end_is_passed_over_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "MAX_LINE_BYTES", 1000)
    path = write(tmp_path / "log", usual())
    path.write_bytes(b"x" * 5500 + b"\n" + path.read_bytes())
    recording = read_recording(path)
    assert (len(recording.requests), recording.unreadable_lines) == (30, 1)


def test_of_several_recordings_the_last_is_taken(tmp_path: Path) -> None:
    """The machine was started anew: its clock began again."""
    earlier = [msgspec.structs.replace(one, at=one.at + 90_000.0) for one in usual()]
    recording = read_recording(write(tmp_path / "log", [*earlier, *usual(count=25)]))
    assert (len(recording.requests), recording.earlier_recordings) == (25, 1)


def test_what_was_lost_or_the_clients_mistake_is_counted(tmp_path: Path) -> None:
    lines = usual()
    lines.append(line(40.0, dropped=7))
    lines.append(line(41.0, verdict="failed", fault="client", status=400))
    recording = read_recording(write(tmp_path / "log", lines))
    assert (len(recording.requests), recording.dropped_lines, recording.client_errors) == (31, 7, 1)


def test_one_of_several_models(tmp_path: Path) -> None:
    lines = [*usual(), fleet_line(["r0"], "least_work", "other"), *many(model="other", count=22)]
    path = write(tmp_path / "log", lines)
    assert len(read_recording(path, "other").requests) == 22
    with pytest.raises(OptionError, match="several models, name one with --model: m, other"):
        read_recording(path)
    with pytest.raises(OptionError, match="no requests of model 'x' in it; there are m, other"):
        read_recording(path, "x")


def test_a_sampled_log_is_refused(tmp_path: Path) -> None:
    lines = [fleet_line(["r0"], "least_work", sample_rate=0.01), *many()]
    with pytest.raises(OptionError, match=r"only 0\.01 of the requests is in it"):
        read_recording(write(tmp_path / "log", lines))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "no requests in it"),
        (many(), "no line of kind `fleet`"),
        (usual()[:5], "4 answered requests of 'm' are too few"),
    ],
)
def test_what_cannot_be_replayed_is_said(tmp_path: Path, lines: list[LogLine], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_recording(write(tmp_path / "log", lines))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot read it"):
        read_recording(tmp_path / "missing")


def test_too_many_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "MAX_REQUESTS", 10)
    with pytest.raises(OptionError, match="more than 10 requests"):
        read_recording(write(tmp_path / "log", usual()))
