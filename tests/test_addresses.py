from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.addresses import Address, is_host, listen_address, replica_address, unmapped_host, unmapped_network


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        (":8080", Address("", 8080)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:8080", Address("::1", 8080)),
        ("[fe80::1%eth0]:80", Address("fe80::1%eth0", 80)),
        ("my_host.example.:1", Address("my_host.example.", 1)),
        ("unix:/run/a.sock", Address(path="/run/a.sock")),
        ("unix:///run/a.sock", Address(path="/run/a.sock")),
    ],
)
def test_where_to_listen(text: str, address: Address) -> None:
    assert listen_address(text) == address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://10.0.0.1:8000", Address("10.0.0.1", 8000)),
        ("http://host", Address("host", 80)),
        ("https://host/", Address("host", 443, tls=True)),
        ("HTTPS://host:1", Address("host", 1, tls=True)),
        ("http://[::1]", Address("::1", 80)),
        ("http://[::1]:8000", Address("::1", 8000)),
        ("unix:/run/model.sock", Address(path="/run/model.sock")),
    ],
)
def test_where_a_replica_is(url: str, address: Address) -> None:
    assert replica_address(url) == address


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("8080", "write 127.0.0.1:8080, or :8080 for every address"),
        ("localhost", "the port is missing, write for example localhost:8080"),
        ("::1:8080", "in brackets"),
        ("http://localhost:80", "leave out what is before and after"),
        ("host:99999", "a port is from 0 to 65535"),
        ("host:８０", "is not an address"),
        ("256.1.1.1:80", "neither a host name nor an IP address"),
        ("1.2.3:80", "neither a host name nor an IP address"),
        ("-a:80", "neither a host name"),
        ("a..b:80", "neither a host name"),
        (f"{'a' * 64}:80", "neither a host name"),
        ("*:80", "neither a host name"),
        ("[::x]:80", "is not an IPv6 address"),
        ("[1.2.3.4]:80", "is not an IPv6 address"),
        ("", "is not an address"),
        ("unix:run/a.sock", "write the whole path"),
        ("unix:", "write the whole path"),
        (f"unix:/{'a' * 107}", "at most 107 bytes"),
        ("unix:/a\0b", "no control characters"),
    ],
)
def test_where_nobody_can_listen(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(hint)):
        listen_address(text)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("10.0.0.1:8000", "write http://10.0.0.1:8000"),
        ("model-host", "write http://model-host"),
        ("ftp://host", "write for example http://10.0.0.1:8000"),
        ("http://", "the host is missing"),
        ("http://:80", "the host is missing"),
        ("http://host:0", "a port is from 1 to 65535"),
        ("http://host:", "is not the URL of a replica"),
        ("http://::1:80", "is not the URL of a replica"),
        ("http://host/v1", "leave out '/v1'"),
        ("http://host?a=b", "leave out '?a=b'"),
        ("http://user:secret@host", "no user and no password"),
        ("http://ho st", "leave out"),
        ("", "is not the URL of a replica"),
    ],
)
def test_where_no_replica_can_be(url: str, hint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(hint)) as caught:
        replica_address(url)
    assert "secret" not in str(caught.value)


def test_as_it_is_written_again() -> None:
    assert str(Address("::1", 80)) == "[::1]:80"
    assert str(Address("", 80)) == ":80"
    assert str(Address(path="/run/a")) == "unix:/run/a"
    assert Address(path="/run/a").authority == "localhost"
    assert Address("fe80::1%eth0", 80).authority == "[fe80::1]:80"
    assert str(Address("fe80::1%eth0", 80)) == "[fe80::1%eth0]:80"


@pytest.mark.parametrize("text", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "unix:/a"])
def test_only_this_machine_can_reach(text: str) -> None:
    assert listen_address(text).is_loopback


@pytest.mark.parametrize("text", [":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.com:1", "[fe80::1%lo]:1"])
def test_others_can_reach(text: str) -> None:
    assert not listen_address(text).is_loopback


@pytest.mark.parametrize("text", ["a", "a-b.c_d", "1.2.3.4", "a.", "0x1"])
def test_hosts(text: str) -> None:
    assert is_host(text)


@given(st.text())
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    for read in (listen_address, replica_address):
        for prefix in ("", "http://", "unix:/", "[", "host:"):
            try:
                address = read(prefix + text)
            except ValueError:
                continue
            again = str(address)
            assert listen_address(again) == Address(address.host, address.port, address.path)


@pytest.mark.parametrize(
    "text", ["[::ffff:127.0.0.1]:80", "[::FFFF:7f00:1]:80", "127.0.0.9:80", "[::1]:80", "localhost:80"]
)
def test_an_ipv4_address_inside_ipv6_is_that_address(text: str) -> None:
    assert listen_address(text).is_loopback


def test_networks_of_ipv4_inside_ipv6() -> None:
    assert str(unmapped_network("::ffff:10.0.0.0/104")) == "10.0.0.0/8"
    assert str(unmapped_network("::/0")) == "::/0"
    assert unmapped_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert unmapped_host("fe80::1%eth0") == "fe80::1%eth0"


@pytest.mark.parametrize(
    ("url", "listen", "same"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080", True),
        ("http://localhost:8080", "127.0.0.1:8080", True),
        ("http://[::ffff:127.0.0.1]:8080", "127.0.0.1:8080", True),
        ("http://localhost:8080", ":8080", True),
        ("http://[::1]:8080", "0.0.0.0:8080", True),
        ("unix:/run/a", "unix:/run/a", True),
        ("http://127.0.0.1:8081", "127.0.0.1:8080", False),
        ("http://127.0.0.2:8080", "127.0.0.1:8080", False),
        ("http://10.0.0.1:8080", ":8080", False),
        ("unix:/run/a", "127.0.0.1:8080", False),
    ],
)
def test_which_addresses_lead_to_a_listener(url: str, listen: str, same: bool) -> None:
    assert replica_address(url).reaches(listen_address(listen)) == same
