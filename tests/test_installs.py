"""What pip makes of the sources in an empty environment, tried as a user would; `make wheel` tries the wheels alike."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from .test_distribution import ROOT, tracked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("installs"),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: git says what is to be handed out"),
]


@pytest.fixture
def wheels() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wheels", ROOT / "tools" / "wheels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy: builds in one folder disturb each other."""
    for name in tracked():
        target = tmp_path / "sources" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    return tmp_path / "sources"


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)  # it would come before what is installed
    monkeypatch.delenv("STEELYARD_COMPILE", raising=False)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
@pytest.mark.usefixtures("no_package")
def test_an_install_with_a_compiler_is_compiled(wheels: ModuleType, sources: Path, tmp_path: Path) -> None:
    wheels.try_install(tmp_path / "environment", sys.executable, sources, "compiled", STEELYARD_COMPILE="1")


@pytest.mark.usefixtures("no_package")
def test_an_sdist_without_a_compiler_is_installed_pure(wheels: ModuleType, sources: Path, tmp_path: Path) -> None:
    build = f"import build_backend; build_backend.build_sdist({str(tmp_path)!r})"
    environ = {**os.environ, "PYTHONPATH": "tools"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", build], cwd=sources, env=environ, check=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    (tmp_path / "bin").mkdir()
    wheels.try_install(tmp_path / "environment", sys.executable, sdist, "pure Python", PATH=str(tmp_path / "bin"))
