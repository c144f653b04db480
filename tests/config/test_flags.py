from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from steelyard.config import ANY_MODEL, Config, find_problems, from_replicas, parse_config, with_overrides
from steelyard.core.errors import OptionError

FILE = """
listen: 127.0.0.1:1
workers: 2
models:
  a: {policy: prequal, policy_options: {max_age: 2.0}, concurrency: 4, replicas: [{url: "http://a:1"}]}
  b: {replicas: [{url: "http://b:1"}]}
"""


def test_replicas_alone_are_a_configuration() -> None:
    found = from_replicas(["http://a:1", "unix:/run/b"])
    assert found == parse_config("models: {'*': {replicas: [{url: 'http://a:1'}, {url: 'unix:/run/b'}]}}")
    assert list(found.models) == [ANY_MODEL]


def test_with_all_flags() -> None:
    found = from_replicas(
        ["http://a:1"], model="m", policy="round_robin", concurrency=4, listen=("127.0.0.1:1", "[::1]:1"), workers=3
    )
    assert [str(address) for address in found.listen_addresses] == ["127.0.0.1:1", "[::1]:1"]
    assert found.workers == 3
    assert found.models["m"].policy == "round_robin"
    assert found.models["m"].concurrency == 4
    assert not [*find_problems(found)]


def test_the_dialect_of_all_replicas_and_whether_a_post_may_be_sent_again() -> None:
    assert from_replicas(["http://a:1"]).models[ANY_MODEL].idempotent is None
    assert from_replicas(["http://a:1"], idempotent=True).models[ANY_MODEL].idempotent is True
    assert from_replicas(["http://a:1"], dialect="vllm").models[ANY_MODEL].dialect == "vllm"
    file = parse_config("models: {a: {dialect: openai}, b: {}}")
    assert [model.dialect for model in with_overrides(file, dialect="vllm").models.values()] == ["vllm", "vllm"]


def test_the_dialect_decides_on_the_policy_where_none_is_named() -> None:
    named = "c: {dialect: vllm, policy: least_connections}, d: {dialect: oip, policy_options: {tie: 0.2}}"
    file = parse_config(f"models: {{a: {{}}, b: {{dialect: sglang}}, {named}}}")
    assert [m.policy for m in file.models.values()] == ["least_work", "prefix_work", "least_connections", "least_work"]
    flagged = with_overrides(file, dialect="tgi").models.values()
    assert [m.policy for m in flagged] == ["prefix_work", "prefix_work", "least_connections", "prefix_work"]
    assert with_overrides(file, dialect="vllm", policy="random").models["b"].policy == "random"
    assert from_replicas(["http://a:1"], dialect="vllm").models[ANY_MODEL].policy == "prefix_work"


@pytest.mark.parametrize(
    ("urls", "flags", "message"),
    [
        ([], {}, "--replica: name at least one"),
        (["a:1"], {}, "--replica: 'a:1' is not the URL of a replica: write http://a:1"),
        (["http://a:1", "http://a:1"], {}, "--replica: 'a:1' is the name of replicas[0] too"),
        (["http://a:1"], {"policy": "least_wrok"}, "--policy: no policy 'least_wrok' (did you mean `least_work`?)"),
        (["http://a:1"], {"concurrency": 0}, "--concurrency: expected a whole number from 1"),
        (
            ["http://a:1"],
            {"concurrency": "4"},
            "--concurrency: no such value: '4' (remove the quotes)",
        ),
        (["http://a:1"], {"listen": "8080"}, "--listen: '8080' is not an address: write 127.0.0.1:8080"),
        (["http://a:1"], {"listen": (":1", ":1")}, "--listen: ':1' is there twice"),
        (["http://a:1"], {"workers": 0}, "--workers: expected a whole number from 1"),
        (["http://a:1"], {"model": ""}, "--model: a model's name has 1 to 256 characters"),
        (["http://a:1"], {"health_path": "ready"}, "--health-path: 'ready': a path begins with a slash"),
        (["http://a:1"], {"admin": "9080"}, "--admin: '9080' is not an address: write 127.0.0.1:9080"),
        (["http://a:1"], {"admin": ":9080"}, "--admin: other machines can reach :9080: name a token_file"),
        (["http://a:1"], {"admin": "127.0.0.1:8080"}, "--admin: '127.0.0.1:8080' is where requests come in"),
        (
            ["http://a:1"],
            {"admin_token_file": "/no/file"},
            "--admin-token-file: /no/file: cannot be read: No such file",
        ),
    ],
)
def test_a_wrong_flag_is_named(urls: list[str], flags: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        from_replicas(urls, **flags)
    assert str(caught.value).startswith(message)


START = f"{sys.executable} server.py --port {{port}}"


def test_a_command_alone_is_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = from_replicas([], start=START, model="m")
    text = f"models: {{m: {{runtime: {{command: '{START}', working_directory: '{tmp_path}'}}}}}}"
    assert found == parse_config(text)
    assert not [*find_problems(found)]


def test_how_many_are_started() -> None:
    three = from_replicas([], start=START, scale="3").models[ANY_MODEL]
    assert three.runtime is not None
    assert (three.runtime.replicas, three.autoscale) == (3, None)
    some = from_replicas(["http://a:1"], start=START, scale="0-4", policy="random", concurrency=2, health_path="/r")
    model = some.models[ANY_MODEL]
    assert model.autoscale is not None
    assert (model.autoscale.mode, model.autoscale.min, model.autoscale.max) == ("act", 0, 4)
    assert [replica.name for replica in model.replicas] == ["a:1"]
    assert (model.policy, model.concurrency, model.health.path) == ("random", 2, "/r")


@pytest.mark.parametrize(
    ("start", "flags", "message"),
    [
        (None, {"scale": "3"}, "--scale: nothing starts replicas: add --start COMMAND"),
        ("", {}, "--start: name a program, for example steelyard demo-replica --port {port}"),
        ("sh", {}, "--start: `command` does not pass the port: put {port} into command or environment"),
        ("sh 'a {port}", {}, '--start: "sh \'a {port}": a quote or a backslash at its end is not finished'),
        ("sh {prot}", {}, "--start: `{prot}` is not filled in: did you mean `{port}`?"),
        ("sh {port} {model}", {}, "--start: * stands for every name, so there is none to put in for {model}"),
        ("no-such-program {port}", {}, "--start: there is no program no-such-program on the PATH"),
        ("./no-such {port}", {}, "--start: there is no program /"),
        (START, {"scale": "many"}, "--scale: 'many': write how many for example as 3, or from least to most as 1-4"),
        (START, {"scale": "1-"}, "--scale: '1-': write how many"),
        (START, {"scale": ""}, "--scale: '': write how many"),
        (START, {"scale": "-1"}, "--scale: '-1': write how many"),
        (START, {"scale": "0"}, "--scale: 0 replicas serve nothing: write 0-4"),
        (START, {"scale": "4-1"}, "--scale: '4-1': the least comes first: write 1-4"),
        (START, {"scale": "0-0"}, "--scale: '0-0' never starts a replica: write for example 0-4"),
        (START, {"scale": "5000"}, "--scale: up to 5000 replicas may be started"),
        (START, {"scale": "1-5000"}, "--scale: up to 5000 replicas may be started"),
    ],
)
def test_a_wrong_way_to_start_is_named(start: str | None, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        from_replicas(["http://a:1"], start=start, **flags)
    assert str(caught.value).startswith(message)


@pytest.fixture
def file() -> Config:
    return parse_config(FILE)


def test_without_flags_a_file_stays_as_it_is(file: Config) -> None:
    assert with_overrides(file) == file


def test_flags_outrank_the_file(file: Config) -> None:
    found = with_overrides(file, listen=":2", workers=1, concurrency="auto")
    assert (found.listen, found.workers) == (":2", 1)
    assert [model.concurrency for model in found.models.values()] == ["auto", "auto"]
    assert found.models["a"].policy_options == {"max_age": 2.0}


def test_flags_of_probes_and_of_the_admin_api(file: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokens").write_text("0123456789abcdef")
    monkeypatch.chdir(tmp_path)
    found = with_overrides(file, health_path="/ready", admin=":9080", admin_token_file="tokens")
    assert [model.health.path for model in found.models.values()] == ["/ready", "/ready"]
    assert (found.admin.listen, found.admin.token_file) == (":9080", str(tmp_path / "tokens"))
    assert with_overrides(found) == found
    back = with_overrides(found, health_path="", admin="127.0.0.1:0", admin_token_file="")
    assert (back.models["a"].health.path, back.admin.listen, back.admin.token_file) == ("", "127.0.0.1:0", "")


@pytest.mark.parametrize("off", ["", "off"])
def test_the_admin_api_can_be_turned_off(file: Config, off: str) -> None:
    assert file.admin.listen is None
    assert with_overrides(file, admin=off).admin.listen == ""


def test_a_flag_that_does_not_go_with_the_file() -> None:
    file = parse_config("models: {listen: {health: {command: [./ready]}, replicas: [{url: 'http://a:1'}]}}")
    with pytest.raises(OptionError, match=r"^--health-path: command is asked instead"):
        with_overrides(file, health_path="/ready")


def test_another_policy_does_not_get_the_options_of_the_first(file: Config) -> None:
    assert with_overrides(file, policy="prequal").models["a"].policy_options == {"max_age": 2.0}
    found = with_overrides(file, policy="random")
    assert [model.policy for model in found.models.values()] == ["random", "random"]
    assert found.models["a"].policy_options == {}


def test_a_wrong_flag_over_a_file_is_named_too(file: Config) -> None:
    with pytest.raises(OptionError, match="--policy: no policy 'nope'"):
        with_overrides(file, policy="nope")
