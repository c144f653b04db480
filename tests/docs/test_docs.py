"""The docs are true: what they show runs, where they point is something, and their tables are what the code says."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin

import click
import msgspec
import pytest
import yaml

from steelyard import POLICIES, Event, Outcome, PoolOptions, State, __version__
from steelyard.cli import main
from steelyard.config import load_config
from steelyard.core.policies import find_policy, policy_options
from steelyard.core.replica import TRANSITIONS
from steelyard.documents import Seconds
from steelyard.simulate.scenario.catalog import CATALOG
from steelyard.simulate.scenario.file import load_scenarios
from steelyard.simulate.scenario.schema import Scenario
from steelyard.units import parse_duration

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src/steelyard"
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")],
    key=lambda path: path.relative_to(ROOT),
)
NOT_THERE = {"src/steelyard/core/policies/fewest_sent.py"}  # the example of CONTRIBUTING.md: a reader would make it
NONE = "–"


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    @property
    def saved_as(self) -> str | None:
        """`# name.py` as the first line: the reader is to save it under that name."""
        match = re.match(r"# ([\w.]+\.(?:py|yaml))$", self.text.partition("\n")[0])
        return match[1] if match else None


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: Path) -> Iterator[Block]:
    fence: str | None = None
    language, start = "", 0
    lines: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if fence is None:
            if match := re.match(r"(`{3,})(.*)$", line):
                fence, language, start, lines = match[1], match[2].strip(), number, []
        elif line.startswith(fence):
            yield Block(page, start, language, "\n".join(lines) + "\n")
            fence = None
        else:
            lines.append(line)
    assert fence is None, f"{name(page)}:{start}: this block never ends"


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|-")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def section(page: str, heading: str) -> str:
    """From a heading to the next of its level or above."""
    level = heading.partition(" ")[0]
    match = re.search(
        rf"^{re.escape(heading)}$(.*?)(?=^#{{1,{len(level)}}} |\Z)", text_of(page), re.DOTALL | re.MULTILINE
    )
    assert match is not None, f"{page} has no section {heading!r}"
    return match[1]


# ---------------------------------------------------------------------- what runs

WITH_BLOCKS = [page for page in PAGES if any(block.language for block in blocks(page))]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name)
def test_a_reader_who_types_everything_in_sees_no_error(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Block after block, in a folder that has the examples and nothing else."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    try:
        for block in blocks(page):
            follow(block, tmp_path)
    finally:
        for module in set(sys.modules) - before:
            if str(getattr(sys.modules[module], "__file__", None)).startswith(str(tmp_path)):
                del sys.modules[module]


def follow(block: Block, here: Path) -> None:
    where = f"{name(block.page)}:{block.line}"
    if block.saved_as is not None:
        (here / block.saved_as).write_text(block.text, encoding="utf-8")
    if block.language == "python":
        exec(compile(block.text, where, "exec"), {"__name__": "__main__"})
    elif block.language == "yaml":
        assert block.saved_as is not None, f"{where}: say with `# name.yaml` what the file is called"
        # A gateway's configuration has its models at the top, a scenario has none there.
        read = load_config if re.search(r"^models:", block.text, re.MULTILINE) else load_scenarios
        assert read(here / block.saved_as)
    elif block.language == "sh":
        for line in block.text.splitlines():
            command = line.partition("  #")[0].strip()
            if command.startswith(("steelyard demo-replica", "curl ")):
                continue  # tests/docs/test_quick_start.py
            if command.startswith("steelyard serve"):
                serve(command, where, here)
            elif re.match(r"(steelyard|python -m steelyard)\b", command):
                shell(command, where, here)
            elif command.startswith("make "):
                assert f"\n{command.split()[1]}:" in text_of("Makefile"), f"{where}: {command}: no such target"
            elif match := re.match(r"\S*python -m (benchmarks\.\w+)", command):
                assert (ROOT / f"{match[1].replace('.', '/')}.py").exists(), f"{where}: {command}"
            else:
                assert command.startswith("pip install"), f"{where}: not known how to test {command!r}"
    else:
        assert not block.language, f"{where}: not known how to test {block.language!r}"


def serve(command: str, where: str, here: Path) -> None:
    """It does not end by itself: it is started, on a port of its own, and asked to stop when it listens."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    with subprocess.Popen(
        ["bash", "-c", f"exec {command} --listen 127.0.0.1:0"],
        cwd=here,
        env={**os.environ, "PATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "listening on" in line:
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 0, f"{where}: {command}\n{''.join(said)}"
    assert any("listening on" in line for line in said), f"{where}: {command}\n{''.join(said)}"


def shell(command: str, where: str, here: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=here,
        env={**os.environ, "PATH": path, "PYTHONWARNINGS": "error"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"{where}: {command}\n{done.stdout}{done.stderr}"
    assert done.stdout or ">" in command, f"{where}: {command} printed nothing"


def test_the_five_lines_of_the_design_open_the_library_page_word_for_word() -> None:
    replicas = '["model_v1_a", "model_v1_b", "model_v1_c"]'
    lines = [
        "from steelyard import LoadBalancer",
        f"lb = LoadBalancer(replicas={replicas})   # least connections, as the simplest use",
        "target = lb.route_request()",
        "lb.complete_request(target)",
        "lb.load                                                                   # {'model_v1_a': 0, …}",
    ]
    assert next(blocks(ROOT / "docs/library.md")).text.splitlines() == lines


# ---------------------------------------------------------------------- where it points


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name(page)}: {target}: no such file"
        if anchor:
            assert anchor in anchors(file), f"{name(page)}: {target}: no such heading"


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named_exist(page: Path) -> None:
    for path in re.findall(r"`((?:src|tests|tools|docs|benchmarks|examples|\.ci)/[\w./-]*)`", prose(page)):
        assert path in NOT_THERE or (ROOT / path).exists(), f"{name(page)}: {path}: no such file"


def test_the_rooms_of_the_architecture_are_the_files_of_the_package() -> None:
    (tree,) = [block.text for block in blocks(ROOT / "docs/architecture.md") if "DECIDES" in block.text]
    documented = set(re.findall(r"\w+\.py", tree))
    there = {path.name for path in (ROOT / "src/steelyard").rglob("*.py")}
    core = {path.name for path in (ROOT / "src/steelyard/core").rglob("*.py")}
    assert documented <= there, f"no such file: {documented - there}"
    loose = {path.name for part in ("", "gateway", "control") for path in (SRC / part).glob("*.py")}
    assert core | loose <= documented, f"not explained: {(core | loose) - documented}"
    packages = {path.parent.name for path in (ROOT / "src/steelyard/core").glob("*/__init__.py")}
    packages |= {path.parent.name for part in ("gateway", "control") for path in (SRC / part).glob("*/__init__.py")}
    named = set(re.findall(r"(\w+)/", tree))
    assert packages <= named, f"not explained: {packages - named}"


def test_the_glossary_is_short() -> None:
    assert len(section("docs/architecture.md", "## Glossary").strip().splitlines()) <= 40


def test_the_picture_is_readable_without_seeing_it() -> None:
    picture = text_of("docs/flow.svg")
    assert "<title" in picture
    assert "<desc" in picture
    assert "prefers-color-scheme: dark" in picture


# ---------------------------------------------------------------------- tables that the code knows better


def test_the_overview_lists_the_policies_as_they_describe_themselves() -> None:
    documented = {row[0]: row for row in rows(section("docs/policies.md", "## Overview"))[1:]}
    for policy in POLICIES:
        kind = find_policy(policy)
        row = [f"[`{policy}`](#{policy})", kind.rule, kind.wins, kind.loses]
        assert documented.pop(row[0], None) == row, f"docs/policies.md should have the row\n| {' | '.join(row)} |"
    assert not documented, "policies that there are not"


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_has_its_section_with_its_options(policy: str) -> None:
    text = section("docs/policies.md", f"## `{policy}`")
    for part in ("**Rule.**", "**Source.**"):  # where it wins and loses is in the overview, tested above
        assert part in text, f"{policy}: no {part}"
    documented = {row[0].strip("`"): row[1] for row in rows(text) if row[0] != "option"}
    assert documented == {option: repr(default) for option, default in policy_options(find_policy(policy)).items()}
    assert documented or "No options." in text


def test_the_benchmarks_find_their_place() -> None:
    text = text_of("docs/policies.md")
    for script in ("policies", "decide"):
        begin, end = f"<!-- begin: benchmarks/{script}.py -->", f"<!-- end: benchmarks/{script}.py -->"
        assert (text.count(begin), text.count(end)) == (1, 1)
        assert text.index(begin) < text.index(end)


def test_the_benchmarks_are_listed_and_those_that_make_bench_runs_are_marked() -> None:
    folder = ROOT / "benchmarks"
    commands = {path.stem for path in folder.glob("[!_]*.py")} | {
        path.parent.name for path in folder.glob("*/__main__.py")
    }
    listed = re.findall(r"^\| (• |)`python -m benchmarks\.(\w+)` \|", text_of("benchmarks/README.md"), re.MULTILINE)
    assert sorted(name for _, name in listed) == sorted(commands)
    assert {name for mark, name in listed if mark} == set(re.findall(r"-m benchmarks\.(\w+)", text_of("Makefile")))


def scenario_keys(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a scenario with its default. Of an object that is always there, only what is inside."""
    for field in msgspec.structs.fields(kind):
        key = f"{prefix}{field.encode_name}"
        inner = next((arg for arg in _parts(field.type) if _is_struct(arg)), None)
        if get_origin(field.type) is tuple and inner is not None:
            yield from scenario_keys(inner, f"{key}[].")
            continue
        if inner is None or isinstance(field.type, UnionType):
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            yield key, default
        if inner is not None:
            yield from scenario_keys(inner, f"{key}.")


def _parts(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) or (kind,)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def test_every_key_of_a_scenario_is_explained_with_its_default() -> None:
    documented = {
        row[0].strip("`"): row for row in rows(section("docs/simulator.md", "## Every key")) if row[0] != "key"
    }
    keys = dict(scenario_keys(Scenario))
    assert set(documented) == set(keys)
    for key, default in keys.items():
        _, text, meaning = documented[key]
        assert meaning, f"{key}: not explained"
        assert _default(text, default) == default, f"{key}: the default is {default!r}, not {text}"


def _default(text: str, like: Any) -> Any:
    if text == "required":
        return msgspec.NODEFAULT
    if text == NONE:
        return None
    if isinstance(like, Seconds):
        return parse_duration(text)
    value = yaml.safe_load(text)
    return tuple(value) if isinstance(value, list) else value


def test_the_built_in_workloads_are_all_explained() -> None:
    documented = [row[0] for row in rows(section("docs/simulator.md", "## The built-in workloads"))[1:]]
    assert documented == list(CATALOG)


def test_the_options_of_simulate_are_all_explained() -> None:
    context = click.Context(main)
    command = main.get_command(context, "simulate")
    assert command is not None
    options = {flag for option in command.params for flag in option.opts if flag.startswith("--")}
    intro = text_of("docs/simulator.md").partition("\n## ")[0]
    documented = {flag for row in rows(intro) for flag in re.findall(r"--[\w-]+", row[0])}
    assert documented == options


def test_the_lifecycle_is_the_table_of_the_code() -> None:
    header, *lines = rows(section("docs/architecture.md", "## The lifecycle of a replica"))
    assert header[1:] == [f"`{event.value}`" for event in Event]
    documented = {line[0].strip("*"): line[1:] for line in lines}
    assert documented == {
        state.value: [TRANSITIONS[state][event].value if event in TRANSITIONS[state] else NONE for event in Event]
        for state in State
    }


def test_every_outcome_is_explained() -> None:
    documented = re.findall(
        r"`(\w+)`", "\n".join(row[0] for row in rows(section("docs/architecture.md", "## The flow of a request")))
    )
    assert {outcome.label for outcome in Outcome} <= set(documented)


def pool_options(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    for field in fields(value):
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            yield from pool_options(inner, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", str(inner)


def test_the_options_of_a_pool_are_explained_with_their_defaults() -> None:
    documented = rows(section("docs/architecture.md", "## The options of a pool"))[1:]
    assert {row[0].strip("`"): row[1] for row in documented} == dict(pool_options(PoolOptions()))


# ---------------------------------------------------------------------- form


@pytest.mark.parametrize("record", [page for page in PAGES if page.parent.name == "decisions"], ids=name)
def test_a_decision_record_is_short_and_complete(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    assert text.startswith(f"# {record.name[:4]}: ")
    for heading in ("## Context", "## Decision", "## Consequences"):
        assert f"\n{heading}\n" in text


def test_the_changelog_knows_this_version() -> None:
    text = text_of("CHANGELOG.md")
    assert "## [Unreleased]" in text
    assert f"## [{__version__}]" in text
