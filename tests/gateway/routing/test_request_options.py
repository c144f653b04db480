"""What clients ask of the gateway in headers, and who they say they are."""

from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.request import INFINITY
from steelyard.gateway.exchange import Exchange
from steelyard.gateway.http.forwarding import TrustedNetworks
from steelyard.gateway.http.headers import MalformedMessageError
from steelyard.gateway.routing.request_options import apply_request_options

from ..reading import Message, read_request, request
from ..stage import Stage

STANDS_IN = pytest.mark.interpreted("stands in for a compiled class")


class RequestOptions:
    """As much of an exchange as request options are set on."""

    def __init__(self, **headers: bytes) -> None:
        self.deadline = INFINITY
        self.first_byte_by = INFINITY
        self.priority = 0
        self.key: str | None = None
        apply_request_options(
            cast(Exchange, self), {name.replace("_", "-").encode(): value for name, value in headers.items()}, 100.0
        )

    @property
    def seconds(self) -> float | None:
        return None if self.deadline == INFINITY else round(self.deadline - 100.0, 6)

    @property
    def first_byte_seconds(self) -> float | None:
        return None if self.first_byte_by == INFINITY else round(self.first_byte_by - 100.0, 6)


@STANDS_IN
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"steelyard_timeout_ms": b"250"}, 0.25),
        ({"steelyard_timeout_ms": b"0.5"}, 0.0005),
        ({"steelyard_timeout_ms": b"0"}, 0.0),
        ({"grpc_timeout": b"200m"}, 0.2),
        ({"grpc_timeout": b"3S"}, 3.0),
        ({"grpc_timeout": b"2M"}, 120.0),
        ({"grpc_timeout": b"1H"}, 3600.0),
        ({"grpc_timeout": b"500u"}, 0.0005),
        ({"x_envoy_expected_rq_timeout_ms": b"1500"}, 1.5),
        ({"x_envoy_expected_rq_timeout_ms": b"0"}, None),
        ({"steelyard_timeout_ms": b"1000", "grpc_timeout": b"5S", "x_slo_ttft_ms": b"1"}, 1.0),
        ({"grpc_timeout": b"soon"}, None),
        ({"grpc_timeout": b"123456789S"}, None),
        ({"grpc_timeout": b"5s", "x_envoy_expected_rq_timeout_ms": b"100"}, 0.1),
        ({"x_slo_ttft_ms": b"300"}, None),
        ({}, None),
    ],
)
def test_deadlines(headers: dict[str, bytes], seconds: float | None) -> None:
    assert RequestOptions(**headers).seconds == seconds


@STANDS_IN
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x_slo_ttft_ms": b"300"}, 0.3),
        ({"x_slo_ttft_ms": b"300", "steelyard_timeout_ms": b"5000"}, 0.3),
        ({"x_slo_ttft_ms": b"0"}, None),
        ({"x_slo_ttft_ms": b"fast"}, None),
        ({"steelyard_timeout_ms": b"5000"}, None),
    ],
)
def test_deadlines_of_the_first_byte(headers: dict[str, bytes], seconds: float | None) -> None:
    assert RequestOptions(**headers).first_byte_seconds == seconds


@STANDS_IN
@pytest.mark.parametrize("value", [b"", b"soon", b"-1", b"1e3", b"1_0", b"0x1", b"nan", b"inf", b"1" * 13, b"1."])
def test_our_own_must_be_right(value: bytes) -> None:
    with pytest.raises(MalformedMessageError, match="steelyard-timeout-ms"):
        RequestOptions(steelyard_timeout_ms=value)


@STANDS_IN
def test_priorities_and_sessions() -> None:
    assert [RequestOptions(steelyard_priority=value).priority for value in (b"5", b"-5", b"0", b"999")] == [
        5,
        -5,
        0,
        999,
    ]
    for value in (b"", b"high", b"1000", b"1.5", b"+1", b"--1"):
        with pytest.raises(MalformedMessageError, match="steelyard-priority"):
            RequestOptions(steelyard_priority=value)
    key = RequestOptions(steelyard_session=b"\xe9" * 1000).key
    assert key == "é" * 256
    assert RequestOptions(x_session_id=b"theirs").key == "theirs"
    assert RequestOptions(x_session_id=b"theirs", steelyard_session=b"ours").key == "ours"
    assert RequestOptions(x_session_id=b"", steelyard_session=b"").key is None


@STANDS_IN
@given(st.binary(max_size=15))
def test_what_others_write_never_hurts(value: bytes) -> None:
    for name in ("grpc_timeout", "x_envoy_expected_rq_timeout_ms", "x_slo_ttft_ms"):
        options = RequestOptions(**{name: value})
        for seconds in (options.seconds, options.first_byte_seconds):
            assert seconds is None or 0.0 <= seconds < 1e12


# ---------------------------------------------------------------------- who the client is


def heard(stage: Stage, *headers: str, peer: object = ("192.0.2.7", 1), tls: bool = False) -> Message:
    client = stage.client(peer=peer, tls=tls)
    client.says(request("GET /", *headers))
    return read_request(stage.replica().hears())


FORWARDED = (
    *("x-forwarded-for: 1.1.1.1", "x-forwarded-proto: gopher", "x-forwarded-host: evil", "x-forwarded-port: 1"),
    *("forwarded: for=1.1.1.1", "x-real-ip: 1.1.1.1", "X-FORWARDED-FOR: 2.2.2.2", "x_forwarded_for: 3.3.3.3"),
)


def test_a_stranger_is_not_believed(stage: Stage) -> None:
    message = heard(stage, *FORWARDED)
    assert message["x-forwarded-for"] == "192.0.2.7"
    assert (message["x-forwarded-proto"], message["x-forwarded-host"]) == ("http", "gateway")
    for name in ("forwarded", "x-real-ip", "x-forwarded-port", "x_forwarded_for"):
        assert name not in message


def test_a_trusted_peer_is_believed_and_joins_the_list(staged: Callable[..., Stage]) -> None:
    stage = staged("{trusted_proxies: ['192.0.2.0/24'], models: {m: {replicas: [{url: 'http://a:1'}]}}}")
    message = heard(stage, *FORWARDED)
    assert ", ".join(message.all("x-forwarded-for")) == "1.1.1.1, 2.2.2.2, 192.0.2.7"
    assert (message["x-forwarded-proto"], message["x-forwarded-host"]) == ("gopher", "evil")
    assert message["forwarded"] == "for=1.1.1.1"


def test_a_trusted_peer_that_says_nothing(staged: Callable[..., Stage]) -> None:
    stage = staged("{trusted_proxies: ['192.0.2.0/24'], models: {m: {replicas: [{url: 'http://a:1'}]}}}")
    message = heard(stage)
    assert (message["x-forwarded-for"], message["x-forwarded-proto"]) == ("192.0.2.7", "http")


def test_it_is_told_once_even_if_it_is_tried_twice(staged: Callable[..., Stage]) -> None:
    stage = staged(
        "{trusted_proxies: ['192.0.2.0/24'], models: {m: {replicas: [{url: 'http://a:1'}, {url: 'http://b:1'}]}}}"
    )
    client = stage.client()
    client.says(request("GET /", "x-forwarded-for: 1.1.1.1"))
    first = stage.replica()
    again = first.hears()
    first.breaks()
    assert stage.replica().hears() == again
    assert read_request(again)["x-forwarded-for"] == "1.1.1.1, 192.0.2.7"


@pytest.mark.parametrize(("peer", "name"), [(("2001:db8::1", 1, 0, 0), "2001:db8::1"), ("", "unix"), (None, "unix")])
def test_other_kinds_of_peers(stage: Stage, peer: object, name: str) -> None:
    message = heard(stage, peer=peer, tls=True)
    assert (message["x-forwarded-for"], message["x-forwarded-proto"]) == (name, "https")


def test_who_is_trusted() -> None:
    trust = TrustedNetworks(["10.0.0.0/8", "2001:db8::/32", "127.0.0.1"])
    for host in ("10.1.2.3", "::ffff:10.1.2.3", "2001:db8::5", "127.0.0.1"):
        assert trust.contains(host)
    for host in ("11.1.2.3", "::ffff:11.1.2.3", "2001:db9::5", "unix", "", "fe80::1%eth0", "10.0.0.1.evil"):
        assert not trust.contains(host)
    assert not TrustedNetworks([]).contains("127.0.0.1")
