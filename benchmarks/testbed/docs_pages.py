"""Puts what a benchmark printed between its markers on a page of the docs: no figure there is written by hand."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def write_section(page: str, name: str, text: str) -> None:
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    path = DOCS / page
    before, rest = path.read_text(encoding="utf-8").split(begin, 1)
    _, after = rest.split(end, 1)
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """The first column to the left, numbers to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
