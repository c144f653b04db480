from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from steelyard.cli import main
from steelyard.cli.report.text import fault_counts, heading
from steelyard.control.history.database import add_slice, open_writable, write_transaction
from steelyard.control.history.slices import (
    HOUR_SECONDS,
    MINUTE_SECONDS,
    VERDICT_KEYS,
    Slice,
    StoredSloTarget,
    availability_good_bad,
    counts_by_verdict,
)
from steelyard.control.history.store import HistoryStore
from steelyard.control.history.summary import ReportRow, summarize

BEGIN_UNIX_SECONDS = 1793491200  # 2026-11-01 00:00 UTC
PERIOD = ("--since", "2026-11-01", "--until", "2026-11-01T02:00")
TARGET = StoredSloTarget(latency=0.2, availability=99.9)
NASTY = "<script>alert(1)</script>\x1b[2J\u202e"
FORMULA = '=HYPERLINK("http://evil")'


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two hours; ten minutes are missing, the second hour is worse, and two tenants have chosen odd names."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "steelyard" / "gateway.sqlite"
    database = open_writable(path)  # not by a History: it would make hours of these old minutes
    with write_transaction(database):
        for start in range(BEGIN_UNIX_SECONDS, BEGIN_UNIX_SECONDS + 120 * MINUTE_SECONDS, MINUTE_SECONDS):
            if not 30 <= (start - BEGIN_UNIX_SECONDS) // MINUTE_SECONDS < 40:
                for part in minute_of(start):
                    add_slice(database, part)
    database.close()
    return path


def minute_of(start: int) -> list[Slice]:
    late = 1 if start >= BEGIN_UNIX_SECONDS + HOUR_SECONDS else 0
    return [
        Slice(start, "detector", "", {"met": 98}, {500: 98, 600: 2}, TARGET),
        Slice(start, "detector", NASTY, {"late/replica": late, "met": 1}, slo=TARGET),
        Slice(start, "detector", FORMULA, {"refused/overload": 1, "failed/client": 2}, slo=TARGET),
        Slice(start, "free", "", {"met": 1}, {400: 1}),
    ]


def report(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)], env={"COLUMNS": None})


def test_says_for_which_deadline_requests_were_refused() -> None:
    counts = {"refused/overload": 1, "refused/overload/first_byte": 2, "refused/replica/total": 3}
    sentence = "refused: overload 1, overload (first-byte deadline) 2, replica (total deadline) 3"
    assert fault_counts(ReportRow("m", "", counts, [], None)) == sentence
    assert availability_good_bad(counts) == (0, 6)


def test_in_the_terminal(history: Path) -> None:
    result = report(*PERIOD)
    assert result.exit_code == 0, result.output
    lines = [re.sub(r"\s{2,}", "  ", line).strip() for line in result.stdout.splitlines()]
    assert lines[:3] == [
        "2026-11-01 00:00 to 2026-11-01 02:00 UTC (2 h)",
        "For 10 min of this nothing is known: no gateway with this history ran then.",
        "2026-11-01 00:30 to 2026-11-01 00:40 (10 min)",
    ]
    (whole,) = [line for line in lines if line.startswith("all  11,")]
    faults = "late: replica 60; failed: client 220; refused: overload 110"
    assert whole == f"all  11,280  10,890  60  220  110  0  {faults}  2026-11-01 01:00  98.019 %"
    assert "all  99 % within 200 ms  VIOLATED  98.462 %  153.7 % of the error budget used" in lines
    assert "(none named)  99.9 % answered  met  100 %  0.0 % of the error budget used" in lines
    assert "no SLO" in lines
    bar = next(line for line in lines if "5 min each" in line)
    assert bar.startswith("▆▆▆▆▆▆░░▆▆▆▆▅▅▅▅▅▅▅▅▅▅▅▅  in time")


def test_a_terminal_obeys_no_name(history: Path) -> None:
    for arguments in (PERIOD, (*PERIOD, "--out", "report.txt")):
        result = report(*arguments)
        text = result.stdout + (Path("report.txt").read_text() if "--out" in arguments else "")
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "<script>alert(1)</script>?[2J?" in text


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_as_a_page(history: Path) -> None:
    result = report(*PERIOD, "--format", "html", "--out", "report.html")
    assert (result.exit_code, result.stdout) == (0, "wrote report.html\n")
    text = Path("report.html").read_text()
    page = Page()
    page.feed(text)
    assert "script" not in page.tags
    assert "<script>alert(1)</script>?[2J?" in page.text
    assert not [value for name, value in page.attributes if name in ("src", "href") or name.startswith("on")]
    assert not re.search(r"url\(|@import|http:(?!//evil)", text)
    assert page.tags.count("svg") == 6  # three a model
    assert page.tags.count("section") == 2
    assert {"title", "h1", "thead", "figcaption"} <= set(page.tags)
    assert ("scope", "col") in page.attributes
    assert ("scope", "row") in page.attributes
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    for words in ("VIOLATED", "99 % within 200 ms", "153.7 % of the error budget used", "nothing is known"):
        assert words in page.text.replace("\N{NO-BREAK SPACE}", " ")
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        root = ElementTree.fromstring(svg)
        assert root.get("aria-label")
        assert root.find("title") is not None


def test_as_csv(history: Path) -> None:
    result = report(*PERIOD, "--format", "csv")
    rows = list(csv.DictReader(StringIO(result.stdout)))
    names = [name.replace("/", "_") for name in VERDICT_KEYS]
    assert sum(int(row[name]) for row in rows for name in names) == 11_280 + 110
    assert all(int(row["requests"]) == sum(int(row[name]) for name in names) for row in rows)
    assert {row["tenant"] for row in rows} == {"", NASTY, f"'{FORMULA}"}
    first = rows[0]
    assert (first["start"], first["step_seconds"], first["model"]) == ("2026-11-01T00:00:00Z", "300", "detector")
    assert (first["slo_latency_s"], first["slo_availability"]) == ("0.2", "99.9")
    assert float(first["model_p50_s"]) == pytest.approx(0.0213, rel=0.01)
    assert first["model_answered"] == "500"


def test_as_json(history: Path) -> None:
    result = json.loads(report(*PERIOD, "--format", "json").stdout)
    assert result["gaps"] == [{"since": "2026-11-01T00:30:00Z", "until": "2026-11-01T00:40:00Z", "minutes": 10}]
    detector, free = result["models"]
    assert detector["all_tenants"]["counts"]["met"] == 10_890
    assert [(o["kind"], o["met"]) for o in detector["all_tenants"]["objectives"]] == [
        ("latency", False),
        ("availability", False),
    ]
    assert {row["tenant"] for row in detector["tenants"]} == {"", NASTY, FORMULA}
    assert free["all_tenants"]["objectives"] == []


def test_what_is_for_programs_harms_no_terminal(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert report(*PERIOD, "--format", "json").stdout.isascii()
    assert "\x1b" in report(*PERIOD, "--format", "csv").stdout
    monkeypatch.setattr("steelyard.cli.output.is_terminal", lambda: True)
    shown = report(*PERIOD, "--format", "csv").stdout
    assert "<script>alert(1)</script>?[2J?" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("period", [("--since", "99999999d"), ("--since", "0001-01-01", "--until", "9999-12-31")])
def test_more_than_there_can_be(history: Path, period: tuple[str, ...]) -> None:
    result = report(*period, "--format", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["since"] == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize("columns", [10, 40, 200])
@pytest.mark.parametrize("period", [("--since", "99999d"), PERIOD])
def test_the_strip_is_no_longer_than_there_is_room_and_than_is_known(
    history: Path, columns: int, period: tuple[str, ...]
) -> None:
    result = CliRunner().invoke(main, ["report", *period, "--model", "free"], env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    strip = re.findall("[█▇▆▅▄▃▂▁·░]{3,}", result.stdout)
    assert len(strip) == 1
    assert strip[0].startswith("█")
    assert len(strip[0]) <= columns


def test_a_terminal_without_the_signs_gets_others(history: Path) -> None:
    result = CliRunner(charset="ascii").invoke(main, ["report", *PERIOD], env={"COLUMNS": None})
    assert result.exit_code == 0, result.exception
    assert "????????????????????????  in time, 5 min each" in result.stdout


def test_the_heading_is_as_long_as_its_two_times_say(history: Path) -> None:
    summary = summarize([], BEGIN_UNIX_SECONDS + 59.0, BEGIN_UNIX_SECONDS + 86400 + 59.9, BEGIN_UNIX_SECONDS + 1e6)
    assert heading(summary) == "2026-11-01 00:00 to 2026-11-02 00:00 UTC (24 h)"


def test_one_model_and_one_tenant(history: Path) -> None:
    result = json.loads(report(*PERIOD, "--format", "json", "--model", "detector", "--tenant", FORMULA).stdout)
    (model,) = result["models"]
    assert model["all_tenants"]["counts"] == {"refused/overload": 110, "failed/client": 220}
    assert model["latency_s"]["p50"] is None


def test_a_gateway_that_runs_does_not_mind(history: Path) -> None:
    running = HistoryStore(history, 10_000 * 86400.0)
    running.add(
        [Slice(BEGIN_UNIX_SECONDS, "detector", "", counts_by_verdict([7] + [0] * (len(VERDICT_KEYS) - 1)), slo=TARGET)]
    )
    assert running.flush(20)
    result = json.loads(report(*PERIOD, "--format", "json").stdout)
    assert result["models"][0]["all_tenants"]["counts"]["met"] == 10_897
    running.close(20)


def test_a_time_of_which_nothing_is_known(history: Path) -> None:
    result = report("--since", "2025-01-01", "--until", "2025-01-02")
    assert result.exit_code == 0
    assert "For 24 h of this nothing is known" in result.stdout
    assert "Nothing was counted in this period." in result.stdout
    for form in ("html", "csv", "json"):
        assert report("--since", "2025-01-01", "--until", "2025-01-02", "--format", form).exit_code == 0


def test_the_history_that_a_configuration_names(history: Path) -> None:
    models = "models: {detector: {replicas: [{url: 'http://a:1'}]}}\n"
    Path("named.yaml").write_text(f"name: gateway\n{models}")
    Path("placed.yaml").write_text(f"history: {{path: {history}}}\n{models}")
    Path("none.yaml").write_text(f"history: {{enabled: false}}\n{models}")
    assert "detector" in report(*PERIOD, "--config", "named.yaml").stdout
    assert "detector" in report(*PERIOD, "--config", "placed.yaml").stdout
    assert "no history is kept" in failure("--config", "none.yaml")


def test_a_configuration_s_report_is_of_its_models_alone(history: Path) -> None:
    """The file is named after an address, and another gateway may have counted there."""
    Path("mine.yaml").write_text("name: gateway\nmodels: {free: {replicas: [{url: 'http://a:1'}]}}\n")
    result = report(*PERIOD, "--config", "mine.yaml")
    assert result.exit_code == 0
    assert "free" in result.stdout
    assert "detector" not in result.stdout
    assert "left out, as the configuration has no such model: detector; --history" in result.stderr
    assert "detector" in report(*PERIOD, "--history", history).stdout


def test_since_when_anything_is_known(history: Path) -> None:
    result = report("--since", "2026-10-30", "--until", "2026-11-01T02:00")
    assert "Known since 2026-11-01 00:00 UTC (2 h)." in result.stdout


def failure(*arguments: str | Path) -> str:
    result = report(*arguments)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_mistakes_are_one_line_each(history: Path, tmp_path: Path) -> None:
    assert "--since 'yesterday' is no time" in failure("--since", "yesterday")
    assert "ends before it begins" in failure("--since", "1h", "--until", "2h")
    assert "not both" in failure("--config", "a.yaml", "--history", history)
    assert "there is no history no.sqlite" in failure("--history", "no.sqlite")
    assert "--model 'detectr'" in failure(*PERIOD, "--model", "detectr")
    assert "--tenant 'acme'" in failure(*PERIOD, "--tenant", "acme")
    assert "--out no/report.html" in failure(*PERIOD, "--format", "html", "--out", "no/report.html")
    (tmp_path / "diary.sqlite").write_text("dear diary\n" * 100)
    assert "it is not a history" in failure("--history", "diary.sqlite")


def test_several_histories_and_none(history: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (history.parent / "another.sqlite").touch()
    error = failure()
    assert "another.sqlite, gateway.sqlite" in error
    assert f"--history {history.parent / 'another.sqlite'}" in error
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nowhere"))
    assert "run a gateway first" in failure()
