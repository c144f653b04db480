"""docs/autoscaling.md says what the code does."""

from __future__ import annotations

import re

import pytest

from steelyard.core.scalers import SCALERS, find_scaler, scaler_options
from steelyard.gateway.routing.router import PROBE_PATHS, SCRAPE_PATHS
from tests.docs.test_docs import rows, section, text_of

PAGE = "docs/autoscaling.md"


def test_every_scaler_has_its_row() -> None:
    named = [row[0].strip("`") for row in rows(section(PAGE, "## Scalers")) if row[0].startswith("`")]
    assert [name for name in named if name in SCALERS] == list(SCALERS)


@pytest.mark.parametrize("scaler", SCALERS)
def test_every_option_is_explained_with_its_default(scaler: str) -> None:
    documented = {row[0].strip("`"): row[1] for row in rows(section(PAGE, f"### `{scaler}`"))[1:]}
    known = scaler_options(find_scaler(scaler))
    assert set(documented) == set(known)
    for name, default in known.items():
        said = {"true": True, "false": False}.get(documented[name], documented[name])
        assert said == default if isinstance(default, bool) else float(said) == default, name


def test_every_look_is_named() -> None:
    named = set(re.findall(r"`(/[a-z.]+)`", section(PAGE, "## From zero")))
    assert named >= PROBE_PATHS | SCRAPE_PATHS


def test_the_measurements_find_their_place() -> None:
    for name in ("scaling_spike", "gpu_scaling", "autoscaling"):
        assert text_of(PAGE).count(f"<!-- begin: benchmarks/{name}.py -->") == 1
        assert text_of(PAGE).count(f"<!-- end: benchmarks/{name}.py -->") == 1
