from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from steelyard.control.admin.errors import ERROR_CODES
from steelyard.control.admin.openapi import document
from steelyard.control.admin.routes import OPENAPI_PATH, ROUTES

from ..serving import Served, served

DOCUMENT = json.loads(document(token=True))
OPERATIONS = [
    (path, method, operation) for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
]


def test_the_document_is_served_as_it_is_in_force(admin: Served, tmp_path: Path) -> None:
    answer = admin.http.get(OPENAPI_PATH)
    assert answer.content == document(token=False)
    assert "security" not in answer.text
    (tmp_path / "tokens").write_text("0123456789abcdef")
    with served(token_file=str(tmp_path / "tokens")) as guarded:
        bearer = {"authorization": "Bearer 0123456789abcdef"}
        assert guarded.http.get(OPENAPI_PATH, headers=bearer).content == document(token=True)


def test_every_route_is_there_and_nothing_else() -> None:
    assert {(path, method.upper()) for path, method, _ in OPERATIONS} == {
        *((route.path, route.method) for route in ROUTES),
        (OPENAPI_PATH, "GET"),
    }
    names = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS, ids=lambda value: str(value)[:60])
def test_every_operation_is_complete(path: str, method: str, operation: dict) -> None:  # type: ignore[type-arg]
    assert operation["summary"].endswith((".", "?"))
    named = [parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "path"]
    assert named == re.findall(r"{(\w+)}", path)
    statuses = set(map(int, operation["responses"]))
    assert len([status for status in statuses if status < 300]) == 1
    assert statuses >= {400, 403, 408, 431, 500, 503}
    open_to_all = path in ("/healthz", "/readyz")
    assert (401 in statuses) == ("security" in operation) == (not open_to_all)
    assert ({409, 413, 415} <= statuses) == (method != "get")
    assert (404 in statuses) == bool(named)
    for response in operation["responses"].values():
        found = resolve(response)
        assert found["description"]
        assert {"cache-control", "x-content-type-options"} <= set(found["headers"])


def resolve(part: dict) -> dict:  # type: ignore[type-arg]
    found = part
    for step in part["$ref"].split("/")[1:] if "$ref" in part else ():
        found = DOCUMENT if found is part else found
        found = found[step]
    return found


def test_every_reference_leads_somewhere() -> None:
    for reference in set(re.findall(r'"\$ref": ?"([^"]+)"', json.dumps(DOCUMENT))):
        assert resolve({"$ref": reference}), reference


def test_its_schemas_are_schemas() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_code_is_explained() -> None:
    assert set(DOCUMENT["components"]["responses"]) == {code for code, _ in ERROR_CODES.values()}
    assert len(ERROR_CODES) == len({code for code, _ in ERROR_CODES.values()})
