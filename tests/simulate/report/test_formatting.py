from __future__ import annotations

from math import nan

import pytest

from steelyard.simulate.report import formatting
from steelyard.simulate.report.formatting import Estimate


@pytest.mark.parametrize(
    ("mean", "half", "texts"),
    [
        (0.412, 0.0123, ("412 ms", "± 12")),
        (1.2345, 0.05, ("1.23 s", "± 0.05")),
        (0.0123, 0.1, ("12.3 ms", "± 100.0")),
        (0.2, nan, ("200 ms", "")),
        (nan, nan, ("–", "")),
    ],
)
def test_seconds_and_their_confidence_share_a_unit(mean: float, half: float, texts: tuple[str, str]) -> None:
    assert formatting.seconds(Estimate(mean, half)) == texts


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (0.00002, "0.002 %"), (0.5, "50.0 %"), (0.9995, "99.95 %"), (1, "100 %"), (nan, "–"), (None, "–")],
)
def test_a_small_share_is_not_rounded_to_none_nor_a_large_one_to_all(share: float | None, text: str) -> None:
    assert formatting.percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.05, "50 ms"), (1.5, "1.5 s"), (2e-5, "20 µs"), (0, "0 s"), (36000, "36,000 s")]
)
def test_plain_seconds(seconds: float, text: str) -> None:
    assert formatting.round_seconds(seconds) == text


def test_times() -> None:
    assert formatting.ratio(Estimate(1.312, 0.041)) == ("1.31×", "± 0.04")
    assert formatting.ratio(Estimate(1.0, 0.0)) == ("1.00×", "")
    assert formatting.ratio(None) == ("–", "")


def test_load() -> None:
    assert formatting.load(0.85) == "85 %"
    assert formatting.load(0) == "as recorded"
