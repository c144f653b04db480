"""docs/dialects.md says what the code does."""

import json
import re
from pathlib import Path

from steelyard.protocols import DIALECTS, SERVER_DIALECTS, ServerRequest, make_dialect
from steelyard.protocols.bodies.openai import DEFAULT_COMPLETION_TOKENS, DEFAULT_IMAGE_PATCHES, DEFAULT_IMAGE_STEPS
from steelyard.protocols.bodies.text import DEFAULT_OUTPUT_TOKENS, MEDIA_CHARS
from steelyard.protocols.dialects.openai import ENDPOINTS, MAX_UNREAD_CHARS, STORED_COLLECTIONS
from steelyard.protocols.dialects.tgi import DEFAULT_NEW_TOKENS
from steelyard.protocols.load import METRIC_FIELDS

PAGE = (Path(__file__).parents[2] / "docs/dialects.md").read_text(encoding="utf-8")


def rows(pattern: str) -> list[tuple[str, ...]]:
    return re.findall(pattern, PAGE, re.MULTILINE)


def test_every_dialect_has_its_section():
    assert rows(r"^## `(\w+)`$") == list(DIALECTS)


def test_the_endpoints_of_openai():
    openai = make_dialect("openai")
    documented = {path: (kind, again) for path, kind, again in rows(r"^\| `(/v\d/\S+)` \| `(\w+)` \| (yes|no) \|$")}
    assert documented == {
        path: (kind, "yes" if openai.call("POST", path).idempotent else "no") for path, kind in ENDPOINTS.items()
    }
    assert all(f"`{name}`" in PAGE for name in STORED_COLLECTIONS)


def test_the_kinds_of_oip():
    oip = make_dialect("oip")
    documented = rows(r"^\| `(GET|POST) (/v2/\S+)`.* \| `(\w+)` \| (?:yes|no) \|$")
    assert len(documented) == 6
    for method, path, kind in documented:
        assert oip.call(method, path.replace("{m}", "m")).kind == kind, path


def test_the_numbers():
    assert f"counts as {MEDIA_CHARS:.0f} characters" in PAGE
    assert (
        f"{DEFAULT_OUTPUT_TOKENS:.0f} for conversations, {DEFAULT_COMPLETION_TOKENS:.0f} for `/v1/completions`" in PAGE
    )
    assert (DEFAULT_IMAGE_PATCHES, f"1024×1024 and {DEFAULT_IMAGE_STEPS:.0f}" in PAGE) == (1024 * 1024 / 256, True)
    assert f"at most {MAX_UNREAD_CHARS:,.0f}" in PAGE
    assert f"else {DEFAULT_NEW_TOKENS:.0f}" in PAGE


def test_the_errors_shown_are_those_given():
    sentence = "The model has no replica that is ready; try again later."
    shown = [json.loads(line) for line in rows(r'^(\{"error".*\})$')]
    given = [make_dialect("openai").error(404, "unknown_model", "No such model is served here.")]
    given += [make_dialect(name).error(503, "no_replica", sentence) for name in DIALECTS]
    assert shown == [json.loads(answer.body) for answer in dict.fromkeys(given)], "each that differs, once"


def asked(question: ServerRequest) -> str:
    """A question as the page writes it."""
    port = f" on port {question.port}" if question.port else ""
    instead = f"; where that is unknown, {asked(question.fallback)}" if question.fallback is not None else ""
    return f"`{question.path}`{port}{instead}"


def test_how_each_is_asked():
    documented = {
        name: cells for name, *cells in rows(r"^\| \[`(\w+)`\]\(#\w+\) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$")
    }
    assert list(documented) == list(DIALECTS)
    for name in DIALECTS:
        dialect = make_dialect(name)
        questions, metrics = dialect.probe_plan("{m}"), dialect.metrics
        # A name of the fleet is escaped, the one that stands for all of them on the page is not.
        ready = " and ".join(map(asked, questions.ready)).replace("%7Bm%7D", "{m}")
        whole = " and ".join(map(asked, dialect.probe_plan("*").ready))
        live = asked(questions.live) if questions.live is not None else "any answer"
        load = asked(ServerRequest(metrics.path, port=metrics.port)) if metrics is not None else "–"
        assert documented[name] == [ready, whole if whole != ready else "the same", live, load], name


def test_who_is_told_by_name_alone():
    (sentence,) = rows(r"^Used only if configured.*?$")
    assert set(re.findall(r"`(\w+)`", sentence)) == SERVER_DIALECTS


def test_every_metric_is_named():
    assert set(rows(r"`((?:vllm:|sglang[:_]|tgi_|trtllm_|nv_|steelyard_|process_|GPU)\w+)`")) == set(METRIC_FIELDS)
