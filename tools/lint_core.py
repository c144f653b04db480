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
BANNED_CALLS = {"open", "input", "print"}
BANNED_NAMES = {"hash", "id"}


def problems(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    found: list[tuple[int, str]] = []
    allowed = _of_no_consequence(tree)
    calls = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                if top in BANNED_MODULES or top == "random" or alias.name == "numpy.random":
                    found.append((node.lineno, f"imports {alias.name}: time and randomness are arguments here"))
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            top = (node.module or "").split(".")[0]
            if top in BANNED_MODULES:
                found.append((node.lineno, f"imports from {node.module}: core does no I/O and reads no clock"))
            if top == "random" and any(alias.name != "Random" for alias in node.names):
                found.append((node.lineno, "takes the global random: use the rng given"))
            if top == "numpy" and ("random" in (node.module or "") or any(a.name == "random" for a in node.names)):
                found.append((node.lineno, "takes numpy's random: use the rng given"))
        elif isinstance(node, ast.Name) and _is_banned(node) and node not in allowed:
            called = node in calls
            found.append((node.lineno, f"calls {node.id}()" if called else f"hands on {node.id}()"))
        elif isinstance(node, ast.Call):
            found.extend((node.lineno, problem) for problem in _call(node))
    return [f"{path.relative_to(CORE.parents[2])}:{line}: {text}" for line, text in sorted(found)]


def _is_banned(node: ast.Name) -> bool:
    """Used, and not the name of a field."""
    return isinstance(node.ctx, ast.Load) and node.id in BANNED_NAMES


def _of_no_consequence(tree: ast.AST) -> set[ast.AST]:
    """Names that decide nothing: all in a `__repr__`, and a function's own variables, such as the `id` of a replica."""
    out: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            own = {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
            own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
            out |= {n for n in names if n.id in own or node.name == "__repr__"}
    return out


def _call(node: ast.Call) -> list[str]:
    called = node.func
    if isinstance(called, ast.Name) and called.id in BANNED_CALLS:
        return [f"calls {called.id}()"]
    text = ast.unparse(called)
    if text.startswith(("np.random.", "numpy.random.")):
        return [f"calls {text}(): use the rng given"]
    if text == "Random" and (not node.args or (isinstance(node.args[0], ast.Constant) and node.args[0].value is None)):
        return ["makes a Random from the system's entropy: give it a seed"]
    return []


def main() -> int:
    found = [problem for path in sorted(CORE.rglob("*.py")) for problem in problems(path)]
    print("\n".join(found) if found else "core: no clock, no global random, no I/O")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
