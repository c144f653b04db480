from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from steelyard.config import Config, schema
from steelyard.documents import Seconds, Share, Size, decode_value, encode_value, type_problems

from .configs import CONFIGS

ROOT = Path(__file__).parents[2]
SCHEMA = schema()
VALIDATOR = Draft202012Validator(SCHEMA)
GOOD = {"models": {"m": {"replicas": [{"url": "http://a:1"}]}}}


def test_it_is_a_schema_and_the_committed_copy_is_the_same() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    committed = json.loads((ROOT / "docs/steelyard.schema.json").read_text(encoding="utf-8"))
    assert committed == SCHEMA, "steelyard check --schema > docs/steelyard.schema.json"


@pytest.mark.parametrize("name", ["gateway.yaml", "autoscale.yaml"])
def test_examples_conform(name: str) -> None:
    VALIDATOR.validate(yaml.safe_load((ROOT / "examples" / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"models": []},
        {"models": {"m": {"replicas": [{}]}}},
        {"models": {"m": {"replicas": {"url": "http://a:1"}}}},
        {"models": {"m": {"replicas": [{"url": "http://a:1", "wieght": 2}]}}},
        {"models": {"m": {"replicas": [{"url": "http://a:1", "weight": 0}]}}},
        {"models": {"m": {"concurrency": "many"}}},
        {"models": {"m": {"concurrency": 0}}},
        {"models": {"m": {"queue_timeout": "soon"}}},
        {"models": {"m": {"retry": {"budget": 1.2}}}},
        {"models": {"m": {"health": None}}},
        {"models": {"m": {"health": {"warm_up": [{"body": 1}]}}}},
        {"models": {"m": {"health": {"headers": {"x": 1}}}}},
        {"models": {"m": {"load_metrics": {"port": 65536}}}},
        {"models": {"m": {"discovery": {"kind": "dns", "name": "a"}}}},
        {"models": {"m": {"discovery": [{"kind": "dns", "name": "a", "record_type": "mx"}]}}},
        {"models": {"m": {"discovery": [{"path": "a"}]}}},
        {"models": {"m": {"discovery": [{"kind": "consul", "service": "a"}]}}},
        {"models": {"m": {"discovery": [{"kind": "file", "name": "a"}]}}},
        {**GOOD, "admin": {"allowed_ports": [8000]}},
        {**GOOD, "listen": 8080},
        {**GOOD, "worker": 1},
        {**GOOD, "workers": 0},
        {**GOOD, "tls": {"certificate": "a"}},
        {**GOOD, "limits": {"body_bytes": "10 apples"}},
        {**GOOD, "limits": {"body_bytes": -1}},
        {**GOOD, "timeouts": {"idle": "5 parsecs"}},
        {**GOOD, "access_log": {"path": "-", "format": "xml"}},
        {**GOOD, "devices": {"g": {"memory": "much"}}},
        {**GOOD, "devices": {"g": {"concurrency": 0}}},
        {**GOOD, "devices": {"g": {"gpu": 0}}},
        {"models": {"m": {"memory": {"weights": "80%"}}}},
        {"models": {"m": {"memory": {"requests": "1GiB"}}}},
        {"models": {"m": {"placement": {"load_api": "kserve"}}}},
        {"models": {"m": {"placement": True}}},
        {"models": {"m": {"runtime": {}}}},
        {"models": {"m": {"runtime": {"command": 1}}}},
        {"models": {"m": {"runtime": {"command": "a", "kind": "docker"}}}},
        {"models": {"m": {"runtime": {"command": ["a", 1]}}}},
        {"models": {"m": {"runtime": {"command": "a", "environment": {"PORT": 1}}}}},
        {"models": {"m": {"autoscale": {"max": 0}}}},
        {"models": {"m": {"autoscale": {"min": -1}}}},
        {"models": {"m": {"autoscale": {"mode": "dry"}}}},
        {"models": {"m": {"autoscale": {"schedule": [{"start": "08:00", "end": "18:00"}]}}}},
    ],
    ids=str,
)
def test_what_the_types_refuse_does_not_conform(wrong: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(wrong)
    assert list(type_problems(wrong, Config))


@pytest.mark.parametrize(("key", "right", "wrong"), [
    ("policy", ["random", "my.package:Policy", ""], ["least_wrok", "none"]),
    ("dialect", ["openai", "vllm", "", "my.package:Dialect"], ["vLLM", "grpc"]),
])  # fmt: skip
def test_the_schema_knows_the_names(key: str, right: list[str], wrong: list[str]) -> None:
    assert all(VALIDATOR.is_valid({"models": {"m": {key: name}}}) for name in right)
    assert not any(VALIDATOR.is_valid({"models": {"m": {key: name}}}) for name in wrong)


def test_the_schema_leaves_the_keys_of_own_kinds_open() -> None:
    VALIDATOR.validate(
        {
            "models": {
                "m": {
                    "discovery": [{"kind": "my.package:Consul", "service": "a"}],
                    "runtime": {"kind": "my.own:Runtime", "image": "a"},
                }
            }
        }
    )


def test_the_schema_knows_the_scalers() -> None:
    right = {"work": True, "hpa": True, "my.package:Scaler": True, "keda": False, "": False}
    assert {name: VALIDATOR.is_valid({"models": {"m": {"autoscale": {"scaler": name}}}}) for name in right} == right


@given(CONFIGS)
def test_whatever_the_types_allow_conforms(config: Config) -> None:
    data = msgspec.to_builtins(config, enc_hook=encode_value)
    for model in data["models"].values():  # names of policies and dialects are checked by both, but not by the types
        model.pop("policy", None)
        model.pop("dialect", None)
        model.get("autoscale", {}).pop("scaler", None)
    VALIDATOR.validate(json.loads(msgspec.json.encode(data)))


def quantity(kind: type) -> Draft202012Validator:
    """What the schema says of a Seconds, Size or Share."""
    part, name = {
        Seconds: ("TimeoutsConfig", "idle"),
        Size: ("LimitsConfig", "body_bytes"),
        Share: ("RetryConfig", "budget"),
    }[kind]
    return Draft202012Validator(SCHEMA["$defs"][part]["properties"][name])


@pytest.mark.parametrize("kind", [Seconds, Size, Share])
@given(data=st.data())
def test_quantities_conform_just_when_they_can_be_read(kind: type, data: st.DataObject) -> None:
    texts = st.from_regex(r"\s?[0-9]{1,2}(\.[0-9])?\s?([uµmsKMG]?[smhdB]|iB|KiB|%)?\s?", fullmatch=True)
    value = data.draw(st.integers(-2, 5) | st.floats(-2, 5) | texts | st.text(max_size=4) | st.booleans() | st.none())
    if isinstance(value, float) and kind is Size:
        return  # 2.0 is an integer in JSON schema, and none in YAML
    if kind is Share and isinstance(value, str) and re.fullmatch(r"\s*[0-9.]+\s*%?\s*", value):
        return  # a pattern cannot tell what is more than the whole
    try:
        decode_value(kind, value)
    except ValueError:
        assert not quantity(kind).is_valid(value)
    else:
        assert quantity(kind).is_valid(value)


def test_editors_can_explain_every_key() -> None:
    for part in SCHEMA["$defs"].values():
        assert part["description"]
        for name, key in part["properties"].items():
            assert key.get("description"), f"{part['title']}.{name}"


def test_defaults_are_shown_as_people_write_them() -> None:
    parts = SCHEMA["$defs"]
    assert parts["TimeoutsConfig"]["properties"]["first_byte"]["default"] == "300s"
    assert parts["LimitsConfig"]["properties"]["body_bytes"]["default"] == "256MiB"
    assert parts["RetryConfig"]["properties"]["budget"]["default"] == 0.2
    assert parts["ModelConfig"]["properties"]["policy"]["default"] == ""
    assert parts["HealthConfig"]["properties"]["interval"]["default"] == "5s"
    assert parts["HealthConfig"]["properties"]["headers"]["default"] == {}
    assert parts["ProcessRuntimeConfig"]["properties"]["start_timeout"]["default"] == "600s"
    assert parts["AdminConfig"]["properties"]["allowed_ports"]["default"] == ["1024-65535"]


def test_the_body_of_what_is_asked_may_be_anything() -> None:
    for body in ("text", 1, None, [1, "a"], {"model": "m", "n": {"x": []}}):
        asking = {"path": "/", "body": body}
        VALIDATOR.validate({"models": {"m": {"health": {"inference": asking, "warm_up": [asking]}}}})
