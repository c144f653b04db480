"""Replicas that register themselves: a lease is renewed or it ends, and an address is not anybody's to name."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness import Ledger, model, new_id, request, scripts, wait_until
from tests.harness.admin import PROBED
from tests.harness.replicas.probed import ProbedReplica, Watched, watched
from tests.harness.traffic import traffic

pytestmark = pytest.mark.xdist_group("leases")


@pytest.fixture(scope="module")
def stubs() -> Iterator[list[ProbedReplica]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(ProbedReplica(name)) for name in "ab"]


@pytest.fixture(scope="module")
def deployment(stubs: list[ProbedReplica]) -> Iterator[Watched]:
    """One gateway for all: each test has a model of its own, so that what one leaves behind is not another's."""
    a = stubs[0]
    models = {
        "ends": model(a, idempotent=False),
        "stays": {"idempotent": False},
        "late": model(a),
        "restarts": model(a, idempotent=False, health=PROBED | {"interval": "60s"}),
        "leaves": model(a, idempotent=False),
        "addresses": model(a),
    }
    with watched(models=models, workers=2, admin={"max_lease": "30s"}) as deployment:
        for name in ("ends", "late", "restarts", "leaves", "addresses"):
            deployment.admin.wait_ready("a", model=name)
        yield deployment


@pytest.fixture
def of_model(deployment: Watched, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What requests of the test's model bring; the admin client speaks of this one too."""
    deployment.admin.model = request.param
    return {"headers": {"steelyard-model": request.param}}


def a_model(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("of_model", [name], indirect=True)


class TestLease:
    @a_model("ends")
    def test_not_renewed_it_drains_and_then_it_is_gone(
        self, stubs: list[ProbedReplica], deployment: Watched, of_model: dict[str, Any]
    ) -> None:
        (a, b), (gateway, admin) = stubs, deployment
        gate, id = new_id("gate"), new_id()
        granted = admin.announce("b", url=b.url, seconds=29.5, instance="one")
        assert granted.status_code == 200
        assert granted.json()["seconds"] == 29.5
        admin.wait_ready("b")
        shown = admin.replica("b")
        assert shown.source == "registration"
        assert shown.lease is not None
        assert 0 < shown.lease <= 29.5
        with contextlib.ExitStack() as stack:
            running = [stack.enter_context(gateway.connect()) for _ in range(8)]
            for number, connection in enumerate(running):
                connection.send(request("POST", id=f"{id}-{number}", script=scripts.held(gate), **of_model))
            b.wait("waiting", gate=gate)
            wait_until(lambda: sum(len(stub.of("waiting", gate=gate)) for stub in stubs) == 8, "some are on their way")
            assert admin.announce("b", url=b.url, seconds=0.5, instance="one").json() == {"seconds": 0.5}
            admin.wait_state("b", "draining")
            b.sync()
            mark = b.mark
            for _ in range(20):
                assert gateway.ask("POST", **of_model).status == 200
            b.untouched(mark)
            assert admin.states()["b"] == "draining", "it is forgotten while a request runs there"
            for stub in (a, b):
                stub.open(gate)
            assert {connection.response().status for connection in running} == {200}
        admin.wait_gone("b")
        assert admin.states() == {"a": "ready"}

    @a_model("stays")
    def test_renewed_it_stays(self, stubs: list[ProbedReplica], deployment: Watched, of_model: dict[str, Any]) -> None:
        """Twice as long as the lease, with no request lost and none refused."""
        b, (gateway, admin) = stubs[1], deployment

        def renewed_in_time() -> bool:
            """False: this machine stood still, and it was not."""
            ledger = Ledger(*stubs)
            assert admin.announce("b", url=b.url, seconds=3600).json() == {"seconds": 30.0}, (
                "longer than admin.max_lease"
            )
            admin.wait_ready("b")
            wait_until(lambda: gateway.ask(**of_model).status == 200, "no worker knows that it is ready")
            with traffic(gateway, ledger, options=lambda: of_model):
                last = began = time.monotonic()
                while last < began + 2:
                    asked, kept = time.monotonic(), admin.announce("b", url=b.url, seconds=1.0)
                    states = admin.states()
                    if time.monotonic() - last > 0.9:
                        return False
                    assert (kept.json(), states) == ({"seconds": 1.0}, {"b": "ready"})
                    last = asked
                    time.sleep(0.1)
                admin.announce("b", url=b.url, seconds=30)
                if time.monotonic() - last > 0.9:
                    return False
            ledger.check()
            assert set(ledger.count()) == {"ok"}
            return True

        wait_until(renewed_in_time, "never a quiet moment")

    @a_model("late")
    def test_renewed_late_it_comes_back(
        self, stubs: list[ProbedReplica], deployment: Watched, of_model: dict[str, Any]
    ) -> None:
        """A replica that was cut off for a while is no stranger."""
        b, admin = stubs[1], deployment.admin
        admin.announce("b", url=b.url, seconds=0.5, instance="one")
        wait_until(lambda: admin.states().get("b") in (None, "draining"), "its lease does not end")
        assert admin.announce("b", url=b.url, seconds=30, instance="one").status_code == 200
        admin.wait_ready("b")

    @a_model("restarts")
    def test_another_instance_is_loading_until_a_probe_says_otherwise(
        self, stubs: list[ProbedReplica], deployment: Watched, of_model: dict[str, Any]
    ) -> None:
        """It was ready a moment ago, as somebody else; nobody would probe it for a minute."""
        (a, b), (gateway, admin) = stubs, deployment
        ledger = Ledger(a, b)
        admin.announce("b", url=b.url, seconds=30, instance="one")
        admin.wait_ready("b")
        with traffic(gateway, ledger, options=lambda: of_model):
            b.wait_real(3, b.mark)
            b.loading()  # as the new process is, at the same address
            admin.announce("b", url=b.url, seconds=30, instance="two")
            admin.wait_state("b", "loading")
            b.sync()
            mark = b.mark
            before = len(a.real())
            a.wait_real(before + 30)
            b.untouched(mark)
            assert admin.states()["b"] == "loading"
            b.ready()
            b.wait_real(3, mark)
        ledger.check()
        assert set(ledger.count()) == {"ok"}

    @a_model("leaves")
    def test_withdrawn_it_gets_nothing_from_then_on(
        self, stubs: list[ProbedReplica], deployment: Watched, of_model: dict[str, Any]
    ) -> None:
        """The answer is the replica's word that it may end: no worker sends it anything after."""
        (a, b), (gateway, admin) = stubs, deployment
        ledger = Ledger(a, b)
        with traffic(gateway, ledger, clients=4, options=lambda: of_model):
            for start in range(2):
                assert admin.announce("b", url=b.url, seconds=30, instance=f"start {start}").status_code == 200
                admin.wait_ready("b")
                mark = b.mark
                b.wait_real(5, mark)
                assert admin.withdraw("b", "somebody else").status_code == 409
                b.wait_real(6, mark)
                assert admin.withdraw("b", f"start {start}").status_code == 204
                b.sync()
                mark = b.mark
                before = len(a.real())
                a.wait_real(before + 30)
                b.untouched(mark)
                admin.wait_gone("b")
        ledger.check()
        assert set(ledger.count()) == {"ok"}


FOREIGN = (  # never, unless the configuration allows them
    "http://10.0.0.1:8000",
    "http://192.168.1.1:8000",
    "http://8.8.8.8:8000",
    "http://example.com:8000",
    "http://localhost.evil.test:8000",
    "http://[2001:db8::1]:8000",
    "http://127.0.0.1:22",
    "http://127.0.0.1:80",
    "http://127.0.0.1",
    "unix:/run/docker.sock",
    "file:///etc/passwd",
    "ftp://127.0.0.1:2121",
    "http://127.0.0.1:8000@10.0.0.1:8000",
    "http://127.0.0.1:8000/path",
    "http://127.0.0.1:8000\r\nx: y",
    "127.0.0.1:8000",
    "",
)
NEVER = (  # whatever the configuration allows: link-local, metadata, nobody's address, all of us
    "http://169.254.169.254:8000",
    "http://169.254.1.1:8000",
    "http://[fe80::1]:8000",
    "http://[fd00:ec2::254]:8000",
    "http://[::ffff:169.254.169.254]:8000",
    "http://[64:ff9b::a9fe:a9fe]:8000",
    "http://2852039166:8000",
    "http://0xa9fea9fe:8000",
    "http://0251.0376.0251.0376:8000",
    "http://169.254.43518:8000",
    "http://100.100.100.200:8000",
    "http://metadata.google.internal:8000",
    "http://0.0.0.0:8000",
    "http://[::]:8000",
    "http://224.0.0.1:8000",
    "http://255.255.255.255:8000",
)


def refused(deployment: Watched, urls: tuple[str, ...], name: str) -> None:
    admin = deployment.admin
    for url in urls:
        for answer in (
            admin.announce("evil", model=name, url=url, seconds=5),
            admin.add(model=name, url=url, id="evil"),
        ):
            assert answer.status_code == 422, f"{url!r} got {answer.status_code} {answer.text}"
            assert [detail["key"] for detail in answer.json()["error"]["details"]] == ["url"], url
    assert admin.states(name) == {"a": "ready"}, "a refused one was taken in"


class TestAddresses:
    def test_are_limited(self, deployment: Watched) -> None:
        refused(deployment, FOREIGN + NEVER, "addresses")

    def test_some_are_never_allowed(self, stubs: list[ProbedReplica]) -> None:
        a, b = stubs
        allow = {"allowed_replicas": ["0.0.0.0/0", "::/0", "*.internal"], "allowed_ports": ["1-65535"]}
        with watched(a, admin=allow) as deployment:
            deployment.admin.wait_ready("a")
            refused(deployment, NEVER, "*")
            assert deployment.admin.announce("b", url=b.url, seconds=60).status_code == 200
            deployment.admin.wait_ready("b")
