"""The test's end of a stub replica: starts and ends its process, gives it commands, keeps what it saw."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from ..waiting import START_TIMEOUT_SECONDS, WAIT_TIMEOUT_SECONDS

SERVER = Path(__file__).with_name("stub_server.py")
Script = list[list[Any]]
Event = dict[str, Any]


class StubReplica:
    """A real process that answers HTTP as its scripts say, and tells every request it saw."""

    def __init__(self, name: str = "stub", *, host: str = "127.0.0.1", port: int = 0, **options: Any) -> None:
        """`path`: a Unix socket instead. `certificate`, `key`, `client_ca`: TLS. `deaf`: ignores `x-stub` headers."""
        self.name = name
        self.options = {"name": name, "host": host, "port": port, **options}
        if not port and "path" not in options:
            self.options["port"], held = _hold_port(host)
            weakref.finalize(self, os.close, held)
        self.events: list[Event] = []
        self._changed = threading.Condition()
        self._obeyed = 0
        self._given = 0
        self._frozen = self._ended = False
        self.start()

    def start(self) -> None:
        """Start it, again on the same port if it was there before."""
        self.process = subprocess.Popen(
            [sys.executable, str(SERVER), json.dumps(self.options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._obeyed = self._given = 0
        self._frozen = self._ended = False
        before = len(self.events)
        self._reader = threading.Thread(target=self._listen, args=(self.process,), daemon=True)
        self._reader.start()
        self.options["port"] = self.wait("listening", since=before, timeout=START_TIMEOUT_SECONDS)["port"]

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            event["at"] = time.monotonic()
            with self._changed:
                if event["event"] == "obeyed":
                    self._obeyed += 1
                else:
                    self.events.append(event)
                self._changed.notify_all()
        with self._changed:
            self._ended = process is self.process
            self.events.append({"event": "ended", "at": time.monotonic()})
            self._changed.notify_all()

    # ------------------------------------------------------------------ where it is

    @property
    def port(self) -> int:
        return int(self.options["port"])

    @property
    def url(self) -> str:
        if "path" in self.options:
            return f"unix:{self.options['path']}"
        host = self.options["host"]
        scheme = "https" if "certificate" in self.options else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def config(self) -> dict[str, Any]:
        return {"id": self.name, "url": self.url}

    # ------------------------------------------------------------------ commands

    def answer_all(self, script: Script | None) -> None:
        """From now on answer so whatever brings no script of its own; None: a plain 200."""
        self._command("script", script)

    def open(self, gate: str) -> None:
        self._command("open", gate)

    def close_idle(self) -> None:
        self._command("close_idle")

    def sync(self) -> None:
        """All that has reached it so far has been told when this returns. (Not by one that is frozen.)"""
        if self.process.poll() is not None:
            self._reader.join(WAIT_TIMEOUT_SECONDS)
        elif not self._frozen:
            with contextlib.suppress(BrokenPipeError):  # it dies just now
                for _ in range(3):  # a byte that waits in its socket takes a turn or two of its loop
                    self._command("nothing")

    def _command(self, *command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()
        self._given += 1
        given = self._given
        with self._changed:
            self._changed.wait_for(lambda: self._obeyed >= given or self._ended, WAIT_TIMEOUT_SECONDS)
            if self._obeyed < given and self._ended:
                raise BrokenPipeError(f"{self.name} ended and did not {command}")
            assert self._obeyed >= given, f"{self.name} did not {command}"

    # ------------------------------------------------------------------ what it saw

    def of(self, kind: str, since: int = 0, **fields: Any) -> list[Event]:
        """The events of one kind whose fields are these."""
        return [e for e in self.events[since:] if e["event"] == kind and all(e.get(k) == v for k, v in fields.items())]

    def wait(
        self, kind: str, count: int = 1, since: int = 0, timeout: float = WAIT_TIMEOUT_SECONDS, **fields: Any
    ) -> Event:
        """Wait until there are `count` such events; returns the last of them."""

        def there() -> bool:
            return len(self.of(kind, since, **fields)) >= count

        with self._changed:
            if not self._changed.wait_for(there, timeout):
                tail = "\n".join(map(str, self.events[-8:]))
                raise AssertionError(f"{self.name}: no {kind} {fields or ''} × {count}; its last events:\n{tail}")
        return self.of(kind, since, **fields)[count - 1]

    def wait_for(self, check: Callable[[], Any], what: str, timeout: float = WAIT_TIMEOUT_SECONDS) -> None:
        """Wait until `check` of its events is true."""
        with self._changed:
            assert self._changed.wait_for(check, timeout), f"{self.name}: waited in vain: {what}"

    def request(self, id: str) -> Event:
        """The one request of this id: an error if there were more."""
        self.wait("request", id=id)
        (seen,) = self.of("request", id=id)
        return seen

    def headers(self, id: str) -> dict[str, str]:
        """The headers of that request; several of one name joined by commas, in order."""
        joined: dict[str, str] = {}
        for name, value in self.request(id)["headers"]:
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
        return joined

    def never(self, kind: str, **fields: Any) -> None:
        """Nothing of this kind has reached it."""
        self.sync()
        assert self.of(kind, **fields) == []

    def ids(self, kind: str = "request") -> list[str]:
        return [event["id"] for event in self.of(kind)]

    def wait_left(self, id: str, timeout: float = WAIT_TIMEOUT_SECONDS) -> None:
        """Wait until the gateway has let go of the connection on which this request came."""
        conn = self.request(id)["conn"]
        self.wait_for(
            lambda: self.of("lost", conn=conn) or self.of("eof", conn=conn), f"end of connection {conn}", timeout
        )

    @property
    def misdeeds(self) -> list[Event]:
        """What the gateway sent that no client may send, and errors of the stub itself."""
        return self.of("malformed") + self.of("broken")

    # ------------------------------------------------------------------ ends

    def freeze(self) -> None:
        self._frozen = True
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self._frozen = False

    def kill(self) -> None:
        self.process.kill()
        self.stop()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(WAIT_TIMEOUT_SECONDS)
        self._reader.join(WAIT_TIMEOUT_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def __enter__(self) -> StubReplica:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        if kind is None:
            assert self.misdeeds == [], f"{self.name} was sent what no client may send"


def _hold_port(host: str) -> tuple[int, int]:
    """A port, and the descriptor of a socket that keeps it from everybody else while the stub is not there: bound and
    not listening, so that nobody can connect to it, and the stub can bind to it again and again."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, 0))
        return held.getsockname()[1], held.detach()


def seen_by(stubs: Iterable[StubReplica], id: str) -> int:
    """How often replicas saw this request, which has ended."""
    known = list(stubs)
    for stub in known:
        stub.sync()
    return sum(len(stub.of("request", id=id)) for stub in known)
