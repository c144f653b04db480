"""The table of `benchmarks.memory`, its sizes, and who is the best of the static limits."""

from __future__ import annotations

from itertools import islice

from benchmarks.load.memory_requests import MIB, Answer, Burst, Job, RequestMix
from benchmarks.scores.memory import Run, Setup, best_static, report, summary
from benchmarks.testbed.rounds import Rounds

from benchmarks.memory import MODELS, SETUPS

ONE, TWO = Setup("one", limit=1), Setup("two", limit=2)
LEDGER = Setup("ledger", ledger=True)


def a_run(rate: float, killed: int = 0) -> Run:
    return Run(killed, 100, 90, rate, 0.1, 0.5, 300 * MIB, {"502 replica_failed": 10})


def rounds(**runs: list[Run]) -> Rounds[Run]:
    return Rounds(dict(runs))


def test_the_best_limit_is_the_fastest_that_never_killed() -> None:
    seen = rounds(one=[a_run(10), a_run(11)], two=[a_run(20), a_run(20, killed=1)], ledger=[a_run(30)])
    assert best_static([ONE, TWO, LEDGER], seen) is ONE
    assert best_static([TWO, LEDGER], seen) is None


def test_goals_are_checked_for_the_ledger_only() -> None:
    seen = rounds(one=[a_run(10)], ledger=[a_run(8.5)])
    made = report("", [ONE, LEDGER], seen)
    assert [line[0] for line in made.verdicts] == ["✓", "✗"]
    assert made.rows == [
        ["one", "0", "10.0 %", "10.0", "100", "500", "300 MiB"],
        ["ledger", "0", "10.0 %", "8.5", "100", "500", "300 MiB"],
    ]


def test_a_ledger_that_kills_is_told() -> None:
    made = report("", [TWO, LEDGER], rounds(two=[a_run(10, killed=1)], ledger=[a_run(9, killed=2)]))
    assert made.verdicts[0].startswith("✗ ledger: servers killed: 2")
    assert "no comparison" in made.verdicts[-1]


def test_where_no_limit_ran_none_is_judged() -> None:
    assert len(report("", [ONE, LEDGER], rounds(ledger=[a_run(9)])).verdicts) == 1


def test_what_did_not_run_is_told() -> None:
    seen = rounds()
    seen.give_up("ledger", "it would not start")
    assert report("", [LEDGER], seen).rows[0][:2] == ["ledger", "did not run"]


def test_a_burst_is_summed_up() -> None:
    job = Job("a", 1, 0.1, MIB)
    good = [Answer(job, 200, "", f'{{"parameters": {{"in_use": {n}}}}}', n / 10) for n in range(1, 5)]
    burst = Burst([*good, Answer(job, 503, "insufficient_memory", "", 1.0), Answer(job, 0, "", "", 1.0)], 2.0)
    run = summary(burst, 3)
    assert (run.killed, run.asked, run.good, run.rate, run.peak) == (3, 6, 4, 2.0, 4)
    assert (run.p50, run.p99) == (0.3, 0.4)
    assert run.failed == {"503 insufficient_memory": 1, "broken": 1}


def test_nothing_but_failures_can_be_summed_up() -> None:
    run = summary(Burst([Answer(Job("a", 1, 0.1, MIB), 0, "", "", 1.0)], 1.0), 1)
    assert (run.good, run.rate, run.peak) == (0, 0.0, 0)
    report("", [LEDGER], rounds(ledger=[run]))


def test_jobs_are_the_same_for_a_seed_and_differ_fiftyfold() -> None:
    mix = RequestMix()
    one, again = (list(islice(mix.jobs(MODELS, 7), 500)) for _ in range(2))
    assert one == again
    sizes = [job.size for job in one]
    assert min(sizes) >= MIB
    assert 45 * MIB < max(sizes) <= 50 * MIB
    assert {job.model for job in one} == {model.name for model in MODELS}


def test_elements_make_the_bytes() -> None:
    for job in islice(RequestMix().jobs(MODELS, 1), 50):
        (hosted,) = [one for one in MODELS if one.name == job.model]
        assert abs(job.elements * hosted.per_unit - job.size) <= hosted.per_unit


def test_every_way_has_a_name_of_its_own() -> None:
    assert len({way.name for way in SETUPS.values()}) == len(SETUPS)
