from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.documents import DocumentError, parse
from steelyard.simulate.scenario.catalog import CATALOG, find_scenarios
from steelyard.simulate.scenario.file import load_scenarios, to_yaml
from steelyard.simulate.scenario.schema import Scenario


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "s.yaml"


@pytest.mark.parametrize("name", [name for name in CATALOG if name not in ("W5", "W6", "W7")])
@pytest.mark.parametrize("full", [False, True])
def test_built_in_scenarios_read_back_as_they_were(name: str, full: bool, file: Path) -> None:
    file.write_text("---\n".join(to_yaml(scenario, full=full) for scenario in find_scenarios(name)))
    assert load_scenarios(file) == find_scenarios(name)


@pytest.mark.parametrize("name", ["W5", "W6", "W7"])
def test_those_with_a_trace_too(name: str) -> None:
    for scenario in find_scenarios(name):
        assert parse(to_yaml(scenario), Scenario) == scenario


def test_the_short_form_is_short() -> None:
    text = to_yaml(Scenario(name="mine"))
    assert "sizes: {kind: exponential, mean: 50ms}" in text
    assert "balancing" not in text
    assert "balancing" in to_yaml(Scenario(name="mine"), full=True)


def test_several_documents_with_comments_between(file: Path) -> None:
    file.write_text("# mine\n---\nname: a\n---\n# nothing here\n---\nname: b\n")
    assert [scenario.name for scenario in load_scenarios(file)] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nfleet: [\n", "s.yaml:3: not valid YAML"),
        ("name: a\n---\nname: b\nrequests: many\n", "s.yaml:4: requests: expected a whole number"),
        ("fleet:\n- count: 2\n  sped: 3\n", "s.yaml:3: fleet[0]: unknown key `sped`"),
        ("fleet:\n- count: 2\n\n  speed: -3\n", "s.yaml:4: fleet[0]: `speed` must be positive"),
        ("name: a\n---\npolicies:\n- random\n- nope\n", "s.yaml:5: policies[1]: no policy 'nope'"),
        ("policies: [least_work@0]\n", "s.yaml:1: policies[0]: policy 'least_work@0': after @"),
        ("workload:\n  trace:\n    file: no.csv\n", "s.yaml:3: workload.trace.file: no.csv: No such file"),
        ("slo: 3 parsecs\n", "s.yaml:1: slo: '3 parsecs' is not a duration"),
        ("slo: 2024-13-45\n", "s.yaml:1: not valid YAML: not a valid timestamp"),
        ("", "s.yaml: the file is empty"),
        ("# only this\n---\n", "s.yaml: the file is empty"),
        ("name: a\n---\nname: a\n", "s.yaml: name: 'a' is there twice"),
    ],
)
def test_what_is_wrong_is_told_with_file_line_and_key(
    text: str, message: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    file.write_text(text)
    with pytest.raises(DocumentError) as caught:
        load_scenarios("s.yaml")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("faults: [{kind: slow, lasts: 5s}]", "lasts", "duration"),
        ("faults: [{kind: join, cold: 5s}]", "cold", "cold_start"),
        ("faults: [{kind: crash, detect: 5s}]", "detect", "detection_delay"),
        ("workload: {shape: {kind: spike, lasts: 5s}}", "lasts", "duration"),
        ("workload: {trace: {file: builtin:diffusion, kinds: false}}", "kinds", "reveal_kind"),
        ("autoscale: {spread: 0.5}", "spread", "cold_start_jitter"),
        ("autoscale: {probe: 5s}", "probe", "probe_interval"),
        ("autoscale: {every: 5s}", "every", "interval"),
    ],
)
def test_a_key_of_an_earlier_version_is_told_with_its_name_of_today(text: str, old: str, new: str, file: Path) -> None:
    fleet = "\nfleet: [{count: 1}]\nloads: [0.5]"
    file.write_text(text + fleet)
    with pytest.raises(DocumentError, match=f"s.yaml:1: .*: unknown key `{old}`: renamed to `{new}`$"):
        load_scenarios(file)
    file.write_text(text.replace(f"{old}:", f"{new}:") + fleet)
    assert load_scenarios(file)
