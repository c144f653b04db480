"""TLS for clients: what a renewed context shows and whom it lets in. Handshakes in memory, without sockets."""

import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from steelyard.config import TlsConfig
from steelyard.gateway.worker.tls import listener_context, tls_fingerprint

from ...harness.certificates import Authority


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("new"))


@pytest.fixture(scope="module")
def server(old: Authority) -> tuple[Path, Path]:
    return old.issue("server", "DNS:gateway")


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> Mapping[str, object]:
    """The server's certificate, as the client sees it, when both are content; raises SSLError if one is not."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = client.wrap_bio(to_client, to_server, server_hostname="gateway")
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    ours.write(b"hello")
    assert theirs.read(5) == b"hello"
    return theirs.getpeercert() or {}


def tls(pair: tuple[Path, Path], authority: Authority | None = None) -> TlsConfig:
    return TlsConfig(certificate=str(pair[0]), key=str(pair[1]), client_ca=str(authority.ca) if authority else "")


def test_http_1_1_and_no_old_protocols(old: Authority, server: tuple[Path, Path]) -> None:
    context = listener_context(tls(server))
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert shake(context, old.client_context())
    client = old.client_context()
    client.set_alpn_protocols(["h2", "http/1.1"])
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = client.wrap_bio(to_client, to_server, server_hostname="gateway")
    ours = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ours.selected_alpn_protocol() == "http/1.1"


def test_files_that_changed_are_noticed(old: Authority, tmp_path: Path) -> None:
    """In place, as certificate managers write them: the configuration is the same, what it names is not."""
    first, second = old.issue("first", "DNS:gateway"), old.issue("second", "DNS:gateway")
    pair = (tmp_path / "certificate.pem", tmp_path / "key.pem")

    def put(source: tuple[Path, Path]) -> None:
        for here, there in zip(pair, source, strict=True):
            here.write_bytes(there.read_bytes())

    put(first)
    before, shown = tls_fingerprint(tls(pair)), shake(listener_context(tls(pair)), old.client_context())["serialNumber"]
    assert tls_fingerprint(tls(pair)) == before
    put(second)
    assert tls_fingerprint(tls(pair)) != before
    assert shake(listener_context(tls(pair)), old.client_context())["serialNumber"] != shown
    assert tls_fingerprint(None) == ()


def test_clients_must_show_a_certificate_where_it_is_asked_for(old: Authority, server: tuple[Path, Path]) -> None:
    context = listener_context(tls(server, old))
    with pytest.raises(ssl.SSLError):
        shake(context, old.client_context())
    assert shake(context, old.client_context(*old.issue("client")))


def test_an_authority_that_was_replaced_is_trusted_no_more(
    old: Authority, new: Authority, server: tuple[Path, Path]
) -> None:
    """A context can only add to what it trusts; whose keys were stolen must be out after a reload all the same."""
    assert tls_fingerprint(tls(server, new)) != tls_fingerprint(tls(server, old))
    context = listener_context(tls(server, new))
    trusted = old.client_context(*new.issue("client"))
    assert shake(context, trusted)
    with pytest.raises(ssl.SSLError):
        shake(context, old.client_context(*old.issue("stolen")))


def test_files_that_do_not_fit_are_refused(old: Authority, server: tuple[Path, Path], tmp_path: Path) -> None:
    other = old.issue("other", "DNS:gateway")
    broken = [TlsConfig(certificate=str(server[0]), key=str(other[1]), client_ca=str(old.ca))]
    (tmp_path / "none.pem").write_text("nothing")
    broken.append(TlsConfig(certificate=str(other[0]), key=str(other[1]), client_ca=str(tmp_path / "none.pem")))
    broken.append(TlsConfig(certificate=str(tmp_path / "gone"), key=str(other[1])))
    for config in broken:
        with pytest.raises(OSError):  # noqa: PT011
            listener_context(config)
