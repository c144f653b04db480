"""What a configuration says of probes, load signals, discovery and the admin API."""

from __future__ import annotations

from typing import Any

import pytest

from steelyard.config import Config, HealthConfig, ReplicaConfig, find_problems, parse_config, replica_problems
from steelyard.documents import DocumentError, format_key
from steelyard.link.messages import Apply, FrameDecoder, ToWorker, encode_frame

from .test_sections import config, errors, model, model_errors

ASK = {"path": "/v1/completions"}
DNS = {"kind": "dns", "name": "llama.models.svc", "port": 8000}
SRV = {"kind": "dns", "name": "_http._tcp.llama.models.svc", "record_type": "srv"}
LISTED = {"kind": "file", "path": "replicas.json"}


# ---------------------------------------------------------------------- what is right


def test_without_a_word_replicas_are_probed_and_nothing_is_discovered() -> None:
    found = model()
    assert found.health == HealthConfig()
    assert found.health.enabled
    assert (found.load_metrics.enabled, found.load_metrics.orca, found.discovery) == (None, None, ())
    assert config().admin.listen is None


@pytest.mark.parametrize(
    "keys",
    [
        {"health": {"enabled": False}},
        {"health": {"path": "/ready?deep=1&model=%7Bm%7D", "live_path": "/live", "port": 9000, "rise": 3, "fall": 1}},
        {"health": {"headers": {"Authorization": "Bearer s3cret, with\ttab", "x-empty": "", "host": "resnet.example"}}},
        {"health": {"interval": "10ms", "loading_interval": "10ms", "timeout": "1h"}},
        {"health": {"command": ["./ready", "--url={url}", "{host}", "{port}", "{id}", "{model}"], "port": 9000}},
        {"health": {"command": ["./ready"], "headers": {"x": "y"}}},  # metrics may be read all the same
        {"health": {"command": ["sh", "-c", "curl -fs ${URL} | awk '{print $1}' | jq '{a: 1}'"], "warm_up": [ASK]}},
        {"health": {"inference": {**ASK, "method": "PUT", "status": 201, "contains": "ok", "interval": 0}}},
        {
            "health": {
                "warm_up": [ASK, {**ASK, "body": {"n": [1, 2.5, True, None]}, "times": 9}, {**ASK, "body": "a=b"}]
            }
        },
        {"load_metrics": {"enabled": True, "path": "/metrics?x", "port": 8002, "interval": "1s", "orca": False}},
        {"discovery": [DNS, SRV, {**LISTED, "scheme": "https", "hold_down": 0}], "replicas": []},
        {
            "discovery": [
                {**DNS, "name_server": server} for server in ("10.0.0.53:53", "[fd00::53]:53", "ns.example:5353")
            ]
        },
        {"replicas": [{"url": "http://a:1", "ready": "/v2/models/m/ready?x=1"}]},
        {"replicas": [{"url": "unix:/a"}], "health": {"path": "/ready"}},
    ],
)
def test_what_a_model_may_say(keys: dict[str, Any]) -> None:
    assert model(**keys)


@pytest.mark.parametrize(
    "admin",
    [
        {"listen": ""},
        {"listen": "127.0.0.1:0"},
        {"listen": "unix:/run/steelyard-admin.sock"},
        {"listen": "[::1]:9080", "token_file": "tokens"},
        {"listen": ":9080", "token_file": "tokens", "max_lease": "5s"},
        {"listen": "10.0.0.1:8080", "token_file": "tokens"},  # requests come in at the same port of another address
        {"allowed_replicas": [], "allowed_ports": []},
        {"allowed_replicas": ["10.0.0.0/8", "192.168.1.7", "fd00::/8", "gpu7.example", "*.models.svc", "localhost"]},
        {"allowed_ports": ["1", "8000-8999", "65535"]},
    ],
)
def test_what_may_be_said_of_the_admin_api(admin: dict[str, Any]) -> None:
    assert not [*find_problems(config(admin=admin))]


def test_what_is_asked_of_replicas_is_the_same_behind_the_wire() -> None:
    body = {"model": "m", "inputs": [{"shape": [1, 3], "data": [0.5, -1, 1 << 40]}], "stream": False, "stop": None}
    health = {"inference": {**ASK, "body": body, "headers": {"x": "y"}}, "warm_up": [{**ASK, "body": "plain ünï"}]}
    whole = config(models={"m": {"health": health, "discovery": [DNS], "load_metrics": {"enabled": False}}})
    (found,) = FrameDecoder(ToWorker).feed(encode_frame(Apply(number=1, config=whole, columns={})))
    assert isinstance(found, Apply)
    assert found.config == whole


# ---------------------------------------------------------------------- what is wrong


def dns(**keys: Any) -> dict[str, Any]:
    return {"discovery": [{**DNS, **keys}]}


def asked(**keys: Any) -> dict[str, Any]:
    return {"health": {"warm_up": [{**ASK, **keys}]}}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"health": None}, "health: expected a mapping, got nothing (there is nothing behind the key: give it a value"),
        ({"health": {"path": "ready"}}, "health.path: 'ready': a path begins with a slash"),
        (
            {"health": {"live_path": "/a b"}},
            "health.live_path: '/a b': write spaces and letters outside ASCII as they are in a",
        ),
        ({"health": {"path": "/a?b c"}}, "health.path: '/a?b c': write spaces and letters outside ASCII as they are"),
        ({"health": {"path": "/a?b#c"}}, "health.path: '/a?b#c': a query ends before #"),
        ({"health": {"path": "/a#c"}}, "health.path: '/a#c': a path ends before ? and #"),
        ({"health": {"path": "//host/a"}}, "health.path: '//host/a': write it without //, . and .."),
        ({"health": {"path": "/v2/models/{model}/ready"}}, "health.path: '/v2/models/{model}/ready': nothing is fill"),
        ({"health": {"port": 65536}}, "health.port: expected a whole number up to 65535"),
        ({"health": {"headers": {"x y": "z"}}}, "health.headers.\"x y\": 'x y' is not the name of a header: write for"),
        ({"health": {"headers": {"Expect": "z"}}}, "health.headers.Expect: 'Expect' is for Steelyard to send: leave"),
        ({"health": {"headers": {"Content-Length": "1"}}}, "health.headers.Content-Length: 'Content-Length' is for"),
        ({"health": {"headers": {"x": "a\r\nb: c"}}}, "health.headers.x: the value of a header is visible ASCII on on"),
        ({"health": {"headers": {"x": " a"}}}, "health.headers.x: the value of a header is visible ASCII on one line"),
        ({"health": {"headers": {"x": "ü"}}}, "health.headers.x: the value of a header is visible ASCII on one line"),
        ({"health": {"headers": {"X": "a", "x": "b"}}}, "health.headers.x: 'x' is there twice"),
        ({"health": {"headers": {"x": 1}}}, "health.headers.x: expected text, got a whole number (put it in quotes)"),
        ({"health": {"interval": 0}}, "health.interval: must be at least 10ms"),
        ({"health": {"loading_interval": "1ms"}}, "health.loading_interval: must be at least 10ms"),
        ({"health": {"timeout": 0}}, "health.timeout: must be more than 0"),
        ({"health": {"rise": 0}}, "health.rise: expected a whole number from 1"),
        ({"health": {"command": ["a"], "path": "/b"}}, "health.path: command is asked instead: leave one of the two"),
        (
            {"health": {"command": ["a"], "live_path": "/b"}},
            "health.live_path: command is asked instead: leave one of the two",
        ),
        ({"health": {"command": ["a"], "inference": ASK}}, "health.inference: command is asked instead: leave one of"),
        ({"health": {"command": [""]}}, "health.command[0]: name a program"),
        ({"health": {"command": ["a", "b\0"]}}, "health.command[1]: an argument of a program has no NUL in it"),
        ({"health": {"command": ["a", "{hots}"]}}, "health.command[1]: nothing is known as {hots} (did you mean `host"),
        (
            {"health": {"command": ["a", "--zone={zzz}"]}},
            "health.command[1]: nothing is known as {zzz} (there are url, host, port, id, model)",
        ),
        ({"health": {"inference": {}}}, "health.inference: `path` is missing"),
        ({"health": {"inference": {**ASK, "status": 99}}}, "health.inference.status: expected a whole number from 100"),
        ({"health": {"inference": {**ASK, "timeout": 0}}}, "health.inference.timeout: must be more than 0"),
        (asked(path="/a/../b"), "health.warm_up[0].path: '/a/../b': write it without //, . and .."),
        (asked(path=""), "health.warm_up[0].path: '': a path begins with a slash"),
        (asked(method="PO ST"), "health.warm_up[0].method: 'PO ST' is not a method: write for example POST"),
        (asked(method="connect"), "health.warm_up[0].method: 'connect' is not a method: write for example POST"),
        (asked(method="post"), "health.warm_up[0].method: 'post': methods are written in capitals: POST"),
        (asked(headers={"te": "trailers"}), "health.warm_up[0].headers.te: 'te' is for Steelyard to send: leave it"),
        (asked(body=float("nan")), "health.warm_up[0].body: must be text, numbers, true or false, or lists"),
        (asked(body={"a": b"\xff"}), "health.warm_up[0].body: must be text, numbers, true or false, or lists"),
        (asked(body=[1 << 63]), "health.warm_up[0].body: must be text, numbers, true or false, or lists"),
        (asked(times=0), "health.warm_up[0].times: expected a whole number from 1"),
        ({"load_metrics": {"path": "metrics"}}, "load_metrics.path: 'metrics': a path begins with a slash"),
        ({"load_metrics": {"interval": "900ms"}}, "load_metrics.interval: must be at least 1s"),
        ({"replicas": [{"url": "unix:/a"}], "health": {"port": 1}}, "health.port: replicas[0] is a Unix socket, which"),
        (
            {"replicas": [{"url": "unix:/a"}], "load_metrics": {"port": 1}},
            "load_metrics.port: replicas[0] is a Unix socket, which has",
        ),
        ({"replicas": [{"url": "http://a:1", "ready": "x"}]}, "replicas[0].ready: 'x': a path begins with a slash"),
        (
            {"replicas": [{"url": "http://a:1", "ready": "/x"}], "health": {"command": ["a"]}},
            "replicas[0].ready: health.command is asked instead: leave one of the two out",
        ),
        ({"discovery": [{}]}, "discovery[0]: `kind` is missing: there are file, dns, or your own, package.mo"),
        ({"discovery": [{"kind": "dsn"}]}, "discovery[0].kind: no discovery source 'dsn' (did you mean `dns`?); there"),
        ({"discovery": [{"kind": 1}]}, "discovery[0].kind: expected text, got a whole number (put it in quotes)"),
        ({"discovery": [{"kind": "os:path"}]}, "discovery[0].kind: discovery source 'os:path': path is not a subclass"),
        ({"discovery": ["replicas.yaml"]}, "discovery[0]: expected a mapping, got text"),
        ({"discovery": [{"kind": "file"}]}, "discovery[0]: `path` is missing"),
        ({"discovery": [{"kind": "file", "path": ""}]}, "discovery[0].path: name a file"),
        (dns(path="a"), "discovery[0]: unknown key `path` (it takes name, record_type, port"),
        ({"discovery": [{**LISTED, "port": 1}]}, "discovery[0]: unknown key `port` (it takes path, scheme, kind, inte"),
        ({"discovery": [{**LISTED, "record_type": "srv"}]}, "discovery[0]: unknown key `record_type` (it takes path"),
        ({"discovery": [{**LISTED, "name_server": "b:1"}]}, "discovery[0]: unknown key `name_server` (it takes path"),
        (dns(port=0), "discovery[0].port: is needed: addresses come without one; write for example port: 8000"),
        ({"discovery": [{**SRV, "port": 80}]}, "discovery[0].port: srv records name their own ports: leave it out"),
        (dns(record_type="aaaa"), "discovery[0].record_type: no such value: 'aaaa'"),
        (dns(name="a..b"), "discovery[0].name: 'a..b' is not a host name: write for example"),
        (dns(name="http://a"), "discovery[0].name: 'http://a' is not a host name: write for ex"),
        (dns(name="10.0.0.1"), "discovery[0].name: '10.0.0.1' is an address, not a name: list"),
        (dns(name="[::1]"), "discovery[0].name: '[::1]' is an address, not a name: list"),
        (dns(name_server="10.0.0.1"), "discovery[0].name_server: '10.0.0.1' is not the address of a"),
        (dns(name_server=":53"), "discovery[0].name_server: ':53' is not the address of a name server"),
        (dns(name_server="a:0"), "discovery[0].name_server: 'a:0' is not the address of a name server"),
        (dns(name_server="unix:/a"), "discovery[0].name_server: 'unix:/a' is not the address of a name"),
        (dns(interval=0), "discovery[0].interval: must be at least 10ms"),
        ({"discovery": [DNS, SRV, DNS]}, "discovery[2]: is the same as discovery[0]"),
    ],
)  # fmt: skip
def test_what_a_model_may_not_say(keys: dict[str, Any], message: str) -> None:
    (line,) = model_errors(**keys)
    assert line.startswith(message)


def test_what_earlier_versions_wrote_is_explained_at_once() -> None:
    old = [{"file": "a"}, {"dns": "a.b", "type": "srv", "server": "b:1", "hold": "5s"}]
    assert {line.removeprefix("models.m.") for line in errors(models={"m": {"discovery": old}})} == {
        "discovery[0]: `kind` is missing: write `kind: file`",
        "discovery[0]: unknown key `file`: renamed to `path`",
        "discovery[1]: `kind` is missing: write `kind: dns`",
        "discovery[1]: unknown key `dns`: renamed to `name`",
        "discovery[1]: unknown key `type`: renamed to `record_type`",
        "discovery[1]: unknown key `server`: renamed to `name_server`",
        "discovery[1]: unknown key `hold`: renamed to `hold_down`",
    }


@pytest.mark.parametrize(
    ("admin", "message"),
    [
        ({"listen": "9080"}, "listen: '9080' is not an address: write 127.0.0.1:9080, or :9080 for every address"),
        ({"listen": ":9080"}, "listen: other machines can reach :9080: name a token_file, or listen on 127.0.0.1"),
        ({"listen": "gw.example:9080"}, "listen: other machines can reach gw.example:9080: name a token_file"),
        ({"listen": "127.0.0.1:8080"}, "listen: '127.0.0.1:8080' is where requests come in: give the admin API an"),
        ({"listen": ":8080", "token_file": "t"}, "listen: ':8080' is where requests come in: give the admin API an"),
        (
            {"allowed_replicas": ["10.0.0.1/8"]},
            "allowed_replicas[0]: '10.0.0.1/8' is neither a network nor a host name: did you mean 10.0",
        ),
        (
            {"allowed_replicas": ["::1", "a/8"]},
            "allowed_replicas[1]: 'a/8' is neither a network nor a host name: write for example 10.0.0.",
        ),
        (
            {"allowed_replicas": ["*"]},
            "allowed_replicas[0]: '*' is neither a network nor a host name: write for example 10.0.0.0/8, gpu7",
        ),
        (
            {"allowed_replicas": ["a.*.b"]},
            "allowed_replicas[0]: 'a.*.b' is neither a network nor a host name: write for example 10.0.0.0/8",
        ),
        (
            {"allowed_replicas": ["169.254.169.254"]},
            "allowed_replicas[0]: '169.254.169.254': link-local and multicast addresses are never",
        ),
        (
            {"allowed_replicas": ["fe80::/10"]},
            "allowed_replicas[0]: 'fe80::/10': link-local and multicast addresses are never taken: leave",
        ),
        (
            {"allowed_ports": ["http"]},
            "allowed_ports[0]: 'http' is neither a port nor a range of them: write for example 8000 or 800",
        ),
        ({"allowed_ports": ["0-9"]}, "allowed_ports[0]: '0-9': a port is from 1 to 65535"),
        ({"allowed_ports": ["1", "80-99999"]}, "allowed_ports[1]: '80-99999': a port is from 1 to 65535"),
        ({"allowed_ports": ["9-8"]}, "allowed_ports[0]: '9-8': the range ends before it begins"),
        ({"allowed_ports": [8000]}, "allowed_ports[0]: expected text, got a whole number (put it in quotes)"),
        ({"max_lease": 0}, "max_lease: must be more than 0"),
    ],
)  # fmt: skip
def test_what_may_not_be_said_of_the_admin_api(admin: dict[str, Any], message: str) -> None:
    (line,) = errors(admin=admin)
    assert line.startswith(f"admin.{message}")


def test_the_socket_of_the_admin_api_is_its_own() -> None:
    (line,) = errors(listen=["127.0.0.1:0", "unix:/s"], admin={"listen": "unix:/s"})
    assert line.startswith("admin.listen: 'unix:/s' is where requests come in")


def test_a_secret_in_a_header_is_not_repeated() -> None:
    (line,) = model_errors(health={"headers": {"authorization": "Bearer s3cret\n"}})
    assert "s3cret" not in line


@pytest.mark.parametrize(
    ("replica", "keys"),
    [
        (ReplicaConfig(url="http://10.0.0.1:8000", ready="/ready"), []),
        (ReplicaConfig(url="ftp://x", ready="ready", id="a b"), ["ready", "url"]),
        (ReplicaConfig(url="http://a", id="a b"), ["id"]),
    ],
)
def test_a_replica_alone_is_checked_as_one_of_a_file(replica: ReplicaConfig, keys: list[str]) -> None:
    """Those who register or are discovered."""
    assert [format_key(problem.key) for problem in replica_problems((), replica)] == keys


def test_rules_do_not_stumble_over_each_others_mistakes() -> None:
    found = Config(models={}, listen=("x", "127.0.0.1:1"), admin=config(admin={"listen": "127.0.0.1:1"}).admin)
    assert [format_key(problem.key) for problem in find_problems(found)] == ["listen[0]", "admin.listen", "models"]


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("http://localhost:8080", "this is where Steelyard itself takes requests"),
        ("http://[::ffff:127.0.0.1]:8080", "this is where Steelyard itself takes requests"),
        ("http://127.0.0.1:9080", "this is Steelyard's own admin API"),
    ],
)
def test_a_gateway_is_no_replica_of_itself_and_neither_is_its_admin_api(url: str, what: str) -> None:
    config = "{listen: '127.0.0.1:8080', admin: {listen: '127.0.0.1:9080'}, models: {m: {replicas: [{url: '%s'}]}}}"
    with pytest.raises(DocumentError, match=rf"models.m.replicas\[0\].url: {what}"):
        parse_config(config % url, "f")
    parse_config(config % "http://127.0.0.2:8080", "f")
