from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from msgspec.structs import replace

from steelyard.advice import GATEWAY_ADVICE, MODEL_ADVICE, Advice, advise, notes
from steelyard.config import Config, ModelConfig, find_problems, load_config, parse_config
from steelyard.documents import format_key
from steelyard.runtimes.process.config import ProcessRuntimeConfig

from ..config.configs import CONFIGS

EXAMPLE = Path(__file__).parents[2] / "examples/gateway.yaml"
TWO = [{"url": "http://a:1"}, {"url": "http://b:1"}]
WISE: dict[str, Any] = {"dialect": "oip", "replicas": TWO, "slo": {"latency": "1s"}}
ASK = {"path": "/v2/models/m/infer"}
READY = {"path": "/ready"}
FILE = {"kind": "file", "path": "r.yaml"}
DNS = {"kind": "dns", "name": "m.models.svc", "port": 8000}


def gateway(**keys: Any) -> Config:
    return parse_config(yaml.safe_dump({"models": {"m": WISE}, **keys}))


def model(**keys: Any) -> Config:
    return gateway(models={"m": {**WISE, **keys}})


def probed(**keys: Any) -> Config:
    return model(health=keys)


def on(*devices: str) -> dict[str, Any]:
    """A model with a replica on each of these."""
    return {**WISE, "replicas": [{"url": f"http://{name}-{n}", "device": name} for n, name in enumerate(devices)]}


GOLD_SLO = {"latency": "1s", "tenants": {"gold": {"latency": "2s"}}}
TWO_GPUS = {"g": {"memory": "10GiB"}, "h": {"memory": "10GiB"}}
GIB = {"g": {"memory": "10GiB", "headroom": "10%"}}  # 9 GiB to give
TOLD = {"weights": "1GiB", "per_request": "1MiB"}
BIG = {"weights": "10GiB"}


def device(there: dict[str, dict[str, Any]], devices: dict[str, Any] | None = None) -> Config:
    """Models that run on the device `g`, each on the same two servers unless it says otherwise."""
    there = {name: {**on("g", "g"), "memory": TOLD, **keys} for name, keys in there.items()}
    return gateway(models=there, devices=GIB if devices is None else devices)


def needs(weights: float, request: float = 0.001, **placement: Any) -> dict[str, Any]:
    """So many GiB, on one server of g."""
    memory = {"weights": f"{weights}GiB", "per_request": f"{request}GiB"}
    return {**single("g"), "memory": memory, **({"placement": placement} if placement else {})}


def single(*devices: str) -> dict[str, Any]:
    """A model that finds its other replicas in a file, so that one is enough."""
    return {**on(*devices), "discovery": [FILE]}


DEMAND = {"load_time": "5s"}
ZERO = {"min": 0, "max": 4, "cold_start": "40s"}


def starting(command: str = "sh serve.sh {port}", **runtime: Any) -> dict[str, Any]:
    """A model whose replicas are started, and are few enough."""
    keys = {"replicas": [], "concurrency": 4, "runtime": {"command": command, "replicas": 2, **runtime}}
    return {**WISE, **keys}


def scaled(**scale: Any) -> dict[str, Any]:
    return {**starting(replicas=1), "autoscale": {"max": 4, **scale}}


def started(**keys: Any) -> Config:
    return gateway(models={"m": {**starting(), **keys}})


# code → what brings it about, each with the key that is named
UNWISE: dict[str, list[tuple[Config, str]]] = {
    "no-tls": [
        (gateway(listen="0.0.0.0:80"), "listen"),
        (gateway(listen=":80"), "listen"),
        (gateway(listen=["127.0.0.1:80", "gateway.example:80"]), "listen"),
    ],
    "trusts-all-proxies": [
        (gateway(trusted_proxies=["10.0.0.0/8", "0.0.0.0/0"]), "trusted_proxies[1]"),
        (gateway(trusted_proxies=["::/0"]), "trusted_proxies[0]"),
    ],
    "unverified-tenants": [
        (gateway(tenant_header="x-tenant"), "tenant_header"),
        (gateway(tenant_header="x-tenant", tenants={"gold": {"max_priority": 5}}), "tenant_header"),
    ],
    "unrestricted-priority": [(gateway(tenants={"*": {"max_priority": 1}}), "tenants.*.max_priority")],
    "admin-no-tls": [
        (gateway(admin={"listen": ":9080", "token_file": "t"}), "admin.listen"),
        (gateway(admin={"listen": "gw.example:9080", "token_file": "t"}), "admin.listen"),
    ],
    "allows-all-replicas": [
        (gateway(admin={"allowed_replicas": ["*.models.svc", "10.0.0.0/8", "0.0.0.0/0"]}), "admin.allowed_replicas[2]"),
        (gateway(admin={"allowed_replicas": ["::/0"]}), "admin.allowed_replicas[0]"),
    ],
    "timeout-order": [
        (gateway(timeouts={"connect": "2m", "total": "1m"}), "timeouts.connect"),
        (gateway(timeouts={"first_byte": "2h"}), "timeouts.first_byte"),
        (model(timeout="2h"), "models.m.timeout"),
    ],
    "keep-alive-race": [(gateway(timeouts={"replica_idle": "5s"}), "timeouts.replica_idle")],
    "unroutable-model": [(gateway(models={"m": WISE, "h": {**WISE, "dialect": "http"}}), "models.h")],
    "no-replay": [(gateway(limits={"replay_bytes": 0}), "limits.replay_bytes")],
    "shared-device": [
        (gateway(models={"a": on("g", "g"), "b": on("h", "g"), "c": on("h2", "h3")}), "models.b.replicas[1].device"),
    ],
    "unused-device": [(gateway(devices={"g": {"memory": "1GiB"}}), "devices.g")],
    "no-unit": [(model(slo={"latency": 500}), "models.m.slo.latency"), (model(timeout="90"), "models.m.timeout")],
    "never-fits": [
        (device({"a": needs(8.5, 1)}), "models.a.replicas[0].device"),
        (device({"a": needs(20, **DEMAND)}), "models.a.replicas[0].device"),
        (device({"a": needs(3), "b": needs(4, 6)}), "models.b.replicas[0].device"),
        (
            gateway(models={"m": {**starting(devices=["h", "g"]), "memory": BIG}}, devices={**GIB, "h": {"gpu": "0"}}),
            "models.m.runtime.devices[1]",
        ),
    ],
    "device-overcommitted": [
        (device({"a": needs(5), "b": needs(5)}), "devices.g"),
        (device({"a": {"memory": {"weights": "5GiB", "per_request": 1}}}), "devices.g"),  # on both servers
        (device({"a": needs(5), "b": needs(5, pinned=True), "c": needs(1, **DEMAND)}), "devices.g"),
    ],
    "requests-exceed-device": [(device({"a": needs(3, 2), "b": needs(3, 2)}), "devices.g")],
    "no-room-beside-pinned": [
        (device({"a": needs(5), "b": needs(3, pinned=True), "c": needs(2, **DEMAND)}), "models.c.placement"),
    ],
    "models-evict-each-other": [
        (device({"a": needs(5, **DEMAND), "b": needs(6, **DEMAND)}), "devices.g"),
        (device({"a": needs(4), "b": needs(3, **DEMAND), "c": needs(3, **DEMAND)}), "devices.g"),
    ],
    "unknown-capacity": [(device({"a": {}}, {"g": {}}), "devices.g")],
    "low-headroom": [(device({"a": {}}, {"g": {"memory": "80GiB", "headroom": "1%"}}), "devices.g.headroom")],
    "unknown-request-memory": [
        (device({"a": {}, "b": {"memory": {"weights": "1GiB"}}}), "models.b"),
        (device({"a": {"memory": {}, "dialect": "vllm", "load_metrics": {"orca": False}}, "b": {}}), "models.a"),
    ],
    "memory-without-device": [
        (model(memory=TOLD), "models.m.memory"),
        (model(memory=TOLD, replicas=[], discovery=[DNS]), "models.m.memory"),
        (started(memory=TOLD), "models.m.memory"),
    ],
    "unknown-model-size": [
        (device({"a": {"memory": {"per_request": "1MiB"}, "placement": DEMAND}}), "models.a.placement"),
    ],
    "unknown-started-size": [
        (gateway(models={"m": starting(devices=["g"])}, devices=GIB), "models.m.runtime.devices"),
        (
            gateway(
                models={"a": {**on("g", "h"), "memory": TOLD}, "b": starting(devices=["g", "h"])}, devices=TWO_GPUS
            ),
            "models.b.runtime.devices",
        ),
    ],
    "weights-ignored": [(model(policy="round_robin", replicas=[{**TWO[0], "weight": 2}, TWO[1]]), "models.m.policy")],
    "load-blind-policy": [
        (model(policy="round_robin", dialect="openai"), "models.m.policy"),
        (model(policy="weighted_round_robin", dialect="openai"), "models.m.policy"),
        (model(policy="random", dialect="", health=READY), "models.m.policy"),
        (model(policy="random", dialect="vllm"), "models.m.policy"),
    ],
    "no-replicas": [(model(replicas=[]), "models.m")],
    "single-replica": [
        (model(replicas=TWO[:1]), "models.m.replicas"),
        (gateway(models={"m": starting(replicas=1)}), "models.m.runtime.replicas"),
    ],
    "same-address": [(model(replicas=[*TWO, {"url": "http://a:1/", "id": "x"}]), "models.m.replicas[2]")],
    "no-slo": [(model(slo=None), "models.m")],
    "retry-budget": [(model(retry={"budget": "100%"}), "models.m.retry.budget")],
    "retry-attempts": [(model(retry={"max_attempts": 6}), "models.m.retry.max_attempts")],
    "hedged-twice": [(model(hedge={"enabled": True}, idempotent=False), "models.m.hedge")],
    "unverified-tls": [
        (model(tls={"verify": False}, replicas=[{"url": "https://a"}, {"url": "https://b"}]), "models.m.tls.verify")
    ],
    "unused-tls": [
        (model(tls={"server_name": "a"}), "models.m.tls"),
        (model(tls={"server_name": "a"}, replicas=[], discovery=[DNS]), "models.m.tls"),
        (started(tls={"server_name": "a"}), "models.m.tls"),
    ],
    "slo-above-timeout": [
        (model(timeout="1s", slo={"latency": "2s"}), "models.m.slo.latency"),
        (model(timeout="1s", slo={"first_byte": "2s"}), "models.m.slo.first_byte"),
        (
            gateway(
                tenant_header="x-t",
                trusted_proxies=["10.0.0.1"],
                models={"m": {**WISE, "timeout": "1s", "slo": GOLD_SLO}},
            ),
            "models.m.slo.tenants.gold.latency",
        ),
    ],
    "wait-above-timeout": [(model(timeout="10s", queue_timeout="60s"), "models.m.queue_timeout")],
    "fraction-as-percent": [
        (model(slo={"latency": "1s", "percentile": 0.99}), "models.m.slo.percentile"),
        (model(slo={"availability": 0.999}), "models.m.slo.availability"),
    ],
    "no-readiness-probe": [(probed(enabled=False), "models.m.health.enabled")],
    "liveness-only": [
        *(
            (probed(path=path), "models.m.health.path")
            for path in ("/", "/ping", "/v1/models", "/v1/models/", "/v1/models?a=b", "/v2/health/live")
        ),
        (model(replicas=[TWO[0], {**TWO[1], "ready": "/v1/models"}]), "models.m.replicas[1].ready"),
    ],
    "unknown-readiness-path": [
        (model(dialect=""), "models.m"),
        (model(dialect="", replicas=[TWO[0], {**TWO[1], "ready": "/ready"}]), "models.m"),
        (model(dialect="", replicas=[], discovery=[DNS]), "models.m"),
    ],
    "probe-overrun": [
        (probed(timeout="6s"), "models.m.health.timeout"),
        (probed(interval="1s"), "models.m.health.timeout"),  # the default is 2 s
    ],
    "slow-detection": [
        (probed(interval="1m"), "models.m.health.interval"),
        (probed(fall=30), "models.m.health.interval"),
        (probed(interval="20s", timeout="20s", fall=3), "models.m.health.interval"),
    ],
    "frequent-probes": [
        (probed(interval="100ms", timeout="100ms"), "models.m.health.interval"),
        (probed(loading_interval="200ms"), "models.m.health.loading_interval"),
    ],
    "frequent-inference": [
        (probed(inference={**ASK, "interval": 0}), "models.m.health.inference.interval"),
        (probed(inference={**ASK, "interval": "9s"}), "models.m.health.inference.interval"),
    ],
    "shell-placeholder": [
        (probed(command=["/bin/sh", "-c", "check {id}"]), "models.m.health.command[2]"),
        (probed(command=["bash", "-c", "check {url}/{model}"]), "models.m.health.command[2]"),
    ],
    "frequent-scrapes": [
        (model(load_metrics={"interval": "1s"}, dialect="vllm"), "models.m.load_metrics.interval"),
        (model(load_metrics={"interval": "1s", "enabled": True}, dialect="openai"), "models.m.load_metrics.interval"),
        (
            model(load_metrics={"interval": "1s", "enabled": True}, dialect="", health=READY),
            "models.m.load_metrics.interval",
        ),
    ],
    "unused-load": [
        (model(load_metrics={"path": "/metrics"}), "models.m.load_metrics"),
        (model(load_metrics={"interval": "1s"}, dialect="", health=READY), "models.m.load_metrics"),
        (model(load_metrics={"port": 9090, "enabled": False}, dialect="vllm"), "models.m.load_metrics"),
    ],
    "no-hold-down": [
        (model(discovery=[DNS, {**FILE, "hold_down": 0}]), "models.m.discovery[1].hold_down"),
    ],
    "never-starts": [
        (gateway(models={"m": starting(replicas=0)}), "models.m.runtime.replicas"),
        (
            gateway(models={"m": {**scaled(mode="recommend"), **starting(replicas=0)}}),
            "models.m.runtime.replicas",
        ),
    ],
    "no-max-replicas": [
        (gateway(models={"m": scaled(max=None)}), "models.m.autoscale"),
        (model(concurrency=4, autoscale={"mode": "recommend"}), "models.m.autoscale"),
    ],
    "autoscale-without-slo": [(gateway(models={"m": {**scaled(), "slo": None}}), "models.m.autoscale")],
    "autoscale-unlimited-concurrency": [
        (gateway(models={"m": {**scaled(), "concurrency": "unlimited"}}), "models.m.concurrency")
    ],
    "wait-below-cold-start": [
        (gateway(models={"m": {**scaled(), "autoscale": ZERO, "queue_timeout": "5s"}}), "models.m.queue_timeout"),
        (
            gateway(models={"m": {**scaled(), "autoscale": ZERO, "queue_timeout": "1m", "timeout": "9s"}}),
            "models.m.timeout",
        ),
    ],
    "scale-down-before-cold-start": [
        (gateway(models={"m": scaled(min=0, scale_to_zero_after="9s")}), "models.m.autoscale.scale_to_zero_after"),
        (gateway(models={"m": scaled(cold_start="10m")}), "models.m.autoscale.cold_start"),
        (
            gateway(models={"m": scaled(scaler="hpa", scaler_options={"stabilization_window": 5})}),
            "models.m.autoscale.scaler_options.stabilization_window",
        ),
    ],
    "missing-command": [
        (gateway(models={"m": starting("no-such-program {port}")}), "models.m.runtime.command"),
        (gateway(models={"m": starting("./no-such-program {port}")}), "models.m.runtime.command"),
    ],
}


def test_every_warning_has_its_case() -> None:
    assert list(UNWISE) == [*GATEWAY_ADVICE, *MODEL_ADVICE, *ProcessRuntimeConfig.advice]


@pytest.mark.parametrize(("code", "config", "key"), [(code, *case) for code, cases in UNWISE.items() for case in cases])
def test_what_is_unwise_is_told_once_and_nothing_else(code: str, config: Config, key: str) -> None:
    (found,) = advise(config)
    assert (found.code, format_key(found.key)) == (code, key)
    for sentence in (found.what, found.do):
        assert sentence[-1] == "."
        assert sentence.count(". ") == 0, "one sentence"


def test_a_warning_about_memory_has_its_numbers() -> None:
    (found,) = advise(device({"a": needs(5), "b": needs(6.5, pinned=True)}))
    assert found.what == "a and b hold 11.5 GiB, and g has 9 GiB to give."
    (found,) = advise(device({"a": needs(5), "b": needs(3, pinned=True), "c": needs(2, **DEMAND)}))
    assert found.what == "It needs 2 GiB, and what is never unloaded leaves 1 GiB on g."


@pytest.mark.parametrize(
    "config",
    [
        gateway(),
        gateway(listen=["localhost:80", "unix:/run/a", "[::1]:80"]),
        gateway(listen=":80", tls={"certificate": "a", "key": "b"}),
        gateway(timeouts={"total": "1m"}),  # shorter than the defaults of others, which nobody chose
        gateway(models={"a": on("g", "g"), "b": on("h", "h2")}),
        gateway(models={"a": {**on("g", "g"), "memory": TOLD}, "b": {**on("g", "g"), "memory": TOLD}}, devices=GIB),
        device({"a": {}, "b": {}, "c": {"memory": {}, "dialect": "vllm"}}),
        device({"a": {}, "b": {"memory": {"weights": "1GiB"}, "load_metrics": {"orca": True}}}),
        device({"a": {"memory": {}, **single("g")}}),  # alone there
        device({"a": needs(8, 0.9)}),
        device({"a": needs(20)}, {"g": {"gpu": "0"}}),  # nobody knows yet
        device({"a": needs(4, 1), "b": needs(3, 1)}),
        device({"a": needs(4, **DEMAND), "b": needs(4, **DEMAND), "c": needs(4, **DEMAND)}),  # two of the three
        device({"a": needs(5), "b": {**needs(5, **DEMAND), **single("h")}}, {**GIB, "h": {"memory": "6GiB"}}),
        device(
            {"a": needs(5, **DEMAND), "b": {**needs(5, **DEMAND), **on("g", "h")}}, {**GIB, "h": {"memory": "6GiB"}}
        ),
        device({"a": needs(5), "b": {**needs(5, pinned=True), **on("g", "h")}}, {**GIB, "h": {"memory": "6GiB"}}),
        device(
            {"a": {"memory": {"weights": "5GiB", "per_request": 1}, "placement": {"pinned": True}}}
        ),  # on one of the two
        device({"a": {}}, {"g": {"cgroup": "/sys/fs/cgroup/a"}}),
        model(memory=TOLD, replicas=[], discovery=[FILE]),
        model(policy="round_robin"),
        model(policy="weighted_round_robin", replicas=[{**TWO[0], "weight": 2}, TWO[1]]),
        model(policy="least_work", replicas=[{**TWO[0], "weight": 2}, TWO[1]]),
        model(concurrency="auto"),
        model(concurrency=32, dialect="openai"),
        model(retry={"budget": "100%", "max_attempts": 1}),
        model(hedge={"enabled": True}),
        model(tls={"server_name": "a"}, replicas=[{"url": "https://a"}, {"url": "https://b"}]),
        model(tls={"server_name": "a"}, discovery=[{**DNS, "scheme": "https"}]),
        model(
            tls={"server_name": "a"}, discovery=[{"kind": "file", "path": "f.yaml"}]
        ),  # which may have https URLs in it
        model(replicas=[], discovery=[DNS]),
        model(replicas=TWO[:1], discovery=[DNS]),
        model(load_metrics={"enabled": False}, dialect="vllm"),
        model(load_metrics={"enabled": True, "path": "/metrics"}),
        model(load_metrics={"interval": "1s"}, dialect="triton"),  # not an engine that hangs
        probed(path="/v2/models/m/ready"),
        model(dialect="", health=READY),
        model(dialect="", replicas=[{**replica, "ready": "/ready"} for replica in TWO]),
        probed(path="/ping", inference=ASK),  # which proves more
        probed(enabled=True, interval="2s", fall=3, warm_up=[ASK]),
        probed(interval="15s", inference={**ASK, "interval": 0}),  # seldom enough
        probed(command=["sh", "-c", 'check "$1"', "check", "{id}"]),
        probed(command=["sh", "-c", "curl -fs {url}/ready"]),  # a URL has no character that a shell obeys
        probed(command=["./check", "--id={id}"]),
        started(),
        started(
            tls={"server_name": "a"}, runtime={"command": "sh {port}", "url": "https://127.0.0.1:{port}", "replicas": 2}
        ),
        gateway(models={"m": scaled()}),
        gateway(models={"m": {**scaled(), "replicas": TWO[:1]}}),
        gateway(models={"m": {**scaled(), "autoscale": {**ZERO, "cold_start": "20s"}, "timeout": "30s"}}),
        model(concurrency=4, autoscale={"mode": "recommend", "max": 4}),
        gateway(models={"m": {**starting(devices=["g"]), "memory": TOLD}}, devices=GIB),
        gateway(models={"m": starting(devices=["g", "h"])}, devices=TWO_GPUS),  # each alone on its own
        gateway(admin={"listen": "", "allowed_replicas": []}),
        gateway(admin={"listen": "localhost:9080", "allowed_replicas": ["10.0.0.0/8", "*.models.svc"]}),
        gateway(admin={"listen": "unix:/run/admin"}),
    ],
)
def test_what_is_wise(config: Config) -> None:
    assert advise(config) == []


def test_the_example_is_wise() -> None:
    assert advise(load_config(EXAMPLE)) == []


def test_what_is_not_in_force_is_noted() -> None:
    config = gateway(
        models={
            "a": {"replicas": [TWO[0], {**TWO[1], "zone": "x", "device": "g"}]},
            "b": {"slo": {"latency": "1s"}, "health": {"path": "/ready"}, "discovery": [DNS]},
        },
        devices={"g": {"memory": "1GiB"}},
    )
    keys = [format_key(note.key) for note in notes(config)]
    assert keys == ["models.a.replicas[1].zone"]
    assert all("yet" in note.what for note in notes(config))
    assert notes(model(slo=None)) == []
    (note,) = notes(model(dialect="bentoml"))
    assert "set idempotent: true if it only predicts" in note.what
    assert notes(model(dialect="http", idempotent=False)) == notes(model(dialect="torchserve")) == []
    assert notes(gateway(models={"m": scaled()})) == []  # the SLO counts there


def test_every_warning_is_explained() -> None:
    for code, check in {**GATEWAY_ADVICE, **MODEL_ADVICE}.items():
        assert check.__doc__, code
        assert check.__name__ == code.replace("-", "_")


@given(CONFIGS)
def test_advice_on_whatever_is_valid(config: Config) -> None:
    config = mended(config)
    assert not [*find_problems(config)]
    for advice in advise(config):
        assert isinstance(advice, Advice)
    notes(config)


def mended(config: Config) -> Config:
    """With the default in place of whatever is wrong: among so many keys there is nearly always something."""
    while (found := next(find_problems(config), None)) is not None:
        top, *below = map(str, found.key)
        if top != "models":
            config = replace(config, **{top: getattr(Config(models={}), top)})
            continue
        models = {name: model for name, model in config.models.items() if below[1:] or name not in below}
        if below[1:]:
            name, part = below[:2]
            models[name] = replace(models[name], **{part: getattr(ModelConfig(), part)})
        config = replace(config, models=models or {"m": ModelConfig()})
    return config
