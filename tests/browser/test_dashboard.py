"""The dashboard in a real browser, of a real gateway with real replicas."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Serving, StubReplica, config, scripts
from tests.harness.admin import PROBED, AdminClient, admin_config
from tests.harness.scaling import started

from .chrome import BACKSPACE, DOWN, ENTER, ESCAPE, RIGHT, TAB, Browser

TOKEN = "0123456789abcdef-a-token"
SLO = {"latency": "200ms", "percentile": 95, "availability": 99}


@pytest.fixture
def stubs() -> Iterator[list[StubReplica]]:
    with StubReplica("fast") as fast, StubReplica("slow") as slow:
        fast.answer_all(scripts.slow(0.01))
        slow.answer_all(scripts.slow(0.03))
        yield [fast, slow]


def of(stubs: list[StubReplica], **admin: Any) -> dict[str, Any]:
    model = {"replicas": [stub.config for stub in stubs], "health": PROBED, "slo": SLO}
    return config({"*": model}, admin=admin_config(**admin))


@contextmanager
def asking(serving: Serving, clients: int = 2) -> Iterator[None]:
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            serving.ask()

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def admin(stubs: list[StubReplica]) -> Iterator[AdminClient]:
    """Two replicas under traffic."""
    made = of(stubs)
    with Serving(made) as serving, AdminClient(made) as admin:
        admin.wait_up()
        admin.wait_ready("fast", "slow")
        with asking(serving):
            yield admin


def opened(browser: Browser, admin: AdminClient) -> Browser:
    browser.open(f"{admin.url}/")
    browser.wait_live()
    browser.wait(lambda: len(browser.texts(".tile")) == 2, "two replicas")
    return browser


def number(browser: Browser, name: str) -> str:
    return browser.text(f"[data-number={name}] strong")


def test_numbers_appear_and_change_and_all_comes_from_here(browser: Browser, admin: AdminClient) -> None:
    opened(browser, admin)
    browser.wait(lambda: number(browser, "p99").endswith("ms"), "a latency")
    assert number(browser, "replicas") == "2/2"
    assert float(number(browser, "rate").replace(",", "")) > 1
    before = browser.text("#slo")
    assert "95 % of requests are answered within 200 ms" in before
    browser.wait(lambda: browser.text("#slo") != before, "SLOs that are counted")
    path = ".charts .plot path.area"
    browser.wait(lambda: len(browser.run(f"return document.querySelector('{path}').getAttribute('d')")) > 30, "a line")
    browser.wait_text("#events", "ready")
    browser.click("[data-replica=fast]")
    browser.wait_text("#replica", "answers 200 to GET /health")
    assert browser.complaints() == []
    assert {url for url in browser.asked() if not url.startswith(f"{admin.url}/")} <= {"data:,"}


def test_a_replica_is_drained_by_keyboard_alone(browser: Browser, admin: AdminClient) -> None:
    opened(browser, admin)
    browser.keys("m", RIGHT)
    assert browser.focused() == "slow"
    browser.keys(ENTER)
    browser.wait_text("#replica-title", "slow — ready")
    browser.wait(lambda: browser.focused() == "drain", "the focus is on what is done most")
    browser.keys(ENTER)
    browser.wait_text("#confirm-words", "Drain slow: it gets no new requests;")
    assert not admin.replica("slow").draining, "not before it is confirmed"
    browser.wait_text("#confirm-words", "stays drained when its server restarts")
    browser.keys(ESCAPE)
    assert browser.text("#confirm") == ""
    assert not admin.replica("slow").draining
    browser.keys(ENTER)
    browser.wait_text("#confirm", "Drain slow")
    browser.keys(ENTER)
    admin.wait_state("slow", "draining")
    browser.wait_text("#outcome", "slow gets no new requests")
    browser.wait_text("#drain", "Undrain")
    browser.keys(ESCAPE)
    browser.wait_text("[data-replica=slow]", "draining")
    assert browser.focused() == "slow", "back to where one was"
    browser.keys(ENTER)
    browser.wait(lambda: browser.focused() == "drain", "it is open")
    assert "Undrain" in browser.text("#drain")
    browser.keys(ENTER)
    browser.wait_text("#confirm-words", "it gets requests again")
    browser.keys(ENTER)
    admin.wait_ready("slow")


def test_the_last_ready_replica_is_warned_of(browser: Browser, admin: AdminClient) -> None:
    admin.drain("slow")
    opened(browser, admin)
    browser.wait(lambda: number(browser, "replicas") == "1/2", "one is ready")
    browser.click("[data-replica=fast]")
    browser.wait_text("#drain", "Drain")
    browser.click("#drain")
    browser.wait_text("#confirm-words", "It is the only ready replica of any model (*)")


def test_weight_and_policy_are_changed(browser: Browser, admin: AdminClient) -> None:
    opened(browser, admin)
    browser.click("[data-replica=fast]")
    browser.wait(lambda: browser.run("return document.getElementById('weight').value") == "1", "its weight")
    weigh(browser, "2.5")
    browser.wait_text("#confirm-words", "Weight of fast from 1 to 2.5")
    browser.keys(ENTER)
    browser.wait(lambda: admin.replica("fast").weight == 2.5, "the weight")
    browser.wait_text("#outcome", "fast has the weight 2.5")
    browser.keys(ESCAPE)
    browser.click(".policy")
    browser.wait_text("#policy", "Policy of any model")
    browser.run("document.getElementById('policy-name').value = 'round_robin'")
    browser.click("#policy button.main")
    browser.wait_text("#confirm-words", "the next request goes where round_robin says, instead of least_work")
    browser.keys(ENTER)
    browser.wait(lambda: admin.models()["*"].policy == "round_robin", "the policy")
    browser.wait_text(".policy", "round_robin")
    assert browser.complaints() == []


def test_weight_and_policy_are_changed_by_keyboard_alone(browser: Browser, admin: AdminClient) -> None:
    opened(browser, admin)
    browser.keys("m", ENTER)
    browser.wait(lambda: browser.focused() == "drain", "it is open")
    browser.keys(TAB, BACKSPACE, "3", ENTER)
    browser.wait_text("#confirm-words", "Weight of fast from 1 to 3")
    browser.keys(ENTER)
    browser.wait(lambda: admin.replica("fast").weight == 3, "the weight")
    browser.wait_text("#outcome", "fast has the weight 3")
    browser.keys(ESCAPE)
    browser.run("document.querySelector('.policy').focus()")
    browser.keys(ENTER)
    browser.wait_text("#policy", "Policy of any model")
    browser.wait(lambda: browser.focused() == "policy-name", "the focus is on the choice")
    browser.keys("round", TAB, TAB, ENTER)
    browser.wait_text("#confirm-words", "where round_robin says, instead of least_work")
    browser.keys(ENTER)
    browser.wait(lambda: admin.models()["*"].policy == "round_robin", "the policy")
    browser.wait_text("#outcome", "any model (*) uses round_robin")


def weigh(browser: Browser, weight: str) -> None:
    browser.run("document.getElementById('weight').value = arguments[0]", weight)
    browser.click("#weigh button")


def test_what_the_gateway_refuses_is_said_in_its_words(browser: Browser, admin: AdminClient) -> None:
    opened(browser, admin)
    browser.click("[data-replica=fast]")
    browser.wait_text("#drain", "Drain")
    weigh(browser, "0")
    browser.wait_text("#confirm", "Change")
    browser.keys(ENTER)
    browser.wait_text("#confirm-problem", "weight")
    assert admin.replica("fast").weight == 1
    browser.keys(ESCAPE)
    assert browser.text("#confirm") == ""


def test_a_token_is_asked_for_and_a_wrong_one_is_told(
    browser: Browser, stubs: list[StubReplica], tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text(TOKEN)
    made = of(stubs, token_file=str(tmp_path / "tokens"))
    with Serving(made), AdminClient(made, token=TOKEN) as admin:
        admin.wait_up()
        browser.open(f"{admin.url}/")
        browser.wait_text("#token", "This gateway needs a token")
        assert browser.text("#token-problem") == ""
        browser.keys("a-wrong-token-of-enough-length", ENTER)
        browser.wait_text("#token-problem", "this token is not in admin.token_file")
        browser.keys(TOKEN, ENTER)
        browser.wait_live()
        assert browser.text("#token") == ""
        browser.click("[data-replica=fast]")
        browser.wait_text("#replica-title", "fast")
        assert browser.run("return [localStorage.length, document.cookie, location.href]")[1:] == ["", f"{admin.url}/"]
        assert TOKEN not in str(browser.run("return JSON.stringify(localStorage)"))


def test_what_is_old_is_never_called_live(browser: Browser, stubs: list[StubReplica]) -> None:
    made = of(stubs)
    with Serving(made), AdminClient(made) as admin:
        admin.wait_up()
        opened(browser, admin)
    browser.wait_text("#connection", "reconnecting in")
    assert browser.run("return document.body.dataset.connection") == "lost"
    browser.wait_text("#connection", "old")
    with Serving(made), AdminClient(made) as admin:
        admin.wait_up()
        browser.run("document.querySelector('#retry').click()")  # it may be hidden: the page reconnects by itself too
        browser.wait_live()


def test_it_reconnects_by_itself(browser: Browser, stubs: list[StubReplica]) -> None:
    made = of(stubs)
    with Serving(made), AdminClient(made) as admin:
        admin.wait_up()
        opened(browser, admin)
    browser.wait_text("#connection", "reconnecting in")
    waits = [browser.text("#connection") for _ in range(20)]
    assert not [said for said in waits if "reconnecting in" in said and not said.endswith(("0 s", "1 s", "2 s", "3 s"))]
    with Serving(made), AdminClient(made) as admin:
        admin.wait_up()
        browser.wait_live()


def test_a_replica_that_fails_attempts_is_not_green_and_comes_first(browser: Browser, stubs: list[StubReplica]) -> None:
    made = of(stubs)
    with Serving(made) as serving, AdminClient(made) as admin:
        admin.wait_up()
        admin.wait_ready("fast", "slow")
        opened(browser, admin)
        admin.drain("fast")
        admin.wait_state("fast", "draining")
        for _ in range(2):
            assert serving.ask(script=scripts.fails(500)).status == 500
        assert serving.ask().status == 200
        browser.wait_text("[data-replica=slow]", "2 of 3 failed (HTTP 500")
        assert "some-fail" in browser.run("return document.querySelector('.tile').className")
        assert browser.run("return document.querySelector('.tile').dataset.replica") == "slow"
        browser.wait_text("#map-count", "1 ready, 1 of them with failures")
        browser.wait_text("[data-number=replicas]", "1 failing")
        browser.click("[data-replica=slow]")
        browser.wait_text("#replica-facts", "2 of 3 attempts failed")
        browser.wait_text("#replica-facts", "not known: ")  # how slow it is: three answers are too few


def test_many_model_tabs_wrap(browser: Browser, stubs: list[StubReplica]) -> None:
    model = {"replicas": [stubs[0].config], "health": PROBED}
    made = config({f"a-model-with-a-long-name-{number}": model for number in range(7)}, admin=admin_config())
    browser.size(400, 900)
    with Serving(made), AdminClient(made) as admin:
        admin.wait_up()
        browser.open(f"{admin.url}/")
        browser.wait_live()
        browser.wait(lambda: len(browser.texts("#models button")) == 8, "a tab each")
        inside = "[...document.querySelectorAll('#models button')].every(e => e.getBoundingClientRect().right <= 400)"
        assert browser.run(f"return {inside}")


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_nothing_is_wider_than_the_screen(browser: Browser, admin: AdminClient, width: int) -> None:
    browser.size(width, 800)
    opened(browser, admin)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    browser.click("[data-replica=fast]")
    browser.wait_text("#replica", "probes")
    assert browser.run("return document.getElementById('replica').scrollWidth") <= width
    assert browser.run("return document.documentElement.scrollWidth") <= width


def test_light_dark_and_what_the_system_prefers(browser: Browser, admin: AdminClient) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    opened(browser, admin)
    light = browser.run(ground)
    browser.prefer("dark")
    dark = browser.run(ground)
    assert light != dark
    browser.prefer("light")
    browser.keys("t")
    assert browser.text("#theme") == "Theme: dark"
    assert browser.run(ground) == dark
    opened(browser, admin)
    assert browser.run(ground) == dark, "it is kept"


def test_keys_help_and_filter(browser: Browser, admin: AdminClient) -> None:
    opened(browser, admin)
    browser.keys("?")
    browser.wait_text("#keys", "filters")
    browser.keys(ESCAPE)
    assert browser.text("#keys") == ""
    browser.keys("/")
    assert browser.focused() == "filter"
    browser.keys("slo")
    browser.wait(lambda: len(browser.texts(".tile")) == 1, "only one fits")
    assert browser.text("#map-count").startswith("1 replica of 2")
    browser.keys(ESCAPE)
    browser.wait(lambda: len(browser.texts(".tile")) == 2, "all again")
    assert browser.texts(".tile .name") == ["fast", "slow"], "where they were"
    seen = set()
    for _ in range(12):
        browser.keys(TAB)
        seen.add(browser.focused())
    assert {"theme", "help", "filter", "slow"} <= seen, "all is reached by Tab, the map where one was in it"


def test_a_name_is_text_whatever_it_holds(browser: Browser, stubs: list[StubReplica]) -> None:
    evil = "<img/src=x/onerror=document.title='owned'>"
    made = of(stubs)
    made["models"] = {evil: {**made["models"]["*"], "replicas": [{"id": evil, "url": stubs[0].url}]}}
    with Serving(made), AdminClient(made) as admin:
        admin.wait_up()
        browser.open(f"{admin.url}/")
        browser.wait(lambda: evil in browser.text("#map"), "its name")
        browser.click(".tile")
        browser.wait_text("#replica-title", evil)
        assert browser.run("return document.querySelectorAll('img').length") == 1
        assert browser.driver.title == "Steelyard"
        assert browser.complaints() == []


def test_five_hundred_replicas_are_shown_and_updated_in_place(browser: Browser) -> None:
    with StubReplica("all", host="0.0.0.0") as stub:
        places = [f"127.0.{number // 200}.{number % 200 + 1}" for number in range(500)]
        replicas = [{"id": f"r{number}", "url": f"http://{host}:{stub.port}"} for number, host in enumerate(places)]
        made = config({"*": {"replicas": replicas}}, admin=admin_config())
        with Serving(made) as serving, AdminClient(made) as admin, asking(serving):
            admin.wait_up()
            browser.open(f"{admin.url}/")
            browser.wait_live()
            browser.wait(lambda: len(browser.run("return document.querySelectorAll('.tile')")) == 500, "500 tiles")
            browser.run("window.first = document.querySelector('.tile'); window.made = 0")
            watch = "new MutationObserver(seen => seen.forEach(one => window.made += one.addedNodes.length))"
            browser.run(f"{watch}.observe(document.getElementById('map'), {{childList: true, subtree: false}})")
            up = browser.text("#uptime")
            browser.wait(lambda: browser.text("#uptime") != up, "news")
            assert browser.run("return [window.first === document.querySelector('.tile'), window.made]") == [True, 0]
            browser.keys("m", RIGHT, RIGHT, DOWN)
            assert browser.focused() not in ("r0", "r1", "r2", "BODY")
            browser.keys(ENTER)
            browser.wait_text("#replica", "typical replica")
            assert browser.run("return document.documentElement.scrollWidth") <= 1400


def test_many_models_are_a_line_each_until_one_is_chosen(
    browser: Browser, stubs: list[StubReplica], tmp_path: Path
) -> None:
    settings = {"replicas": [stubs[0].config], "health": PROBED, "slo": SLO}
    asleep = started(tmp_path, autoscale={"min": 0, "max": 1})
    names = [f"model-{number}" for number in range(11)]
    made = config(dict.fromkeys(names, settings) | {"asleep": asleep}, admin=admin_config())
    with Serving(made), AdminClient(made) as admin:
        admin.wait_up()
        browser.open(f"{admin.url}/")
        browser.wait_live()
        assert len(browser.texts(".overview tbody tr")) == 12
        assert browser.texts(".model") == []
        assert browser.texts("#models button") == ["All models"]
        assert "scaled to zero" in browser.text(".overview [data-model=asleep]")
        assert browser.run("return document.querySelectorAll('.overview [data-model=asleep] .bad').length") == 0
        browser.wait_text("#slo", "and 14 more, all met")
        assert browser.run("return document.querySelector('#map').getBoundingClientRect().top") < 1000, "in sight"
        browser.click(".overview [data-model=model-3] button")
        assert browser.texts(".overview") == []
        assert len(browser.texts(".model")) == 1
        assert browser.texts("#models button") == ["All models", "model-3"]
        assert browser.run("return document.activeElement.innerText") == "model-3"
        assert browser.texts(".tile .name") == ["fast"]
        browser.keys("[")
        assert browser.texts("#models button") == ["All models", "model-2"]
        assert browser.complaints() == []


def test_the_log_of_a_replica_is_read_when_it_is_opened(browser: Browser, tmp_path: Path) -> None:
    made = config({"*": started(tmp_path, autoscale={"min": 1, "max": 1})}, admin=admin_config())
    with Serving(made), AdminClient(made) as admin:
        admin.wait_up()
        browser.open(f"{admin.url}/")
        browser.wait_live()
        browser.wait_text("#map", "R")
        browser.click(".tile")
        browser.wait_text("#replica", "The end of its log")
        browser.asked()
        browser.wait_text("#replica", "good in a row")
        assert not [url for url in browser.asked() if "/log" in url]
        browser.click("#replica-log summary")
        browser.wait(lambda: browser.text("#replica-log pre"), "its log")


def test_more_than_a_few_alarms_are_folded(browser: Browser) -> None:
    lost = {"replicas": [{"id": "gone", "url": "http://127.0.0.1:9"}], "health": PROBED}
    made = config({f"lost-{number}": lost for number in range(6)}, admin=admin_config())
    with Serving(made), AdminClient(made) as admin:
        admin.wait_up()
        browser.open(f"{admin.url}/")
        browser.wait_live()
        browser.wait_text("#alarms", "3 more alarms")
        assert len(browser.texts("#alarms .alarm")) == 3
        browser.click("#alarms summary")
        assert len(browser.texts("#alarms .alarm")) == 6


FOREIGN = """<!doctype html><title>a page of somebody else</title><iframe src="{admin}/"></iframe>
<form method="post" action="{admin}{path}" target="_blank"></form><img src="{admin}/v1/fleet"><script>
const send = options => fetch("{admin}{path}", {{method: "POST", ...options}}).catch(() => 0);
Promise.all([send({{mode: "no-cors"}}), send({{}}),
  send({{mode: "no-cors", headers: {{"content-type": "text/plain"}}}}),
  send({{mode: "no-cors", credentials: "include", referrerPolicy: "no-referrer"}}),
  fetch("{admin}/v1/fleet").then(answer => answer.text(), () => "unread")]).then(all => {{ window.read = all[4]; }});
document.forms[0].submit();
</script>"""


class _Foreign(BaseHTTPRequestHandler):
    page = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(self.page.encode())

    def log_message(self, *said: Any) -> None:
        pass


@contextmanager
def foreign(page: str) -> Iterator[int]:
    """Serves it on a port of its own."""
    kind = type("Foreign", (_Foreign,), {"page": page})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_a_page_of_somebody_else_drains_nothing_and_reads_nothing(browser: Browser, admin: AdminClient) -> None:
    page = FOREIGN.format(admin=admin.url, path="/v1/models/*/replicas/fast/drain")
    with foreign(page) as port:
        for host in ("127.0.0.1", "localhost"):  # the same site to a browser, and another one
            browser.open(f"http://{host}:{port}/")
            browser.wait(lambda: browser.run("return window.read"), "it has tried")
            assert browser.run("return window.read") == "unread"
    sent = [url for url in browser.asked() if url.endswith("/drain")]
    assert len(sent) >= 4, "it really was sent"
    view = admin.replica("fast")
    assert (view.draining, view.state) == (False, "ready")


def test_a_link_may_lead_here(browser: Browser, admin: AdminClient) -> None:
    with foreign(f'<!doctype html><a href="{admin.url}/">the gateway</a>') as port:
        browser.open(f"http://localhost:{port}/")
        browser.click("a")
        browser.wait_live()
