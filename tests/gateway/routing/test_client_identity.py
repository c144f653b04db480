"""Who may say what of its own requests: priority, tenant, session, deadline."""

from collections.abc import Callable

import pytest

from steelyard.config import parse_config
from steelyard.gateway.routing.client_identity import TrustPolicy

from ..loop import Wire
from ..reading import answer, read_answer, read_request, request
from ..stage import Stage

MODEL = "models: {m: {concurrency: 1, max_queue: 100, timeout: 10s, replicas: [{url: 'http://r:1'}]}}"
OPEN = f"tenant_header: x-tenant\n{MODEL}"
KNOWN = f"""
tenant_header: x-tenant
trusted_proxies: [192.0.2.9]
tenants:
  gold: {{networks: [198.51.100.0/24], max_priority: 5}}
  batch: {{networks: [203.0.113.0/24], max_priority: -5}}
  silver: {{max_priority: 2}}
{MODEL}
"""
A, B = ("192.0.2.1", 1), ("192.0.2.2", 1)
PROXY, GOLD, BATCH = ("192.0.2.9", 1), ("198.51.100.7", 1), ("203.0.113.7", 1)


def asks(stage: Stage, peer: object, path: str, *headers: str) -> Wire:
    client = stage.client(peer=peer)
    client.says(request(f"GET /{path}", *headers))
    return client


def order_of_service(stage: Stage, count: int) -> list[str]:
    """One replica that takes one at a time serves all; their paths, in the order in which they came to it."""
    served = []
    for _ in range(count):
        replica = stage.replica()
        heads = replica.hears().split(b"\r\n\r\n")
        served.append(read_request(heads[-2] + b"\r\n\r\n").first.split(" ")[1].strip("/"))
        replica.says(answer())
        stage.pass_time(0.001)
    return served


def turns(
    stage: Stage, mine: tuple[object, ...], theirs: tuple[object, ...], flood: int = 20, few: int = 3
) -> list[int]:
    """A has `flood` requests in line before B's `few` come; at which place each of B's is served."""
    asks(stage, ("192.0.2.50", 1), "first")
    for number in range(flood):
        peer, *headers = (part(number) if callable(part) else part for part in mine)
        asks(stage, peer, "a", *map(str, headers))
    for _ in range(few):
        peer, *headers = theirs
        asks(stage, peer, "b", *map(str, headers))
    served = order_of_service(stage, 1 + flood + few)[1:]
    assert sorted(served) == ["a"] * flood + ["b"] * few
    return [place for place, who in enumerate(served) if who == "b"]


FAIR = [1, 3, 5]


@pytest.mark.parametrize("config", [OPEN, KNOWN], ids=["open", "known"])
@pytest.mark.parametrize(
    "claims",
    [
        ("x-tenant: a", "steelyard-priority: 999"),
        (lambda number: f"x-tenant: made-up-{number}", "steelyard-priority: 999"),
        ("x-tenant: b", "steelyard-priority: 999"),
        ("x-tenant: gold", "steelyard-priority: 5"),
        ("x-tenant: a", "steelyard-timeout-ms: 9000"),
    ],
    ids=["priority", "many tenants", "another's name", "one with a ceiling", "a deadline"],
)
def test_a_client_cannot_move_another_clients_waiting(staged: Callable[..., Stage], config: str, claims: tuple) -> None:
    stage = staged(config)
    assert turns(stage, (A, *claims), (B, "x-tenant: b")) == FAIR
    stage.check_idle()


def test_without_tenants_a_priority_is_no_more_than_none(staged: Callable[..., Stage]) -> None:
    assert turns(staged(MODEL), (A, "steelyard-priority: 999"), (B,)) == [20, 21, 22]


def test_who_lowers_its_own_goes_last(staged: Callable[..., Stage]) -> None:
    assert turns(staged(OPEN), (A, "steelyard-priority: -1"), (B,)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("theirs", "places"),
    [
        ((GOLD, "steelyard-priority: 999"), [0, 1, 2]),
        ((GOLD, "steelyard-priority: 1", "x-tenant: a"), [0, 1, 2]),
        ((PROXY, "steelyard-priority: 1", "x-tenant: silver"), [0, 1, 2]),
        ((PROXY, "steelyard-priority: 999", "x-tenant: unknown"), FAIR),
        ((BATCH,), [20, 21, 22]),
    ],
    ids=["by network", "whatever it says", "by proxy", "unnamed", "lowered"],
)
def test_a_tenant_goes_first_as_far_as_its_ceiling(
    staged: Callable[..., Stage], theirs: tuple[object, ...], places: list[int]
) -> None:
    stage = staged(KNOWN)
    assert turns(stage, (A, "steelyard-priority: 999"), theirs) == places
    stage.check_idle()


def test_tenants_of_a_trusted_proxy_share_fairly(staged: Callable[..., Stage]) -> None:
    stage = staged(KNOWN)
    assert turns(stage, (PROXY, "x-tenant: a"), (PROXY, "x-tenant: b")) == FAIR


def test_a_client_may_allow_less_time_but_not_more(staged: Callable[..., Stage]) -> None:
    stage = staged(KNOWN)
    patient = asks(stage, A, "patient", "steelyard-timeout-ms: 60000")
    waiting = asks(stage, A, "hasty", "steelyard-timeout-ms: 1000")
    proxied = asks(stage, PROXY, "proxied", "steelyard-timeout-ms: 60000")
    while stage.dialling:
        stage.accept()
    stage.pass_time(1.1)
    assert read_answer(waiting.hears())["steelyard-reason"] == "deadline"
    stage.pass_time(9)
    assert read_answer(patient.hears())["steelyard-reason"] == "deadline"
    assert proxied.hears() == b"", "a trusted proxy may allow more"


def test_what_is_believed_follows_the_configuration(staged: Callable[..., Stage]) -> None:
    """Also on connections that were there before."""
    stage = staged(KNOWN)
    client = stage.client(peer=GOLD)
    assert client.transport.protocol.identity.tenant == "gold"
    stage.reload(OPEN)
    assert client.transport.protocol.identity.tenant == ""


@pytest.mark.parametrize(
    ("host", "same"),
    [("2001:db8::1", "2001:db8::2"), ("::ffff:192.0.2.1", "192.0.2.1"), ("fe80::1%eth0", "fe80::1%eth1")],
)
def test_addresses_of_one_client_share_one_place(host: str, same: str) -> None:
    rule = TrustPolicy(parse_config(OPEN))
    assert rule.identify(host).share == rule.identify(same).share
    assert rule.identify(host).share != rule.identify("192.0.2.3").share


def test_the_narrowest_network_names_the_tenant() -> None:
    rule = TrustPolicy(
        parse_config(f"tenants: {{all: {{networks: [10.0.0.0/8]}}, one: {{networks: [10.1.0.0/16]}}}}\n{MODEL}")
    )
    assert [rule.identify(host).tenant for host in ("10.1.2.3", "10.2.2.3", "11.0.0.1")] == ["one", "all", ""]
