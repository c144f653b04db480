"""The dashboard's files: served without a token, strictly by themselves, and to no page of somebody else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from steelyard.addresses import listen_address
from steelyard.config import AdminConfig
from steelyard.control.admin import pages
from steelyard.control.admin.errors import ApiError
from steelyard.control.admin.security.access import AccessControl
from steelyard.core.policies import POLICIES

from .serving import TOKEN, Served, served
from .test_routes import failed

FOLDER = Path(pages.__file__).with_name("page")
SCRIPTS = sorted(FOLDER.glob("*.js"))


def test_every_file_is_served_as_what_it_is(admin: Served) -> None:
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    for file in FOLDER.iterdir():
        answer = admin.http.get("/" if file.name == "index.html" else f"/ui/{file.name}")
        assert answer.status_code == 200
        assert answer.content == file.read_bytes()
        assert answer.headers["content-type"].partition(";")[0] == kinds[file.suffix[1:]]
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
        assert answer.headers.get_list("cache-control") == ["no-store"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in answer.headers["content-security-policy"]
    assert admin.http.get("/ui/policies.json").json() == list(POLICIES)


def test_only_these_files_and_only_to_be_read(admin: Served) -> None:
    for path in ("/ui/", "/ui", "/ui/index.html", "/ui/../pages.py", "/ui/%2e%2e/pages.py", "/ui/..%2fpages.py"):
        failed(admin.http.get(path), 404, "not_found")
    for path in ("/", "/ui/main.js"):
        failed(admin.http.post(path), 405, "method_not_allowed")
        head = admin.http.head(path)
        assert head.status_code == 200
        assert head.content == b""
        assert int(head.headers["content-length"]) > 100
    assert admin.http.get("/?from=a-link").status_code == 200


def test_the_page_needs_no_token_and_what_it_shows_does(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKEN)
    with served(token_file=str(tmp_path / "tokens")) as admin:
        for path in pages.files():
            assert admin.http.get(path).status_code == 200, path
        for path in ("/v1/live", "/v1/fleet", "/ui/other.js", "/ui/"):
            failed(admin.http.get(path), 401, "unauthorized")


def test_all_it_uses_is_there_and_nothing_is_elsewhere() -> None:
    for file in FOLDER.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, f"{file.name} names another place"
    for script in SCRIPTS:
        for name in re.findall(r'from "\./([^"]+)"', script.read_text(encoding="utf-8")):
            assert (FOLDER / name).exists(), f"{script.name} imports {name}"
    for path in re.findall(r'(?:src|href)="(/[^"]*)"', (FOLDER / "index.html").read_text(encoding="utf-8")):
        assert path in pages.files()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_text_becomes_markup_or_code(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc"):
        assert way not in text, f"{script.name} uses {way}"


def test_nothing_is_inline() -> None:
    text = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text) == []


# ---------------------------------------------------------------------- pages of somebody else, without a token


def check(method: str = "GET", **headers: str) -> None:
    given = {"host": "127.0.0.1:9080", **{name.replace("_", "-"): value for name, value in headers.items()}}
    AccessControl(listen_address("127.0.0.1:9080"), AdminConfig()).check("/v1/fleet", Headers(given), method)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "whatever"])
@pytest.mark.parametrize(("mode", "dest"), [("no-cors", "image"), ("navigate", "iframe"), ("cors", "empty")])
def test_what_another_page_embeds_or_fetches_is_refused(site: str, mode: str, dest: str) -> None:
    with pytest.raises(ApiError) as caught:
        check(sec_fetch_site=site, sec_fetch_mode=mode, sec_fetch_dest=dest)
    assert caught.value.status == 403


def test_our_own_page_a_link_and_what_is_no_browser_may() -> None:
    check()
    check(sec_fetch_site="same-origin", sec_fetch_mode="cors", sec_fetch_dest="empty", origin="http://127.0.0.1:9080")
    check(sec_fetch_site="none", sec_fetch_mode="navigate", sec_fetch_dest="document")
    check(sec_fetch_site="cross-site", sec_fetch_mode="navigate", sec_fetch_dest="document")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_link_changes_nothing(method: str) -> None:
    """A form of another page navigates as a link does, and old browsers send no Origin with it."""
    with pytest.raises(ApiError):
        check(method, sec_fetch_site="cross-site", sec_fetch_mode="navigate", sec_fetch_dest="document")
    check(method, sec_fetch_site="same-origin", sec_fetch_mode="cors", sec_fetch_dest="empty")


def test_a_form_of_another_page_is_refused_though_it_navigates() -> None:
    with pytest.raises(ApiError):
        check(sec_fetch_site="cross-site", sec_fetch_mode="navigate", sec_fetch_dest="document", origin="null")
