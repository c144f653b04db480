from __future__ import annotations

from collections.abc import Iterator

import pytest

from steelyard.control.observability.retired_workers import lost_requests, show_requests
from steelyard.link.load_board import LoadBoard
from steelyard.link.messages import ModelReport, WorkerReport

SLOTS = {"m": {"a": 0, "b": 1}, "n": {"a": 2}}
SAID = WorkerReport(0, (ModelReport("m", 1, 2, {}, {}), ModelReport("n", 0, 0, {}, {})), ())


@pytest.fixture
def board(request: pytest.FixtureRequest) -> Iterator[LoadBoard]:
    board = LoadBoard.create(request.param, 8)
    yield board
    board.close()


@pytest.mark.parametrize("board", [2], indirect=True)
def test_the_board_has_the_last_moment(board: LoadBoard) -> None:
    board.put_count(0, 0, 7)  # another's
    board.put_count(1, 0, 3)
    board.put_count(1, 1, 2)
    board.put_queue(1, 0, 4)
    assert lost_requests(SAID, board, 1, SLOTS) == {"m": 9}
    assert lost_requests(None, board, 1, SLOTS) == {"m": 9}
    board.clear(1)
    assert lost_requests(SAID, board, 1, SLOTS) == {}


@pytest.mark.parametrize("board", [1], indirect=True)
def test_of_a_worker_that_is_alone_the_last_report_must_do(board: LoadBoard) -> None:
    assert lost_requests(SAID, board, 0, SLOTS) == {"m": 3}
    assert lost_requests(None, board, 0, SLOTS) == {}


def test_in_words() -> None:
    assert (show_requests(1), show_requests(2)) == ("1 request", "2 requests")
