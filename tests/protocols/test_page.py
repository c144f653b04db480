"""docs/dialects.md says what the code does."""

import json
import re
from pathlib import Path

from steelyard.protocols import BY_NAME, DIALECTS, Question, make_dialect
from steelyard.protocols.load import METRICS
from steelyard.protocols.openai import ENDPOINTS, LONG, STORED
from steelyard.protocols.openai_body import COMPLETION, PATCHES, STEPS
from steelyard.protocols.text import MEDIA, OUTPUT
from steelyard.protocols.tgi import TOKENS

PAGE = (Path(__file__).parents[2] / "docs/dialects.md").read_text(encoding="utf-8")


def rows(pattern: str) -> list[tuple[str, ...]]:
    return re.findall(pattern, PAGE, re.MULTILINE)


def test_every_dialect_has_its_section():
    assert rows(r"^## `(\w+)`$") == list(DIALECTS)


def test_the_endpoints_of_openai():
    openai = make_dialect("openai")
    told = {path: (kind, again) for path, kind, again in rows(r"^\| `(/v\d/\S+)` \| `(\w+)` \| (yes|no) \|$")}
    assert told == {
        path: (kind, "yes" if openai.call("POST", path).idempotent else "no") for path, kind in ENDPOINTS.items()
    }
    assert all(f"`{name}`" in PAGE for name in STORED)


def test_the_kinds_of_oip():
    oip = make_dialect("oip")
    told = rows(r"^\| `(GET|POST) (/v2/\S+)`.* \| `(\w+)` \| (?:yes|no) \|$")
    assert len(told) == 6
    for method, path, kind in told:
        assert oip.call(method, path.replace("{m}", "m")).kind == kind, path


def test_the_numbers():
    assert f"counts as {MEDIA:.0f} characters" in PAGE
    assert f"{OUTPUT:.0f} for conversations, {COMPLETION:.0f} for `/v1/completions`" in PAGE
    assert (PATCHES, f"1024×1024 and {STEPS:.0f}" in PAGE) == (1024 * 1024 / 256, True)
    assert f"at most {LONG:,.0f}" in PAGE
    assert f"else {TOKENS:.0f}" in PAGE


def test_the_errors_shown_are_those_given():
    sentence = "The model has no replica that is ready; try again later."
    shown = [json.loads(line) for line in rows(r'^(\{"error".*\})$')]
    given = [make_dialect("openai").error(404, "unknown_model", "No such model is served here.")]
    given += [make_dialect(name).error(503, "no_replica", sentence) for name in DIALECTS]
    assert shown == [json.loads(answer.body) for answer in dict.fromkeys(given)], "each that differs, once"


def asked(question: Question) -> str:
    """A question as the page writes it."""
    port = f" on port {question.port}" if question.port else ""
    instead = f"; where that is unknown, {asked(question.instead)}" if question.instead is not None else ""
    return f"`{question.path}`{port}{instead}"


def test_how_each_is_asked():
    told = {name: cells for name, *cells in rows(r"^\| \[`(\w+)`\]\(#\w+\) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$")}
    assert list(told) == list(DIALECTS)
    for name in DIALECTS:
        dialect = make_dialect(name)
        questions, metrics = dialect.questions("{m}"), dialect.metrics
        # A name of the fleet is escaped, the one that stands for all of them on the page is not.
        ready = " and ".join(map(asked, questions.ready)).replace("%7Bm%7D", "{m}")
        whole = " and ".join(map(asked, dialect.questions("*").ready))
        live = asked(questions.live) if questions.live is not None else "any answer"
        load = asked(Question(metrics.path, port=metrics.port)) if metrics is not None else "–"
        assert told[name] == [ready, whole if whole != ready else "the same", live, load], name


def test_who_is_told_by_name_alone():
    (sentence,) = rows(r"^Spoken only where.*?$")
    assert set(re.findall(r"`(\w+)`", sentence)) == BY_NAME


def test_every_metric_is_named():
    assert set(rows(r"`((?:vllm:|sglang[:_]|tgi_|trtllm_|nv_|steelyard_|process_|GPU)\w+)`")) == set(METRICS)
