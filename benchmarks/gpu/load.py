"""Sends what is planned when it is due, whatever became of the requests before."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

import uvloop

from .plan import Planned

FINAL_TIMEOUT_SECONDS = 120.0
STATUS_PATTERN = re.compile(rb"HTTP/1\.1 (\d{3}) ")
HEAD = (
    "POST /v2/models/{}/infer HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
    "content-type: application/json\r\ncontent-length: {}\r\n\r\n"
)


class Answer(NamedTuple):
    planned: Planned
    status: int  # 0: the connection broke; -1: no answer in time
    seconds: float  # since it was due
    said: str  # the body, if it failed


async def ask(port: int, planned: Planned) -> tuple[int, str]:
    body = planned.body()
    head = HEAD.format(planned.model, len(body)).encode()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(head + body)
            answer = await reader.read()
            while more := await reader.read():
                answer += more
        finally:
            writer.close()
    except OSError as problem:
        return 0, str(problem)
    found = STATUS_PATTERN.match(answer)
    status = int(found[1]) if found else 0
    return status, "" if status == 200 else answer.partition(b"\r\n\r\n")[2][:300].decode("utf-8", "replace")


async def send_all(port: int, todo: Sequence[Planned], begin: float) -> list[Answer]:
    last = begin + max(planned.due for planned in todo) + FINAL_TIMEOUT_SECONDS

    async def one(planned: Planned) -> Answer:
        await asyncio.sleep(begin + planned.due - monotonic())
        try:
            status, said = await asyncio.wait_for(ask(port, planned), last - monotonic())
        except TimeoutError:
            status, said = -1, "no answer in time"
        return Answer(planned, status, monotonic() - begin - planned.due, said)

    return list(await asyncio.gather(*(one(planned) for planned in todo)))


def run(port: int, todo: Sequence[Planned]) -> list[Answer]:
    return uvloop.run(send_all(port, todo, monotonic() + 0.2))
