from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from steelyard.control.admin.routes import MOVED_PATHS

from .serving import Served
from .test_routes import REPLICA, failed

ADD = "/v1/models/llama/replicas"
JSON = {"content-type": "application/json"}


def keys(error: dict[str, Any]) -> list[str]:
    return [detail["key"] for detail in error["details"]]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/v1/fleet", {"GET", "HEAD"}),
        ("OPTIONS", "/v1/models", {"GET", "HEAD"}),
        ("PUT", "/v1/models/llama", {"GET", "HEAD", "PATCH"}),
        ("GET", "/v1/models/llama/leases/a", {"PUT", "DELETE"}),
        ("GET", "/v1/reload", {"POST"}),
        ("DELETE", "/healthz", {"GET", "HEAD"}),
        ("POST", "/openapi.json", {"GET", "HEAD"}),
    ],
)
def test_another_method_is_405_and_told_which(admin: Served, method: str, path: str, allow: set[str]) -> None:
    answer = admin.http.request(method, path)
    failed(answer, 405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == allow


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nonsense", b'{"url": "\xff"}', b'{"weight": 1e999}', b"NaN", b"[" * 5000, b'{"id": "\\ud800"}'],
)
def test_what_is_not_json_is_400(admin: Served, body: bytes) -> None:
    failed(admin.http.post(ADD, content=body, headers=JSON), 400, "bad_request")


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"url": "http://127.0.0.1:8000", "url": "http://127.0.0.1:8001"}', "url"),
        (b'{"url": "http://127.0.0.1:8000", "u\\u0072l": "http://127.0.0.1:8001"}', "url"),
        (b'{"url": "http://127.0.0.1:8000", "other": [{"a": 1, "b": {"c": 1, "c": 1}}]}', "c"),
        (b'{"weight": 1' + b"0" * 400 + b', "id": "a", "\\u001b[31m": 1, "\\u001b[31m": 2}', "\\x1b[31m"),
        (b'{"%s": 1, "%s": 2}' % (b"k" * 500, b"k" * 500), "k" * 100),
    ],
)
def test_a_key_that_is_there_twice_is_400_with_its_name(admin: Served, body: bytes, key: str) -> None:
    error = failed(admin.http.post(ADD, content=body, headers=JSON), 400, "bad_request")
    assert error["message"] == f"the key `{key}` is there twice in one object: send it once"


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
def test_a_body_must_say_that_it_is_json(admin: Served, kind: str) -> None:
    for path in (ADD, "/v1/models/llama/replicas/a/drain", "/v1/reload"):
        answer = admin.http.post(path, content=b"{}", headers={"content-type": kind})
        failed(answer, 415, "unsupported_media_type")


def test_json_may_name_its_charset(admin: Served) -> None:
    kind = {"content-type": "Application/JSON; charset=utf-8"}
    assert admin.http.post(ADD, content=json.dumps(REPLICA), headers=kind).status_code == 201


def test_every_mistake_is_told_with_its_key(admin: Served) -> None:
    body = {"wieght": 1, "weight": "much", "id": "two words", "ready": "health", "zone": "a\nb", "device": 7}
    error = failed(admin.http.post(ADD, json=body), 422, "invalid")
    assert sorted(keys(error)) == ["device", "id", "ready", "url", "weight", "wieght", "zone"]
    assert "did you mean `weight`" in json.dumps(error)
    assert [replica["id"] for replica in admin.http.get(ADD).json()["replicas"]] == ["a"]


@pytest.mark.parametrize(
    ("method", "path", "body", "key"),
    [
        ("POST", ADD, [], ""),
        ("POST", ADD, None, ""),
        ("POST", ADD, {**REPLICA, "weight": 0}, "weight"),
        ("POST", ADD, {**REPLICA, "weight": 1e7}, "weight"),
        ("POST", ADD, {**REPLICA, "weight": 10**400}, "weight"),
        ("POST", ADD, {**REPLICA, "weight": True}, "weight"),
        ("POST", ADD, {**REPLICA, "id": "a\n"}, "id"),
        ("POST", ADD, {**REPLICA, "id": "a" * 129}, "id"),
        ("POST", ADD, {**REPLICA, "id": "é"}, "id"),
        ("POST", ADD, {**REPLICA, "zone": None}, "zone"),
        ("POST", ADD, {**REPLICA, "device": "nowhere"}, "device"),
        ("POST", ADD, {**REPLICA, "url": "http://10.0.0.1:9001"}, "url"),
        ("POST", ADD, {**REPLICA, "url": "http://127.0.0.1:22"}, "url"),
        ("POST", ADD, {**REPLICA, "url": "unix:/run/model.sock"}, "url"),
        ("POST", ADD, {f"k{number}": 0 for number in range(100)}, ""),
        ("PATCH", "/v1/models/llama", {"policy_options": {"a": [[]] * 100}}, ""),
        ("PATCH", f"{ADD}/a", {}, "weight"),
        ("PATCH", f"{ADD}/a", {"weight": -1}, "weight"),
        ("POST", f"{ADD}/a/drain", {"seconds": 3}, "seconds"),
        ("DELETE", f"{ADD}/a", {"force": True}, "force"),
        ("PATCH", "/v1/models/llama", {}, ""),
        ("PATCH", "/v1/models/llama", {"policy": "fastest"}, "policy"),
        ("PATCH", "/v1/models/llama", {"policy_options": {"no_such": 1}}, "policy_options.no_such"),
        ("PATCH", "/v1/models/llama", {"concurrency": "many"}, "concurrency"),
        ("PATCH", "/v1/models/llama", {"concurrency": 0}, "concurrency"),
        ("PATCH", "/v1/models/llama", {"concurrency": 1.5}, "concurrency"),
        ("PUT", "/v1/models/llama/leases/b", {"url": REPLICA["url"], "seconds": 0}, "seconds"),
        ("PUT", "/v1/models/llama/leases/b", {"url": REPLICA["url"], "id": "c"}, "id"),
        ("PUT", "/v1/models/llama/leases/b", {"url": "http://169.254.169.254:8000"}, "url"),
        ("PUT", "/v1/models/llama/leases/two%20words", {"url": REPLICA["url"]}, "replica"),
        ("POST", "/v1/reload", {"now": True}, "now"),
    ],
)
def test_bad_bodies_are_422(admin: Served, method: str, path: str, body: Any, key: str) -> None:
    before = admin.http.get("/v1/fleet").content
    error = failed(admin.http.request(method, path, content=json.dumps(body), headers=JSON), 422, "invalid")
    assert keys(error) == [key]
    assert admin.http.get("/v1/fleet").content == before


def test_a_body_that_is_deep_is_422_and_no_bug(admin: Served) -> None:
    body = b'{"policy_options": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}"
    failed(admin.http.patch("/v1/models/llama", content=body, headers=JSON), 422, "invalid")


def test_bad_queries_are_422(admin: Served) -> None:
    path = "/v1/models/llama/leases/b"
    assert keys(failed(admin.http.delete(f"{path}?instnce=a"), 422, "invalid")) == ["instnce"]
    assert keys(failed(admin.http.delete(f"{path}?instance=a&instance=a"), 422, "invalid")) == ["instance"]
    failed(admin.http.delete(f"{path}?instance=%FF"), 422, "invalid")
    failed(admin.http.delete(f"{path}?{'&'.join('abc' * 50)}"), 422, "invalid")
    assert keys(failed(admin.http.get("/v1/fleet?model=llama"), 422, "invalid")) == ["model"]
    failed(admin.http.get("/openapi.json?model=llama"), 422, "invalid")


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_of_more_than_a_mebibyte_is_413(admin: Served, declared: bool) -> None:
    body = b" " * (1 << 20) + b"{}"
    answer = admin.http.post(ADD, content=body if declared else iter([body[:70000], body[70000:]]), headers=JSON)
    failed(answer, 413, "too_large")
    assert admin.http.get("/v1/models").status_code == 200


def test_a_bug_is_500_and_the_log_has_it_but_not_the_answer(admin: Served, caplog: pytest.LogCaptureFixture) -> None:
    admin.operations.bug = True
    with caplog.at_level(logging.ERROR, "steelyard.admin"):
        answer = admin.http.get("/v1/fleet")
    failed(answer, 500, "internal")
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    (record,) = caplog.records
    assert (record.name, record.getMessage()) == ("steelyard.admin", "a bug: GET /v1/fleet failed")
    assert record.exc_info is not None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/fleet"),
        ("GET", "/healthz"),
        ("GET", "/nowhere"),
        ("PUT", "/v1/fleet"),
        ("POST", ADD),
        ("HEAD", "/nowhere"),
    ],
)
def test_nobody_keeps_an_answer_or_guesses_what_it_is(admin: Served, method: str, path: str) -> None:
    headers = admin.http.request(method, path).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-type"] == "application/json"
    assert "date" in headers


@pytest.mark.parametrize(("old", "new"), MOVED_PATHS.items())
def test_a_path_that_moved_names_the_new_one(admin: Served, old: str, new: str) -> None:
    assert new in failed(admin.http.get(old), 404, "not_found")["message"]
    assert admin.http.get(new).status_code == 200
