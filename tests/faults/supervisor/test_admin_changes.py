"""The fleet changed through the admin API while it serves: nothing is lost, nothing goes where it should not."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.harness import Ledger, Serving, config, model, new_id, request, scripts, wait_until
from tests.harness.admin import PROBED, AdminClient, admin_config
from tests.harness.replicas.probed import ProbedReplica, Watched, watched
from tests.harness.traffic import traffic

pytestmark = pytest.mark.xdist_group("admin changes")


@pytest.fixture(scope="module")
def four() -> Iterator[list[ProbedReplica]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(ProbedReplica(name)) for name in "abcd"]


@pytest.fixture(scope="module")
def shared(four: list[ProbedReplica]) -> Iterator[Watched]:
    """Of a, b and c, with two workers; d is there to be added."""
    with watched(*four[:3], idempotent=False, workers=2) as deployment:
        yield deployment


@pytest.fixture
def stubs(four: list[ProbedReplica]) -> list[ProbedReplica]:
    """All as they were."""
    for stub in four:
        stub.ready()
    return four


@pytest.fixture
def deployment(shared: Watched, stubs: list[ProbedReplica]) -> Watched:
    admin = shared.admin
    for id, view in admin.replicas().items():
        if view.draining:
            admin.undrain(id)
    admin.wait_ready(*"abc")
    return shared


class TestDrain:
    def test_nothing_new_from_the_moment_it_is_answered(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        """Again and again, with two workers, under load: what is on the way when it returns is all there is."""
        gateway, admin = deployment
        ledger, (a, _, c, _) = Ledger(*stubs), stubs
        with traffic(gateway, ledger, clients=6):
            for _ in range(4):
                mark = c.mark
                c.wait_real(5, mark)
                admin.drain("c")
                c.sync()
                mark = c.mark
                before = len(a.real())
                a.wait_real(before + 20)
                c.untouched(mark)
                view = admin.wait_state("c", "draining")
                assert view.draining
                admin.undrain("c")
                c.wait_real(1, mark)
        ledger.check()
        assert set(ledger.count()) == {"ok"}

    def test_what_runs_is_finished(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        gateway, admin = deployment
        gate, b = new_id("gate"), stubs[1]
        with contextlib.ExitStack() as stack:
            streams = []
            for _ in range(12):
                connection = stack.enter_context(gateway.connect())
                connection.send(request("POST", script=scripts.sse(2, gate)))
                streams.append((connection, connection.begin()))
            wait_until(lambda: sum(len(stub.of("waiting", gate=f"{gate}-1")) for stub in stubs) == 12, "some are lost")
            admin.drain("b")
            running = admin.replica("b").in_flight
            assert running == len(b.of("waiting", gate=f"{gate}-1")) > 0
            for stub in stubs:
                for number in (1, 2):
                    stub.open(f"{gate}-{number}")
            for connection, response in streams:
                assert connection.finish(response).body.count(b"data: ") == 2
        wait_until(lambda: admin.replica("b").in_flight == 0, "it is still counted")
        assert admin.states()["b"] == "draining"

    def test_it_outlives_probes_and_restarts_of_the_replica(
        self, deployment: Watched, stubs: list[ProbedReplica]
    ) -> None:
        gateway, admin = deployment
        ledger, (a, b, *_) = Ledger(*stubs), stubs
        admin.drain("b")
        b.kill()
        b.restart(ready=True)
        mark = b.mark
        b.wait_for(lambda: len(b.probes(mark)) >= 3, "probes after the restart")
        with traffic(gateway, ledger):
            before = len(a.real())
            a.wait_real(before + 30)
            b.untouched(mark)
            assert admin.states()["b"] == "draining"
            admin.undrain("b")
            b.wait_real(1, mark)
        ledger.check()
        assert set(ledger.count()) == {"ok"}

    def test_undrained_it_must_first_be_seen_ready(self, stubs: list[ProbedReplica]) -> None:
        """What was seen before the drain is no proof, and nobody would look for a minute."""
        ledger, (a, b, *_) = Ledger(*stubs), stubs
        with watched(a, b, idempotent=False, health={"interval": "60s"}) as (gateway, admin):
            admin.wait_ready("a", "b")
            admin.drain("b")
            b.loading()
            mark = b.mark
            with traffic(gateway, ledger):
                admin.undrain("b")
                admin.wait_state("b", "loading")
                before = len(a.real())
                a.wait_real(before + 30)
                b.untouched(mark)
                b.ready()
                b.wait_real(1, mark)
        ledger.check()
        assert set(ledger.count()) == {"ok"}

    def test_all_of_them(self, deployment: Watched) -> None:
        gateway, admin = deployment
        for name in "abc":
            admin.drain(name)
        response = gateway.ask("POST")
        assert (response.status, response.headers["steelyard-reason"]) == (503, "no_replica")
        assert response.headers["retry-after"]
        assert admin.ready().status_code == 503
        admin.undrain("a")
        admin.wait_ready("a")
        assert gateway.ask("POST").status == 200


class TestMembers:
    def test_added_probed_weighed_removed(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        gateway, admin = deployment
        ledger, (a, _, _, d) = Ledger(*stubs), stubs
        d.loading()
        with traffic(gateway, ledger, clients=4):
            assert admin.add(**d.config).status_code == 201
            assert admin.add(**d.config).status_code == 409
            admin.wait_state("d", "loading")
            assert admin.replica("d").source == "admin"
            before = len(a.real())
            a.wait_real(before + 20)
            d.untouched()
            d.ready()
            d.wait_real(5)
            admin.weigh("d", 0.25)
            wait_until(lambda: admin.replica("d").balancer.weight == 0.25, "its weight stays as it was")
            assert admin.remove("d").status_code == 204
            d.sync()
            mark = d.mark
            admin.wait_gone("d")
            before = len(a.real())
            a.wait_real(before + 20)
            d.untouched(mark)
            assert admin.remove("d").status_code == 404
            assert admin.remove("a").status_code == 409, "a file names it"
            assert set(admin.states()) == set("abc")
        ledger.check()
        assert set(ledger.count()) == {"ok"}

    def test_the_policy_is_switched_under_load(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        gateway, admin = deployment
        ledger = Ledger(*stubs)
        with traffic(gateway, ledger, clients=4):
            for policy in ("round_robin", "random", "least_work", "least_connections"):
                changed = admin.http.patch("/v1/models/%2A", json={"policy": policy})
                assert changed.status_code == 200, changed.text
                assert admin.models()["*"].policy == policy
                done = ledger.count()["ok"]
                wait_until(lambda done=done: ledger.count()["ok"] > done + 30, "nothing goes on")
            assert admin.http.patch("/v1/models/%2A", json={"policy": "fairest"}).status_code == 422
            assert admin.models()["*"].policy == "least_connections"
        ledger.check()
        assert set(ledger.count()) == {"ok"}

    def test_many_operators_at_once(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        """Drain, undrain, weights and looks from several sides: each is answered, and it ends where it should."""
        gateway, admin = deployment
        ledger, answers = Ledger(*stubs), Counter[int]()

        def operator(number: int) -> None:
            for turn in range(15):
                path = f"/v1/models/%2A/replicas/{'bc'[turn % 2]}"
                if number == 0:
                    answers[admin.http.post(f"{path}/drain").status_code] += 1
                elif number == 1:
                    answers[admin.http.post(f"{path}/undrain").status_code] += 1
                elif number == 2:
                    answers[admin.http.patch(path, json={"weight": 1 + turn}).status_code] += 1
                else:
                    answers[admin.http.get("/v1/fleet").status_code] += 1

        operators = [threading.Thread(target=operator, args=(number,)) for number in range(4)]
        with traffic(gateway, ledger, clients=4):
            for thread in operators:
                thread.start()
            for thread in operators:
                thread.join(60)
            for name in "bc":
                if admin.replica(name).draining:
                    admin.undrain(name)
            admin.wait_ready(*"abc")
        assert set(answers) <= {200, 409}, answers
        assert answers[200] >= 30
        ledger.check()
        assert set(ledger.count()) == {"ok"}


class TestReload:
    def test_what_was_set_by_hand_outlives_it_and_a_bad_file_changes_nothing(self, stubs: list[ProbedReplica]) -> None:
        ledger, (a, b, c, _) = Ledger(*stubs), stubs
        plain = model(a, b, health=PROBED, idempotent=False, policy="least_connections", slow_start="500ms")
        settings = config({"*": plain}, workers=2, admin=admin_config())
        with Serving(settings) as gateway, AdminClient(settings) as admin:
            admin.wait_up()
            admin.wait_ready("a", "b")
            admin.drain("b")
            assert admin.add(**c.config).status_code == 201
            admin.wait_ready("c")
            b.sync()
            mark = b.mark
            with traffic(gateway, ledger):
                gateway.write("models: {")
                refused = admin.http.post("/v1/reload")
                assert refused.status_code == 422
                assert refused.json()["error"]["message"]
                assert admin.states() == {"a": "ready", "b": "draining", "c": "ready"}
                settings["models"]["*"]["concurrency"] = 7
                gateway.write(settings)
                assert admin.http.post("/v1/reload").status_code == 200
                assert admin.models()["*"].concurrency == 7
                admin.wait_ready("a", "c")
                assert admin.states()["b"] == "draining"
                before = len(a.real())
                a.wait_real(before + 30)
                b.untouched(mark)
        ledger.check()
        assert set(ledger.count()) == {"ok"}


def test_what_cannot_be_is_said(deployment: Watched, stubs: list[ProbedReplica]) -> None:
    """Against the running gateway: unknown names 404, bad bodies 422 with the key, and nothing changes."""
    admin, http = deployment.admin, deployment.admin.http
    for path in ("/v1/models/nobody", "/v1/models/nobody/replicas", "/v1/models/%2A/replicas/nobody", "/v1/nowhere"):
        assert http.get(path).status_code == 404, path
    for path in ("nobody/replicas/a/drain", "%2A/replicas/nobody/drain", "%2A/replicas/nobody/undrain"):
        assert http.post(f"/v1/models/{path}").status_code == 404, path
    assert admin.announce("x", model="nobody", url=stubs[1].url).status_code == 404
    for body, key in (({"weight": 0}, "weight"), ({"weight": "much"}, "weight"), ({"wait": 1}, "wait")):
        bad = http.patch("/v1/models/%2A/replicas/a", json=body)
        assert bad.status_code == 422, body
        assert key in [detail["key"] for detail in bad.json()["error"]["details"]]
    assert http.patch("/v1/models/%2A/replicas/a", content=b"{").status_code in (400, 415, 422)
    assert http.post("/v1/fleet").status_code == 405
    assert admin.states() == dict.fromkeys("abc", "ready")
