"""What may be said of replicas that Steelyard starts itself, and of how many."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from steelyard.config import Config, find_problems, load_config, parse_config
from steelyard.config.rules.autoscale import MAX_REPLICAS
from steelyard.config.rules.runtime import max_started
from steelyard.config.sections.scaling import time_zone
from steelyard.control.fleet.active_config import MIN_LEDGER_COLUMNS
from steelyard.documents import DocumentError
from steelyard.link.messages import Apply, FrameDecoder, ToWorker, encode_frame
from steelyard.runtimes.process.config import ProcessRuntimeConfig, parse_port_range

COMMAND = "python server.py --port {port}"
DEVICES = {"g0": {"gpu": "0"}, "g1": {"gpu": "1"}}
PERIOD = {"start": "08:00", "end": "18:00", "min": 2}


def config(name: str = "m", runtime: Any = None, gateway: dict[str, Any] | None = None, **keys: Any) -> Config:
    model = {**({} if runtime is None else {"runtime": {"command": COMMAND, **runtime}}), **keys}
    return parse_config(yaml.safe_dump({"models": {name: model}, **(gateway or {})}), "f")


def errors(name: str = "m", **keys: Any) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        config(name, **keys)
    return [re.sub(r"^f:\d+: models\.[m*]\.", "", line) for line in caught.value.lines]


# ---------------------------------------------------------------------- starting


@pytest.mark.parametrize(
    "runtime",
    [
        {},
        {"command": ["python", "server.py", "{port}"]},
        {"command": "./serve.sh", "environment": {"PORT": "{port}", "HF_HOME": "/models", "x.y-z": "1"}},
        {"command": "serve {url}"},
        {"command": "serve --socket {url}", "url": "unix:/run/{id}.sock", "replicas": 4},
        {"command": "serve", "url": "http://127.0.0.1:8000"},  # only one
        {"command": "serve", "url": "http://127.0.0.1:8000", "replicas": 0},
        {"command": "serve {id} {port}", "url": "https://[::1]:{port}", "port_range": "2000-2000"},
        {"port_range": "1024-65535", "replicas": 4096},
        {"command": 'vllm serve {model} --port {port} --hf-overrides \'{"a": {"b": 1}}\'', "devices": ["g0", "g1"]},
        {"devices": ["g1"], "cpus": 4, "drain_timeout": 0, "max_log_size": "1KiB", "working_directory": "a/b"},
    ],
)
def test_what_can_be_started(runtime: dict[str, Any]) -> None:
    found = config(runtime=runtime, gateway={"devices": DEVICES})
    assert not [*find_problems(found)]
    (message,) = FrameDecoder(ToWorker).feed(encode_frame(Apply(number=1, config=found, columns={})))
    assert isinstance(message, Apply)
    assert message.config == found
    assert found.models["m"].pool_options().wait_for_ready


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        ({"command": ""}, "runtime.command: name a program, for example steelyard demo-replica --port {port}"),
        ({"command": []}, "runtime.command: name a program"),
        ({"command": "python 'server.py --port {port}"}, "runtime.command: \"python 'server.py --port {port}\": a"),
        ({"command": "a {prot}"}, "runtime.command: `{prot}` is not filled in: did you mean `{port}`?"),
        ({"command": ["a", "{port}", "{host}"]}, "runtime.command[2]: `{host}` is not filled in: there are `{port}`"),
        ({"command": ["a", "{port}", "\0"]}, "runtime.command[2]: a word of a command has no NUL in it"),
        ({"command": "a"}, "runtime.command: `command` does not pass the port: put {port} into command or environment"),
        (
            {"command": "a", "url": "unix:/run/{id}.sock"},
            "runtime.command: `command` does not pass the address: put {url} into command or environment",
        ),
        ({"environment": {"A": "{prot}"}}, "runtime.environment.A: `{prot}` is not filled in: did you mean `{port}`?"),
        ({"environment": {"A=B": ""}}, "runtime.environment.A=B: 'A=B' is not the name of a variable"),
        ({"environment": {"": "x"}}, "runtime.environment.\"\": '' is not the name of a variable"),
        ({"environment": {"A": "s3cret\0"}}, "runtime.environment.A: a variable has no NUL in it"),
        ({"environment": {"STEELYARD_ID": "x"}}, "runtime.environment.STEELYARD_ID: STEELYARD_… is for Steelyard to s"),
        ({"url": "127.0.0.1:{port}"}, "runtime.url: '127.0.0.1:20000' is not the URL of a replica: write http://127.0"),
        ({"url": "http://a:{prot}"}, "runtime.url: `{prot}` is not filled in: did you mean `{port}`?"),
        ({"url": "http://{device}:{port}"}, "runtime.url: `{device}` is not filled in here: only `{port}` and"),
        (
            {"url": "http://127.0.0.1:8000", "replicas": 2},
            "runtime.url: two replicas cannot listen on the same port: use {port}",
        ),
        ({"url": "unix:/a", "replicas": 2}, "runtime.url: two replicas cannot listen on the same socket: use {id}"),
        ({"port_range": "8000"}, "runtime.port_range: '8000' is not a range of ports: write for example 20000-29999"),
        ({"port_range": "80-90"}, "runtime.port_range: '80-90': a port for a replica is from 1024 to 65535"),
        ({"port_range": "2000-70000"}, "runtime.port_range: '2000-70000': a port for a replica is from 1024 to 65535"),
        ({"port_range": "3000-2000"}, "runtime.port_range: '3000-2000': the range ends before it begins"),
        ({"port_range": "2000-2001", "replicas": 3}, "runtime.port_range: 2 ports for up to 3 replicas: each nee"),
        ({"devices": ["g2"]}, "runtime.devices[0]: no 'g2' under devices (there are g0, g1)"),
        ({"devices": ["g0", "g0"]}, "runtime.devices[1]: 'g0' is there twice"),
        ({"start_timeout": 0}, "runtime.start_timeout: must be more than 0"),
        ({"stop_timeout": 0}, "runtime.stop_timeout: must be more than 0"),
        ({"max_log_size": 0}, "runtime.max_log_size: must be more than 0"),
        ({"kind": "docker"}, "runtime.kind: no runtime 'docker'; there is only process, or name your own"),
        ({"cpus": 0}, "runtime.cpus: expected a whole number from 1"),
        ({"replicas": 5000}, "runtime.replicas: up to 5000 replicas may be started, and there is room for 4096"),
    ],
)  # fmt: skip
def test_what_cannot_be_started(runtime: dict[str, Any], message: str) -> None:
    (line,) = errors(runtime=runtime, gateway={"devices": DEVICES})
    assert line.startswith(message)
    assert "s3cret" not in line


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"health": {"enabled": False}},
            "health.enabled: must not be false with runtime: a probe sees when what was s",
        ),
        (
            {"placement": {"load_api": "agent"}},
            "runtime: a model is started by us or loaded on servers that run already: leave out runtime or placement",
        ),
        (
            {"health": {"port": 9000}, "runtime": {"replicas": 2}},
            "health.port: all replicas that are started on this m",
        ),
        (
            {"load_metrics": {"port": 9000}, "runtime": {"replicas": 2}},
            "load_metrics.port: all replicas that are started on this mac",
        ),
    ],
)
def test_what_does_not_go_with_a_runtime(keys: dict[str, Any], message: str) -> None:
    (line,) = errors(**{"runtime": {}, **keys})
    assert line.startswith(message)


def test_what_earlier_versions_wrote_is_explained_at_once() -> None:
    old = {"folder": "a", "ports": "2000-3000", "drain": 0, "log": "b", "log_size": "1KiB", "show_last_words": True}
    assert set(errors(runtime=old)) == {
        "runtime: unknown key `folder`: renamed to `working_directory`",
        "runtime: unknown key `ports`: renamed to `port_range`",
        "runtime: unknown key `drain`: renamed to `drain_timeout`",
        "runtime: unknown key `log`: renamed to `log_directory`",
        "runtime: unknown key `log_size`: renamed to `max_log_size`",
        "runtime: unknown key `show_last_words`: renamed to `expose_log_tail`",
    }


def test_a_device_where_none_is_listed() -> None:
    (line,) = errors(runtime={"devices": ["g0"]})
    assert line == "runtime.devices[0]: no 'g0' under devices: list it there, for example gpu0: {gpu: \"0\"}"


def test_every_name_at_once_is_none_to_start_with() -> None:
    (line,) = errors("*", runtime={"command": "serve {model} {port}"})
    assert line.startswith("runtime.command: * stands for every name, so there is none to put in for {model}")
    assert not [*find_problems(config("*", runtime={}))]


@pytest.mark.parametrize("name", ["a b", "é", "x" * 129, "a\n"])
def test_the_name_of_a_gateway_goes_into_environments_and_file_names(name: str) -> None:
    with pytest.raises(
        DocumentError, match=r"name: .* the name of a gateway has at most 128 characters of ASCII, without"
    ):
        config(gateway={"name": name})
    assert config(gateway={"name": "eu-west/gw_1"}).name == "eu-west/gw_1"


def test_ranges_of_ports() -> None:
    assert parse_port_range("20000-29999") == (20000, 29999)
    assert parse_port_range(ProcessRuntimeConfig(command="a").port_range) == (20000, 29999)


# ---------------------------------------------------------------------- how many


@pytest.mark.parametrize(
    "scale",
    [
        {},
        {"min": 0, "max": 1, "scale_to_zero_after": "1s"},
        {"min": 4, "max": 4},
        {"scaler": "hpa"},
        {"scaler": "kpa", "max_added_per_minute": 1, "max_removed_per_minute": 1, "cold_start": 0},
        {"schedule": [PERIOD, {**PERIOD, "days": "sat,sun", "start": "22:00", "end": "06:00"}], "max": 2},
        {"timezone": "UTC", "hourly_cost": 2.5},
        {"mode": "recommend", "min": 0},
    ],
)
def test_how_many_there_may_be(scale: dict[str, Any]) -> None:
    assert not [*find_problems(config(runtime={}, autoscale=scale))]


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ({"min": 3, "max": 2}, "autoscale.max: must be at least min (3), not 2"),
        ({"max": 0}, "autoscale.max: expected a whole number from 1"),
        ({"scale_to_zero_after": 0}, "autoscale.scale_to_zero_after: must be more than 0"),
        ({"scaler": "wrok"}, "autoscale.scaler: no scaler 'wrok' (did you mean `work`?)"),
        ({"scaler": "keda"}, "autoscale.scaler: no scaler 'keda'; there are work, kpa, hpa, or name your own"),
        ({"scaler": "os:path"}, "autoscale.scaler: scaler 'os:path': path is not a subclass of"),
        ({"scaler_options": {"nope": 1}}, "autoscale.scaler_options.nope: work has no option 'nope' ("),
        ({"scaler": "kpa", "scaler_options": {"targte": 1}}, "autoscale.scaler_options.targte: kpa has no option"),
        ({"scaler": "kpa", "scaler_options": {"target": "x"}}, "autoscale.scaler_options: scaler 'kpa': target: must"),
        ({"scaler": "kpa", "scaler_options": {"target": float("nan")}}, "autoscale.scaler_options: must be text"),
        ({"timezone": "Europe/Pari"}, "autoscale.timezone: no time zone 'Europe/Pari' (did you mean `Europe/Paris`?)"),
        ({"timezone": "../x"}, "autoscale.timezone: no time zone '../x'"),
        ({"schedule": [{**PERIOD, "start": "8"}]}, "autoscale.schedule[0].start: must be a time"),
        ({"schedule": [PERIOD, {**PERIOD, "end": "25:00"}]}, "autoscale.schedule[1].end: must be a time"),
        ({"schedule": [{**PERIOD, "end": "08:00"}]}, "autoscale.schedule[0].end: must differ from start (08:00)"),
        ({"schedule": [{**PERIOD, "days": "monday"}]}, "autoscale.schedule[0].days: must be"),
        ({"schedule": [PERIOD], "max": 1}, "autoscale.schedule[0].min: must be at most autoscale.max (1), not 2"),
        ({"max": 5000}, "autoscale.max: up to 5000 replicas may be started, and there is room for 4096: allow fewer"),
        ({"mode": "dry"}, "autoscale.mode: no such value: 'dry' (there are act, recommend)"),
    ],
)  # fmt: skip
def test_how_many_there_may_not_be(scale: dict[str, Any], message: str) -> None:
    (line,) = errors(runtime={}, autoscale=scale)
    assert line.startswith(message)


def test_two_may_not_say_how_many() -> None:
    (line,) = errors(runtime={"replicas": 3}, autoscale={"max": 5})
    assert line.startswith("runtime.replicas: autoscale says how many: leave this out")
    assert not [*find_problems(config(runtime={"replicas": 3}, autoscale={"mode": "recommend"}))]


def test_somebody_must_start_them() -> None:
    replicas = [{"url": "http://a:1"}]
    (line,) = errors(replicas=replicas, autoscale={})
    assert line == "autoscale.mode: no `runtime`: nothing starts replicas; add one or set `mode: recommend`"
    assert not [*find_problems(config(replicas=replicas, autoscale={"mode": "recommend"}))]
    assert not [*find_problems(config(replicas=replicas, autoscale={"mode": "recommend", "min": 0}))]  # a dry run


@pytest.mark.parametrize("scale", [{}, {"max": 2}])
def test_a_fixed_port_is_for_one_replica(scale: dict[str, Any]) -> None:
    runtime = {"command": "serve", "url": "http://127.0.0.1:8000"}
    (line,) = errors(runtime=runtime, autoscale=scale)
    assert line == "runtime.url: two replicas cannot listen on the same port: use {port}"
    assert not [*find_problems(config(runtime=runtime, autoscale={"min": 0, "max": 1}))]


def test_they_fit_on_the_load_board_together() -> None:
    """Where many are listed, the ledger is larger."""
    assert MAX_REPLICAS == MIN_LEDGER_COLUMNS
    listed = [{"url": f"http://a:{port}"} for port in range(1, 97)]
    assert not [*find_problems(config(runtime={"replicas": 4000}, replicas=listed))]
    (line,) = errors(runtime={"replicas": 4001}, replicas=listed)
    assert line.startswith("runtime.replicas: up to 4001 replicas may be started, and there is room for 4000")
    (line,) = errors(runtime={"replicas": 4097}, autoscale={"mode": "recommend"})
    assert line.startswith("runtime.replicas: ")


def test_the_most_that_there_may_be() -> None:
    cases = [({}, None, 1), ({"replicas": 3}, None, 3), ({}, {"max": 7}, 7), ({}, {}, float("inf"))]
    for runtime, scale, most in cases:
        keys = {} if scale is None else {"autoscale": scale}
        assert max_started(config(runtime=runtime, **keys).models["m"]) == most
    assert max_started(config(runtime={"replicas": 2}, autoscale={"mode": "recommend", "max": 9}).models["m"]) == 2
    assert max_started(config().models["m"]) == 0


def test_zones() -> None:
    assert time_zone("") is None
    assert str(time_zone("UTC")) == "UTC"
    assert str(time_zone("Europe/Paris")) == "Europe/Paris"


def test_a_machine_without_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.config.sections.scaling.available_timezones", set)
    with pytest.raises(ValueError, match="'Moon/Base': this machine has no time zones but UTC: pip install tzdata"):
        time_zone("Moon/Base")


# ---------------------------------------------------------------------- files


def write(here: Path, **runtime: Any) -> Path:
    path = here / "gateway.yaml"
    path.write_text(yaml.safe_dump({"models": {"m": {"runtime": {"command": COMMAND, **runtime}}}}))
    return path


def test_it_runs_in_the_folder_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    cases = {"": tmp_path, "sub": tmp_path / "sub", "/": Path("/")}
    for given, folder in cases.items():
        found = load_config(write(tmp_path, working_directory=given, log_directory="logs")).models["m"].runtime
        assert isinstance(found, ProcessRuntimeConfig)
        assert (found.working_directory, found.log_directory) == (str(folder), str(tmp_path / "logs"))
    found = load_config(write(tmp_path)).models["m"].runtime
    assert isinstance(found, ProcessRuntimeConfig)
    assert (found.working_directory, found.log_directory) == (str(tmp_path), "")


@pytest.mark.parametrize(
    ("folder", "what"),
    [("no", "there is no such folder"), ("gateway.yaml", "is not a folder"), ("a\0b", "there is no such folder")],
)
def test_where_nothing_can_run(tmp_path: Path, folder: str, what: str) -> None:
    with pytest.raises(DocumentError, match=rf"models\.m\.runtime\.working_directory: .*: .*{what}"):
        load_config(write(tmp_path, working_directory=folder))


def missing(runtime: ProcessRuntimeConfig) -> str:
    return "".join(what for _, what, _ in runtime.missing_command(()))


def test_a_program_that_is_not_there_does_not_keep_a_gateway_from_starting(tmp_path: Path) -> None:
    """It serves other models, and tells of this one."""
    found = load_config(write(tmp_path, command="./no-such-program {port}")).models["m"].runtime
    assert isinstance(found, ProcessRuntimeConfig)
    assert missing(found) == f"Nothing can be started: there is no program {tmp_path}/no-such-program."


def test_programs_that_are_there_and_those_that_are_not(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / "program").write_text("")
    (tmp_path / "program").chmod(0o755)
    cases = {
        "sh -c true": "",
        "/bin/sh": "",
        "./program": "",
        "./plain": f"{tmp_path}/plain may not be run",
        "no-such-program-at-all": "there is no program no-such-program-at-all on the PATH",
        "./{model}/serve": "",  # nobody knows yet
        "a 'b": "",  # told elsewhere
    }
    for command, what in cases.items():
        runtime = ProcessRuntimeConfig(command=command, working_directory=str(tmp_path))
        assert missing(runtime) == (what and f"Nothing can be started: {what}."), command
    runtime = ProcessRuntimeConfig(command="program", working_directory="/", environment={"PATH": str(tmp_path)})
    assert missing(runtime) == ""


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python server.py --api-key s3cret", "python server.py"),
        ("vllm serve meta/llama --port {port}", "vllm serve meta/llama"),
        ("python -m uvicorn app:app --port {port}", "python -m uvicorn app:app"),
        (["./serve"], "./serve"),
    ],
)
def test_a_command_is_shown_without_its_options(command: str | list[str], shown: str) -> None:
    runtime = ProcessRuntimeConfig(command=command if isinstance(command, str) else tuple(command))
    assert runtime.describe() == shown
