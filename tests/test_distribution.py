"""What is handed out is whole: the sdist is the repository, the wheel has its data, and both know what they need."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = [
    pytest.mark.xdist_group("distribution"),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: git says what is to be handed out"),
]


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, encoding="utf-8", check=True).stdout
    return {name for name in listed.splitlines() if (ROOT / name).exists()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a copy: a build leaves folders behind."""
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("built")
    for name in tracked():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    build = f"import build_backend as b; b.build_sdist({str(out)!r}); b.build_wheel({str(out)!r})"
    pure = {**os.environ, "PYTHONPATH": "tools", "STEELYARD_COMPILE": "0"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", build], cwd=copy, check=True, capture_output=True, env=pure)
    return out


def test_the_sdist_is_the_whole_repository(built: Path) -> None:
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked() - inside == set()


def test_the_wheel_has_the_package_its_data_and_the_files_for_prometheus_and_grafana(built: Path) -> None:
    (file,) = built.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        inside = set(archive.namelist())
    package = {name.removeprefix("src/") for name in tracked() if name.startswith("src/steelyard/")}
    assert package - inside == set()
    shared = {name.partition(".data/data/")[2] for name in inside}
    assert {"share/steelyard/prometheus/alerts.yml", "share/steelyard/grafana/steelyard.json"} <= shared
    assert not [name for name in inside if name.startswith("tests/")]


def test_the_traces_are_small(built: Path) -> None:
    data = ROOT / "src/steelyard/simulate/workload/data"
    assert sum(file.stat().st_size for file in data.iterdir()) < 600_000


def test_only_linux_brings_the_libraries_of_the_gateway_and_an_old_python_none(built: Path) -> None:
    (file,) = built.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode("utf-8"))
    needs = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert needs
    assert all("python_version >= " in line for line in needs)
    linux = {re.split(r"[^\w-]", line)[0] for line in needs if "linux" in line}
    assert linux == {"dnspython", "httptools", "starlette", "uvicorn", "uvloop"}
    assert metadata["Requires-Python"] == ">=3.9"
