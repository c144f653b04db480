"""docs/gateway.md names every code a client may see, with its status."""

from __future__ import annotations

import re
from pathlib import Path

from steelyard.core.reason import Reason
from steelyard.gateway.http import local_replies
from steelyard.gateway.http.headers import REQUEST_ROLES, ROLE_OPTION, MalformedMessageError
from steelyard.gateway.http.local_replies import ErrorReply

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/gateway.md").read_text(encoding="utf-8")


def documented() -> set[tuple[str, int]]:
    rows = re.findall(r"^\| (`[^|]+`) \| (\d{3}) \|", PAGE, re.MULTILINE)
    return {(code, int(status)) for codes, status in rows for code in re.findall(r"`(\w+)`", codes)}


def test_every_reason_is_told_with_its_status() -> None:
    ours = [value for value in vars(local_replies).values() if isinstance(value, ErrorReply)]
    ours += [
        local_replies.bad_request(MalformedMessageError("x")),
        local_replies.method_not_allowed(MalformedMessageError("x")),
    ]
    ours += [local_replies.model_contradiction("a", "b"), local_replies.body_ambiguous("x")]
    ours += [local_replies.loop_detected(MalformedMessageError("x"))]
    codes = {(failure.code, failure.status) for failure in ours} - {("deadline", 504)}  # told in the core's row
    assert documented() == codes | {(reason.code, reason.status) for reason in Reason}


def test_what_is_only_logged_is_told() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/steelyard/gateway").rglob("*.py"))
    reasons = set(re.findall(r'exchange\.end\([^"\n]+, "(\w+)", now\)', source))
    assert reasons == {"client_disconnected", "truncated"}
    assert all(f"`{reason}`" in PAGE for reason in reasons)


def test_every_header_for_us_is_told() -> None:
    table = PAGE.partition("## What a client may say")[2].partition("\n## ")[0]
    for name, role in REQUEST_ROLES.items():
        if role == ROLE_OPTION:
            assert f"`{name.decode()}`" in table
