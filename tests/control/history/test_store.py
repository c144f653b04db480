"""The history on a real disk: what was given is there, once, whatever happens."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import time
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.control.history import store
from steelyard.control.history.database import (
    APPLICATION_ID,
    HistoryError,
    add_slice,
    default_path,
    file_name,
    open_readonly,
    open_writable,
    read_slices,
    write_transaction,
)
from steelyard.control.history.retention import apply_retention
from steelyard.control.history.slices import (
    DAY_SECONDS,
    HOUR_SECONDS,
    MINUTE_SECONDS,
    NO_TENANT,
    VERDICT_KEYS,
    Slice,
    StoredSloTarget,
    add_counts,
    start_of_minute,
)
from steelyard.control.history.store import HistoryStore

RETENTION_SECONDS = 400.0 * DAY_SECONDS
NOW = start_of_minute(time())  # real, because a history forgets by the real clock
WAIT_TIMEOUT_SECONDS = 30.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "gateway.sqlite"


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_writable(path)
    yield connection
    connection.close()


def slice_of(start: int = NOW, tenant: str = NO_TENANT, **counts: int) -> Slice:
    return Slice(start, "m", tenant, {name.replace("_", "/"): n for name, n in counts.items()})


def summed(slices: Iterable[Slice]) -> dict[tuple[str, str], dict[str, int]]:
    """Counts by model and tenant."""
    total: dict[tuple[str, str], dict[str, int]] = {}
    for part in slices:
        key = (part.model, part.tenant)
        total[key] = add_counts(total.get(key, {}), part.counts)
    return total


def give(path: Path, *slices: Slice) -> None:
    history = HistoryStore(path, RETENTION_SECONDS)
    history.add(slices)
    assert history.flush(WAIT_TIMEOUT_SECONDS)
    history.close(WAIT_TIMEOUT_SECONDS)


def kept(path: Path) -> list[Slice]:
    connection = open_readonly(path)
    try:
        return list(read_slices(connection, 0))
    finally:
        connection.close()


def test_what_was_given_is_there(path: Path) -> None:
    target = StoredSloTarget(latency=0.2, availability=99.9)
    part = Slice(NOW, "m", NO_TENANT, {"met": 3, "late/replica": 1}, {100: 3, 7: 1}, target)
    history = HistoryStore(path, RETENTION_SECONDS)
    history.add([part])
    assert history.minutes(NOW) == [part]
    assert summed(history.minutes(NOW)) == {("m", ""): {"met": 3, "late/replica": 1}}
    assert summed(history.minutes(NOW + 1)) == {}
    history.close(WAIT_TIMEOUT_SECONDS)
    assert not Path(f"{path}-wal").exists()


def test_a_restart_within_a_minute_adds_up(path: Path) -> None:
    give(path, slice_of(met=3), slice_of(met=1, late_replica=2))
    give(path, slice_of(met=5))
    (part,) = kept(path)
    assert part.counts == {"met": 9, "late/replica": 2}
    assert part.ran == 1


def test_two_gateways_with_one_file_add_up(path: Path) -> None:
    """Two histories open at once, each written to from a thread of its own."""
    both = [HistoryStore(path, RETENTION_SECONDS), HistoryStore(path, RETENTION_SECONDS)]

    def count(history: HistoryStore) -> None:
        for number in range(40):
            history.add([slice_of(NOW - number % 5 * MINUTE_SECONDS, met=1)])
            assert history.flush(WAIT_TIMEOUT_SECONDS)

    threads = [threading.Thread(target=count, args=(history,)) for history in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert summed(both[0].minutes(0)) == {("m", ""): {"met": 80}}
    for history in both:
        history.close(WAIT_TIMEOUT_SECONDS)
        assert not history.problem


OPENED = """
import sys
from steelyard.control.history.store import HistoryStore
from steelyard.control.history.slices import Slice
history = HistoryStore(sys.argv[1], 400 * 86400)
for number in range(20):
    history.add([Slice({start}, "m", "", {{"met": 1}})])
    assert history.flush(60), history.problem
history.close(60)
"""


def test_processes_that_make_the_file_at_once(path: Path) -> None:
    command = [sys.executable, "-c", OPENED.format(start=NOW), str(path)]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait(4 * WAIT_TIMEOUT_SECONDS) for process in processes] == [0, 0, 0, 0]
    assert [part.counts for part in kept(path)] == [{"met": 80}]


def test_after_a_change_of_slo_both_are_known(path: Path) -> None:
    give(path, Slice(NOW, "m", "", {"met": 1}), Slice(NOW, "m", "", {"met": 2}, slo=StoredSloTarget(latency=1.0)))
    assert sorted((part.slo.latency or 0.0, part.counts["met"]) for part in kept(path)) == [(0.0, 1), (1.0, 2)]


def test_only_its_owner_may_read_it(path: Path) -> None:
    history = HistoryStore(path, RETENTION_SECONDS)
    history.add([slice_of(met=1)])
    assert history.flush(WAIT_TIMEOUT_SECONDS)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    history.close(WAIT_TIMEOUT_SECONDS)


KILLED = """
import sys
from steelyard.control.history.store import HistoryStore
from steelyard.control.history.slices import Slice
history = HistoryStore(sys.argv[1], 400 * 86400)
for number in range(10**6):
    history.add([Slice({start}, "m", "", {{"met": 1}}), Slice({start}, "m", "t", {{"met": 1}})])
    assert history.flush(60)
    print(number + 1, flush=True)
"""


def test_killed_in_the_middle_nothing_is_lost_that_was_written_and_nothing_is_half(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED.format(start=NOW), str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for _ in range(25):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        acknowledged = [25, *map(int, process.stdout.read().split())][-1]
    give(path, slice_of(late_replica=1))
    whole, tenant = kept(path)
    assert acknowledged <= whole.counts["met"] <= acknowledged + 1  # one may have been written and not yet told of
    assert tenant.counts["met"] == whole.counts["met"]  # both of a transaction, or none
    assert whole.counts["late/replica"] == 1


# ---------------------------------------------------------------------- files that are of no use


def problem_of(path: Path, caplog: pytest.LogCaptureFixture) -> str:
    """Why no history is kept: one line in the log, and everything else goes on."""
    with caplog.at_level(logging.INFO):
        history = HistoryStore(path, RETENTION_SECONDS)
        assert not history.flush(WAIT_TIMEOUT_SECONDS)
        history.add([slice_of(met=1)])
        assert history.minutes(0) == []
        assert summed(history.minutes(0)) == {}
        history.close(WAIT_TIMEOUT_SECONDS)
    assert len(caplog.records) == 1, caplog.text
    assert caplog.messages == [f"{history.problem}; no history is kept"]
    assert str(path) in history.problem
    assert "\n" not in history.problem
    return history.problem


def test_a_file_that_is_no_database_is_left_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_text("my diary\n" * 1000)
    assert "it is not a history" in problem_of(path, caplog)
    assert path.read_text() == "my diary\n" * 1000


def test_a_database_of_another_program_is_left_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE slices (recipe TEXT)")
    other.close()
    before = path.read_bytes()
    assert "another program" in problem_of(path, caplog)
    assert path.read_bytes() == before


def test_a_file_of_a_newer_steelyard_is_left_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    give(path, slice_of(met=1))
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    assert "newer steelyard" in problem_of(path, caplog)


def test_a_file_of_the_first_version_is_read_as_it_is_and_then_written_in_this_one(path: Path) -> None:
    part = Slice(NOW, "m", "", {"met": 1}, slo=StoredSloTarget(latency=1.0))
    give(path, part)
    older = sqlite3.connect(path)
    older.execute("ALTER TABLE slices RENAME COLUMN slo TO promised")
    older.execute("PRAGMA user_version = 1")
    older.close()
    assert kept(path) == [part]
    give(path, part)
    assert [(one.counts, one.slo.latency) for one in kept(path)] == [({"met": 2}, 1.0)]


def test_a_folder_in_the_place_of_the_file(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.mkdir(parents=True)
    assert "not a file" in problem_of(path, caplog)


def test_a_folder_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert f"no folder {tmp_path / 'file'}: " in problem_of(tmp_path / "file" / "h.sqlite", caplog)


def test_a_folder_in_which_nobody_may_make_files(caplog: pytest.LogCaptureFixture) -> None:
    problem_of(Path("/proc/history.sqlite"), caplog)  # not even root


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir(mode=0o500)
    assert "ermission" in problem_of(path, caplog)


def test_a_damaged_history_is_set_aside_and_begun_anew(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    give(path, *(slice_of(NOW - n * MINUTE_SECONDS, met=1) for n in range(200)))
    data = bytearray(path.read_bytes())
    data[100:] = b"\xff" * (len(data) - 100)
    path.write_bytes(data)
    with caplog.at_level(logging.INFO):
        give(path, slice_of(met=7))
    assert [part.counts for part in kept(path)] == [{"met": 7}]
    assert [file.read_bytes() for file in path.parent.glob("*.damaged-*") if file.suffix[-4:] not in ("-wal", "-shm")]
    assert len(caplog.records) == 1
    assert "it is damaged" in caplog.messages[0]


def test_a_page_that_is_damaged_is_found_when_it_is_used(path: Path) -> None:
    give(path, *(slice_of(NOW - n * MINUTE_SECONDS, met=1) for n in range(500)))
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xff" * (len(data) - 8192)  # the head and the schema are fine
    path.write_bytes(data)
    give(path, slice_of(met=7))
    assert kept(path)[-1].counts == {"met": 7}
    assert list(path.parent.glob("*.damaged-*"))


def test_a_reader_is_told_in_one_sentence(path: Path) -> None:
    with pytest.raises(HistoryError, match="there is no history"):
        open_readonly(path)
    path.parent.mkdir()
    path.write_text("my diary\n" * 1000)
    with pytest.raises(HistoryError, match="it is not a history"):
        open_readonly(path)


def test_a_locked_file_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be written now waits, is added to, and is written once the file is free."""
    monkeypatch.setattr(store, "RETRY_DELAY_SECONDS", 0.01)
    monkeypatch.setattr("steelyard.control.history.database.LOCK_TIMEOUT_SECONDS", 0.05)
    history = HistoryStore(path, RETENTION_SECONDS)
    assert history.flush(WAIT_TIMEOUT_SECONDS)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    history.add([slice_of(met=1)])
    assert not history.flush(0.5)
    history.add([slice_of(met=1)])
    other.execute("ROLLBACK")
    other.close()
    assert summed(history.minutes(0)) == {("m", ""): {"met": 2}}
    history.close(WAIT_TIMEOUT_SECONDS)
    assert len([message for message in caplog.messages if "trying again" in message]) == 1


def test_a_file_that_is_locked_when_it_is_opened_is_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "RETRY_DELAY_SECONDS", 0.01)
    monkeypatch.setattr("steelyard.control.history.database.LOCK_TIMEOUT_SECONDS", 0.05)
    HistoryStore(path, RETENTION_SECONDS).close(WAIT_TIMEOUT_SECONDS)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    history = HistoryStore(path, RETENTION_SECONDS)
    history.add([slice_of(met=1)])
    assert not history.flush(0.5)
    assert not history.problem
    other.execute("ROLLBACK")
    other.close()
    assert history.flush(WAIT_TIMEOUT_SECONDS)
    assert summed(history.minutes(0)) == {("m", ""): {"met": 1}}
    history.close(WAIT_TIMEOUT_SECONDS)


def test_a_disk_that_is_full_when_it_is_opened_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(store, "RETRY_DELAY_SECONDS", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr("steelyard.control.history.database.os.open", Mock(side_effect=full))
        history = HistoryStore(path, RETENTION_SECONDS)
        history.add([slice_of(met=1)])
        assert not history.flush(0.2)
    assert history.flush(WAIT_TIMEOUT_SECONDS)
    assert summed(history.minutes(0)) == {("m", ""): {"met": 1}}
    history.close(WAIT_TIMEOUT_SECONDS)
    assert len([message for message in caplog.messages if "No space left on device; trying again" in message]) == 1


def test_a_clock_that_is_set_ahead_costs_no_history(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For ever is a mistake that lasts; a clock that is wrong is soon right."""
    looked: list[float] = []
    monkeypatch.setattr(store, "apply_retention", lambda database, now, *_: looked.append(now))
    monkeypatch.setattr(store, "time", lambda: float(NOW + 10 * 365 * DAY_SECONDS if looked else NOW))
    monkeypatch.setattr(store, "RETENTION_INTERVAL_SECONDS", 0.01)
    history = HistoryStore(path, RETENTION_SECONDS)
    history.flush(WAIT_TIMEOUT_SECONDS)
    while len(looked) < 3:
        history.thread.join(0.01)
    history.close(WAIT_TIMEOUT_SECONDS)
    assert max(looked) < NOW + HOUR_SECONDS


def test_no_more_waits_than_there_is_room_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "MAX_PENDING_SLICES", 3)
    history = HistoryStore(path, RETENTION_SECONDS)
    assert history.flush(WAIT_TIMEOUT_SECONDS)
    history.add(slice_of(NOW - n * MINUTE_SECONDS, met=1) for n in range(10))
    history.add([slice_of(met=1)])
    assert history.flush(WAIT_TIMEOUT_SECONDS)
    assert 3 <= sum(part.counts["met"] for part in history.minutes(0)) <= 4
    assert len([message for message in caplog.messages if "does not keep up" in message]) == 1
    history.close(WAIT_TIMEOUT_SECONDS)


# ---------------------------------------------------------------------- age


def totals(connection: sqlite3.Connection) -> tuple[dict[tuple[str, str], dict[str, int]], dict[int, int]]:
    slices = list(read_slices(connection, 0))
    latency: dict[int, int] = {}
    for part in slices:
        latency = add_counts(latency, part.latency)
    return summed(slices), latency


some_slices = st.lists(
    st.builds(
        Slice,
        start=st.integers(0, 100 * DAY_SECONDS // MINUTE_SECONDS).map(lambda n: NOW - n * MINUTE_SECONDS),
        model=st.sampled_from(["a", "b"]),
        tenant=st.sampled_from(["", "t", "\udc80'\x00;"]),
        counts=st.dictionaries(st.sampled_from(VERDICT_KEYS), st.integers(1, 10**12)),
        latency=st.dictionaries(st.integers(0, 1440), st.integers(1, 10**12)),
        slo=st.sampled_from([StoredSloTarget(), StoredSloTarget(latency=0.1)]),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(some_slices)
def test_sums_stay_the_same_when_minutes_become_hours_and_days(
    tmp_path_factory: pytest.TempPathFactory, slices: list[Slice]
) -> None:
    connection = open_writable(tmp_path_factory.mktemp("history") / "h.sqlite")
    with write_transaction(connection):
        for part in slices:
            add_slice(connection, part)
    before = totals(connection)
    readable = [Slice(p.start, p.model, p.tenant.encode(errors="replace").decode(), p.counts) for p in slices]
    assert before[0] == summed(readable)
    apply_retention(connection, NOW, RETENTION_SECONDS, lambda: False)
    assert totals(connection) == before
    for part in read_slices(connection, 0):
        age = NOW - part.start
        assert (
            part.step
            == (MINUTE_SECONDS if age < 3 * DAY_SECONDS else HOUR_SECONDS if age < 60 * DAY_SECONDS else DAY_SECONDS)
            or age - part.step <= 60 * DAY_SECONDS
        )
        assert part.start % part.step == 0
        assert 1 <= part.ran <= part.step // MINUTE_SECONDS
    connection.close()


def test_minutes_that_come_late_join_their_hour(database: sqlite3.Connection) -> None:
    old = NOW - 4 * DAY_SECONDS
    for _ in range(2):
        with write_transaction(database):
            add_slice(database, slice_of(old, met=1))
        apply_retention(database, NOW, RETENTION_SECONDS, lambda: False)
    (part,) = read_slices(database, 0)
    assert (part.step, part.counts) == (HOUR_SECONDS, {"met": 2})


def test_what_is_older_than_kept_is_forgotten(database: sqlite3.Connection) -> None:
    with write_transaction(database):
        for days in range(12):
            add_slice(database, slice_of(NOW - days * DAY_SECONDS, met=1))
    apply_retention(database, NOW, 5 * DAY_SECONDS, lambda: False)
    assert totals(database)[0] == {("m", ""): {"met": 6}}  # the hour that began five days ago is not over yet


def test_upkeep_stops_when_there_is_something_to_write(database: sqlite3.Connection) -> None:
    with write_transaction(database):
        add_slice(database, slice_of(NOW - 4 * DAY_SECONDS, met=1))
    apply_retention(database, NOW, RETENTION_SECONDS, lambda: True)
    assert [part.step for part in read_slices(database, 0)] == [MINUTE_SECONDS]


def test_a_history_keeps_itself_up(path: Path) -> None:
    give(path, *(slice_of(NOW - 4 * DAY_SECONDS - n * MINUTE_SECONDS, met=1) for n in range(120)))
    history = HistoryStore(path, RETENTION_SECONDS)
    until = time() + WAIT_TIMEOUT_SECONDS
    while any(part.step == MINUTE_SECONDS for part in history.minutes(0)) and time() < until:
        pass
    parts = history.minutes(0)
    assert {part.step for part in parts} == {HOUR_SECONDS}
    assert sum(part.ran for part in parts) == sum(part.counts["met"] for part in parts) == 120
    history.close(WAIT_TIMEOUT_SECONDS)


# ---------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("gateway", "file"),
    [
        ("prod", "prod.sqlite"),
        ("127.0.0.1:8080", "127.0.0.1_8080.sqlite"),
        ("unix:/run/a b.sock", "unix_run_a_b.sock.sqlite"),
        ("../../etc/passwd", "_.._etc_passwd.sqlite"),
        ("", "gateway.sqlite"),
        ("é" * 300, "_.sqlite"),
        ("x" * 300, "x" * 100 + ".sqlite"),
    ],
)
def test_a_gateways_name_makes_a_safe_file_name(gateway: str, file: str) -> None:
    assert file_name(gateway) == file


def test_the_file_is_in_the_folder_for_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path("a") == tmp_path / "steelyard" / "a.sqlite"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path("a") == tmp_path / ".local/state/steelyard/a.sqlite"


def test_our_files_are_marked(path: Path) -> None:
    give(path, slice_of(met=1))
    assert path.read_bytes()[68:72] == APPLICATION_ID.to_bytes(4, "big")
