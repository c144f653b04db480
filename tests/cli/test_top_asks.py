"""`steelyard top` at an address where something else answers, and for one model as JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
from click.testing import CliRunner, Result

from steelyard.cli import main
from steelyard.control.observability.views import FleetEvent, LiveModelView, LiveView, SampleView

PULSE = SampleView(uptime=1.0, rate=2.0, bad_rate=0.0, p50=0.1, p99=0.2, waiting=0, in_flight=0, work=0.0)


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def asked(url: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["top", "--admin", url, *options])


def model(name: str) -> LiveModelView:
    return LiveModelView(
        model=name, policy="least_work", concurrency=1, replicas=0, ready=0, oldest_wait=0.0, desired=None, sample=PULSE
    )


def view() -> bytes:
    events = tuple(FleetEvent(age=1.0, kind="model", message="set", model=name) for name in ("llama", "llama-2"))
    return msgspec.json.encode(
        LiveView(
            version="1",
            uptime=1.0,
            workers=1,
            models=(model("llama"), model("llama-2")),
            replicas=(),
            devices=(),
            slo=(),
            alarms=(),
            events=events,
        )
    )


def test_what_is_no_admin_api_is_told_in_one_line() -> None:
    with answering(b'{"object": "list", "data": []}') as url:
        result = asked(url, "--once")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {url} answers, but not as the admin API of Steelyard")
    assert result.stderr.count("\n") == 1


def test_one_model_as_json() -> None:
    with answering(view()) as url:
        printed = json.loads(asked(url, "--json", "--model", "llama").stdout)
        unknown = asked(url, "--json", "--model", "lama")
    assert [one["model"] for one in printed["models"]] == ["llama"]
    assert [one["model"] for one in printed["events"]] == ["llama"]
    assert unknown.exit_code == 2
    assert "there is no model 'lama'; there are: llama, llama-2" in unknown.stderr
