"""Who may use the admin API: nobody from another machine without a token, no web page through a browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness import Connection, Serving, StubReplica, config
from tests.harness.admin import AdminClient
from tests.harness.processes import free_port
from tests.harness.replicas.probed import ProbedReplica, Watched, watched

pytestmark = pytest.mark.xdist_group("admin access")

TOKEN = "a-token-0123456789-abcdefghijklmn"
CALLS = (
    ("GET", "/v1/fleet"),
    ("GET", "/v1/models"),
    ("GET", "/v1/events"),
    ("GET", "/v1/models/%2A/replicas/a"),
    ("POST", "/v1/models/%2A/replicas/a/drain"),
    ("POST", "/v1/models/%2A/replicas"),
    ("PUT", "/v1/models/%2A/leases/b"),
    ("DELETE", "/v1/models/%2A/replicas/a"),
    ("PATCH", "/v1/models/%2A"),
    ("POST", "/v1/reload"),
)


@pytest.fixture(scope="module")
def stub() -> Iterator[ProbedReplica]:
    with ProbedReplica("a") as stub:
        yield stub


def start(tmp_path: Path, settings: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """A start that must end by itself."""
    file = tmp_path / "steelyard.yaml"
    file.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "steelyard", "serve", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=90)


class TestStart:
    @pytest.mark.parametrize("host", ["0.0.0.0", ""], ids=["v4", "all"])
    def test_for_other_machines_without_a_token_is_refused(self, tmp_path: Path, stub: StubReplica, host: str) -> None:
        ended = start(tmp_path, config([stub], admin={"listen": f"{host}:{free_port()}"}))
        said = ended.stdout + ended.stderr
        assert ended.returncode != 0
        assert "token" in said
        assert "admin" in said
        assert "Traceback" not in said
        assert len(said.strip().splitlines()) <= 3, f"more than a clear sentence: {said}"

    @pytest.mark.parametrize("tokens", [None, "\n\n"], ids=["no file", "blank lines"])
    def test_a_file_without_a_token_is_no_token(self, tmp_path: Path, stub: StubReplica, tokens: str | None) -> None:
        file = tmp_path / "tokens"
        if tokens is not None:
            file.write_text(tokens)
        admin = {"listen": f"0.0.0.0:{free_port()}", "token_file": str(file)}
        ended = start(tmp_path, config([stub], admin=admin))
        assert ended.returncode != 0
        assert "token" in ended.stdout + ended.stderr
        assert "Traceback" not in ended.stdout + ended.stderr

    def test_with_a_token_it_starts(self, tmp_path: Path, stub: StubReplica) -> None:
        (tmp_path / "tokens").write_text(TOKEN + "\n")
        port = free_port()
        settings = config([stub], admin={"listen": f"0.0.0.0:{port}", "token_file": str(tmp_path / "tokens")})
        with Serving(settings) as gateway, AdminClient(settings, token=TOKEN) as admin:
            admin.wait_up()
            assert set(admin.states()) == {"a"}
            assert TOKEN not in gateway.output


class TestToken:
    @pytest.fixture(scope="class")
    @classmethod
    def deployment(cls, stub: ProbedReplica, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
        tokens = tmp_path_factory.mktemp("tokens") / "tokens"
        tokens.write_text(f"another-token-0123456789-abcdefg\n{TOKEN}\n")
        with watched(stub, admin={"token_file": str(tokens)}) as deployment:
            yield deployment

    @pytest.mark.parametrize(
        "authorization",
        ["", "Bearer wrong", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer"],
    )
    def test_wrong_or_none_is_401(self, deployment: Watched, authorization: str) -> None:
        headers = {"authorization": authorization} if authorization else {}
        for method, path in CALLS:
            response = deployment.admin.http.request(method, path, headers=headers)
            assert response.status_code == 401, f"{method} {path}"
            assert response.headers["www-authenticate"].startswith("Bearer")
            assert response.json()["error"]["code"]
            assert TOKEN not in response.text

    def test_the_right_one_is_let_in(self, deployment: Watched) -> None:
        headers = {"authorization": f"Bearer {TOKEN}"}
        fleet = deployment.admin.http.get("/v1/fleet", headers=headers)
        assert fleet.status_code == 200
        assert [replica["state"] for replica in fleet.json()["replicas"]] != ["draining"], "a call without it did it"
        assert deployment.admin.http.get("/v1/fleet", params={"token": TOKEN}).status_code == 401

    def test_health_is_for_whoever_asks(self, deployment: Watched) -> None:
        """A load balancer in front of this one has no token."""
        assert deployment.admin.http.get("/healthz").status_code == 200
        assert deployment.admin.http.get("/readyz").status_code in (200, 503)

    def test_nothing_secret_in_the_log(self, deployment: Watched) -> None:
        assert TOKEN not in deployment.gateway.output


class TestHost:
    """A page in the browser of somebody on this machine must not reach it under a name of its own."""

    @pytest.fixture(scope="class")
    @classmethod
    def deployment(cls, stub: ProbedReplica) -> Iterator[Watched]:
        with watched(stub) as deployment:
            deployment.admin.wait_ready("a")
            yield deployment

    def ask(self, deployment: Watched, method: str, path: str, **options: Any) -> int:
        host, port = deployment.admin.url.removeprefix("http://").split(":")
        with Connection((host, int(port))) as connection:
            return connection.ask(method, path, **options).status

    @pytest.mark.parametrize("host", ["evil.test", "evil.test:9080", "127.0.0.1.evil.test", "localhost.evil.test", ""])
    def test_a_foreign_name_is_refused(self, deployment: Watched, host: str) -> None:
        assert self.ask(deployment, "GET", "/v1/fleet", host=host) in (400, 403, 421)
        assert self.ask(deployment, "POST", "/v1/models/%2A/replicas/a/drain", host=host) in (400, 403, 421)
        assert deployment.admin.states() == {"a": "ready"}

    def test_its_own_names_are_known(self, deployment: Watched) -> None:
        port = deployment.admin.url.rpartition(":")[2]
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
            assert self.ask(deployment, "GET", "/v1/fleet", host=host) == 200, host

    def test_a_page_of_another_origin_changes_nothing(self, deployment: Watched) -> None:
        headers = {"origin": "http://evil.test", "content-type": "text/plain"}
        port = deployment.admin.url.rpartition(":")[2]
        status = self.ask(
            deployment, "POST", "/v1/models/%2A/replicas/a/drain", host=f"127.0.0.1:{port}", headers=headers, body=b"{}"
        )
        assert status in (400, 403, 415)
        assert deployment.admin.states() == {"a": "ready"}

    def test_the_data_port_is_no_admin_port(self, deployment: Watched) -> None:
        """What looks like a call of the admin API is a request like any other there, and goes to the replica."""
        for method, path in CALLS:
            assert b'"replica": "a"' in deployment.gateway.ask(method, path).body
        assert deployment.admin.states() == {"a": "ready"}
