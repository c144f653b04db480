"""Proxies that ask their replicas whether they are ready: Steelyard and HAProxy, at the same interval."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from . import Peer, Setting, Start
from .base import write
from .steelyard import Steelyard

MODEL = "m"
READY_PATH = f"/v2/models/{MODEL}/ready"
PROBE_INTERVAL_SECONDS = 1.0
PROBE_TIMEOUT_SECONDS = 0.5
FALL, RISE = 2, 1

HAPROXY_CONFIG = """\
global
    nbthread 1
    maxconn 8000

defaults
    mode http
    timeout connect 500ms
    timeout check {timeout:.0f}ms
    timeout client 300s
    timeout server {checks.server}
    timeout queue 300s
    timeout http-keep-alive 75s
    option redispatch{checks.redispatch}
    retries 3
    retry-on {checks.retry_on}

frontend front
    bind 127.0.0.1:{listen}
    default_backend replicas

backend replicas
    balance leastconn
    option httpchk GET {ready}
    default-server check inter {interval:.0f}ms fall {fall} rise {rise}{checks.more}
{servers}
"""
FAST_CHECKS = " fastinter 500ms downinter 500ms"
OBSERVE_ERRORS = " observe layer7 error-limit 5 on-error mark-down"


@dataclass(frozen=True)
class Checks:
    """What differs between ways to run HAProxy with checks."""

    rule: str
    server: str = "300s"  # `timeout server`
    redispatch: str = ""
    retry_on: str = "all-retryable-errors"
    more: str = ""  # of each server


# In the second, each retry goes to another server, checks come sooner when in doubt, and silence is an error after two
# seconds: these requests allow it, long generations do not. What is retried is not observed (seen in 2.6), so the third
# passes errors on to clients in order to notice them.
DEFAULT_CHECKS = Checks("leastconn, checks, retries")
FAST = Checks("the same, everything quicker", "2s", " 1", more=FAST_CHECKS)
OBSERVING = Checks(
    "the same, errors observed, so not retried",
    "2s",
    " 1",
    "conn-failure empty-response junk-response response-timeout",
    FAST_CHECKS + OBSERVE_ERRORS,
)


class CheckedHAProxy(Peer):
    """leastconn with health checks and retries."""

    program = "haproxy"

    def __init__(self, name: str, checks: Checks) -> None:
        self.name = name
        self.checks = checks
        self.rule = checks.rule

    def start(self, program: str, setting: Setting) -> Start:
        servers = [f"    server r{n} 127.0.0.1:{port}" for n, port in enumerate(setting.replicas)]
        text = HAPROXY_CONFIG.format(
            listen=setting.listen,
            servers="\n".join(servers),
            ready=READY_PATH,
            interval=1000 * PROBE_INTERVAL_SECONDS,
            timeout=1000 * PROBE_TIMEOUT_SECONDS,
            fall=FALL,
            rise=RISE,
            checks=self.checks,
        )
        return Start([program, "-f", write(setting, f"{self.name}.cfg", text), "-db"])


class ProbedSteelyard(Steelyard):
    """As configured by `health`, everything else by default; beside this Python, so that it is what the tree says."""

    def __init__(self, name: str, health: dict[str, Any] | None = None, workers: int = 1) -> None:
        super().__init__(name, pure=True)
        self.workers = workers
        same = {
            "interval": f"{PROBE_INTERVAL_SECONDS:g}s",
            "timeout": f"{PROBE_TIMEOUT_SECONDS:g}s",
            "rise": RISE,
            "fall": FALL,
        }
        self.health = same if health is None else health

    def start(self, program: str, setting: Setting) -> Start:
        return self.before(program, setting, [f"http://127.0.0.1:{port}" for port in setting.replicas])

    def before(self, program: str, setting: Setting, urls: list[str]) -> Start:
        """In front of these."""
        model = {"dialect": "oip", "health": self.health, "replicas": [{"url": url} for url in urls]}
        config = {
            "listen": f"127.0.0.1:{setting.listen}",
            "workers": self.workers,
            "admin": {"listen": ""},
            "models": {MODEL: model},
        }
        # JSON is YAML too.
        return Start([program, "serve", write(setting, f"{self.name}.yaml", json.dumps(config))])


HEALTH_CHECKED_PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        CheckedHAProxy("haproxy", DEFAULT_CHECKS),
        CheckedHAProxy("haproxy-best", FAST),
        CheckedHAProxy("haproxy-observe", OBSERVING),
        ProbedSteelyard("steelyard"),
        ProbedSteelyard("steelyard-2", workers=2),
    )
}
