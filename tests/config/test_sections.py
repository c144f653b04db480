from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.config import ANY_MODEL, Config, ModelConfig, ReplicaConfig, find_problems, load_config, parse_config
from steelyard.core.options import PoolOptions
from steelyard.documents import DocumentError, format_key
from steelyard.link.messages import Apply, FrameDecoder, ToWorker, encode_frame

from .configs import CONFIGS

EXAMPLE = Path(__file__).parents[2] / "examples/gateway.yaml"
MODEL = {"replicas": [{"url": "http://a:1"}]}


def config(**keys: Any) -> Config:
    return parse_config(yaml.safe_dump({"models": {"m": MODEL}, **keys}), "f")


def model(**keys: Any) -> ModelConfig:
    return config(models={"m": {**MODEL, **keys}}).models["m"]


def errors(**keys: Any) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        config(**keys)
    return [re.sub(r"^f:\d+: ", "", line) for line in caught.value.lines]


def model_errors(**keys: Any) -> list[str]:
    return [line.removeprefix("models.m.") for line in errors(models={"m": {**MODEL, **keys}})]


# ---------------------------------------------------------------------- what is right


def test_the_smallest_configuration() -> None:
    found = parse_config("models: {'*': {replicas: [{url: 'http://a:1'}]}}")
    assert list(found.models) == [ANY_MODEL]
    assert found.models[ANY_MODEL].replicas == (ReplicaConfig(url="http://a:1"),)
    assert [str(address) for address in found.listen_addresses] == ["127.0.0.1:8080"]
    assert found.workers == 1
    assert not [*find_problems(found)]


def test_the_example() -> None:
    found = load_config(EXAMPLE)
    assert list(found.models) == ["resnet", "llama-3.1-8b"]
    resnet = found.models["resnet"]
    assert [replica.weight for replica in resnet.replicas] == [4.0, 1.0]
    assert resnet.queue_timeout == 5.0
    assert resnet.pool_options().concurrency == 1
    assert found.limits.replay_bytes == 4 << 20
    assert found.devices["node1/gpu0"].memory == 80 << 30


def test_without_a_word_a_model_is_balanced_as_the_core_does_it() -> None:
    # Only the gateway waits for a replica that may restart: a program that uses the core has its own idea of that.
    assert model().pool_options() == PoolOptions(restart_grace=5.0)


def test_what_a_model_says_reaches_the_core() -> None:
    keys = {
        "concurrency": 4,
        "max_queue": 0,
        "wait_for_ready": True,
        "retry": {"max_attempts": 1},
        "hedge": {"enabled": True},
    }
    options = model(**keys, outlier_detection={"slow_factor": 9}, warm_keys=3).pool_options()
    assert (options.concurrency, options.max_queue, options.wait_for_ready, options.warm_keys) == (4, 0, True, 3)
    assert (options.retry.max_attempts, options.hedge.enabled, options.outlier_detection.slow_factor) == (1, True, 9.0)


def test_a_replica_without_an_id_is_called_by_its_address() -> None:
    urls = ["http://a:1", "https://b", "http://[::1]", "unix:/run/a"]
    names = [replica.name for replica in model(replicas=[{"url": url} for url in urls]).replicas]
    assert names == ["a:1", "b:443", "[::1]:80", "unix:/run/a"]


def test_several_addresses() -> None:
    found = config(listen=["127.0.0.1:0", "127.0.0.1:0", "unix:/a"])
    assert [str(address) for address in found.listen_addresses] == ["127.0.0.1:0", "127.0.0.1:0", "unix:/a"]


@pytest.mark.parametrize(
    "keys",
    [
        {"limits": {"replay_bytes": 0}},
        {"limits": {"body_bytes": "10KiB"}},  # the default of replay is more, and that does not matter
        {"timeouts": {"drain": 0}},
        {"trusted_proxies": ["10.0.0.0/8", "::1", "fd00::/8"]},
        {"tenant_header": "X-Tenant"},
        {"tenant_header": "authorization"},
        {"access_log": {"path": "-", "format": "text"}},
        {"devices": {"g": {"memory": "80GiB", "headroom": "10%"}}},
        {"devices": {"g": {}, "h": {"gpu": "0", "concurrency": 8}, "node 1/ü": {"cgroup": "/sys/fs/cgroup/a"}}},
        {"devices": {"g": {"gpu": "GPU-9e8a3c3e-1b7f"}, "h": {"gpu": "MIG-9e8a3c3e-1b7f"}}},
        {"models": {"m": {}}},
        {"models": {"meta/llama 3.1": MODEL, "ünï": MODEL}},
    ],
)
def test_what_is_allowed(keys: dict[str, Any]) -> None:
    assert not [*find_problems(config(**keys))]


@pytest.mark.parametrize(
    "keys",
    [
        {"dialect": "openai", "policy": "prequal", "policy_options": {"max_age": 2.0}},
        {"policy": "steelyard.core.policies.random:Random"},
        {"dialect": "steelyard.protocols.dialects.http:PlainHttp"},
        {"paths": ["/a", "/a/b", "/%20", "/"]},
        {"slow_start": 0, "max_queue": 0},
        {"slo": {"availability": 99.9}, "health": {"path": "/ready?deep=1"}},
        {"health": {}},
        {"replicas": [{"url": "http://a:1", "device": "g"}]},  # no device is listed, so none can be missing
        {"idempotent": False, "timeout": "5s"},
    ],
)
def test_what_a_model_may_say(keys: dict[str, Any]) -> None:
    model(**keys)


# ---------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"listen": []}, "listen: name at least one address, for example 127.0.0.1:8080"),
        ({"listen": "8080"}, "listen: '8080' is not an address: write 127.0.0.1:8080, or :8080 for every address"),
        ({"listen": [":1", "x"]}, "listen[1]: 'x' is not an address: the port is missing"),
        ({"listen": [":1", ":1"]}, "listen[1]: ':1' is there twice"),
        ({"listen": ["unix:/a", "unix:///a"]}, "listen[1]: 'unix:///a' is there twice"),
        ({"workers": 0}, "workers: expected a whole number from 1"),
        ({"workers": 5000}, "workers: expected a whole number up to 1024"),
        (
            {"trusted_proxies": ["10.0.0.1/8"]},
            "trusted_proxies[0]: '10.0.0.1/8' is not a network: did you mean 10.0.0.0/8?",
        ),
        ({"trusted_proxies": ["proxy"]}, "trusted_proxies[0]: 'proxy' is not a network: write for example 10.0.0.0/8"),
        ({"tenant_header": "x tenant"}, "tenant_header: 'x tenant' is not the name of a header"),
        ({"tenants": {"a": {"networks": ["1.0.0.1/8"]}}}, "tenants.a.networks[0]: '1.0.0.1/8' is not a network: did"),
        ({"tenants": {n: {"networks": ["::1"]} for n in "ab"}}, "tenants.b.networks[0]: '::1' is a network of the"),
        ({"tenants": {"*": {"networks": ["::1"]}}}, "tenants.*.networks: * stands for all other tenants"),
        ({"tenants": {"": {}}}, 'tenants."": the name of a tenant has 1 to 256 characters'),
        ({"tenant_header": "Host"}, "tenant_header: 'Host' says how to read a request, not its tenant"),
        ({"listen": 8080}, "listen: expected text or a list, got a whole number (write for example 127.0.0.1:8080)"),
        ({"admin": {"listen": 1}}, "admin.listen: expected text, got a whole number (write for example 127.0.0.1"),
        ({"workers": "2"}, "workers: expected a whole number, got text (remove the quotes)"),
        ({"limits": {"body_bytes": 0}}, "limits.body_bytes: must be more than 0"),
        ({"limits": {"header_count": 0}}, "limits.header_count: expected a whole number from 1"),
        (
            {"limits": {"body_bytes": "2MiB", "replay_bytes": "3MiB"}},
            "limits.replay_bytes: must be at most limits.body_bytes (2 MiB), not",
        ),
        (
            {"limits": {"total_buffer_bytes": 9, "replay_bytes": 10}},
            "limits.replay_bytes: must be at most limits.total_buffer_bytes (9 B), not 10 B",
        ),
        ({"timeouts": {"connect": 0}}, "timeouts.connect: must be more than 0"),
        ({"timeouts": {"conect": 1}}, "timeouts: unknown key `conect` (did you mean `connect`?)"),
        ({"tls": {"certificate": "a"}}, "tls: `key` is missing"),
        ({"tls": {"certificate": "a", "key": ""}}, "tls.key: name a file"),
        ({"access_log": {"path": ""}}, "access_log.path: name a file, or - for standard output"),
        ({"access_log": {"path": "-", "format": "xml"}}, "access_log.format: no such value: 'xml' (there are json"),
        ({"devices": {"g": {"memory": 0}}}, "devices.g.memory: must be more than 0"),
        ({"devices": {"g": {"memory": 1, "headroom": "100%"}}}, "devices.g.headroom: must be less than 100%"),
        ({"devices": {"": {}}}, 'devices."": a device\'s name has 1 to 256 characters'),
        ({"devices": {"g": {"gpu": "first"}}}, "devices.g.gpu: 'first' is neither the number of a GPU nor its UUID"),
        ({"devices": {"g": {"gpu": "0", "cgroup": "/a"}}}, "devices.g.cgroup: a device is a gpu or a cgroup: leave"),
        ({"devices": {"g": {"cgroup": "models.slice"}}}, "devices.g.cgroup: 'models.slice': write the whole path"),
        ({"devices": {"g": {"cgroup": "/sys/../a"}}}, "devices.g.cgroup: '/sys/../a': write it without .."),
        ({"devices": {"g": {"gpu": "1"}, "h": {"gpu": "1"}}}, "devices.h.gpu: is that of devices.g too: one device"),
        ({"devices": {"g": {"cgroup": "/a"}, "h": {"cgroup": "/a/"}}}, "devices.h.cgroup: is that of devices.g too"),
        ({"models": {}}, "models: name at least one model"),
        ({"models": {"": MODEL}}, 'models."": a model\'s name has 1 to 256 characters'),
        ({"models": {"a\nb": MODEL}}, 'models."a b": a model\'s name has 1 to 256 characters'),
        (
            {"models": {"a": {**MODEL, "paths": ["/x"]}, "b": {**MODEL, "paths": ["/x/"]}}},
            "models.b.paths[0]: '/x/' is a path of the model 'a' too",
        ),
        ({"model": {}}, "top level: unknown key `model` (did you mean `models`?)"),
    ],
)  # fmt: skip
def test_what_is_refused(keys: dict[str, Any], message: str) -> None:
    (line,) = errors(**keys)
    assert line.startswith(message)


REPLICA = {"url": "http://a:1"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"dialect": "ollama"}, "dialect: no dialect 'ollama': servers of that name speak openai; write openai"),
        ({"dialect": "MLServer"}, "dialect: no dialect 'MLServer': servers of that name speak oip; write oip"),
        ({"dialect": "vLLM"}, "dialect: no dialect 'vLLM' (did you mean `vllm`?)"),
        ({"dialect": "openia"}, "dialect: no dialect 'openia' (did you mean `openai`?)"),
        ({"dialect": "grpc"}, "dialect: no dialect 'grpc'; there are openai, vllm"),
        ({"dialect": "no.such:Dialect"}, "dialect: dialect 'no.such:Dialect': cannot import"),
        ({"policy": "least_wrok"}, "policy: no policy 'least_wrok' (did you mean `least_work`?)"),
        ({"policy": "fastest"}, "policy: no policy 'fastest'; there are least_work"),
        ({"policy": "os:path"}, "policy: policy 'os:path': path is not a subclass"),
        ({"policy_options": {"tye": 1}}, "policy_options.tye: least_work has no option 'tye' (did you mean `tie`?)"),
        (
            {"policy_options": {"zzz": 1}},
            "policy_options.zzz: least_work has no option 'zzz' (it takes wait_factor, tie)",
        ),
        ({"policy": "random", "policy_options": {"a": 1}}, "policy_options.a: random has no option 'a' (it takes n"),
        (
            {"policy_options": {"tie": "x"}},
            "policy_options: policy 'least_work': tie: must be a number of at least 0, not 'x'",
        ),
        ({"policy_options": {"tie": float("nan")}}, "policy_options: must be text, numbers, true or false"),
        ({"concurrency": 0}, "concurrency: expected a whole number from 1"),
        ({"concurrency": "8"}, "concurrency: no such value: '8' (remove the quotes)"),
        ({"hedge": True}, "hedge: expected a mapping, got true or false (write {enabled: true})"),
        ({"concurrency": "atuo"}, "concurrency: no such value: 'atuo' (did you mean `auto`?)"),
        ({"max_queue": -1}, "max_queue: expected a whole number from 0"),
        ({"queue_timeout": 0}, "queue_timeout: must be a positive number of seconds, not 0.0"),
        ({"evaluation_interval": 0}, "evaluation_interval: must be a positive number of seconds, not 0.0"),
        ({"retry": {"initial_tokens": 60}}, "retry.initial_tokens: must be from 0 to retry.max_tokens, not 60.0"),
        ({"retry": {"budget": "120%"}}, "retry.budget: '120%' is not a share: write for example 10% or 0.1"),
        ({"hedge": {"quantile": 1}}, "hedge.quantile: must be between 0 and 1, not 1.0"),
        ({"outlier_detection": {"slow_factor": 1}}, "outlier_detection.slow_factor: must be more than 1, not 1.0"),
        (
            {"outlier_detection": {"base_ejection_time": "9m"}},
            "outlier_detection.base_ejection_time: must be positive, "
            "at most outlier_detection.max_ejection_time, not 540.0",
        ),
        ({"outlier_detection": {"slow_duration": 0}}, "outlier_detection.slow_duration: must be more than 0"),
        ({"paths": ["a"]}, "paths[0]: 'a': a path begins with a slash"),
        ({"paths": ["/a", "/a"]}, "paths[1]: '/a' is there twice"),
        ({"paths": ["/a b"]}, "paths[0]: '/a b': write spaces and letters outside ASCII as they are in a URL"),
        ({"paths": ["/a?b"]}, "paths[0]: '/a?b': a path ends before ? and #"),
        ({"paths": ["/a/../b"]}, "paths[0]: '/a/../b': write it without //, . and .."),
        ({"timeout": 0}, "timeout: must be more than 0"),
        ({"slo": {}}, "slo: sets no target: give latency, first_byte, per_token or availability"),
        ({"slo": {"latency": 0}}, "slo.latency: must be more than 0"),
        ({"slo": {"latency": "1s", "percentile": 100}}, "slo.percentile: expected a number below 100"),
        ({"health": {"path": "ready"}}, "health.path: 'ready': a path begins with a slash"),
        ({"tls": {"certificate": "a"}}, "tls.certificate: certificate and key go together: add key"),
        ({"tls": {"key": "a"}}, "tls.key: certificate and key go together: add certificate"),
        ({"tls": {"server_name": "a b"}}, "tls.server_name: 'a b' is not a host name"),
        ({"tls": {"verify": False, "ca": "a"}}, "tls.verify: false makes ca and server_name useless"),
        ({"replicas": [{"url": "a:1"}]}, "replicas[0].url: 'a:1' is not the URL of a replica: write http://a:1"),
        ({"replicas": [REPLICA, {}]}, "replicas[1]: `url` is missing"),
        ({"replicas": [REPLICA, REPLICA]}, "replicas[1]: 'a:1' is the name of replicas[0] too; give each an id"),
        ({"replicas": [{"url": "http://b", "id": "a b"}]}, "replicas[0].id: 'a b': the name of a replica has 1 to 128"),
        ({"replicas": [{"url": "unix:/a b"}]}, "replicas[0].url: 'unix:/a b': the name of a replica has 1 to 128"),
        ({"replicas": [{**REPLICA, "weight": 0}]}, "replicas[0].weight: expected a number from 1e-06"),
        ({"replicas": [{**REPLICA, "weight": float("inf")}]}, "replicas[0].weight: expected a number up to 1000000"),
    ],
)  # fmt: skip
def test_what_a_model_may_not_say(keys: dict[str, Any], message: str) -> None:
    (line,) = model_errors(**keys)
    assert line.startswith(message)


def test_a_device_that_is_not_listed_where_others_are() -> None:
    replicas = [{"url": "http://a:1", "device": "gpu1"}]
    lines = errors(models={"m": {"replicas": replicas}}, devices={"gpu0": {"memory": "1GiB"}})
    assert lines == ["models.m.replicas[0].device: no 'gpu1' under devices (did you mean `gpu0`?)"]


GPUS = {"g": {"memory": "8GiB"}, "h": {"memory": "8GiB"}}


def at(url: str, device: str = "", **keys: Any) -> dict[str, Any]:
    return {"replicas": [{"url": url, **({"device": device} if device else {})}], **keys}


@pytest.mark.parametrize(
    ("other", "says"),
    [(at("http://A:1/", "h"), "on g"), (at("https://A:1"), "on g")],
)
def test_a_server_is_on_one_device_whatever_runs_there(other: dict[str, Any], says: str) -> None:
    (line,) = errors(models={"a": at("http://A:1", "g"), "b": other}, devices=GPUS)
    what = f"models.a.replicas[0].device says that the server at A:1 is {says}: say the same in both"
    assert line == f"models.b.replicas[0].device: {what}"


def test_a_server_without_a_device_beside_itself_with_one() -> None:
    (line,) = errors(models={"a": at("http://a:1"), "b": at("http://a:1", "g")}, devices=GPUS)
    assert "a:1 is on no device" in line


def test_models_may_share_a_server() -> None:
    shared = {"a": at("http://a:1", "g"), "b": at("http://a:1", "g"), "c": at("http://b:1", "h")}
    assert not [*find_problems(config(models=shared, devices=GPUS))]
    unlisted = {"a": at("http://a:1", "g"), "b": at("http://a:1", "h")}  # nothing is counted
    assert not [*find_problems(config(models=unlisted))]


# ---------------------------------------------------------------------- loaded on demand

PLACED = at("http://a:1", "g", dialect="oip", placement={})


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"dialect": "triton"},
        {"dialect": "steelyard.protocols.dialects.triton:Triton"},
        {"dialect": "triton", "placement": {"load_api": "repository", "pinned": True, "load_time": 0}},
        {"dialect": "", "placement": {"load_api": "agent"}},
        {"dialect": "vllm", "placement": {"load_api": "agent"}},
        {"dialect": "oip", "placement": {"load_api": "agent"}},
        {"replicas": [], "discovery": [{"kind": "file", "path": "replicas.yaml"}]},
    ],
)
def test_what_can_be_loaded_on_demand(keys: dict[str, Any]) -> None:
    assert not [*find_problems(config(models={"m": {**PLACED, **keys}}, devices=GPUS))]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"dialect": "vllm"},
            "placement.load_api: a server that speaks vllm cannot be told to load a model: write loa",
        ),
        (
            {"dialect": ""},
            "placement.load_api: the dialect is not given: write load_api: agent (steelyard.replica), or d",
        ),
        (
            {"dialect": "http", "placement": {"load_api": "repository"}},
            "placement.load_api: repository is of Triton and MLServer, and the dialect http has none: write dialect: t",
        ),
        ({"placement": {"load_timeout": 0}}, "placement.load_timeout: must be more than 0"),
        ({"health": {"enabled": False}}, "health.enabled: must not be false with placement: a probe sees that a load"),
        ({"replicas": [{"url": "http://a:1"}]}, "replicas[0].device: the model has placement, so name one of g, h"),
        (
            {"discovery": [{"kind": "dns", "name": "m.svc", "port": 1}]},
            "discovery[0]: the model has placement, and dns m.svc (A, AAAA) names no devices: list its repl",
        ),
        ({"dialect": "mlserver"}, "dialect: no dialect 'mlserver': servers of that name speak oip"),
    ],
)
def test_what_cannot_be_loaded_on_demand(keys: dict[str, Any], message: str) -> None:
    (line,) = errors(models={"m": {**PLACED, **keys}}, devices=GPUS)
    assert line.removeprefix("models.m.").startswith(message)


def test_a_model_on_demand_needs_a_device_that_is_listed() -> None:
    (line,) = errors(models={"m": PLACED})
    assert line.startswith("models.m.replicas[0].device: the model has placement, so list its device under devices, fo")


def test_every_name_at_once_cannot_be_loaded() -> None:
    (line,) = errors(models={ANY_MODEL: PLACED}, devices=GPUS)
    assert line.startswith("models.*.placement: * stands for every name, and no server can load that")


def test_all_that_is_wrong_is_told_at_once() -> None:
    text = """\
listen: nowhere
limits: {connection_buffer_bytes: 0}
models:
  gpt-4.1:
    dialect: kserve
    policy: nope
    retry: {initial_tokens: 99}
    hedge: {quantile: 0}
    replicas:
    - {url: x}
    - {url: ftp://y}
"""
    with pytest.raises(DocumentError) as caught:
        parse_config(text, "f")
    places = [line.split(": ")[:2] for line in caught.value.lines]
    assert places == [
        ["f:1", "listen"],
        ["f:2", "limits.connection_buffer_bytes"],
        ["f:5", 'models."gpt-4.1".dialect'],
        ["f:6", 'models."gpt-4.1".policy'],
        ["f:7", 'models."gpt-4.1".retry.initial_tokens'],
        ["f:8", 'models."gpt-4.1".hedge.quantile'],
        ["f:10", 'models."gpt-4.1".replicas[0].url'],
        ["f:11", 'models."gpt-4.1".replicas[1].url'],
    ]


def test_a_model_that_is_there_twice_is_not_lost_silently() -> None:
    text = "models:\n  a: {replicas: [{url: 'http://a:1'}]}\n  a: {replicas: [{url: 'http://b:1'}]}\n"
    with pytest.raises(DocumentError, match=r"^f:3: models: `a` is there twice, first in line 2"):
        parse_config(text, "f")


# ---------------------------------------------------------------------- whatever comes


@given(CONFIGS)
def test_a_configuration_is_the_same_behind_the_wire(whole: Config) -> None:
    message = Apply(number=1, config=whole, columns={})
    (found,) = FrameDecoder(ToWorker).feed(encode_frame(message))
    assert found == message
    assert found.config == whole


@given(CONFIGS)
def test_problems_are_found_and_never_raised(whole: Config) -> None:
    for problem in find_problems(whole):
        assert format_key(problem.key)
        assert problem.what


@settings(max_examples=300)
@given(st.text())
def test_any_text_is_a_configuration_or_a_document_error(text: str) -> None:
    _parse(text)


@settings(max_examples=300)
@given(st.data())
def test_any_example_with_slips_of_the_keyboard_too(data: st.DataObject) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").partition("models:")[2]
    text = "models:" + text
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 20))
        text = (
            text[:start] + data.draw(st.text(max_size=5) | st.sampled_from(list("{}[]:-&*!|>'\"%@\n #0"))) + text[end:]
        )
    _parse(text)


def _parse(text: str) -> None:
    lines: tuple[str, ...] = ()
    try:
        assert isinstance(parse_config(text, "f"), Config)
    except DocumentError as problem:
        lines = problem.lines or ("nothing was said",)
    assert all(line.startswith("f") and "\n" not in line for line in lines)
