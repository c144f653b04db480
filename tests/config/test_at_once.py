"""All mistakes of a configuration in one pass, whatever kind they are of; variables; short forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.config import Config, ReplicaConfig, load_config, parse_config
from steelyard.documents import DocumentError, YamlDocument

MANY = """\
listen: 0.0.0.0
worker: 2
admin: {listen: "0.0.0.0:9080"}
tls: {certificate: nowhere.pem, key: nowhere.key}
timeouts: {connect: soon}
limits: 5
models:
  chat:
    dialect: vlm
    concurrency: many
    replicas:
      - http://a:8000
      - {url: "htp://b:8000"}
      - {id: c}
      - {url: "http://d:8000", wieght: 2}
    retry: {max_attempts: 0}
    healht: {path: ready}
  other:
    replicas: [http://e:1]
    replicas: ["http://${STEELYARD_TEST_UNSET}:1"]
    slo: {tenants: {gold: {latency: 1s}}}
"""
ALL = [
    "1: listen: '0.0.0.0' is not an address",
    "2: top level: unknown key `worker` (did you mean `workers`?)",
    "3: admin.listen: other machines can reach 0.0.0.0:9080: name a token_file",
    "4: tls.certificate: ",
    "4: tls.key: ",
    "5: timeouts.connect: 'soon' is not a duration",
    "6: limits: expected a mapping, got a whole number",
    "9: models.chat.dialect: no dialect 'vlm' (did you mean `vllm`?)",
    "10: models.chat.concurrency: no such value: 'many' (it takes a whole number, auto, unlimited)",
    "13: models.chat.replicas[1].url: 'htp://b:8000' is not the URL of a replica",
    "14: models.chat.replicas[2]: `url` is missing",
    "15: models.chat.replicas[3]: unknown key `wieght` (did you mean `weight`?)",
    "16: models.chat.retry.max_attempts: expected a whole number from 1",
    "17: models.chat: unknown key `healht` (did you mean `health`?)",
    "17: models.chat.healht.path: 'ready': a path begins with a slash",
    "20: models.other: `replicas` is there twice, first in line 19",
    "20: models.other.replicas[0]: the variable STEELYARD_TEST_UNSET is not set",
    "21: models.other.slo: sets no target",
    "21: models.other.slo.tenants: no `tenant_header` tells the tenant of a request",
]


def refused(text: str, **environment: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        parse_config(text, "f", environment)
    return list(caught.value.lines)


def served(text: str, **environment: str) -> Config:
    return parse_config(text, "f", environment)


def test_mistakes_of_every_kind_are_told_in_one_pass(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(MANY)
    with pytest.raises(DocumentError) as caught:
        load_config(tmp_path / "f.yaml")
    lines = [line.removeprefix(f"{tmp_path}/f.yaml:") for line in caught.value.lines]
    assert [line[: len(start)] for line, start in zip(lines, ALL, strict=True)] == ALL


@pytest.mark.parametrize(
    ("text", "only"),
    [
        # What was left out because of one mistake is not told as another.
        ("models: {m: {replicas: [{}]}}", "models.m.replicas[0]: `url` is missing"),
        ("models: {m: {slo: {latency: soon}}}", "models.m.slo.latency: 'soon' is not a duration"),
        (
            "models: {m: {discovery: [{kind: file, path: [a]}]}}",
            "models.m.discovery[0].path: expected text, got a",
        ),
        ("modles: {m: {}}", "top level: unknown key `modles` (did you mean `models`?)"),
        (
            "devices: {g: 80GiB}\nmodels: {m: {replicas: [{url: 'http://a:1', device: g}]}}",
            "devices.g: expected a mapping",
        ),
    ],
)
def test_one_mistake_is_told_as_one(text: str, only: str) -> None:
    (line,) = refused(text)
    assert line.partition(" ")[2].startswith(only)


def test_replicas_may_be_plain_urls() -> None:
    config = served("models: {m: {replicas: [http://a:1, {url: 'http://b:1', weight: 2}, unix:/run/c]}}")
    assert [replica.name for replica in config.models["m"].replicas] == ["a:1", "b:1", "unix:/run/c"]
    assert config.models["m"].replicas[0] == ReplicaConfig(url="http://a:1")
    (line,) = refused("models:\n  m:\n    replicas:\n    - http://a:1\n    - a:2\n")
    assert line.startswith("f:5: models.m.replicas[1].url: 'a:2' is not the URL of a replica")


def test_variables() -> None:
    text = """
workers: ${WORKERS}
listen: "127.0.0.1:${PORT:-8080}"
models:
  ${MODEL}:
    replicas: ["http://${HOST}:1", "http://${EMPTY:-b}:${PORT:-2}"]
    health: {headers: {x: "$${HOST} $HOST {HOST} ${EMPTY}."}, path: "${PATHS:-/ready}"}
"""
    config = served(text, WORKERS="3", MODEL="m", HOST="a", EMPTY="")
    assert config.workers == 3
    assert config.listen_texts == ("127.0.0.1:8080",)
    model = config.models["m"]
    assert [replica.url for replica in model.replicas] == ["http://a:1", "http://b:2"]
    assert model.health.headers == {"x": "${HOST} $HOST {HOST} ."}
    assert model.health.path == "/ready"


def test_a_variable_cannot_change_the_shape_of_a_file() -> None:
    (line,) = refused("workers: 1\nmodels: ${ALL}", ALL="{m: {}}")
    assert line == "f:2: models: expected a mapping, got text"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${NO}", "the variable NO is not set: set it, or write ${NO:-default}; write $${ where a plain ${ is meant"),
        ("a${NO}b${NOT}", "the variable NO is not set"),
        ("${9}", "'${9}' is not a variable: write ${NAME} or ${NAME:-default}"),
        ("${}", "'${}' is not a variable"),
        ("${NO", "'${NO' is not a variable"),
        ("${NO:?x}", "'${NO:?x}' is not a variable"),
    ],
)
def test_a_variable_that_is_not_set_is_an_error_with_its_line(text: str, says: str) -> None:
    lines = refused(f"workers: 1\nname: '{text}'\nmodels: {{m: {{}}}}")
    assert len(lines) == 1
    assert lines[0].startswith(f"f:2: name: {says}")


def test_inside_brackets_a_variable_needs_quotes() -> None:
    (line,) = refused("models: {m: {replicas: [http://${HOST}:1]}}", HOST="a")
    assert line.endswith("(inside [ ] and { }, put ${…} in quotes)")


SECRET = "s3cr3t-t0ken-of-the-server-that-nobody-may-see-and-that-is-longer-than-a-message-shows"


@pytest.mark.parametrize("key", ["workers", "name", "listen", "tenant_header", "trusted_proxies"])
@pytest.mark.parametrize("value", ["${TOKEN}", "a ${TOKEN} b", "${TOKEN}é"])
@pytest.mark.parametrize("secret", [SECRET, SECRET[:9], "with 'quotes' \\ and spaces"])
def test_what_a_variable_holds_is_not_shown(key: str, value: str, secret: str) -> None:
    lines = refused(f"{key}: '{value}'\nmodels: {{m: {{policy: '{value}', dialect: '{value}'}}}}", TOKEN=secret)
    assert secret[:9] not in "\n".join(lines)
    assert "${TOKEN}" in "\n".join(lines)


def test_a_piece_of_what_a_variable_holds_is_not_shown() -> None:
    (line,) = refused("models: {m: {replicas: ['${URL}']}}", URL="http://a:1/v1?key=s3cr3t-t0ken")
    assert "s3cr3t" not in line
    assert "'${URL}': leave out '${URL}'" in line


@pytest.mark.parametrize("tag", ["!!int", "!!float", "!!bool", "!!timestamp"])
def test_a_variable_that_is_not_of_its_tag_is_not_shown(tag: str) -> None:
    (line,) = refused(f"workers: {tag} '${{TOKEN}}'\nmodels: {{}}", TOKEN=SECRET)
    assert line == f"f:1: not valid YAML: not a valid {tag[2:]}"


def test_what_only_begins_like_a_variable_is_shown() -> None:
    """`${CA}` in place of another path would send its reader to the wrong file."""
    lines = refused("name: '${CA}'\nlisten: '/etc/steelyard/gateway'\nmodels: {}", CA="/etc/steelyard/ca.pem")
    assert any("'/etc/steelyard/gateway' is not an address" in line for line in lines)


def test_other_documents_have_no_variables() -> None:
    assert YamlDocument("a: ${HOME}").data == {"a": "${HOME}"}
