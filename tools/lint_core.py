"""Bans from core/ what would make a decision depend on anything but its arguments: clocks, global random, I/O.

ruff and import-linter see imports; this also sees calls such as `random.random()` on the module and `hash()` of a
string, whose value changes from process to process. Run by `make check`.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

CORE = Path(__file__).parents[1] / "src" / "steelyard" / "core"
BANNED_MODULES = {"time", "datetime", "socket", "asyncio", "threading", "os", "subprocess", "secrets", "uuid", "select"}
BANNED_CALLS = {"hash", "id", "open", "input", "print"}


def problems(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                if top in BANNED_MODULES or top == "random":
                    found.append((node.lineno, f"imports {alias.name}: time and randomness are arguments here"))
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            top = (node.module or "").split(".")[0]
            if top in BANNED_MODULES:
                found.append((node.lineno, f"imports from {node.module}: core does no I/O and reads no clock"))
            if top == "random" and any(alias.name != "Random" for alias in node.names):
                found.append((node.lineno, "takes the global random: use the rng given"))
        elif isinstance(node, ast.Call):
            found.extend((node.lineno, problem) for problem in _call(node))
    return [f"{path.relative_to(CORE.parents[2])}:{line}: {text}" for line, text in sorted(found)]


def _call(node: ast.Call) -> list[str]:
    called = node.func
    # `hex(id(self))` in a __repr__ decides nothing
    if isinstance(called, ast.Name) and called.id in BANNED_CALLS - {"id"}:
        return [f"calls {called.id}()"]
    text = ast.unparse(called)
    if text.startswith(("np.random.", "numpy.random.")):
        return [f"calls {text}(): use the rng given"]
    if text == "Random" and not node.args:
        return ["makes a Random from the system's entropy: give it a seed"]
    return []


def main() -> int:
    found = [problem for path in sorted(CORE.rglob("*.py")) for problem in problems(path)]
    print("\n".join(found) if found else "core: no clock, no global random, no I/O")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
