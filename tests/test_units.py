from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.units import (
    BYTES_PER_UNIT,
    MAX_SIZE_BYTES,
    SECONDS_PER_UNIT,
    format_seconds,
    format_size,
    parse_duration,
    parse_share,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("200ms", 0.2), ("1.5s", 1.5), ("2m", 120.0), ("1h", 3600.0), ("1d", 86400.0), ("3", 3.0), (3, 3.0), (0.5, 0.5)],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["5us", "5µs", "5μs"])
def test_both_letters_that_look_like_a_micro_sign(text: str) -> None:
    assert parse_duration(text) == pytest.approx(5e-6)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        (7, 7),
        ("512B", 512),
        ("64KiB", 64 << 10),
        ("64KB", 64_000),
        ("64kB", 64_000),
        ("1.5GiB", 3 << 29),
        ("80 GiB", 80 << 30),
        ("9007199254740993", 9007199254740993),  # more than a float can tell apart
        (str(MAX_SIZE_BYTES), MAX_SIZE_BYTES),
    ],
)
def test_sizes(text: str | int, amount: int) -> None:
    assert parse_size(text) == amount


@pytest.mark.parametrize(("text", "part"), [("10%", 0.1), ("0.1", 0.1), (0.1, 0.1), (1, 1.0), ("100%", 1.0), (0, 0.0)])
def test_shares(text: str | float, part: float) -> None:
    assert parse_share(text) == pytest.approx(part)


NO_NUMBERS: list[Any] = ["", "x", "-1", "1e3", "1,5", True, "٣", "1 2", "%"]


@pytest.mark.parametrize("value", [*NO_NUMBERS, "5 parsecs", "5S", -1, float("nan"), float("inf"), 10**400, "9" * 400])
def test_what_is_no_duration(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a duration: "):
        parse_duration(value)


@pytest.mark.parametrize(
    "value", [*NO_NUMBERS, "5gib", "5 apples", -1, 1.5, None, MAX_SIZE_BYTES + 1, "9" * 400, 10**400]
)
def test_what_is_no_size(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a size: "):
        parse_size(value)


@pytest.mark.parametrize("value", [*NO_NUMBERS, "101%", 1.01, -0.1, float("nan"), None, 10**400, "5s"])
def test_what_is_no_share(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a share: "):
        parse_share(value)


def test_a_message_is_short_however_long_the_value() -> None:
    for read in (parse_duration, parse_size, parse_share):
        for value in ("9" * 100_000 + "x", 10**5000):
            with pytest.raises(ValueError, match="is not a") as caught:
                read(value)
            assert len(str(caught.value)) < 200


@given(st.integers(0, MAX_SIZE_BYTES), st.sampled_from([unit for unit in BYTES_PER_UNIT if unit]))
def test_whole_sizes_are_exact(amount: int, unit: str) -> None:
    if amount * BYTES_PER_UNIT[unit] <= MAX_SIZE_BYTES:
        assert parse_size(f"{amount}{unit}") == amount * BYTES_PER_UNIT[unit]


@given(st.integers(0, 10**6), st.sampled_from(list(SECONDS_PER_UNIT)))
def test_durations_are_proportional(amount: int, unit: str) -> None:
    assert parse_duration(f"{amount}{unit}") == pytest.approx(amount * SECONDS_PER_UNIT[unit])


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1 << 10, "1 KiB"),
        (1023 << 10, "1023 KiB"),
        (100 << 10, "100 KiB"),
        (3 << 19, "1.5 MiB"),
        (80 << 30, "80 GiB"),
        (MAX_SIZE_BYTES, "8388608 TiB"),
    ],
)
def test_sizes_for_people(amount: int, text: str) -> None:
    assert format_size(amount) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.00 µs"), (2e-5, "20.0 µs"), (0.25, "250 ms"), (1.5, "1.50 s"), (3600.0, "3600 s"), (float("nan"), "–")],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
