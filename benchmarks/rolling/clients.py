"""Clients that never stop asking: each request is counted, by its outcome and by the replica that answered."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from time import monotonic, sleep
from types import TracebackType

from .kinds import ServerKind

REQUEST_INTERVAL_SECONDS = 0.02
RESPONSE_TIMEOUT_SECONDS = 120.0


class Clients:
    """On kept-alive connections to the gateway, from `with` to its end."""

    def __init__(self, kind: ServerKind, port: int, count: int) -> None:
        self.answered: Counter[str] = Counter()  # by replica
        self.lost: Counter[str] = Counter()  # by what was seen
        self.slowest = 0.0
        self._kind = kind
        self._port = port
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work) for _ in range(count)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=RESPONSE_TIMEOUT_SECONDS)
        while not self._stop.is_set():
            began = monotonic()
            replica, problem = self._ask(connection)
            with self._lock:
                self.slowest = max(self.slowest, monotonic() - began)
                if problem:
                    self.lost[problem] += 1
                else:
                    self.answered[replica] += 1
            sleep(REQUEST_INTERVAL_SECONDS)
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection) -> tuple[str, str]:
        """Which replica answered; what went wrong."""
        try:
            connection.request("POST", self._kind.path, self._kind.octets, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as problem:
            connection.close()
            return "", type(problem).__name__
        replica = answer.getheader("steelyard-replica", "")
        reason = answer.getheader("steelyard-reason", "of the replica")
        return replica, "" if 200 <= answer.status < 300 else f"{answer.status} {reason}"
