"""Where internals of a library are used, its versions have an upper bound."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
INTERNAL = re.compile(r"^(?:from|import) (uvicorn)\b", re.MULTILINE)  # it documents only its command line and `run`


def test_libraries_whose_internals_are_used_have_an_upper_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[^\w-]", text)[0]: text for text in project["dependencies"]}
    files = (ROOT / "src").rglob("*.py")
    used = {name for path in files for name in INTERNAL.findall(path.read_text(encoding="utf-8"))}
    assert used == {"uvicorn"}
    assert all(re.search(r"<\d", wanted[name]) for name in used)
