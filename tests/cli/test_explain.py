"""`steelyard explain`: the words, and how the line is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from steelyard.cli import main
from steelyard.core.policies import POLICIES, find_policy
from steelyard.link.decision_log.explain import OUTCOME_SENTENCES, explain_line, summary
from steelyard.link.decision_log.lines import (
    DecisionLine,
    ExcludedReplica,
    FleetLine,
    LoggedAttempt,
    LoggedCandidate,
    LoggedChoice,
    current_line,
)
from steelyard.link.decision_log.search import lines_from_end

OWN_MEANING = "tokens waiting there"
FAST = LoggedCandidate("fast", 2, 0.21, 0.9, 0.31, score=0.31)
SLOW = LoggedCandidate("slow", 0, 0.0, 4.0, 0.4, score=0.4)
LINE = DecisionLine(
    id="req-1",
    time="2026-11-16T01:02:03.004+00:00",
    at=12.5,
    worker=1,
    model="resnet",
    policy="least_work",
    verdict="met",
    seconds=0.33,
    estimate=0.1,
    tenant="acme",
    status=200,
    features=(512.0,),
    waited=0.0,
    choices=(LoggedChoice(0.0, "fast", 2, (FAST, SLOW)),),
    choice_count=1,
    attempts=(LoggedAttempt("fast", 0.0, 0.31, concurrent=2, seconds=0.33),),
)


def but(**other: Any) -> DecisionLine:
    return msgspec.structs.replace(LINE, **other)


def words(line: DecisionLine) -> str:
    return "\n".join([summary(line), *(f"{about}: {said}" for about, said in explain_line(line))])


def write(path: Path, *lines: DecisionLine | FleetLine) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, arguments)], env={"COLUMNS": None})


# ---------------------------------------------------------------------- words


def test_the_summary_says_it_in_one_sentence() -> None:
    assert summary(LINE) == "req-1 went to fast, expected to finish it soonest of 2, and took 330 ms (verdict: met)."


def test_one_that_was_sent_to_learn_something_is_told_as_such() -> None:
    tried = but(choices=(LoggedChoice(0.0, "slow", 2, (FAST, msgspec.structs.replace(SLOW, score=2.0))),))
    assert ", to explore whether it is still slow, and " in summary(tried)


def test_the_rest_tells_what_was_believed_chosen_tried_and_what_came_of_it() -> None:
    said = dict(explain_line(LINE))
    assert said["arrival"].startswith(
        "Arrived at 2026-11-16T01:02:03.004+00:00 for model resnet at worker 1, tenant acme"
    )
    assert said["estimate"] == "Estimated at 100 ms on a typical replica from the features 512."
    assert said["choice"] == (
        "2 replicas could take it. fast was chosen: its score is 0.31 (seconds until it would be done there), "
        "next best 0.4."
    )
    assert said["queue"] == "It was not queued."
    assert said["attempt 1"] == (
        "After 0 s: fast, with 2 other requests there, predicted to take 310 ms; "
        "it answered after 330 ms, as predicted."
    )
    assert said["result"] == "Finished after 330 ms with status 200. Verdict: met."


def test_of_equals_it_is_said_that_they_were() -> None:
    same = msgspec.structs.replace(SLOW, score=FAST.score)
    assert "tied with another" in words(but(choices=(LoggedChoice(0.0, "fast", 2, (FAST, same)),)))


def test_a_prediction_that_was_off_is_told() -> None:
    assert "3 times the prediction" in words(but(attempts=(LoggedAttempt("fast", 0.0, 0.1, seconds=0.3),)))
    assert "2 times as fast as predicted" in words(but(attempts=(LoggedAttempt("fast", 0.0, 0.2, seconds=0.1),)))


def test_waiting_is_told_with_whom_it_waited_for() -> None:
    came = LoggedChoice(0.0, "", 0, (), excluded=(ExcludedReplica("fast", "full", "2 of 2"),), excluded_count=1)
    full = but(waited=0.5, choices=(came, LoggedChoice(0.5, "fast", 1, (FAST,), waiting=3)))
    waited = "Queued for 500 ms until fast took it, 3 in the queue: no replica had a free slot."
    assert waited in words(full)
    better = but(waited=0.5, choices=(LoggedChoice(0.0, "", 1, (SLOW,)), LoggedChoice(0.5, "fast", 2, (FAST, SLOW))))
    assert "least_work expected a better one soon" in words(better)


@pytest.mark.parametrize(
    ("reasons", "cause"),
    [
        (("full", "full"), "no replica had a free slot"),
        (("full", "ejected"), "no ready replica had a free slot"),
        (("unreachable", "loading"), "no replica was ready"),
        (("insufficient_memory",), "no replica had enough memory"),
        (("full", "insufficient_memory"), "no replica had a free slot and enough memory"),
        (("failed_before", "unreachable"), "no other replica was ready"),
        ((), "no replica could take it"),  # a log from before told no reasons
    ],
)
def test_the_cause_of_a_wait_is_why_replicas_were_excluded(reasons: tuple[str, ...], cause: str) -> None:
    excluded = tuple(ExcludedReplica(f"r{n}", reason) for n, reason in enumerate(reasons))
    look = LoggedChoice(0.0, "", 0, (), excluded=excluded, excluded_count=len(excluded))
    said = words(but(waited=4.719, attempts=(), choices=(look,)))
    assert f"Queued for 4.719 s and never dispatched: {cause}." in said


def test_a_refusal_says_why_and_whose_fault() -> None:
    line = but(
        verdict="refused", fault="overload", reason="queue_full", attempts=(), choices=(), waited=0.0, status=503
    )
    assert summary(line) == (
        "req-1 was sent to no replica, and was refused after 330 ms (queue_full, fault: overload)."
    )
    assert "It was not queued." in words(line)


@pytest.mark.parametrize("outcome", OUTCOME_SENTENCES)
def test_each_outcome_has_its_words(outcome: str) -> None:
    tries = (
        LoggedAttempt("slow", 0.0, 0.3, seconds=0.1, outcome=outcome),
        LoggedAttempt("fast", 0.1, 0.3, hedged=True),
    )
    assert OUTCOME_SENTENCES[outcome] in words(but(attempts=tries))
    assert "as a hedge" in words(but(attempts=tries))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_that_compares_nothing_is_told_by_its_rule(policy: str) -> None:
    plain = tuple(msgspec.structs.replace(c, score=None) for c in (FAST, SLOW))
    line = but(policy=policy, choices=(LoggedChoice(0.0, "fast", 2, plain),))
    assert f"{policy} has no score; its rule is: {find_policy(policy).rule}." in words(line)


def test_a_policy_of_ones_own_is_not_imported() -> None:
    line = but(policy="no.such.module:Mine", choices=(LoggedChoice(0.0, "slow", 2, (FAST, SLOW)),))
    assert "a custom policy" in words(line)


# ---------------------------------------------------------------------- the command


def test_the_sentence_comes_first_then_the_table(tmp_path: Path) -> None:
    result = run("req-1", "--log", write(tmp_path / "log", LINE))
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == summary(LINE)
    assert any(line.startswith("→ fast") and "0.31" in line and "210 ms" in line for line in lines)
    assert any(line.startswith("  slow") for line in lines)


def test_the_lines_for_programs(tmp_path: Path) -> None:
    result = run("req-1", "--log", write(tmp_path / "log", LINE), "--json")
    assert msgspec.json.decode(result.output, type=DecisionLine) == LINE


def test_the_log_is_named_by_the_configuration(tmp_path: Path) -> None:
    write(tmp_path / "decisions.jsonl", LINE)
    config = tmp_path / "gateway.yaml"
    models = "models: {m: {replicas: [{url: 'http://127.0.0.1:1'}]}}\n"
    config.write_text(models + "decision_log: {path: decisions.jsonl}\n")
    assert run("req-1", "--config", config).exit_code == 0
    config.write_text(models)
    result = run("req-1", "--config", config)
    assert result.exit_code == 2
    assert "it has no decision log" in result.output
    assert run("req-1").exit_code == 2


def test_what_was_moved_away_is_found_too_and_all_with_the_id_oldest_first(tmp_path: Path) -> None:
    log = write(tmp_path / "log", but(time="2026-11-16T02:00:00.000+00:00", model="new"))
    write(tmp_path / "log.1", but(model="old"), but(id="other"))
    output = run("req-1", "--log", log).output
    assert output.index("model old") < output.index("model new")


def test_the_beginning_of_an_id_is_enough_if_it_is_the_only_one(tmp_path: Path) -> None:
    log = write(tmp_path / "log", LINE, but(id="req-22"), but(id="req-2"))
    assert run("req-1", "--log", log).exit_code == 0
    assert "req-22 went" in run("req-22", "--log", log).output
    assert "req-2 went" in run("req-2", "--log", log).output, "an exact one goes before"
    result = run("req", "--log", log)
    assert result.exit_code == 2
    assert "several ids begin with req: req-1, req-2, req-22" in result.output


@pytest.mark.parametrize(("sample", "hinted"), [(0.01, True), (1.0, False)])
def test_an_id_that_is_not_there_may_not_have_been_sampled(tmp_path: Path, sample: float, hinted: bool) -> None:
    fleet = FleetLine("2026-11-16T01:00:00.000+00:00", 1.0, 0, 1, "m", "least_work", sample, ())
    result = run("nobody", "--log", write(tmp_path / "log", fleet, LINE))
    assert result.exit_code == 2
    assert "x-request-id" in result.output
    assert ("may not have been one of those" in result.output) is hinted


def test_no_file_is_said_so(tmp_path: Path) -> None:
    result = run("req-1", "--log", tmp_path / "nothing")
    assert result.exit_code == 2
    assert "there is no such file" in result.output


def test_what_a_client_wrote_does_not_reach_the_terminal(tmp_path: Path) -> None:
    evil = but(id="req-\x1b[2J\x9b\u202e", tenant="\x1b]0;x\x07", model="[bold]m[/bold]")
    log = write(tmp_path / "log", evil)
    for options in ((), ("--json",)):
        output = run("req-", "--log", log, *options).output
        assert all(c.isprintable() or c == "\n" for c in output), repr(output)
    assert "[bold]m[/bold]" in run("req-", "--log", log).output
    assert json.loads(run("req-", "--log", log, "--json").output)["id"] == evil.id
    result = run("re\x1b", "--log", log)
    assert "\x1b" not in result.output


def test_an_id_that_is_no_text_is_not_found(tmp_path: Path) -> None:
    result = run("\udcff", "--log", write(tmp_path / "log", LINE))
    assert result.exit_code == 2
    assert "no request" in result.output


def test_torn_lines_are_passed_over(tmp_path: Path) -> None:
    log = write(tmp_path / "log", LINE)
    whole = log.read_bytes()
    log.write_bytes(whole[:60] + b"\n" + b"\xff\n" + whole + whole[:70])
    result = run("req-1", "--log", log)
    assert result.exit_code == 0
    assert result.output.count("went to fast") == 1


@pytest.mark.parametrize("block", [1, 3, 7, 1000])
@pytest.mark.parametrize("text", ["", "a", "a\n", "a\nbb\n\nccc\n", "a\nbb\nccc"])
def test_a_file_is_read_from_its_end_whatever_the_blocks(tmp_path: Path, text: str, block: int) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    whole = text.split("\n")[:-1]
    assert [line.decode() for line in lines_from_end(path, block)] == whole[::-1]


def test_the_meaning_of_a_score_is_the_policys_own() -> None:
    for name in POLICIES:
        assert find_policy(name).score_meaning
    assert "(seconds until it would be done there)" in dict(explain_line(LINE))["choice"]
    own = msgspec.structs.replace(LINE, policy="my.package:Mine")
    assert "(what the policy compares, the least is chosen)" in dict(explain_line(own))["choice"]
    described = msgspec.structs.replace(own, score_meaning=OWN_MEANING)
    assert f"({OWN_MEANING})" in dict(explain_line(described))["choice"]


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("outcome", "late", "deadline_exceeded"),
        ("outcome", "impatient", "client_deadline_exceeded"),
        ("outcome", "broken", "connection_lost"),
        ("verdict", "left", "abandoned"),
        ("reason", "memory", "insufficient_memory"),
        ("reason", "waited", "queue_timeout"),
        ("reason", "displaced", "preempted"),
    ],
)
def test_every_word_of_an_earlier_version_is_read(key: str, old: str, new: str) -> None:
    assert current_line(b'{"kind":"request","%s":"%s"}' % (key.encode(), old.encode())) == (
        b'{"kind":"request","%s":"%s"}' % (key.encode(), new.encode())
    )


def test_a_line_in_the_words_of_an_earlier_version_is_read() -> None:
    old = (
        b'{"kind":"request","id":"old","time":"","at":1.0,"worker":0,"model":"m","policy":"p","verdict":"left","seconds":1.0,'
        b'"estimate":0.5,"judged_by":"total","looks":[{"after":0.0,"chosen":"a","of":2,"candidates":[],"waiting":3,'
        b'"excluded":[{"id":"b","reason":"memory","detail":"gpu0"}],"excluded_of":1}],"looked":1,'
        b'"attempts":[{"replica":"a","after":0.0,"predicted":0.5,"beside":4,"outcome":"late"}]}'
    )
    line = msgspec.json.decode(current_line(old), type=DecisionLine)
    (choice,), (attempt,) = line.choices, line.attempts
    assert (line.verdict, line.binding_deadline, line.choice_count) == ("abandoned", "total", 1)
    assert (choice.candidate_count, choice.waiting, choice.excluded_count) == (2, 3, 1)
    assert (choice.excluded[0].reason, choice.excluded[0].message) == ("insufficient_memory", "gpu0")
    assert (attempt.concurrent, attempt.outcome) == (4, "deadline_exceeded")
    assert current_line(msgspec.json.encode(line)) == msgspec.json.encode(line)
