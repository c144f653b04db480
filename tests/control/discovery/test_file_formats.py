"""Texts into replicas, and what is wrong with them."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import ReplicaConfig
from steelyard.control.discovery.file_formats import parse_replicas
from steelyard.documents import DocumentError

from ...config.configs import PLAIN

THREE = (
    ReplicaConfig(url="http://10.0.0.1:8000"),
    ReplicaConfig(url="http://10.0.0.2:8000", id="two", weight=4.0, zone="a", device="n/gpu0", ready="/ok"),
    ReplicaConfig(url="unix:/run/model.sock"),
)
LIST = """
- http://10.0.0.1:8000
- {url: "http://10.0.0.2:8000", id: two, weight: 4, zone: a, device: n/gpu0, ready: /ok}
- url: unix:/run/model.sock
"""


def wrong(text: str, scheme: str = "http") -> list[str]:
    with pytest.raises(DocumentError) as problem:
        parse_replicas(text, "r.yaml", scheme)
    return list(problem.value.lines)


def test_a_list() -> None:
    assert parse_replicas(LIST, "r.yaml") == THREE


def test_a_mapping() -> None:
    assert parse_replicas("replicas:" + LIST.replace("\n-", "\n  -"), "r.yaml") == THREE


def test_json() -> None:
    text = json.dumps({"replicas": [{"url": "http://10.0.0.1:8000", "weight": 2}, "http://10.0.0.2:8000"]}, indent="\t")
    assert [one.weight for one in parse_replicas(text, "r.json")] == [2, 1]


def test_an_empty_list_is_a_list() -> None:
    assert parse_replicas("[]", "r.yaml") == ()
    assert parse_replicas("replicas: []", "r.yaml") == ()
    assert parse_replicas("- targets: []", "r.yaml") == ()


def test_file_sd_of_prometheus() -> None:
    text = """
    [{"targets": ["10.0.0.1:8000", "gpu.example:9000"],
      "labels": {"job": "llama", "__scheme__": "https", "weight": "4", "zone": "a", "device": "gpu0", "env": null}},
     {"targets": ["10.0.0.3:8000"], "labels": {"__weight__": "0.5"}},
     {"targets": ["10.0.0.4", "[fd00::1]:80"]}]
    """
    assert parse_replicas(text, "r.json") == (
        ReplicaConfig(url="https://10.0.0.1:8000", weight=4.0, zone="a", device="gpu0"),
        ReplicaConfig(url="https://gpu.example:9000", weight=4.0, zone="a", device="gpu0"),
        ReplicaConfig(url="http://10.0.0.3:8000", weight=0.5),
        ReplicaConfig(url="http://10.0.0.4"),
        ReplicaConfig(url="http://[fd00::1]:80"),
    )
    assert parse_replicas("- targets: [a:1]", "r.yaml", "https") == (ReplicaConfig(url="https://a:1"),)


def test_a_target_in_two_groups_is_one_replica() -> None:
    text = "- {targets: [a:1], labels: {zone: x}}\n- {targets: [a:1, b:1], labels: {zone: y}}"
    assert [(one.url, one.zone) for one in parse_replicas(text, "r.yaml")] == [("http://a:1", "x"), ("http://b:1", "y")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "r.yaml: the file is empty"),
        ("# nothing\n", "r.yaml: the file is empty"),
        ("- a: [", "r.yaml:1: not valid YAML"),
        ("hello", "r.yaml:1: top level: expected a list, got text"),
        ("{}", "r.yaml:1: top level: `replicas` is missing"),
        ("replicas: []\nreplica: []", "did you mean `replicas`?"),
        ("- http://a:1\n- 7", "r.yaml:2: [1]: expected text or a mapping, got a whole number"),
        ("- http://a:1\n- {url: 'http://b:1', wieght: 2}", "r.yaml:2: [1]: unknown key `wieght`"),
        ("- url: http://a:1\n  weight: -1", "r.yaml:2: [0].weight: expected a number from 1e-06"),
        ("- url: http://a:1\n  weight: .nan", "r.yaml:2: [0].weight"),
        ("- url: http://a:1\n  url: http://b:1", "`url` is there twice"),
        ("- a:1", "r.yaml:1: [0]: 'a:1' is not the URL of a replica: write http://a:1"),
        ("replicas:\n- url: http://a:1\n- url: http://a:1/x", "r.yaml:3: replicas[1].url: 'http://a:1/x': leave out"),
        ("- http://a:1\n- http://a:1", "r.yaml:2: [1]: 'a:1' is the name of replicas[0] too"),
        ("- {url: 'http://a:1', id: 'two words'}", "r.yaml:1: [0].id: 'two words': the name of a replica"),
        ("- targets: a:1", "r.yaml:1: [0].targets: expected a list, got text"),
        ("- targets: [a:1]\n- labels: {}", "r.yaml:2: [1]: `targets` is missing"),
        ("- targets: [a:1]\n- http://a:1", "r.yaml:2: [1]: expected a mapping, got text"),
        ("-\n targets:\n - a:1\n - 'b:x'", "r.yaml:4: [0].targets[1]: 'http://b:x' is not the URL of a replica"),
        ("- targets: [a:1]\n  labels:\n    weight: heavy", "r.yaml:3: [0].labels.weight: 'heavy' is not a weight"),
        ("- targets: [a:1]\n  labels: {weight: nan}", "[0].labels.weight: 'nan' is not a weight"),
        ("- targets: [a:1]\n  labels: {__weight__: '0'}", "[0].labels.__weight__: '0' is not a weight"),
        ("- targets: [a:1]\n  labels: {__scheme__: ftp}", "[0].labels.__scheme__: 'ftp' is not http or https"),
        ("- targets: [a:1]\n  labels: {zone: [a]}", "[0].labels.zone: must be text"),
    ],
)
def test_what_is_wrong_is_told_with_file_line_and_key(text: str, said: str) -> None:
    (line,) = wrong(text)
    assert said in line


def test_all_that_is_wrong_is_told() -> None:
    assert len(wrong("- a\n- {url: 'http://b:1', id: ' '}\n- http://c:99999")) == 3


KEYS = st.sampled_from(["targets", "labels", "url", "replicas", "weight", "__weight__", "zone", "__scheme__"])
TEXTS = st.sampled_from(["http://a:1", "a:1", "http", "2", "b"])


def nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)


@given(st.recursive(PLAIN | TEXTS, nested))
def test_whatever_is_in_the_file(data: object) -> None:
    """It is replicas, or DocumentError tells what is wrong."""
    with suppress(DocumentError):
        assert all(one.name for one in parse_replicas(json.dumps(data), "r.json"))
