"""A real name server on real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import dns.asyncresolver
import pytest

from steelyard.config import ReplicaConfig
from steelyard.control.discovery import DiscoveryError, DiscoveryResult
from steelyard.control.discovery.dns import resolver
from steelyard.control.discovery.dns import source as dns_source
from steelyard.control.discovery.dns.config import DnsDiscovery
from steelyard.control.discovery.dns.source import DnsSource

from .name_server import NameServer, name_server
from .running import run

NAME = "llama.models.test"
SERVICE = "_http._tcp.llama.test"


def source(server: NameServer | str, **more: Any) -> DnsSource:
    place = server if isinstance(server, str) else server.server
    return DnsSource(DnsDiscovery(**{"name": NAME, "port": 8000, "name_server": place, **more}))


def service(server: NameServer, **more: Any) -> DnsSource:
    return source(server, name=SERVICE, record_type="srv", **more)


def urls(found: DiscoveryResult) -> list[str]:
    return [one.url for one in found.replicas]


async def problem_of(asked: DnsSource, longest: float = 5.0) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolver, "QUERY_TIMEOUT_SECONDS", longest)
        with pytest.raises(DiscoveryError) as problem:
            await asked.poll()
    return str(problem.value)


# ---------------------------------------------------------------------- addresses


def test_both_families_in_a_steady_order_with_the_least_ttl() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say(NAME, "A", "10.0.0.10", "10.0.0.9", ttl=30)
            server.say(NAME, "AAAA", "fd00::1", ttl=20)
            asked = source(server)
            found = await asked.poll()
            assert urls(found) == ["http://10.0.0.9:8000", "http://10.0.0.10:8000", "http://[fd00::1]:8000"]
            assert [one.name for one in found.replicas] == ["10.0.0.9:8000", "10.0.0.10:8000", "[fd00::1]:8000"]
            assert (found.ttl, found.note) == (20, "")
            server.say(NAME, "A", "10.0.0.9", "10.0.0.10", ttl=30)
            assert await asked.poll() == found

    run(work())


def test_scheme_and_port() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say(NAME, "A", "10.0.0.1")
            assert urls(await source(server, scheme="https", port=8443).poll()) == ["https://10.0.0.1:8443"]
            (found,) = (await source(server, scheme="https", port=0).poll()).replicas
            assert found.name == "10.0.0.1:443"

    run(work())


def test_aliases_count_for_the_ttl() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say(NAME, "CNAME", "other.test.", ttl=3)
            server.say("other.test", "A", "10.0.0.1", ttl=300)
            found = await source(server).poll()
            assert (urls(found), found.ttl) == (["http://10.0.0.1:8000"], 3)

    run(work())


def test_an_answer_that_was_cut_short_is_asked_for_by_tcp() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.cut_short = True
            server.say(NAME, "A", *(f"10.0.{number // 250}.{number % 250 + 1}" for number in range(1500)))
            assert len((await source(server).poll()).replicas) == 1500
            assert (NAME, "A", "udp") in server.asked
            assert (NAME, "A", "tcp") in server.asked

    run(work())


def test_no_such_name_and_no_addresses() -> None:
    async def work() -> None:
        async with name_server() as server:
            assert await problem_of(source(server)) == f"{NAME}: there is no such name"
            server.say(NAME, "TXT", "hello")
            assert await source(server).poll() == DiscoveryResult(())

    run(work())


@pytest.mark.parametrize("rcode", ["SERVFAIL", "REFUSED", "FORMERR", "NOTIMP"])
def test_a_server_that_fails(rcode: str) -> None:
    async def work() -> None:
        async with name_server() as server:
            server.rcodes = {(NAME, "A"): rcode, (NAME, "AAAA"): rcode}
            problem = await problem_of(source(server))
            assert problem.startswith(f"{NAME} A: no name server has an answer; ")
            assert problem.endswith(f"says {rcode}")

    run(work())


def test_a_server_that_is_silent_or_speaks_nonsense_or_is_not_there() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say(NAME, "A", "10.0.0.1")
            server.silent = {(NAME, "A"), (NAME, "AAAA")}
            assert await problem_of(source(server), 0.5) == f"{NAME} A: no name server answered within 0.5 s"
            server.silent = set()
            server.garbage = True
            assert (await problem_of(source(server), 0.5)).startswith(f"{NAME} A: no name server")
            server.garbage = False
            assert urls(await source(server).poll()) == ["http://10.0.0.1:8000"]
            gone = source(server)
        assert (await problem_of(gone, 0.5)).startswith(f"{NAME} A: no name server")

    run(work())


def test_half_an_answer_is_not_taken_for_the_whole() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say(NAME, "A", "10.0.0.1")
            server.say(NAME, "AAAA", "fd00::1")
            asked = source(server)
            both = await asked.poll()
            server.rcodes = {(NAME, "AAAA"): "SERVFAIL"}
            server.say(NAME, "A", "10.0.0.1", "10.0.0.2")
            found = await asked.poll()
            assert urls(found) == ["http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://[fd00::1]:8000"]
            assert found.note.startswith(f"{NAME} AAAA: no name server has an answer")
            assert found.note.endswith("its last answer is kept")
            server.rcodes = {(NAME, "A"): "SERVFAIL", (NAME, "AAAA"): "SERVFAIL"}
            assert "SERVFAIL" in await problem_of(asked)  # nobody answers: that is a failure, whatever is known
            server.rcodes = {}
            server.say(NAME, "A", "10.0.0.1")
            assert await asked.poll() == both

    run(work())


def test_a_server_that_fails_on_aaaa_for_ever_is_lived_with() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say(NAME, "A", "10.0.0.1")
            server.rcodes = {(NAME, "AAAA"): "SERVFAIL"}
            found = await source(server).poll()
            assert (urls(found), found.note) == (["http://10.0.0.1:8000"], "")
            server.say(NAME, "A")
            assert "AAAA" in await problem_of(source(server))  # nothing, and half of the questions failed

    run(work())


def test_addresses_that_are_never_taken() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say(NAME, "A", "169.254.169.254", "10.0.0.1", "224.0.0.1")
            server.say(NAME, "AAAA", "::ffff:169.254.169.254", "fe80::1")
            found = await source(server).poll()
            assert urls(found) == ["http://10.0.0.1:8000"]
            assert "169.254.169.254 is not taken: a link-local address" in found.note
            assert "and 1 more" in found.note
            server.say(NAME, "A", "0.0.0.0")
            server.say(NAME, "AAAA")
            assert await source(server).poll() == DiscoveryResult(
                (), 60, "0.0.0.0 is not taken: an unspecified address"
            )

    run(work())


def test_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with name_server() as server:
            monkeypatch.setattr(dns_source, "MAX_REPLICAS_PER_SOURCE", 2)
            server.say(NAME, "A", "10.0.0.1", "10.0.0.2", "10.0.0.3")
            assert "it names 3 replicas" in await problem_of(source(server))

    run(work())


def test_names_and_servers_that_cannot_be() -> None:
    async def work() -> None:
        assert "is not a name of the DNS" in await problem_of(source("127.0.0.1:53", name="a..b"))
        assert "is not a name of the DNS" in await problem_of(source("127.0.0.1:53", name="x" * 64))
        assert (await problem_of(source("127.0.0.1"))).startswith("name server 127.0.0.1: ")
        assert "write its host and port" in await problem_of(source(":53"))
        assert (await problem_of(source("unix:/run/dns.sock"))).startswith("name server unix:/run/dns.sock: ")

    run(work())


def test_a_name_server_by_its_name() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say(NAME, "A", "10.0.0.1")
            assert urls(await source(f"localhost:{server.port}").poll()) == ["http://10.0.0.1:8000"]

    run(work())


def test_the_name_servers_of_the_system_and_the_domains_it_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say("llama.models.svc.test", "A", "10.0.0.1")
            conf = tmp_path / "resolv.conf"
            conf.write_text("search default.svc.test svc.test\nnameserver 127.0.0.1\noptions ndots:5\n")
            made = dns.asyncresolver.Resolver

            def resolver() -> dns.asyncresolver.Resolver:
                found = made(str(conf))
                found.port = server.port
                found.nameservers = ["127.0.0.1"]
                return found

            monkeypatch.setattr(dns.asyncresolver, "Resolver", resolver)
            assert urls(await source("", name="llama.models").poll()) == ["http://10.0.0.1:8000"]
            monkeypatch.setattr(dns.asyncresolver, "Resolver", lambda: made("/no/such/file"))
            assert (await problem_of(source(""))).startswith("name server of the system: ")

    run(work())


# ---------------------------------------------------------------------- services


def test_a_service_with_addresses_brought_along() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say(SERVICE, "SRV", "1 30 8001 a.test.", "1 0 8002 b.test.", "2 9 8003 c.test.", ttl=40)
            server.additional = [("a.test", 7, "A", "10.0.0.1"), ("b.test", 50, "AAAA", "fd00::2")]
            found = await service(server).poll()
            assert found.replicas == (
                ReplicaConfig(url="http://10.0.0.1:8001", weight=30.0),
                ReplicaConfig(url="http://[fd00::2]:8002", weight=1.0),
            )
            assert found.ttl == 7
            assert {kind for _, kind, _ in server.asked} == {"SRV"}

    run(work())


def test_a_service_whose_hosts_are_asked_for() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say(SERVICE, "SRV", "0 5 8001 a.test.", "0 5 8002 a.test.", "0 5 8003 b.test.")
            server.say("a.test", "A", "10.0.0.1", ttl=9)
            server.say("b.test", "AAAA", "fd00::2")
            found = await service(server, scheme="https").poll()
            assert urls(found) == ["https://10.0.0.1:8001", "https://10.0.0.1:8002", "https://[fd00::2]:8003"]
            assert found.ttl == 9

    run(work())


def test_a_host_that_cannot_be_found_does_not_hide_the_others() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say(SERVICE, "SRV", "0 1 80 a.test.", "0 1 80 b.test.", "0 1 80 c.test.")
            server.say("a.test", "A", "10.0.0.1")
            server.say("b.test", "A", "10.0.0.2")
            asked = service(server)
            found = await asked.poll()
            assert (len(found.replicas), found.note) == (2, "c.test has no address")
            server.rcodes = {("b.test", "A"): "SERVFAIL", ("b.test", "AAAA"): "SERVFAIL"}
            found = await asked.poll()
            assert urls(found) == ["http://10.0.0.1:80", "http://10.0.0.2:80"]
            assert "its last answer is kept" in found.note
            assert urls(await service(server).poll()) == ["http://10.0.0.1:80"]  # who has not seen it before

    run(work())


def test_a_service_that_is_not_there() -> None:
    async def work() -> None:
        async with name_server() as server:
            assert await problem_of(service(server)) == f"{SERVICE}: there is no such name"
            server.say(SERVICE, "SRV", "0 0 0 .")
            assert await service(server).poll() == DiscoveryResult((), 60)
            server.say(SERVICE, "SRV", "0 0 80 a.test.")
            assert await problem_of(service(server)) == "a.test has no address"
            server.rcodes = {(SERVICE, "SRV"): "SERVFAIL"}
            assert "SERVFAIL" in await problem_of(service(server))

    run(work())


def test_a_service_of_very_many_hosts_that_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with name_server() as server:
            monkeypatch.setattr(dns_source, "MAX_POLL_SECONDS", 4.0)
            hosts = [f"h{number}.test" for number in range(200)]
            server.cut_short = True
            server.say(SERVICE, "SRV", *(f"0 1 80 {host}." for host in hosts))
            server.silent = {(host, kind) for host in hosts for kind in ("A", "AAAA")}
            problem = await problem_of(service(server), longest=3.0)  # 200 hosts, 16 at a time
            assert problem == f"{SERVICE}: not all answers came within 4 s"

    run(work())


def test_forbidden_addresses_of_a_service() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say(SERVICE, "SRV", "0 1 80 a.test.", "0 1 80 b.test.")
            server.additional = [("a.test", 5, "A", "169.254.169.254"), ("b.test", 5, "A", "10.0.0.1")]
            found = await service(server).poll()
            assert urls(found) == ["http://10.0.0.1:80"]
            assert "169.254.169.254 is not taken" in found.note

    run(work())


def test_cancelled_in_the_middle() -> None:
    async def work() -> None:
        async with name_server() as server:
            server.say(NAME, "A", "10.0.0.1")
            server.silent = {(NAME, "A")}
            asked = source(server)
            looking = asyncio.create_task(asked.poll())
            while not server.asked:
                await asyncio.sleep(0.01)
            looking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await looking
            server.silent = set()
            assert urls(await asked.poll()) == ["http://10.0.0.1:8000"]

    run(work())
