"""The admin API, read once or followed in a thread, over TCP or a Unix socket."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections import deque
from collections.abc import Iterator
from time import monotonic

import msgspec

from ...addresses import Address
from ...control.observability.views import FleetEvent, LiveHistoryView, LiveView, SampleView
from ...core.errors import SteelyardError

MAX_SAMPLES = 300  # of a model
TIMEOUT_SECONDS = 10.0
RETRY_DELAY_SECONDS = 2.0
MAX_MESSAGE_BYTES = 64 << 20


class AdminUnavailableError(SteelyardError):
    reason = "no_answer"


class AdminClient(msgspec.Struct, frozen=True):
    address: Address
    token: str = ""

    @property
    def url(self) -> str:
        return str(self.address) if self.address.path else f"http://{self.address}"

    def get(self, path: str) -> http.client.HTTPResponse:
        """Raises AdminUnavailableError, in one sentence."""
        connection = _Connection(self.address)
        headers = {"host": "localhost"} if self.address.path else {}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as problem:
            raise self.unavailable(problem) from None
        if answer.status == 401:
            message = f"{self.url} needs a token: --token-file, or STEELYARD_TOKEN in the environment"
            raise AdminUnavailableError(message)
        if answer.status != 200:
            raise AdminUnavailableError(f"{self.url} refuses: {_refusal_message(answer)}")
        return answer

    def snapshot(self) -> bytes:
        try:
            return self.get("/v1/live/latest").read(MAX_MESSAGE_BYTES)
        except (OSError, http.client.HTTPException) as problem:
            raise self.unavailable(problem) from None

    def unavailable(self, problem: Exception) -> AdminUnavailableError:
        reason = str(problem) or type(problem).__name__
        if isinstance(problem, TimeoutError):
            reason = f"nothing for {TIMEOUT_SECONDS:g} s"
        elif isinstance(problem, OSError) and problem.strerror:
            reason = problem.strerror.lower()
        return AdminUnavailableError(f"no answer from {self.url}: {reason}")


class LiveSubscription:
    """The fleet, updated by a thread after `start`."""

    def __init__(self, admin: AdminClient) -> None:
        self.admin = admin
        self.view: LiveView | None = None
        self.samples: dict[str, deque[SampleView]] = {}
        self.events: deque[tuple[float, FleetEvent]] = deque(maxlen=100)  # when, and what
        self.problem = ""  # why nothing comes now
        self.updated_at = monotonic()

    def start(self) -> None:
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        pause = threading.Event()
        while True:
            try:
                for name, data in server_sent_events(self.admin.get("/v1/live")):
                    self.handle_event(name, data)
                self.problem = f"{self.admin.url} has stopped"
            except AdminUnavailableError as refused:
                self.problem = str(refused)
            except (OSError, http.client.HTTPException, ValueError) as broken:
                self.problem = str(self.admin.unavailable(broken))
            pause.wait(RETRY_DELAY_SECONDS)

    def handle_event(self, name: str, data: bytes) -> None:
        if name == "history":
            known = msgspec.json.decode(data, type=LiveHistoryView)
            self.samples = {model: deque(samples, MAX_SAMPLES) for model, samples in known.samples.items()}
            self.events.clear()
        elif name == "state":
            self.update(msgspec.json.decode(data, type=LiveView))

    def update(self, view: LiveView) -> None:
        self.updated_at = monotonic()
        for model in view.models:
            ring = self.samples.setdefault(model.model, deque(maxlen=MAX_SAMPLES))
            if not ring or model.sample.uptime > ring[-1].uptime:
                ring.append(model.sample)
        self.events.extend((self.updated_at - event.age, event) for event in view.events)
        self.view, self.problem = view, ""


def server_sent_events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, bytes]]:
    """Name and data of each."""
    name = "message"
    while line := answer.readline(MAX_MESSAGE_BYTES):
        key, _, value = line.rstrip(b"\r\n").partition(b": ")
        if key == b"event":
            name = value.decode()
        elif key == b"data":
            yield name, value


class _Connection(http.client.HTTPConnection):
    def __init__(self, address: Address) -> None:
        super().__init__(address.host or "127.0.0.1", address.port, timeout=TIMEOUT_SECONDS)
        self._path = address.path

    def connect(self) -> None:
        if not self._path:
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_SECONDS)
        self.sock.connect(self._path)


def _refusal_message(answer: http.client.HTTPResponse) -> str:
    try:
        return str(json.loads(answer.read(1 << 16))["error"]["message"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return f"{answer.status} {answer.reason}"
