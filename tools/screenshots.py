"""Takes the screenshots of docs/dashboard.md: a small fleet under real traffic, in a real browser.

Run from the repository: `.venv/bin/python tools/screenshots.py`. It needs Chromium and its driver, and three minutes.
"""

from __future__ import annotations

import math
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
from tests.harness.replicas.probed import ProbedReplica  # noqa: E402

IMAGES = ROOT / "docs/images"
TRAFFIC_SECONDS = 150.0  # before the first screenshot
WAVE_PERIOD_SECONDS = 70.0
RESPONSE_SECONDS = {
    "embed": {"embed-a1": 0.1, "embed-a2": 0.1, "embed-b1": 0.16, "embed-b2": 0.16, "embed-c1": 0.1, "embed-c2": 0.1},
    "chat": {"chat-a1": 0.3, "chat-a2": 0.3, "chat-b1": 0.6, "chat-b2": 0.6, "chat-c1": 0.3},
}
DEVICES = {"gpu-0": "a", "gpu-1": "b", "gpu-2": "c"}
SLOS = {
    "embed": {"latency": "500ms", "percentile": 95, "availability": 99},
    "chat": {"latency": "1500ms", "percentile": 95, "availability": 99},
}
CLIENTS = {"embed": (9, 6.0), "chat": (9, 2.5)}  # how many, and requests a second of each in a rush


def fleet(stubs: dict[str, StubReplica]) -> dict[str, Any]:
    def model(name: str, weights: str) -> dict[str, Any]:
        replicas = [{**stubs[id].config, "device": device_of(id)} for id in RESPONSE_SECONDS[name]]
        memory = {"weights": weights, "per_request": "400MiB"}
        return {
            "replicas": replicas,
            "concurrency": 2 if name == "embed" else 1,
            "health": PROBED,
            "slo": SLOS[name],
            "memory": memory,
        }

    devices = {name: {"memory": "24GiB"} for name in DEVICES}
    return config(
        {"embed": model("embed", "2GiB"), "chat": model("chat", "6GiB")}, admin=admin_config(), devices=devices
    )


def device_of(id: str) -> str:
    letter = id.rpartition("-")[2][0]
    return next(name for name, here in DEVICES.items() if here == letter)


@contextmanager
def traffic(serving: Serving) -> Iterator[None]:
    over = threading.Event()
    began = time.monotonic()

    def ask(model: str, rate: float, rng: random.Random) -> None:
        while not over.is_set():
            tide = 0.6 + 0.4 * math.sin(2 * math.pi * (time.monotonic() - began) / WAVE_PERIOD_SECONDS)
            over.wait(rng.expovariate(rate * tide))
            serving.ask(headers={"steelyard-model": model})

    threads = [
        threading.Thread(target=ask, args=(model, rate, random.Random(f"{model}{number}")))
        for model, (many, rate) in CLIENTS.items()
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


def opened(browser: Browser, admin: AdminClient) -> None:
    browser.open(f"{admin.url}/")
    browser.wait_live()
    time.sleep(2)


def pictures(browser: Browser, admin: AdminClient) -> None:
    browser.size(1360, 1240)
    browser.prefer("light")
    opened(browser, admin)
    shoot(browser, "dashboard-light")
    browser.prefer("dark")
    shoot(browser, "dashboard-dark")
    browser.prefer("light")
    browser.size(1100, 760)
    browser.click("[data-replica=embed-b2]")
    browser.wait_text("#drain", "Drain")
    browser.click("#drain")
    browser.wait_text("#confirm-words", "Drain embed-b2")
    time.sleep(1)
    shoot(browser, "dashboard-drain")
    browser.size(360, 1240)
    opened(browser, admin)
    browser.click("#models [data-model=chat]")
    time.sleep(1)
    shoot(browser, "dashboard-phone")


def main() -> None:
    if reason := missing():
        raise SystemExit(reason)
    IMAGES.mkdir(exist_ok=True)
    with ExitStack() as stack:
        paces = {id: pace for model in RESPONSE_SECONDS.values() for id, pace in model.items()}
        stubs = {id: stack.enter_context(ProbedReplica(id, ready=id != "embed-c1")) for id in paces}
        for id, pace in paces.items():
            stubs[id].answer_all(scripts.slow(pace))
        made = fleet(dict(stubs))
        serving = stack.enter_context(Serving(made))
        admin = stack.enter_context(AdminClient(made))
        admin.wait_up()
        stack.enter_context(traffic(serving))
        time.sleep(TRAFFIC_SECONDS * 0.4)
        admin.drain("embed-a2", "embed")
        time.sleep(TRAFFIC_SECONDS * 0.2)
        stubs["embed-b2"].answer_all(scripts.slow(0.4))  # it slows
        time.sleep(TRAFFIC_SECONDS * 0.4)
        pictures(stack.enter_context(chrome()), admin)


if __name__ == "__main__":
    main()
