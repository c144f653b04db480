"""What the gateway says of its SLOs agrees exactly with what its clients counted: under load, over a reload, with
other workers, and after a restart.

Times are far from the SLO: an answer is in time by half a minute, or late by fifty times."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.harness import scripts
from tests.harness.admin import AdminClient, admin_config
from tests.harness.client import Connection, new_id, request
from tests.harness.replicas.stub import StubReplica
from tests.harness.serving import Serving, config, model
from tests.harness.waiting import wait_until

CONCURRENCY = 8
SURE = ["fast", "late", "missing", "error", "breaks", "leaves", *["jam"] * CONCURRENCY]  # whatever the dice say
PROVOKED = {
    ("quick", "met"),
    ("crawls", "late/replica"),
    ("quick", "failed/client"),
    ("errs", "failed/replica"),
    ("leaves", "abandoned/client"),
    ("narrow", "met"),
    ("narrow", "refused/overload"),
}
PATIENT: dict[str, Any] = {"slo": {"latency": "60s", "availability": 99}, "retry": {"max_attempts": 1}}
IMPATIENT: dict[str, Any] = {"slo": {"latency": "1ms", "availability": 99}, "retry": {"max_attempts": 1}}
FATES = {
    "fast": ("quick", scripts.plain()),
    "late": ("crawls", scripts.slow(0.05)),
    "missing": ("quick", scripts.fails(404)),
    "error": ("errs", scripts.fails(500)),
    "breaks": ("errs", [["body"], ["close"]]),
    "leaves": ("leaves", scripts.silent()),
    "full": ("narrow", scripts.slow(0.05)),
    "jam": ("narrow", scripts.held()),  # until all who have no place are told so
}
Count = Counter[tuple[str, str]]  # model, verdict → requests


@pytest.fixture
def stubs() -> Iterator[list[StubReplica]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(StubReplica(f"stub{number}")) for number in range(5)]


def configuration(stubs: list[StubReplica], folder: Path, **rest: Any) -> dict[str, Any]:
    quick, crawls, errs, leaves, narrow = stubs
    models = {
        "quick": model(quick, **PATIENT),
        "crawls": model(crawls, **IMPATIENT),
        "errs": model(errs, **PATIENT),
        "leaves": model(leaves, **PATIENT),
        "narrow": model(narrow, **PATIENT, concurrency=1, max_queue=1),
    }
    kept = {"path": str(folder / "history.sqlite")}
    return config(models, **({"workers": 2, "admin": admin_config(), "history": kept} | rest))


def ask(serving: Serving, stubs: list[StubReplica], fate: str, gate: str = "") -> tuple[str, str]:
    """What became of a request, as its client sees it."""
    name, script = FATES[fate]
    script = scripts.held(gate) if gate else script
    headers = {"steelyard-model": name}
    if fate == "leaves":
        id = new_id()
        with Connection(serving.address) as connection:
            connection.send(request(id=id, script=script, headers=headers))
            stubs[3].wait("request", id=id)
        return name, "abandoned/client"
    answer = serving.ask(script=script, headers=headers)
    reason = answer.headers.get("steelyard-reason", "")
    if reason in ("queue_full", "tenant_share", "preempted"):
        return name, "refused/overload"
    if reason == "no_replica":
        return name, "refused/replica"
    if answer.status in (404, 500, 502):
        return name, "failed/client" if answer.status == 404 else "failed/replica"
    assert answer.status == 200, answer
    return name, "late/replica" if fate == "late" else "met"


def load(serving: Serving, stubs: list[StubReplica], seed: int, size: int = 90) -> Count:
    """Each fate that is to be provoked does come about."""
    chance = Random(seed)
    fates = chance.choices(list(FATES), weights=[6, 2, 2, 1, 1, 1, 3, 0], k=size - len(SURE))
    chance.shuffle(some := SURE[:-CONCURRENCY] + fates)
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        counted = Counter(pool.map(lambda fate: ask(serving, stubs, fate), some))
        gate = new_id("gate")
        jam = [pool.submit(ask, serving, stubs, fate, gate) for fate in SURE[-CONCURRENCY:]]
        wait_until(lambda: any(one.done() for one in jam), "there is room for all")
        stubs[4].open(gate)  # those who got a place go on
        counted += Counter(one.result() for one in jam)
    assert counted.keys() >= PROVOKED, f"did not come about: {PROVOKED - counted.keys()}"
    return counted


def opened(admin: AdminClient) -> bool:
    with contextlib.suppress(httpx.ConnectError):
        return bool(admin.fleet())
    return False


def shown(admin: AdminClient) -> Count:
    return Counter({(view.model, name): count for view in admin.fleet().slo for name, count in view.counts.items()})


def budgets(admin: AdminClient) -> dict[str, tuple[int, int]]:
    """Of latency: good and bad over the whole period."""
    views = [(view.model, view.objectives[0].budget) for view in admin.fleet().slo]
    return {name: (budget.good, budget.bad) for name, budget in views}


def expected_budgets(counted: Count) -> dict[str, tuple[int, int]]:
    def of(name: str) -> tuple[int, int]:
        mine = {how: count for (model, how), count in counted.items() if model == name}
        bad = sum(count for how, count in mine.items() if how != "met" and not how.endswith("/client"))
        return mine.get("met", 0), bad

    return {name: of(name) for name in ("quick", "crawls", "errs", "leaves", "narrow")}


def agree(admin: AdminClient, lately: Count, ever: Count) -> None:
    """In the end: workers report once a second."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: shown(admin) == lately and budgets(admin) == expected_budgets(ever), "")
    assert shown(admin) == lately
    assert budgets(admin) == expected_budgets(ever)


def test_numbers_agree_with_what_clients_counted(stubs: list[StubReplica], tmp_path: Path) -> None:
    settings = configuration(stubs, tmp_path)
    with Serving(settings) as serving, AdminClient(settings) as admin:
        wait_until(lambda: opened(admin), "no admin API")
        counted = load(serving, stubs, 1)
        agree(admin, counted, counted)
        serving.reload(settings | {"timeouts": settings["timeouts"] | {"write": "61s"}})
        counted += load(serving, stubs, 2)
        agree(admin, counted, counted)
        before = set(serving.workers)
        serving.reload(settings | {"workers": 3})
        counted += load(serving, stubs, 3)
        wait_until(lambda: len(serving.workers) == 3 and not before & set(serving.workers), "the workers stay")
        counted += load(serving, stubs, 4)
        agree(admin, counted, counted)
        assert serving.stop() == 0
    with Serving(settings) as serving, AdminClient(settings) as admin:
        wait_until(lambda: opened(admin), "no admin API")
        agree(admin, Counter(), counted)
        again = load(serving, stubs, 5)
        agree(admin, again, counted + again)
