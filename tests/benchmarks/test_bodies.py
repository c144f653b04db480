"""A large body counts only when all of it came through."""

from __future__ import annotations

import pytest
from benchmarks.overhead_cases.large_bodies import BODY_BYTES, RepeatingClient, received_bytes, upload


def test_what_the_replica_received_counts_and_else_the_answer() -> None:
    assert received_bytes(b'{"received": 12}', 16) == 12
    assert received_bytes(b"xxxx", BODY_BYTES) == BODY_BYTES


@pytest.mark.parametrize(
    ("status", "answer", "length", "done"),
    [
        (200, b'{"received": %d}' % BODY_BYTES, 22, 1),
        (200, b'{"received": %d}' % (BODY_BYTES // 2), 22, 0),  # cut short on the way up
        (200, b"", BODY_BYTES, 1),
        (200, b"", BODY_BYTES // 2, 0),  # cut short on the way down
        (502, b"", BODY_BYTES, 0),
        (None, b"", 0, 0),  # the connection broke
    ],
)
def test_a_body_that_did_not_come_through_whole_is_a_failure(
    status: int | None, answer: bytes, length: int, done: int
) -> None:
    repeater = RepeatingClient(b"")
    repeater.length, repeater.lost = length, True  # lost: nothing more is sent
    repeater.response(status, answer)
    assert (repeater.done, repeater.failed) == (done, 1 - done)


def test_an_upload_is_as_large_as_is_said() -> None:
    head, _, body = upload(80).partition(b"\r\n\r\n")
    assert len(body) == BODY_BYTES
    assert f"Content-Length: {BODY_BYTES}".encode() in head
