"""The admin API as `steelyard top` asks it: once, or followed in a thread, over TCP or a Unix socket."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections import deque
from collections.abc import Iterator
from time import monotonic

import msgspec

from ..addresses import Address
from ..control.views import Happening, LiveHistoryView, LiveView, PulseView
from ..core.errors import SteelyardError

KEPT = 300  # pulses of a model
PATIENCE = 10.0  # seconds without a word: the gateway is gone
AGAIN = 2.0  # seconds until the next try
MOST = 64 << 20  # bytes of one message


class NoAnswerError(SteelyardError):
    """The gateway does not answer, or not as it should."""

    reason = "no_answer"


class Admin(msgspec.Struct, frozen=True):
    address: Address
    token: str = ""

    @property
    def url(self) -> str:
        return str(self.address) if self.address.path else f"http://{self.address}"

    def get(self, path: str) -> http.client.HTTPResponse:
        """Raises NoAnswerError, in one sentence."""
        connection = _Connection(self.address)
        headers = {"host": "localhost"} if self.address.path else {}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as problem:
            raise NoAnswerError(f"no answer from {self.url}: {_why(problem)}") from None
        if answer.status == 401:
            raise NoAnswerError(f"{self.url} needs a token: --token-file, or STEELYARD_TOKEN in the environment")
        if answer.status != 200:
            raise NoAnswerError(f"{self.url} refuses: {_said(answer)}")
        return answer

    def once(self) -> bytes:
        try:
            return self.get("/v1/pulse").read(MOST)
        except (OSError, http.client.HTTPException) as problem:
            raise NoAnswerError(f"no answer from {self.url}: {_why(problem)}") from None


class Feed:
    """What is known of the fleet, kept up to date by a thread of its own between `start` and the end of the program."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self.view: LiveView | None = None
        self.pulses: dict[str, deque[PulseView]] = {}
        self.events: deque[tuple[float, Happening]] = deque(maxlen=100)  # when, and what
        self.problem = ""  # why nothing comes now
        self.heard = monotonic()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _follow(self) -> None:
        pause = threading.Event()
        while True:
            try:
                for name, data in events(self.admin.get("/v1/live")):
                    self.take(name, data)
                problem = f"{self.admin.url} has stopped"
            except NoAnswerError as refused:
                problem = str(refused)
            except (OSError, http.client.HTTPException, ValueError) as broken:
                problem = f"no answer from {self.admin.url}: {_why(broken)}"
            self.problem = problem
            pause.wait(AGAIN)

    def take(self, name: str, data: bytes) -> None:
        if name == "history":
            known = msgspec.json.decode(data, type=LiveHistoryView)
            self.pulses = {model: deque(pulses, KEPT) for model, pulses in known.pulses.items()}
            self.events.clear()
        elif name == "state":
            self.keep(msgspec.json.decode(data, type=LiveView))

    def keep(self, view: LiveView) -> None:
        self.heard = monotonic()
        for model in view.models:
            ring = self.pulses.setdefault(model.model, deque(maxlen=KEPT))
            if not ring or model.pulse.at > ring[-1].at:
                ring.append(model.pulse)
        self.events.extend((self.heard - event.age, event) for event in view.events)
        self.view, self.problem = view, ""


def events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, bytes]]:
    """Server-Sent Events: name and data of each."""
    name = "message"
    while line := answer.readline(MOST):
        key, _, value = line.rstrip(b"\r\n").partition(b": ")
        if key == b"event":
            name = value.decode()
        elif key == b"data":
            yield name, value


class _Connection(http.client.HTTPConnection):
    def __init__(self, address: Address) -> None:
        super().__init__(address.host or "127.0.0.1", address.port, timeout=PATIENCE)
        self._path = address.path

    def connect(self) -> None:
        if not self._path:
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._path)


def _why(problem: Exception) -> str:
    if isinstance(problem, TimeoutError):
        return f"nothing for {PATIENCE:g} s"
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror.lower()
    return str(problem) or type(problem).__name__


def _said(answer: http.client.HTTPResponse) -> str:
    """The sentence of a refusal."""
    try:
        return str(json.loads(answer.read(1 << 16))["error"]["message"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return f"{answer.status} {answer.reason}"
