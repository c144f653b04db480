"""The messages, as typed values, and how they travel: a length of four bytes, then msgpack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ..config import Config
from ..documents import decode_value, encode_value

LONGEST = 256 << 20  # of one message: a fleet of a million replicas is less


class Apply(msgspec.Struct, frozen=True, tag="apply"):
    """To a worker: serve by this configuration from now on, and read the files it names again. Answered with `Applied`.

    The first thing a worker is told.
    """

    number: int
    config: Config
    slots: dict[str, dict[str, int]]  # model → replica id → its column on the load board


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """To a worker: take no new connections, finish what is in flight within `seconds`, then end. May come twice."""

    seconds: float


class Started(msgspec.Struct, frozen=True, tag="started"):
    """From a worker: it listens and has applied its first configuration."""

    pid: int


class Applied(msgspec.Struct, frozen=True, tag="applied"):
    """From a worker: the configuration is in force, or (with a problem) was refused and the last one stays."""

    number: int
    problem: str = ""


class ReplicaReport(msgspec.Struct, frozen=True):
    """A replica as one worker sees it."""

    model: str
    id: str
    state: str
    in_flight: int
    picks: int  # requests sent there since the worker began
    failures: int  # of those, failed
    seconds: float  # estimated work there now
    slowness: float


class ModelReport(msgspec.Struct, frozen=True):
    """A model as one worker sees it; counts are since the worker began."""

    model: str
    waiting: int
    in_flight: int
    verdicts: dict[str, int]  # ok, client_error, failed, refused, cancelled
    latency: dict[int, int]  # bucket of core.histogram → answers


class Report(msgspec.Struct, frozen=True, tag="report"):
    """From a worker, about once a second."""

    connections: int
    models: tuple[ModelReport, ...]
    replicas: tuple[ReplicaReport, ...]


ToWorker = Apply | Drain
FromWorker = Started | Applied | Report


def frame(message: ToWorker | FromWorker) -> bytes:
    body = msgspec.msgpack.encode(message, enc_hook=encode_value)
    return len(body).to_bytes(4, "big") + body


class Frames:
    """Bytes in, messages out."""

    def __init__(self, kind: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind, dec_hook=decode_value)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            length = int.from_bytes(buffer[:4], "big")
            if length > LONGEST:
                raise ValueError(f"a message of {length} bytes is not one of ours")
            if len(buffer) < 4 + length:
                return
            message = self._decoder.decode(buffer[4 : 4 + length])
            del buffer[: 4 + length]
            yield message
