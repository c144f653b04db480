from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from steelyard.addresses import listen_address
from steelyard.config import AdminConfig
from steelyard.control.admin.errors import ApiError
from steelyard.control.admin.security.access import AccessControl, AccessError, TokenFile, is_local

from ..serving import TOKEN, served
from ..test_routes import failed

OTHER = "another-token-of-enough-length"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"# who may\n\n{TOKEN}\n  {OTHER}  \n")
    return path


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


# ---------------------------------------------------------------------- tokens


def test_with_a_token_file_a_token_is_needed(tokens: Path) -> None:
    with served(token_file=str(tokens)) as admin:
        for path in ("/v1/fleet", "/openapi.json", "/nowhere", "/v1/fleet/"):
            answer = admin.http.get(path)
            failed(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert admin.http.get("/v1/fleet", headers=bearer(TOKEN)).status_code == 200
        assert admin.http.get("/v1/fleet", headers={"authorization": f"bearer  {OTHER}"}).status_code == 200
        assert admin.http.get("/nowhere", headers=bearer(TOKEN)).status_code == 404
        for path in ("/healthz", "/readyz"):
            assert admin.http.get(path).status_code == 200


@pytest.mark.parametrize(
    "given",
    [
        [],
        [("authorization", "")],
        [("authorization", "Bearer")],
        [("authorization", TOKEN)],
        [("authorization", f"Basic {TOKEN}")],
        [("authorization", f"Bearer {TOKEN[:-1]}")],
        [("authorization", f"Bearer {TOKEN}x")],
        [("authorization", f"Bearer {TOKEN} {TOKEN}")],
        [("authorization", "Bearer # who may")],
        [("authorization", b"Bearer \xff\xfe")],
        [("authorization", f"Bearer {TOKEN}"), ("authorization", f"Bearer {TOKEN}")],
    ],
)
def test_only_a_token_of_the_file_will_do(tokens: Path, given: list[tuple[str, str]]) -> None:
    with served(token_file=str(tokens)) as admin:
        answer = admin.http.get("/v1/fleet", headers=given)
        failed(answer, 401, "unauthorized")
        assert TOKEN not in answer.text


def test_without_a_token_nothing_is_changed_and_no_body_is_read(tokens: Path) -> None:
    with served(token_file=str(tokens)) as admin:
        failed(admin.http.post("/v1/models/llama/replicas", content=b" " * (2 << 20)), 401, "unauthorized")
        failed(admin.http.post("/v1/models/llama/replicas/a/drain"), 401, "unauthorized")
        assert not admin.operations.replicas["llama", "a"].draining


def test_the_file_is_read_again_when_it_changes(tokens: Path, caplog: pytest.LogCaptureFixture) -> None:
    known = TokenFile(str(tokens))
    assert known.knows(TOKEN.encode())
    tokens.write_text("a-new-token-that-is-long\n")
    with caplog.at_level(logging.INFO, "steelyard.admin"):
        assert not known.knows(TOKEN.encode())
        assert known.knows(b"a-new-token-that-is-long")
    assert "read 1 admin tokens" in caplog.text


@pytest.mark.parametrize("text", [None, "", "# nobody\n", "short\n", "two words are no token\n", "x" * 100_000])
def test_a_file_that_is_spoilt_locks_nobody_out(
    tokens: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    known = TokenFile(str(tokens))
    if text is None:
        tokens.unlink()
    else:
        tokens.write_text(text)
    assert known.knows(TOKEN.encode())
    assert known.knows(OTHER.encode())
    assert len([record for record in caplog.records if "last good tokens stay" in record.message]) == 1
    tokens.write_text(OTHER)
    assert not known.knows(TOKEN.encode())
    assert known.knows(OTHER.encode())


@pytest.mark.parametrize("text", [None, "", "# nobody\n", "0123456789abcde\n", "two words are no token\n"])
def test_it_does_not_start_with_a_file_that_is_of_no_use(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "tokens"
    if text is not None:
        path.write_text(text)
    with pytest.raises(AccessError, match=r"^admin\.token_file: ") as caught:
        AccessControl(listen_address("127.0.0.1:0"), AdminConfig(token_file=str(path)))
    assert "0123456789" not in str(caught.value), "a token is a secret"


@pytest.mark.parametrize("listen", ["0.0.0.0:0", ":0", "[::]:0", "10.0.0.1:0", "gateway.example:0"])
def test_where_other_machines_can_reach_it_it_needs_a_token(listen: str, tokens: Path) -> None:
    with pytest.raises(AccessError, match="needs a token, because other machines can reach it"):
        AccessControl(listen_address(listen), AdminConfig())
    assert AccessControl(listen_address(listen), AdminConfig(token_file=str(tokens))).needs_token


# ---------------------------------------------------------------------- without tokens: this machine, and no web page


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9080", "127.8.9.1", "localhost:1", "LOCALHOST", "a.localhost", "[::1]:9080"]
)
def test_this_machine_may(host: str) -> None:
    assert is_local(host)
    AccessControl(listen_address("127.0.0.1:9080"), AdminConfig()).check("/v1/fleet", Headers({"host": host}))


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:9080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "[::2]",
        "0.0.0.0",
        "localhost@evil",
        "localhost:evil.example",
        "evil:127.0.0.1",
        "2130706433",
        "127.1",
        "١:80",
        "[",
        ":",
    ],
)
def test_a_name_that_leads_here_is_not_enough(host: str) -> None:
    assert not is_local(host)
    with pytest.raises(ApiError) as caught:
        AccessControl(listen_address("127.0.0.1:9080"), AdminConfig()).check(
            "/healthz", Headers(raw=[(b"host", host.encode())])
        )
    assert caught.value.status == 403


@given(st.text())
def test_whatever_the_host_is_it_is_local_or_not(host: str) -> None:
    assert is_local(host) in (True, False)


def test_a_page_of_somebody_else_may_not() -> None:
    with served() as admin:
        url = "/v1/models/llama/replicas/a/drain"
        own = f"http://127.0.0.1:{admin.server.address.port}"
        for origin in (
            "http://evil.example",
            "null",
            "http://127.0.0.1:3000",
            own.replace("http", "https"),
            "",
            f"{own}/",
        ):
            failed(admin.http.post(url, headers={"origin": origin}), 403, "forbidden")
        failed(admin.http.post(url, headers={"host": "evil.example"}), 403, "forbidden")
        failed(
            admin.http.post(url, headers={"host": "evil.example", "origin": "http://evil.example"}), 403, "forbidden"
        )
        assert not admin.operations.replicas["llama", "a"].draining
        assert admin.http.post(url, headers={"origin": own}).status_code == 200


def test_who_has_a_token_may_come_by_any_name(tokens: Path) -> None:
    with served(token_file=str(tokens)) as admin:
        given = {**bearer(TOKEN), "host": "gateway.example", "origin": "https://gateway.example"}
        assert admin.http.get("/v1/fleet", headers=given).status_code == 200


def test_a_unix_socket_is_guarded_by_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with served(listen=f"unix:{path}") as admin:
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert admin.http.get("/v1/fleet", headers={"host": "whatever"}).status_code == 200
    assert not path.exists()
