"""A real Chromium, driven as a person would: by keys and clicks, and asked what it shows."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.harness import wait_until

os.environ.setdefault("SE_OFFLINE", "true")  # never look for a driver elsewhere
os.environ.setdefault("SE_AVOID_STATS", "true")

T = TypeVar("T")
ESCAPE, ENTER, TAB = "\ue00c", "\ue007", "\ue004"
RIGHT, DOWN = "\ue014", "\ue015"
BACKSPACE = "\ue003"


def missing() -> str:
    """Why there is no browser here; empty: there is one."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        return "no chromium and chromedriver here (Debian: apt install chromium chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "no selenium here (pip install selenium)"
    return ""


class Browser:
    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.logs("browser"), self.logs("performance")
        self.driver.get(url)

    def run(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def text(self, selector: str) -> str:
        """What is there to be read; empty where there is no such element, or it is hidden."""
        script = "const e = document.querySelector(arguments[0]); return e && e.checkVisibility() ? e.innerText : ''"
        return str(self.run(script, selector))

    def texts(self, selector: str) -> list[str]:
        script = (
            "return [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility()).map(e => e.innerText)"
        )
        return list(self.run(script, selector))

    def click(self, selector: str) -> None:
        self.driver.find_element("css selector", selector).click()

    def keys(self, *keys: str) -> None:
        """As typed: to whatever has the focus."""
        from selenium.webdriver import ActionChains

        for key in keys:
            ActionChains(self.driver, duration=0).send_keys(key).perform()

    def focused(self) -> str:
        return str(self.run("const e = document.activeElement; return e.dataset.replica || e.id || e.tagName"))

    def wait(self, check: Callable[[], T], what: str) -> T:
        try:
            return wait_until(check, what)
        except AssertionError as problem:
            shown = self.run("return document.body.innerText")
            raise AssertionError(f"{problem}; the page shows:\n{shown}\n{self.logs('browser')}") from None

    def wait_text(self, selector: str, part: str) -> None:
        self.wait(lambda: part in self.text(selector), f"{selector} never says {part!r}")

    def wait_live(self) -> None:
        self.wait(lambda: self.text("#connection") == "live", "it is not live")

    def logs(self, kind: str) -> list[dict[str, Any]]:
        """Since the last time."""
        return list(self.driver.get_log(kind))

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.logs("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def asked(self) -> list[str]:
        """The addresses of all requests since the last time."""
        said = [json.loads(entry["message"])["message"] for entry in self.logs("performance")]
        return [one["params"]["request"]["url"] for one in said if one["method"] == "Network.requestWillBeSent"]

    def size(self, width: int, height: int) -> None:
        """Of the page itself; windows have a least width, phones are narrower."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@contextmanager
def chrome(width: int = 1400, height: int = 1000) -> Iterator[Browser]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--no-proxy-server",
        "--disable-background-networking",
        f"--window-size={width},{height}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
