"""The lint of core/ finds what it bans, and only that."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "lint_core.py"


@pytest.fixture
def lint(tmp_path: Path) -> ModuleType:
    """The tool, looking at a core of its own."""
    spec = util.spec_from_file_location("lint_core", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.CORE = tmp_path / "src" / "steelyard" / "core"
    module.CORE.mkdir(parents=True)
    return module


def found(lint: ModuleType, text: str) -> list[str]:
    path = lint.CORE / "module.py"
    path.write_text(text, encoding="utf-8")
    problems: list[str] = lint.problems(path)
    return problems


def test_the_real_core_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    spec = util.spec_from_file_location("lint_core", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert len(list(module.CORE.rglob("*.py"))) > 10  # it looks at the right place
    assert module.main() == 0
    assert "no clock" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["time", "datetime", "socket", "asyncio", "threading", "os", "subprocess", "secrets", "uuid", "select"]
)
def test_a_clock_or_io_may_not_be_imported_in_any_way(lint: ModuleType, name: str) -> None:
    for text in (f"import {name}", f"import {name} as x", f"from {name} import anything", f"import math, {name}"):
        (problem,) = found(lint, f"x = 1\n{text}\n")
        assert problem.startswith("src/steelyard/core/module.py:2: imports")
        assert name in problem


@pytest.mark.parametrize("text", ["import os.path", "from os.path import join", "from asyncio.events import x"])
def test_a_part_of_a_banned_module_is_banned(lint: ModuleType, text: str) -> None:
    assert len(found(lint, text)) == 1


@pytest.mark.parametrize("text", ["import random", "from random import random", "from random import Random, choice"])
def test_the_global_random_is_banned(lint: ModuleType, text: str) -> None:
    assert len(found(lint, text)) == 1


def test_a_given_random_is_welcome(lint: ModuleType) -> None:
    assert found(lint, "from random import Random\n\n\ndef f(rng: Random) -> float:\n    return rng.random()\n") == []


@pytest.mark.parametrize("call", ["hash('x')", "open('f')", "input()", "print('x')"])
def test_a_call_that_depends_on_the_process_or_does_io_is_banned(lint: ModuleType, call: str) -> None:
    (problem,) = found(lint, f"\n\ndef f():\n    return {call}\n")
    assert problem == f"src/steelyard/core/module.py:4: calls {call.split('(')[0]}()"


@pytest.mark.parametrize(
    "call", ["np.random.random()", "numpy.random.default_rng()", "np.random.default_rng(1).random()"]
)
def test_numpys_random_is_banned(lint: ModuleType, call: str) -> None:
    assert found(lint, f"x = {call}")


def test_a_random_without_a_seed_is_banned_and_one_with_a_seed_is_not(lint: ModuleType) -> None:
    (problem,) = found(lint, "from random import Random\n\nrng = Random()\n")
    assert ":3: " in problem
    assert found(lint, "from random import Random\n\nrng = Random(0)\n") == []


def test_what_is_found_is_told_in_order_of_lines(lint: ModuleType) -> None:
    text = "def f():\n    print(1)\n\n\nimport time\nimport socket\n"
    assert [problem.split(":")[1] for problem in found(lint, text)] == ["2", "5", "6"]


def test_names_that_only_look_alike_are_fine(lint: ModuleType) -> None:
    text = (
        "from .time import now\nfrom . import random\nimport timeit_like\nself.open()\nx.hash('y')\n"
        "pool.open.append(1)\n'import time'\n# print(1)\n"
    )
    assert found(lint, text) == []


def test_the_identity_of_an_object_in_its_repr_decides_nothing(lint: ModuleType) -> None:
    assert found(lint, "class A:\n    def __repr__(self):\n        return hex(id(self))\n") == []


def test_a_problem_anywhere_in_core_fails_the_check(lint: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    (lint.CORE / "fine.py").write_text("x = 1\n", encoding="utf-8")
    assert lint.main() == 0
    (lint.CORE / "policies").mkdir()
    (lint.CORE / "policies" / "bad.py").write_text("import time\n", encoding="utf-8")
    assert lint.main() == 1
    assert "src/steelyard/core/policies/bad.py:1: imports time" in capsys.readouterr().out


# What the tool says it bans, written another way


def test_the_identity_of_an_object_may_not_decide(lint: ModuleType) -> None:
    # `id` is among BANNED_CALLS.
    assert found(lint, "def f(replicas):\n    return min(replicas, key=lambda r: id(r))\n")


@pytest.mark.parametrize("name", ["hash", "id"])
def test_a_banned_function_may_not_be_handed_on(lint: ModuleType, name: str) -> None:
    assert found(lint, f"def f(replicas):\n    return sorted(replicas, key={name})\n")


@pytest.mark.parametrize(
    "text", ["from numpy.random import default_rng", "from numpy import random", "import numpy.random as r"]
)
def test_numpys_random_may_not_be_imported_under_another_name(lint: ModuleType, text: str) -> None:
    assert found(lint, text)


def test_a_random_seeded_with_none_is_one_without_a_seed(lint: ModuleType) -> None:
    assert found(lint, "from random import Random\n\nrng = Random(None)\n")
