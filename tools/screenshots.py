"""Takes the screenshots of docs/dashboard.md: a small fleet under real traffic, in a real browser.

Run from the repository: `.venv/bin/python tools/screenshots.py`. It needs Chromium and its driver.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.chrome import Browser, chrome, missing  # noqa: E402
from tests.harness import Serving, StubReplica, config, scripts  # noqa: E402
from tests.harness.admin import PROBED, AdminClient, admin_config  # noqa: E402

IMAGES = ROOT / "docs/images"
SECONDS = 40.0  # of traffic before the first picture
PACE = {  # seconds of an answer
    "embed": {"embed-a1": 0.02, "embed-a2": 0.02, "embed-b1": 0.03, "embed-b2": 0.05, "embed-c1": 0.02},
    "chat": {"chat-a1": 0.12, "chat-a2": 0.13, "chat-b1": 0.3},
}
DEVICES = {"gpu-0": "a", "gpu-1": "b", "gpu-2": "c"}


def fleet(stubs: dict[str, StubReplica]) -> dict[str, Any]:
    def model(name: str, latency: str, weights: str) -> dict[str, Any]:
        replicas = [{**stubs[id].config, "device": device_of(id)} for id in PACE[name]]
        slo = {"latency": latency, "percentile": 99, "availability": 99.9}
        memory = {"weights": weights, "request": "100MiB"}
        return {"replicas": replicas, "concurrency": 4, "health": PROBED, "slo": slo, "memory": memory}

    devices = {name: {"memory": "24GiB"} for name in DEVICES}
    models = {"embed": model("embed", "150ms", "2GiB"), "chat": model("chat", "500ms", "7GiB")}
    return config(models, admin=admin_config(), devices=devices)


def device_of(id: str) -> str:
    letter = id.rpartition("-")[2][0]
    return next(name for name, here in DEVICES.items() if here == letter)


@contextmanager
def traffic(serving: Serving) -> Iterator[None]:
    over = threading.Event()

    def ask(model: str, rng: random.Random) -> None:
        while not over.wait(rng.expovariate(12)):
            serving.ask(headers={"steelyard-model": model})

    clients = [("embed", 9), ("chat", 6)]
    threads = [
        threading.Thread(target=ask, args=(model, random.Random(f"{model}{number}")))
        for model, many in clients
        for number in range(many)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def shoot(browser: Browser, name: str) -> None:
    path = IMAGES / f"{name}.png"
    browser.driver.save_screenshot(str(path))
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB")


def pictures(browser: Browser, admin: AdminClient) -> None:
    browser.size(1440, 1180)
    browser.prefer("light")
    browser.open(f"{admin.url}/")
    browser.wait_live()
    time.sleep(2)
    shoot(browser, "dashboard-light")
    browser.prefer("dark")
    shoot(browser, "dashboard-dark")
    browser.click("[data-replica=embed-b2]")
    browser.wait_text("#drain", "Drain")
    browser.click("#drain")
    browser.wait_text("#confirm-words", "Drain embed-b2")
    shoot(browser, "dashboard-drain")
    browser.size(360, 1500)
    browser.prefer("light")
    browser.open(f"{admin.url}/")
    browser.wait_live()
    browser.click("#models [data-model=chat]")
    time.sleep(1)
    shoot(browser, "dashboard-phone")


def main() -> None:
    if why := missing():
        raise SystemExit(why)
    IMAGES.mkdir(exist_ok=True)
    with ExitStack() as stack:
        paces = {id: pace for model in PACE.values() for id, pace in model.items()}
        stubs = {id: stack.enter_context(StubReplica(id)) for id in paces}
        for id, pace in paces.items():
            stubs[id].answer_all(scripts.slow(pace))
        made = fleet(stubs)
        serving = stack.enter_context(Serving(made))
        admin = stack.enter_context(AdminClient(made))
        admin.wait_up()
        stack.enter_context(traffic(serving))
        time.sleep(SECONDS / 2)
        admin.drain("embed-a2", "embed")
        stubs["embed-b2"].answer_all(scripts.slow(0.2))  # it slows
        time.sleep(SECONDS / 2)
        stubs["embed-c1"].kill()
        admin.wait_state("embed-c1", "unreachable", model="embed")
        pictures(stack.enter_context(chrome()), admin)


if __name__ == "__main__":
    main()
