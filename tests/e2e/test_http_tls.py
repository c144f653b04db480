"""TLS, both sides: certificates checked, shown, and read again when they change."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import (
    Connection,
    Serving,
    StubReplica,
    Truncated,
    config,
    model,
    new_id,
    nothing_left,
    request,
    scripts,
    wait_until,
)
from tests.harness.certificates import Authority

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command to make certificates with")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def local(authority: Authority) -> tuple[Path, Path]:
    return authority.issue("local", "DNS:localhost", "IP:127.0.0.1")


@pytest.fixture(scope="module")
def plain() -> Iterator[StubReplica]:
    with StubReplica("plain") as stub:
        yield stub


class TestClients:
    @pytest.fixture(scope="class")
    @classmethod
    def files(cls, tmp_path_factory: pytest.TempPathFactory, local: tuple[Path, Path]) -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp("served")
        copies = folder / "cert.pem", folder / "key.pem"
        for source, copy in zip(local, copies, strict=True):
            shutil.copy(source, copy)
        return copies

    @pytest.fixture(scope="class")
    @classmethod
    def gateway(cls, plain: StubReplica, files: tuple[Path, Path]) -> Iterator[Serving]:
        with Serving(config([plain], tls={"certificate": str(files[0]), "key": str(files[1])})) as serving:
            yield serving

    def test_requests_go_through(self, gateway: Serving, authority: Authority, plain: StubReplica) -> None:
        id = new_id()
        with gateway.connect(tls=authority.client_context()) as connection:
            assert connection.ask("POST", id=id, body=b"x" * 100_000).status == 200
            assert connection.ask("POST", chunks=[b"a" * 70_000]).status == 200
            assert len(connection.ask("GET", script=scripts.large(3 << 20)).body) == 3 << 20
        assert plain.headers(id)["x-forwarded-proto"] == "https"

    def test_events_are_not_held_back(self, gateway: Serving, authority: Authority, plain: StubReplica) -> None:
        gate = new_id("event")
        with gateway.connect(tls=authority.client_context()) as connection:
            connection.send(request("POST", script=scripts.sse(3, gate)))
            response = connection.begin()
            for number in range(3):
                connection.read_body(response, f"data: {number}\n\n".encode())
                plain.open(f"{gate}-{number + 1}")
            connection.finish(response)

    def test_a_broken_answer_is_seen_as_broken(self, gateway: Serving, authority: Authority) -> None:
        script = scripts.raw("HTTP/1.1 200 ok\r\ncontent-length: 100\r\n\r\nhalf", ["close"])
        with gateway.connect(tls=authority.client_context()) as connection:
            connection.send(request("POST", script=script))
            with pytest.raises(Truncated):
                connection.response()

    def test_plain_http_on_the_tls_port_is_refused(self, gateway: Serving, plain: StubReplica) -> None:
        id = new_id()
        with gateway.connect() as connection:
            connection.send(request("GET", id=id))
            connection.wait_closed()
        plain.never("request", id=id)

    def test_old_versions_of_tls_are_refused(self, gateway: Serving, authority: Authority) -> None:
        context = authority.client_context()
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            gateway.connect(tls=context)

    def test_changed_files_are_read_again(
        self, gateway: Serving, authority: Authority, files: tuple[Path, Path]
    ) -> None:
        """New connections get the new certificate; old ones go on; no process is replaced."""

        def serial() -> str:
            with gateway.connect(tls=authority.client_context()) as connection:
                assert connection.ask("GET").status == 200
                return str(connection.sock.getpeercert()["serialNumber"])  # type: ignore[attr-defined]

        first, workers = serial(), gateway.workers
        with gateway.connect(tls=authority.client_context()) as old:
            assert old.ask("GET").status == 200
            for source, copy in zip(authority.issue("renewed", "DNS:localhost"), files, strict=True):
                shutil.copy(source, copy)
            wait_until(lambda: serial() != first, "the new certificate is not shown")
            assert old.ask("GET").status == 200
        assert gateway.workers == workers

    def test_a_broken_file_keeps_the_last_good_one(
        self, gateway: Serving, authority: Authority, files: tuple[Path, Path]
    ) -> None:
        good = files[0].read_bytes()
        files[0].write_text("not a certificate")
        try:
            wait_until(lambda: "cert.pem" in gateway.output, "no word of the bad file")
            with gateway.connect(tls=authority.client_context()) as connection:
                assert connection.ask("GET").status == 200
        finally:
            files[0].write_bytes(good)


def test_handshakes_that_never_end(plain: StubReplica, authority: Authority, local: tuple[Path, Path]) -> None:
    """Who connects and says nothing, or half a hello, is cut like any slow client; others do not notice."""
    tls = {"certificate": str(local[0]), "key": str(local[1])}
    with Serving(config([plain], tls=tls, timeouts={"header": "3s", "idle": "3s"})) as gateway, nothing_left(gateway):
        slow = [gateway.connect() for _ in range(10)]
        for connection in slow[5:]:
            connection.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        with gateway.connect(tls=authority.client_context()) as connection:
            assert connection.ask("POST").status == 200
        for connection in slow:
            connection.wait_closed()
            connection.close()


def test_clients_must_show_a_certificate(
    plain: StubReplica, authority: Authority, stranger: Authority, local: tuple[Path, Path]
) -> None:
    tls = {"certificate": str(local[0]), "key": str(local[1]), "client_ca": str(authority.ca)}
    with Serving(config([plain], tls=tls)) as gateway:
        known = authority.client_context(*authority.issue("client"))
        with gateway.connect(tls=known) as connection:
            assert connection.ask("POST").status == 200
        for context in (authority.client_context(), authority.client_context(*stranger.issue("client"))):
            id = new_id()
            try:
                with gateway.connect(tls=context) as connection:
                    connection.try_send(request("POST", id=id))
                    connection.wait_closed()
            except (ssl.SSLError, ConnectionError):
                pass
            plain.never("request", id=id)


class TestReplicas:
    @pytest.fixture(scope="class")
    @classmethod
    def secure(cls, local: tuple[Path, Path]) -> Iterator[StubReplica]:
        with StubReplica("secure", certificate=str(local[0]), key=str(local[1])) as stub:
            yield stub

    @pytest.fixture(scope="class")
    @classmethod
    def strict(cls, local: tuple[Path, Path], authority: Authority) -> Iterator[StubReplica]:
        with StubReplica("strict", certificate=str(local[0]), key=str(local[1]), client_ca=str(authority.ca)) as stub:
            yield stub

    @pytest.fixture(scope="class")
    @classmethod
    def gateway(
        cls, secure: StubReplica, strict: StubReplica, authority: Authority, stranger: Authority
    ) -> Iterator[Serving]:
        certificate, key = map(str, authority.issue("gateway"))
        ca = str(authority.ca)
        models = {
            "checked": model(secure, tls={"ca": ca}),
            "shown": model(strict, tls={"ca": ca, "certificate": certificate, "key": key}),
            "hidden": model(strict, tls={"ca": ca}),
            "named": model(secure, tls={"ca": ca, "server_name": "localhost"}),
            "misnamed": model(secure, tls={"ca": ca, "server_name": "elsewhere.test"}),
            "mistrusted": model(secure, tls={"ca": str(stranger.ca)}),
            "system": model(secure),
            "careless": model(secure, tls={"verify": False}),
        }
        with Serving(config(models, timeouts={"replica_idle": "60s"})) as serving:
            yield serving

    @pytest.mark.parametrize("name", ["checked", "shown", "named", "careless"])
    def test_a_replica_that_is_who_it_says(self, gateway: Serving, name: str) -> None:
        with gateway.connect() as connection:
            for _ in range(2):
                response = connection.ask("POST", headers={"steelyard-model": name}, body=b"x" * 200_000)
                assert response.status == 200, response

    @pytest.mark.parametrize("name", ["hidden", "misnamed", "mistrusted", "system"])
    def test_a_replica_that_is_not(self, gateway: Serving, secure: StubReplica, strict: StubReplica, name: str) -> None:
        id = new_id()
        response = gateway.ask("POST", id=id, headers={"steelyard-model": name})
        assert response.status in (502, 503), response
        assert response.headers["steelyard-reason"]
        for stub in (secure, strict):
            stub.never("request", id=id)

    def test_a_broken_answer_is_seen_as_broken(self, gateway: Serving) -> None:
        script = scripts.raw("HTTP/1.1 200 ok\r\ncontent-length: 100\r\n\r\nhalf", ["close"])
        with gateway.connect() as connection:
            connection.send(request("POST", headers={"steelyard-model": "checked"}, script=script))
            with pytest.raises(Truncated):
                connection.response()

    def test_connections_are_kept(self, gateway: Serving, secure: StubReplica) -> None:
        ids = [new_id() for _ in range(5)]
        with Connection(gateway.address) as connection:
            for id in ids:
                assert connection.ask("POST", id=id, headers={"steelyard-model": "checked"}).status == 200
        assert len({secure.request(id)["conn"] for id in ids}) == 1
