"""The load board, between processes: each writes its own part, all read all."""

import os
from collections.abc import Callable

import pytest

from steelyard.link import load_board as module
from steelyard.link.load_board import LoadBoard


@pytest.fixture
def board() -> LoadBoard:
    return LoadBoard.create(workers=3, columns=5)


def in_child(work: Callable[[], None]) -> None:
    """Do this in a process of its own, which must end well."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_one_writes_the_others_read(board: LoadBoard) -> None:
    board.put_count(0, 2, 7)
    board.put_count(1, 2, 5)
    board.put_count(1, 4, 1)
    assert [board.others_count(worker, 2) for worker in range(3)] == [5, 7, 12]
    assert (board.count(0, 2), board.count(1, 4), board.count(2, 0)) == (7, 1, 0)
    assert [board.change_count(worker) for worker in range(3)] == [1, 2, 0]
    assert list(board.changed_columns(1, 0, 2)) == [2, 4]


def test_it_is_the_same_memory_in_another_process(board: LoadBoard) -> None:
    board.put_count(0, 0, 3)

    def work() -> None:
        other = LoadBoard(board.fd)
        assert (other.workers, other.columns) == (3, 5)
        assert other.others_count(1, 0) == 3
        other.put_count(1, 0, 4)
        other.put_count(1, 3, 1)

    in_child(work)
    assert board.others_count(0, 0) == 4
    assert list(board.changed_columns(1, 0, board.change_count(1))) == [0, 3]


def test_two_writers_at_once_and_a_reader_who_misses_nothing(board: LoadBoard) -> None:
    """Each writer counts up in its own row; the reader follows by what changed, and ends with the last word of each."""
    rounds, pids = 20_000, []
    for worker in (0, 1):
        pid = os.fork()
        if not pid:
            try:
                own = LoadBoard(board.fd)
                for number in range(1, rounds + 1):
                    own.put_count(worker, number % 5, number)
            finally:
                os._exit(0)
        pids.append(pid)
    seen, known = [0, 0], {(worker, column): 0 for worker in (0, 1) for column in range(5)}
    while min(seen) < rounds:
        for worker in (0, 1):
            now = board.change_count(worker)
            assert now >= seen[worker]
            for column in set(board.changed_columns(worker, seen[worker], now)):
                count = board.count(worker, column)
                assert count >= known[worker, column], "a count went back"
                assert count % 5 == column
                known[worker, column] = count
            seen[worker] = now
    for pid in pids:
        os.waitpid(pid, 0)
    assert known == {(worker, number % 5): number for worker in (0, 1) for number in range(rounds - 4, rounds + 1)}


def test_who_fell_far_behind_looks_at_every_column(board: LoadBoard) -> None:
    for number in range(module.RING_CHANGES + 10):
        board.put_count(0, number % 2, number)
    now = board.change_count(0)
    assert sorted(set(board.changed_columns(0, 0, now))) == [0, 1, 2, 3, 4]
    assert sorted(set(board.changed_columns(0, now - 3, now))) == [0, 1]
    assert list(board.changed_columns(0, now, now)) == []


def test_the_ring_goes_round(board: LoadBoard) -> None:
    for number in range(3 * module.RING_CHANGES):
        board.put_count(2, number % 5, number)
    now = board.change_count(2)
    assert list(board.changed_columns(2, now - 5, now)) == [(now - 5 + n) % 5 for n in range(5)]


def test_what_a_dead_worker_had_is_taken_off_and_told(board: LoadBoard) -> None:
    board.put_count(0, 1, 4)
    board.put_count(0, 3, 2)
    board.put_count(1, 1, 1)
    before = board.change_count(0)
    board.clear(0)
    assert board.others_count(2, 1) == 1
    assert board.others_count(2, 3) == 0
    assert sorted(board.changed_columns(0, before, board.change_count(0))) == [1, 3]


def test_a_worker_that_comes_back_goes_on_counting_its_changes(board: LoadBoard) -> None:
    board.put_count(0, 1, 4)

    def work() -> None:
        LoadBoard(board.fd).put_count(0, 1, 0)

    in_child(work)
    assert board.change_count(0) == 2
    assert board.count(0, 1) == 0


def test_nobody_writes_into_anothers_part(board: LoadBoard) -> None:
    for worker in range(3):
        for column in range(5):
            board.put_count(worker, column, 10 * worker + column)
    assert [[board.count(worker, column) for column in range(5)] for worker in range(3)] == [
        [10 * worker + column for column in range(5)] for worker in range(3)
    ]


@pytest.mark.parametrize("column", [-1, 5, 1 << 20])
def test_a_column_that_is_not_there_changes_nothing(board: LoadBoard, column: int) -> None:
    with pytest.raises((IndexError, ValueError)):
        board.put_count(0, column, 1)
    assert [board.count(worker, s) for worker in range(3) for s in range(5)] == [0] * 15
    assert board.change_count(0) == 0


def test_what_is_no_board_is_not_taken_for_one() -> None:
    fd = os.memfd_create("other")
    os.pwrite(fd, b"something else, longer than the header" * 200, 0)
    with pytest.raises(ValueError, match="not a load board"):
        LoadBoard(fd)
    os.close(fd)


@pytest.mark.parametrize(("workers", "columns"), [(1, 1), (1, 1024), (64, 3)])
def test_any_size(workers: int, columns: int) -> None:
    board = LoadBoard.create(workers, columns)
    board.put_count(workers - 1, columns - 1, 9)
    assert LoadBoard(os.dup(board.fd)).count(workers - 1, columns - 1) == 9
    board.close()
