"""When an install compiles the hot modules, and that it asks for mypy only then; see tests/test_installs.py too."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def backend() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_backend", ROOT / "tools" / "build_backend.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def compiler(tmp_path: Path) -> Mapping[str, str]:
    """An environment with a C compiler, and nothing else."""
    (tmp_path / "cc").write_text("#!/bin/sh\n")
    (tmp_path / "cc").chmod(0o755)
    return {"PATH": str(tmp_path), "CC": "cc -pthread"}


@pytest.fixture(autouse=True)
def headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "Python.h"
    path.touch()
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    return path


@pytest.mark.parametrize(("value", "chosen"), [(None, True), ("", True), ("1", True), ("0", False)])
def test_with_a_compiler(backend: ModuleType, compiler: dict[str, str], value: str | None, chosen: bool) -> None:
    assert backend.is_compiling(compiler if value is None else {**compiler, "STEELYARD_COMPILE": value}) is chosen


@pytest.mark.parametrize("value", ["", "0"])
def test_without_a_compiler_it_is_pure(backend: ModuleType, tmp_path: Path, value: str) -> None:
    assert backend.is_compiling({"PATH": str(tmp_path), "STEELYARD_COMPILE": value}) is False


def test_demanded_without_a_compiler_it_fails_in_one_sentence(backend: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"error: STEELYARD_COMPILE=1, but there is no C compiler '.+' in PATH"):
        backend.is_compiling({"PATH": str(tmp_path), "STEELYARD_COMPILE": "1"})


def test_demanded_without_headers_it_fails_in_one_sentence(
    backend: ModuleType, compiler: dict[str, str], headers: Path
) -> None:
    headers.unlink()
    assert backend.is_compiling(compiler) is False
    with pytest.raises(SystemExit, match=r"Python\.h is missing"):
        backend.is_compiling({**compiler, "STEELYARD_COMPILE": "1"})


@pytest.mark.parametrize("value", ["yes", "2", "true"])
def test_no_other_value_is_guessed(backend: ModuleType, compiler: dict[str, str], value: str) -> None:
    with pytest.raises(SystemExit, match=f"STEELYARD_COMPILE={value}: 1 compiles or fails"):
        backend.is_compiling({**compiler, "STEELYARD_COMPILE": value})


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_where_the_compiled_form_is_not_tested_it_must_be_demanded(
    backend: ModuleType, compiler: dict[str, str], monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert backend.is_compiling(compiler) is False
    assert backend.is_compiling({**compiler, "STEELYARD_COMPILE": "1"}) is True


def test_a_python_for_the_replica_agent_alone_stays_pure(
    backend: ModuleType, compiler: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    assert backend.is_compiling(compiler) is False


def test_mypy_is_asked_for_only_where_it_compiles(
    backend: ModuleType, compiler: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend.build_meta, "get_requires_for_build_wheel", lambda settings: ["wheel"])
    for compiles in (True, False):
        monkeypatch.setattr(backend, "is_compiling", lambda answer=compiles: answer)
        needed = backend.get_requires_for_build_wheel()
        assert needed == ["wheel", *(backend.COMPILE_REQUIREMENTS if compiles else [])]


def test_a_build_and_the_package_ask_for_the_same_libraries(backend: ModuleType) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {text.partition(";")[0].strip() for text in project["dependencies"]}
    assert {text for text in backend.COMPILE_REQUIREMENTS if not text.startswith("mypy")} <= wanted
