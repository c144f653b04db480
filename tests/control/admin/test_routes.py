from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from steelyard.config import ReplicaConfig

from .serving import Served

REPLICA = {"url": "http://127.0.0.1:9001", "id": "b"}
ODD = "org/mœdel:7b.1"  # a model of the fake


def failed(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == code
    assert error["message"]
    return error


# ---------------------------------------------------------------------- seeing


def test_it_is_healthy_while_a_worker_serves(admin: Served) -> None:
    assert admin.http.get("/healthz").json() == {"status": "ok", "reasons": []}
    admin.operations.serving = False
    answer = admin.http.get("/healthz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "unavailable", "reasons": ["no worker serves"]}


def test_it_is_ready_while_every_model_has_a_ready_replica(admin: Served) -> None:
    assert admin.http.get("/readyz?verbose").status_code == 200
    admin.http.post("/v1/models/llama/replicas/a/drain")
    answer = admin.http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == ["no replica of llama is ready"]


def test_the_fleet_is_shown_with_all_its_parts(admin: Served) -> None:
    fleet = admin.http.get("/v1/fleet").json()
    assert [model["model"] for model in fleet["models"]] == ["llama", ODD]
    assert fleet["replicas"][0]["balancer"]["weight"] == 1.0
    assert fleet["replicas"][0]["probe"]["result"] == "ready"
    assert set(fleet) >= {"version", "uptime", "workers", "discovery", "alarms"}


def test_what_happened_is_shown_the_latest_last(admin: Served) -> None:
    admin.http.post("/v1/models/llama/replicas", json=REPLICA)
    assert admin.http.get("/v1/events").json()["events"][-1]["replica"] == "b"


def test_models_and_replicas_can_be_looked_at_one_by_one(admin: Served) -> None:
    assert len(admin.http.get("/v1/models").json()["models"]) == 2
    assert admin.http.get("/v1/models/llama").json()["replicas"] == 1
    assert [one["id"] for one in admin.http.get("/v1/models/llama/replicas").json()["replicas"]] == ["a"]
    assert admin.http.get("/v1/models/llama/replicas/a").json()["url"] == "http://127.0.0.1:8001"


def test_devices_and_sizes_can_be_looked_at(admin: Served) -> None:
    assert [one["device"] for one in admin.http.get("/v1/devices").json()["devices"]] == ["node1/gpu0", "dark"]
    one = admin.http.get("/v1/devices/node1%2Fgpu0").json()
    assert (one["capacity"], one["servers"][0]["models"][0]["base"]) == (8 << 30, 3 << 30)
    assert admin.http.get("/v1/devices/dark").json()["capacity"] is None
    assert [one["model"] for one in admin.http.get("/v1/model-memory").json()["model_memory"]] == ["llama", ODD]
    assert admin.http.get("/v1/fleet").json()["devices"][0] == one


def test_how_many_replicas_and_why_can_be_looked_at(admin: Served) -> None:
    (one,) = admin.http.get("/v1/scaling").json()["scaling"]
    assert (one["model"], one["desired"], one["reason"]) == ("llama", 3, "2 → 3: 1.9 s/s of work offered")
    assert one["start_failure"]["log_tail"] == ["out of memory"]
    assert admin.http.get("/v1/fleet").json()["scaling"] == [one]
    alone = admin.http.get("/v1/models/llama/scaling").json()
    assert [step["after"] for step in one["steps"]] == [3, 4, 5, 6, 7]
    assert [step["after"] for step in alone["steps"]] == [1, 2, 3, 4, 5, 6, 7]
    assert alone | {"steps": one["steps"]} == one


def test_a_model_that_is_not_scaled_has_no_scaling(admin: Served) -> None:
    error = failed(admin.http.get(f"/v1/models/{quote(ODD, safe='')}/scaling"), 404, "not_found")
    assert error["message"] == f"{ODD} has neither `autoscale` nor `runtime`"


def test_the_log_of_a_replica_that_was_started_is_shown_from_its_end(admin: Served) -> None:
    admin.operations.put_replica("llama", ReplicaConfig(url="http://127.0.0.1:20000", id="started/1"), "runtime")
    admin.operations.printed = 1200
    path = "/v1/models/llama/replicas/started%2F1/log"
    tail = admin.http.get(path).json()
    assert (tail["model"], tail["replica"], len(tail["lines"])) == ("llama", "started/1", 50)
    assert tail["lines"][-1] == "line 1199 of started/1"
    assert admin.http.get(f"{path}?lines=2").json()["lines"] == ["line 1198 of started/1", "line 1199 of started/1"]
    assert len(admin.http.get(path, params={"lines": 1000}).json()["lines"]) == 1000


@pytest.mark.parametrize("lines", ["0", "1001", "-1", "1.5", "", "ten", "0x10", "٣", "1e2", "true", "1" * 5000])
def test_a_number_of_lines_that_cannot_be_is_refused(admin: Served, lines: str) -> None:
    error = failed(admin.http.get("/v1/models/llama/replicas/a/log", params={"lines": lines}), 422, "invalid")
    assert [detail["key"] for detail in error["details"]] == ["lines"]


def test_a_replica_that_others_started_has_no_log_here(admin: Served) -> None:
    error = failed(admin.http.get("/v1/models/llama/replicas/a/log"), 404, "not_found")
    assert error["message"] == "Steelyard did not start 'a': its log is with what started it"


def test_head_is_get_without_a_body(admin: Served) -> None:
    answer = admin.http.head("/v1/models")
    assert answer.status_code == 200
    assert answer.content == b""
    assert int(answer.headers["content-length"]) == len(admin.http.get("/v1/models").content)


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v1/",
        "/v1/fleet/",
        "/v1//fleet",
        "/v1%2Ffleet",
        "/healthz/",
        "/v1/models/",
        "/v1/models//replicas",
        "/v1/models/nobody",
        "/v1/models/%FF",
        "/v1/models/%00",
        "/v1/models/org/mœdel:7b.1",
        "/v1/models/org%252Fm%25C5%2593del:7b.1",  # encoded twice
        "/v1/models/nobody/replicas",
        "/v1/models/nobody/replicas/a",
        "/v1/models/llama/replicas/b",
        "/v1/models/llama/replicas/%ED%A0%80",
        "/v1/models/llama/replicas/b/log",
        "/v1/models/nobody/replicas/a/log",
        "/v1/models/nobody/scaling",
        "/v1/scaling/llama",
        "/v1/devices/",
        "/v1/devices/nowhere",
        "/v1/devices/node1/gpu0",
        "/v1/metrics",
        "/metrics/",
    ],
)
def test_what_is_not_there_is_404(admin: Served, path: str) -> None:
    answer = admin.http.get(path)
    failed(answer, 404, "not_found")
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "", {"policy": "round_robin"}),
        ("POST", "/replicas", REPLICA),
        ("PATCH", "/replicas/b", {"weight": 2}),
        ("DELETE", "/replicas/b", None),
        ("POST", "/replicas/b/drain", None),
        ("POST", "/replicas/b/undrain", None),
        ("POST", "/replicas/b/load", None),
        ("POST", "/replicas/b/unload", None),
        ("PUT", "/leases/b", {"url": "http://127.0.0.1:9001"}),
        ("DELETE", "/leases/b", None),
    ],
)
def test_changes_of_what_is_not_there_are_404(admin: Served, method: str, path: str, body: Any) -> None:
    failed(admin.http.request(method, f"/v1/models/nobody{path}", json=body), 404, "not_found")
    if path not in ("", "/replicas") and method != "PUT":
        failed(admin.http.request(method, f"/v1/models/llama{path}", json=body), 404, "not_found")


def test_names_may_have_any_character(admin: Served) -> None:
    model = f"/v1/models/{quote(ODD, safe='')}"
    assert admin.http.get(model).json()["model"] == ODD
    added = admin.http.post(f"{model}/replicas", json={**REPLICA, "id": "pod/3:a.b?c#d%2F"})
    assert added.status_code == 201
    where = added.headers["location"]
    assert where == f"{model}/replicas/pod%2F3%3Aa.b%3Fc%23d%252F"
    assert admin.http.get(where).json()["id"] == "pod/3:a.b?c#d%2F"
    assert admin.http.post(f"{where}/drain").json()["state"] == "draining"
    assert admin.http.delete(where).status_code == 204


# ---------------------------------------------------------------------- changing


def test_a_replica_is_added_and_removed(admin: Served) -> None:
    added = admin.http.post("/v1/models/llama/replicas", json={**REPLICA, "weight": 2, "zone": "ward-a"})
    assert added.status_code == 201
    assert added.headers["location"] == "/v1/models/llama/replicas/b"
    assert (added.json()["weight"], added.json()["zone"], added.json()["source"]) == (2.0, "ward-a", "admin")
    failed(admin.http.post("/v1/models/llama/replicas", json=REPLICA), 409, "conflict")
    gone = admin.http.delete("/v1/models/llama/replicas/b")
    assert (gone.status_code, gone.content) == (204, b"")
    failed(admin.http.delete("/v1/models/llama/replicas/b"), 404, "not_found")


def test_what_is_added_while_a_configuration_is_put_in_force_is_waited_for(admin: Served) -> None:
    admin.operations.rolling = 3
    assert admin.http.post("/v1/models/llama/replicas", json=REPLICA).json()["id"] == "b"


def test_without_an_id_a_replica_is_called_by_its_address(admin: Served) -> None:
    added = admin.http.post("/v1/models/llama/replicas", json={"url": "http://[::1]:9001"})
    assert added.json()["id"] == "[::1]:9001"
    assert admin.http.get(added.headers["location"]).status_code == 200


def test_what_the_configuration_names_is_not_removed_here(admin: Served) -> None:
    failed(admin.http.delete("/v1/models/llama/replicas/a"), 409, "conflict")


def test_a_replica_is_drained_and_taken_back(admin: Served) -> None:
    drained = admin.http.post("/v1/models/llama/replicas/a/drain").json()
    assert (drained["state"], drained["draining"]) == ("draining", True)
    back = admin.http.post("/v1/models/llama/replicas/a/undrain", json={}).json()
    assert (back["state"], back["draining"]) == ("loading", False)


def test_a_model_is_loaded_and_unloaded(admin: Served) -> None:
    path = "/v1/models/llama/replicas/a"
    assert admin.http.post(f"{path}/unload").json()["state"] == "unloaded"
    assert admin.http.post(f"{path}/load", json={}).json()["state"] == "loading"


def test_a_model_without_placement_is_not(admin: Served) -> None:
    for what in ("load", "unload"):
        answer = admin.http.post(f"/v1/models/{quote(ODD, safe='')}/replicas/a/{what}")
        assert "has no placement" in failed(answer, 409, "conflict")["message"]


def test_a_weight_is_set_and_given_back(admin: Served) -> None:
    path = "/v1/models/llama/replicas/a"
    assert admin.http.patch(path, json={"weight": 4.5}).json()["weight"] == 4.5
    assert admin.http.patch(path, json={"weight": None}).json()["weight"] == 1.0


def test_a_policy_is_switched_and_given_back(admin: Served) -> None:
    changed = admin.http.patch("/v1/models/llama", json={"policy": "round_robin", "concurrency": 2.0}).json()
    assert (changed["policy"], changed["concurrency"]) == ("round_robin", 2)
    assert changed["overridden"] == ["concurrency", "policy"]
    back = admin.http.patch("/v1/models/llama", json={"policy": None}).json()
    assert (back["policy"], back["concurrency"], back["overridden"]) == ("least_work", 2, ["concurrency"])


def test_a_class_of_ones_own_is_used_only_if_the_configuration_names_it(admin: Served) -> None:
    """To use it is to import it, and whatever is imported runs."""
    error = failed(admin.http.patch("/v1/models/llama", json={"policy": "antigravity:Fly"}), 422, "invalid")
    assert error["details"][0]["key"] == "policy"


def test_a_replica_registers_renews_and_leaves(admin: Served) -> None:
    path = "/v1/models/llama/leases/pod-1"
    lease = {"url": "http://127.0.0.1:9001", "seconds": 20, "instance": "first"}
    assert admin.http.put(path, json=lease).json() == {"seconds": 20.0}
    assert admin.http.put(path, json={**lease, "seconds": 1e6}).json() == {"seconds": 60.0}
    assert admin.http.put(path, json={"url": lease["url"], "instance": "second"}).json() == {"seconds": 60.0}
    assert admin.http.get("/v1/models/llama/replicas/pod-1").json()["source"] == "registration"
    failed(admin.http.delete(path, params={"instance": "first"}), 409, "conflict")
    assert admin.http.delete(path, params={"instance": "second"}).status_code == 204
    failed(admin.http.delete(path, params={"instance": "second"}), 404, "not_found")


def test_a_configured_replica_cannot_be_registered(admin: Served) -> None:
    answer = admin.http.put("/v1/models/llama/leases/a", json={"url": "http://127.0.0.1:9001"})
    failed(answer, 409, "conflict")


def test_the_configuration_is_read_again(admin: Served) -> None:
    admin.operations.put_replica("llama", ReplicaConfig(url="http://127.0.0.1:9001", id="leased"), "registration")
    assert admin.http.post("/v1/reload").json() == {"models": 2, "replicas": 2}, "what the log says, too"
    admin.operations.wrong_config = "no policy 'fast'"
    error = failed(admin.http.post("/v1/reload"), 422, "invalid")
    assert error["details"] == [{"key": "models.llama.policy", "message": "no policy 'fast'"}]
