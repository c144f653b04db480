"""What must hold in every test: each request ends once, replicas run it once, nothing is left behind."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from .client import BadAnswer, Connection, NoAnswer, Response, Truncated, new_id, request
from .replicas.stub import Script, StubReplica, seen_by
from .serving import Serving
from .waiting import steady, wait_until

MIB = 1 << 20
MAX_ATTEMPTS = 3  # the default of retry.max_attempts


class Ledger:
    """Each request by its id: how it ended for its client, and how often replicas saw it."""

    def __init__(self, *stubs: StubReplica) -> None:
        self.stubs = stubs
        self.ends: dict[str, list[str]] = {}
        self.retried: dict[str, bool] = {}
        self._lock = threading.Lock()

    def new(self, *, may_retry: bool) -> str:
        id = new_id("l")
        with self._lock:
            self.ends[id] = []
            self.retried[id] = may_retry
        return id

    def end(self, id: str, how: str) -> None:
        with self._lock:
            self.ends[id].append(how)

    def tell(self, id: str, response: Response) -> None:
        """A whole answer came. A success must be this request's own answer."""
        if response.status == 200:
            assert f'"id": "{id}"'.encode() in response.body, f"{id} got somebody else's answer: {response!r}"
            self.end(id, "ok")
        else:
            self.end(id, f"error {response.status} {response.headers.get('steelyard-reason', '')}".strip())

    def ask(
        self,
        connection: Connection,
        *,
        may_retry: bool,
        method: str = "POST",
        script: Script | None = None,
        **rest: object,
    ) -> str:
        """Send one request and note how it ended: `ok`, `error STATUS REASON`, `truncated` or `no answer`."""
        id = self.new(may_retry=may_retry)
        try:
            connection.send(request(method, id=id, script=script, **rest))  # type: ignore[arg-type]
            self.tell(id, connection.response(method))
        except NoAnswer:
            self.end(id, "no answer")
        except (Truncated, ConnectionError):
            self.end(id, "truncated")
        except BadAnswer:
            self.end(id, "bad answer")
            raise
        return self.ends[id][0]

    def count(self) -> Counter[str]:
        with self._lock:  # clients may still be asking
            return Counter(end for ends in self.ends.values() for end in ends)

    def check(self) -> None:
        """Each id ended exactly once; a replica saw it once, or as often as it may be tried."""
        for stub in self.stubs:
            stub.sync()
        once = {id: ends for id, ends in self.ends.items() if len(ends) != 1}
        assert not once, f"ended not exactly once: {once}"
        seen = Counter(id for stub in self.stubs for id in stub.ids())
        often = {id: seen[id] for id, may in self.retried.items() if seen[id] > (MAX_ATTEMPTS if may else 1)}
        assert not often, f"replicas saw these too often: {often}"
        lost = [id for id, ends in self.ends.items() if ends == ["ok"] and not seen[id]]
        assert not lost, f"answered, but no replica saw them: {lost}"
        for stub in self.stubs:
            assert stub.misdeeds == []


@contextmanager
def nothing_left(serving: Serving, *, memory: int = 48 * MIB, spare: int = 0) -> Iterator[None]:
    """What is opened and kept inside is given back: file descriptors all, memory but for `memory` bytes."""
    workers = serving.workers
    before, bytes_before = steady(serving.descriptors, calm=0.3), serving.memory()
    yield
    wait_until(
        lambda: serving.descriptors() <= before + spare,
        f"file descriptors stay open: {before} before, {serving.descriptors()} after",
    )
    assert serving.workers == workers, f"workers were replaced:\n{serving.output}"
    assert serving.memory() - bytes_before < memory, f"{(serving.memory() - bytes_before) >> 20} MiB more than before"


def slots_free(serving: Serving, stub: StubReplica, limit: int = 1, **options: object) -> None:
    """Are all `limit` slots of the model's only replica free? So many requests must reach it at once."""
    gate = new_id("slots")
    connections = [serving.connect() for _ in range(limit)]
    ids = [new_id("slot") for _ in connections]
    try:
        for id, connection in zip(ids, connections, strict=True):
            script: Script = [["body"], ["gate", gate], ["reply"]]
            connection.send(request("POST", id=id, script=script, **options))  # type: ignore[arg-type]
        for id in ids:
            stub.wait("waiting", id=id)
        stub.open(gate)
        for connection in connections:
            assert connection.response("POST").status == 200
    finally:
        for connection in connections:
            connection.close()


__all__ = ["MAX_ATTEMPTS", "MIB", "Ledger", "nothing_left", "seen_by", "slots_free"]
