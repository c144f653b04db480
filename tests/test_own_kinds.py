"""A runtime and a discovery source of a user's own: one file and one line each, outside the package.

The files are those that docs/replicas.md and docs/discovery.md show.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from steelyard.advice import advise
from steelyard.config import load_config
from steelyard.documents import DocumentError
from steelyard.runtimes import ReplicaSpec
from tests.docs.test_docs import ROOT, blocks, rows, text_of
from tests.harness import Serving, StubReplica, config, wait_until
from tests.harness.processes import alive

FAKE_DOCKER = f"""#!{sys.executable}
import os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"from image " + sys.argv[-1].encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
    def log_message(self, *_): pass

with open(os.path.join(os.path.dirname(__file__), "started"), "a") as log:
    print(os.getpid(), *sys.argv[1:], file=log)
HTTPServer(("127.0.0.1", int(sys.argv[4].split(":")[1])), Handler).serve_forever()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the two files, from which they can be imported, and a program that acts as docker."""
    for page, name in (("docs/discovery.md", "http_list.py"), ("docs/replicas.md", "containers.py")):
        (text,) = [block.text for block in blocks(ROOT / page) if block.saved_as == name]
        (tmp_path / name).write_text(text)
    (tmp_path / "docker").write_text(FAKE_DOCKER)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    yield tmp_path
    for module in ("http_list", "containers"):
        sys.modules.pop(module, None)


def contained(own: Path, **more: Any) -> dict[str, Any]:
    return {"kind": "containers:Containers", "image": "tiny", "tool": str(own / "docker"), **more}


def write(own: Path, **model: Any) -> Path:
    path = own / "gateway.yaml"
    path.write_text(yaml.safe_dump({"models": {"m": model}}))
    return path


# ---------------------------------------------------------------------- configuration


def test_the_configuration_reads_them_and_knows_their_names(own: Path) -> None:
    source = {"kind": "http_list:HttpList", "url": "http://a/b", "interval": "5s"}
    model = load_config(write(own, runtime=contained(own), discovery=[source])).models["m"]
    assert model.runtime is not None
    assert (model.runtime.kind, model.runtime.describe()) == ("containers:Containers", f"{own}/docker tiny")
    (found,) = model.discovery
    assert (found.kind, found.describe(), found.interval) == ("http_list:HttpList", "list http://a/b", 5.0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"runtime": {"kind": "containers:Containers", "imgae": "a"}}, "runtime: unknown key `imgae` (did you mean"),
        ({"runtime": {"kind": "containers:Containers"}}, "runtime: `image` is missing"),
        ({"runtime": {"kind": "containers:Containers", "image": ""}}, "runtime.image: name an image, for example"),
        ({"runtime": {"kind": "containers:Container"}}, "runtime.kind: runtime 'containers:Container': module 'conta"),
        ({"runtime": {"kind": "http_list:HttpList"}}, "runtime.kind: runtime 'http_list:HttpList': HttpList is not a"),
        ({"discovery": [{"kind": "http_list:HttpList", "url": "a"}]}, "discovery[0].url: 'a' is not a URL: write for"),
        ({"discovery": [{"kind": "http_list:HttpList", "url": 1}]}, "discovery[0].url: expected text, got a whole"),
        ({"discovery": [{"kind": "no_such:Kind"}]}, "discovery[0].kind: discovery source 'no_such:Kind': cannot imp"),
    ],
)
def test_mistakes_are_told_with_line_and_key(own: Path, model: dict[str, Any], message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load_config(write(own, **model))
    (line,) = caught.value.lines
    assert line.partition("models.m.")[2].startswith(message)
    assert line.startswith(f"{own}/gateway.yaml:")


def test_their_advice_is_given(own: Path) -> None:
    (own / "advised.py").write_text(
        dedent("""
        from containers import Containers

        class Advised(Containers, frozen=True):
            def latest(self, key):
                if self.image.endswith(":latest"):
                    yield (*key, "image"), "It changes under your feet.", "Name a version."

            advice = {"own-latest": latest}
        """)
    )
    runtime = {"kind": "advised:Advised", "image": "x:latest"}
    found = {item.code: item.key for item in advise(load_config(write(own, runtime=runtime)))}
    assert found["own-latest"] == ("models", "m", "runtime", "image")
    sys.modules.pop("advised")


# ---------------------------------------------------------------------- imported when used


@pytest.mark.parametrize(
    ("model", "there", "not_there"),
    [
        ("{}", [], ["steelyard.runtimes", "steelyard.control"]),
        (
            "{runtime: {command: 'a {port}'}}",
            ["steelyard.runtimes.process.config"],
            ["steelyard.runtimes.process.runtime", "steelyard.control"],
        ),
        (
            "{discovery: [{kind: file, path: a}]}",
            ["steelyard.control.discovery.file"],
            ["steelyard.runtimes", "steelyard.control.discovery.dns", "dns"],
        ),
        (
            "{discovery: [{kind: dns, name: a.b, port: 1}]}",
            ["steelyard.control.discovery.dns.config"],
            ["steelyard.runtimes", "steelyard.control.discovery.file", "dns"],
        ),
    ],
)
def test_only_the_kinds_that_are_used_are_imported(model: str, there: list[str], not_there: list[str]) -> None:
    program = f"""
import sys
from steelyard.config import parse_config
parse_config({f"models: {{m: {model}}}"!r})
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert imported >= set(there)
    assert not imported & set(not_there)


def test_the_fields_of_a_spec_are_told() -> None:
    table = text_of("docs/replicas.md").partition("| of `spec` | meaning |\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", "".join(row[0] for row in rows(table)))) == set(ReplicaSpec._fields)


# ---------------------------------------------------------------------- replicas that serve


def test_what_an_own_runtime_starts_serves_requests(own: Path) -> None:
    models = {"m": {"runtime": contained(own, replicas=2), "health": {"path": "/"}}}
    with Serving(config(models)) as gateway:
        wait_until(lambda: gateway.ask("POST").status == 200, "no container serves")
        assert gateway.ask("POST").body == b"from image tiny"
        started = [line.split() for line in (own / "started").read_text().splitlines()]
        assert {tuple(words[1:4]) for words in started} == {("run", "--rm", "-p")}
        assert f"2 started as {own}/docker tiny" in gateway.output
    wait_until(lambda: not any(alive(int(words[0])) for words in started), "containers are left")


def test_what_an_own_source_finds_serves_requests(own: Path) -> None:
    with (own / "http_list.py").open("a") as module:
        module.write(
            f"\nimport os\nwith open({str(own / 'imported')!r}, 'a') as log:\n    print(os.getpid(), file=log)\n"
        )
    with StubReplica("found") as stub, listed([f"http://127.0.0.1:{stub.port}"]) as url:
        source = {"kind": "http_list:HttpList", "url": url, "interval": "1s"}
        with Serving(config({"m": {"discovery": [source], "health": {"enabled": False}}})) as gateway:
            wait_until(lambda: gateway.ask("POST").status == 200, "nothing found")
            assert f"those found in list {url}" in gateway.output
            assert {int(pid) for pid in (own / "imported").read_text().split()} == {gateway.pid}  # no worker imports it


class listed:
    """An HTTP server with a list of replicas."""

    def __init__(self, urls: list[str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(urls).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}/m"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
