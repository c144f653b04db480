from __future__ import annotations

from collections.abc import Iterator

import pytest

from steelyard.control.cut_off import cut_off, in_words
from steelyard.link.board import Board
from steelyard.link.messages import ModelReport, Report

SLOTS = {"m": {"a": 0, "b": 1}, "n": {"a": 2}}
SAID = Report(0, (ModelReport("m", 1, 2, {}, {}), ModelReport("n", 0, 0, {}, {})), ())


@pytest.fixture
def board(request: pytest.FixtureRequest) -> Iterator[Board]:
    board = Board.create(request.param, 8)
    yield board
    board.close()


@pytest.mark.parametrize("board", [2], indirect=True)
def test_the_board_has_the_last_moment(board: Board) -> None:
    board.put(0, 0, 7)  # another's
    board.put(1, 0, 3)
    board.put(1, 1, 2)
    board.put_line(1, 0, 4)
    assert cut_off(SAID, board, 1, SLOTS) == {"m": 9}
    assert cut_off(None, board, 1, SLOTS) == {"m": 9}
    board.clear(1)
    assert cut_off(SAID, board, 1, SLOTS) == {}


@pytest.mark.parametrize("board", [1], indirect=True)
def test_of_a_worker_that_is_alone_the_last_report_must_do(board: Board) -> None:
    assert cut_off(SAID, board, 0, SLOTS) == {"m": 3}
    assert cut_off(None, board, 0, SLOTS) == {}


def test_in_words() -> None:
    assert (in_words(1), in_words(2)) == ("1 request", "2 requests")
