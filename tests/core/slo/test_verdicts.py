"""How a request stands to its SLO, and whose fault it is."""

import pytest

from steelyard.core.slo.verdicts import (
    ABANDONED_INDEX,
    NO_SLO,
    SLO_VERDICTS,
    SloTarget,
    attribute_longest_stage,
    verdict_of,
)

LATENCY = SloTarget(latency=1.0)
FIRST = SloTarget(first_byte=0.5)
BOTH = SloTarget(latency=1.0, first_byte=0.5)
TOKENS = SloTarget(latency=1.0, first_byte=0.5, per_token=0.1)


@pytest.mark.parametrize(
    ("target", "upload", "queue", "first_byte", "total", "streamed", "expected"),
    [
        (NO_SLO, 9.0, 9.0, 99.0, 999.0, False, ("met", "")),
        (LATENCY, 0.0, 0.0, 1.0, 1.0, False, ("met", "")),
        (LATENCY, 0.0, 0.0, 0.1, 1.1, False, ("late", "replica")),
        (LATENCY, 0.0, 0.0, 0.1, 1.1, True, ("late", "replica")),  # a stream too, where no first byte has a target
        (LATENCY, 0.0, 0.9, 0.1, 1.5, False, ("late", "overload")),
        (LATENCY, 0.9, 0.9, 1.9, 1.9, False, ("late", "client")),
        (LATENCY, 0.2, 0.9, 2.0, 2.0, False, ("late", "overload")),
        (LATENCY, 0.2, 0.2, 2.0, 2.0, False, ("late", "replica")),  # even so
        (FIRST, 0.0, 0.0, 0.5, 99.0, True, ("met", "")),
        (FIRST, 0.0, 0.0, 0.5, 99.0, False, ("met", "")),
        (FIRST, 0.0, 0.0, 0.6, 0.7, True, ("late", "replica")),
        (FIRST, 0.0, 0.4, 0.6, 0.7, True, ("late", "overload")),
        (BOTH, 0.0, 0.0, 0.4, 99.0, True, ("met", "")),
        (BOTH, 0.0, 0.0, 0.4, 1.1, False, ("late", "replica")),
        (BOTH, 0.0, 0.0, 0.6, 0.6, True, ("late", "replica")),
        (BOTH, 0.0, 0.0, 0.6, 0.6, False, ("met", "")),  # no stream: only the whole of it counts
        (FIRST, 0.0, 0.0, 0.6, 0.6, False, ("met", "")),
    ],
)
def test_answered(target, upload, queue, first_byte, total, streamed, expected):
    assert SLO_VERDICTS[verdict_of(target, upload, queue, first_byte, total, streamed)] == expected


@pytest.mark.parametrize(
    ("target", "upload", "queue", "first_byte", "total", "streamed", "expected"),
    [
        (NO_SLO, 0.0, 0.0, -1.0, 999.0, False, ("abandoned", "client")),
        (LATENCY, 0.0, 0.0, -1.0, 0.9, False, ("abandoned", "client")),
        (LATENCY, 0.0, 0.0, -1.0, 1.1, False, ("late", "replica")),
        (LATENCY, 0.0, 0.5, -1.0, 1.1, False, ("late", "overload")),
        (LATENCY, 0.5, 0.5, -1.0, 1.1, False, ("late", "client")),
        (LATENCY, 0.0, 0.0, 0.1, 1.1, False, ("late", "replica")),  # it began, and did not end in time
        (LATENCY, 0.0, 0.0, 1.1, 1.2, False, ("late", "replica")),
        (FIRST, 0.0, 0.0, -1.0, 0.4, False, ("abandoned", "client")),
        (FIRST, 0.0, 0.0, -1.0, 0.6, False, ("late", "replica")),
        (FIRST, 0.0, 0.0, 0.0, 99.0, True, ("abandoned", "client")),
        (FIRST, 0.0, 0.0, 0.4, 99.0, True, ("abandoned", "client")),
        (FIRST, 0.0, 0.0, 0.6, 0.7, True, ("late", "replica")),
        (BOTH, 0.0, 0.0, 0.4, 99.0, True, ("abandoned", "client")),
        (BOTH, 0.0, 0.0, 0.4, 1.1, False, ("late", "replica")),
    ],
)
def test_left(target, upload, queue, first_byte, total, streamed, expected):
    assert (
        SLO_VERDICTS[verdict_of(target, upload, queue, first_byte, total, streamed, in_time=ABANDONED_INDEX)]
        == expected
    )


@pytest.mark.parametrize(
    ("target", "first_byte", "total", "streamed", "per_token", "expected"),
    [
        (TOKENS, 0.4, 99.0, True, 0.1, ("met", "")),
        (TOKENS, 0.4, 99.0, True, 0.11, ("late", "replica")),
        (TOKENS, 0.4, 99.0, True, 0.0, ("met", "")),  # one token, or none counted
        (TOKENS, 0.4, 0.9, False, 9.0, ("met", "")),  # no stream: only the whole of it counts
        (TOKENS, 0.4, 1.1, False, 0.01, ("late", "replica")),
        (TOKENS, 0.6, 9.0, True, 0.01, ("late", "replica")),
        (SloTarget(latency=1.0, per_token=0.1), 5.0, 99.0, True, 0.1, ("met", "")),
        (SloTarget(first_byte=0.5), 0.4, 99.0, True, 9.0, ("met", "")),
    ],
)
def test_tokens_of_streams(target, first_byte, total, streamed, per_token, expected):
    found = verdict_of(target, 0.0, 0.0, first_byte, total, streamed, per_token=per_token)
    assert SLO_VERDICTS[found] == expected


def test_an_slo_of_any_time_is_timed():
    assert (LATENCY.timed, FIRST.timed, NO_SLO.timed) == (True, True, False)
    assert SloTarget(per_token=0.1).timed
    assert not SloTarget(availability=99.0).timed


@pytest.mark.parametrize(
    ("upload", "queue", "total", "fault"),
    [
        (0.001, 0.0, 1.0, "replica"),
        (0.0, 0.5, 1.0, "replica"),
        (0.1, 0.5, 1.0, "overload"),
        (0.6, 0.1, 1.0, "client"),
    ],
)
def test_who_took_most_of_the_time(upload, queue, total, fault):
    assert attribute_longest_stage(upload, queue, total) == fault
