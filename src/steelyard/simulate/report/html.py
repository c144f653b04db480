"""The page of a report: one self-contained file, for light and dark mode and for print."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib.metadata import version

PAGE_STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f6f4; --card: #ffffff; --ink: #1b1b1a; --soft: #5c5b57; --faint: #e3e2de;
  --mark: #e6f1fb; --accent: #0b62a8;
  --series-0: #0072b2; --series-1: #d55e00; --series-2: #00875f; --series-3: #c05c96;
  --series-4: #b57c00; --series-5: #3d9bd1; --series-6: #7a5195; --series-7: #7d6a2b;
  --series-8: #77766f; --series-9: #a81e4b;
  --flip: none;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #121212; --card: #1c1c1b; --ink: #f0efec; --soft: #b0aea7; --faint: #383835;
    --mark: #17324a; --accent: #6db7f2;
    --series-0: #4da3db; --series-1: #f0803c; --series-2: #2bb88f; --series-3: #e39ac4;
    --series-4: #f2b84b; --series-5: #9bd2f5; --series-6: #b593d6; --series-7: #c8b06a;
    --series-8: #9d9c95; --series-9: #f2728f;
    --flip: invert(1) hue-rotate(180deg);
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main, header, footer { max-width: 76rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; padding-bottom: 0.5rem; }
.brand { color: var(--accent); font-weight: 600; letter-spacing: 0.02em; margin: 0; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0.2rem 0 0.5rem; text-wrap: balance; }
h2 { font-size: 1.45rem; line-height: 1.25; margin: 0 0 0.25rem; }
h3 { font-size: 1.05rem; margin: 0 0 0.15rem; }
p { margin: 0 0 0.75rem; max-width: 48rem; }
a { color: var(--accent); }
.soft { color: var(--soft); }
nav.card { margin-top: 1rem; }
nav h2 { font-size: 1.05rem; }
section { margin: 1.5rem 0 3.5rem; }
.finding {
  font-size: 1.1rem; border-left: 4px solid var(--accent); padding: 0.1rem 0 0.1rem 0.9rem; margin: 1rem 0 1.25rem;
}
.warning { border-left: 4px solid var(--series-1); padding-left: 0.9rem; }
.card {
  background: var(--card); border: 1px solid var(--faint); border-radius: 10px;
  padding: 1.1rem 1.25rem; margin: 0 0 1.25rem;
}
.scroll { overflow-x: auto; margin: 0.5rem -0.25rem 0; padding: 0 0.25rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.84rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.5rem; text-align: right; white-space: nowrap; vertical-align: baseline; }
th:first-child, td:first-child { text-align: left; }
thead th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--soft); vertical-align: bottom; }
tbody th { font-weight: 400; }
tbody tr + tr > * { border-top: 1px solid var(--faint); }
tbody + tbody tr:first-child > * { border-top: 1px solid var(--soft); }
tr.group th { font-weight: 600; padding-top: 0.9rem; text-align: left; }
tr.reference > * { color: var(--soft); font-style: italic; }
tr.best > * { background: var(--mark); }
tr.best th { font-weight: 650; }
.half { color: var(--soft); font-size: 0.85em; font-weight: 400; }
.badge {
  display: inline-block; margin-left: 0.45rem; padding: 0 0.4rem; border-radius: 999px;
  font-size: 0.72rem; font-weight: 600; background: var(--accent); color: var(--card);
}
figure { margin: 0; }
figure svg { display: block; width: 100%; min-width: 44rem; height: auto; }
figure svg * { stroke-linejoin: round; }
figure svg text { fill: var(--soft); font-size: 10px; }
figure svg .ink { fill: var(--ink); }
figure svg .bold { fill: var(--ink); font-weight: 600; }
figure svg .small { font-size: 8.5px; }
figure svg image { filter: var(--flip); image-rendering: pixelated; }
figure + figure { margin-top: 1.25rem; }
figcaption { color: var(--soft); font-size: 0.92rem; max-width: 50rem; margin-top: 0.6rem; }
details { margin-top: 0.9rem; }
summary { cursor: pointer; color: var(--accent); font-weight: 500; }
pre {
  overflow-x: auto; margin: 0.6rem 0 0; padding: 0.9rem 1rem; border-radius: 8px; background: var(--page);
  border: 1px solid var(--faint); font: 0.82rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
}
code { font: 0.92em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1rem; font-size: 0.92rem; margin: 0.5rem 0 0; }
dt { font-weight: 600; } dd { margin: 0; }
footer { color: var(--soft); font-size: 0.9rem; padding-bottom: 3rem; }
.met { color: var(--series-2); font-weight: 650; }
.violated { color: var(--series-9); font-weight: 650; }
.key { display: inline-block; width: 0.8em; height: 0.8em; border-radius: 2px; margin: 0 0.3em 0 0.9em; }
td.words { text-align: left; white-space: normal; }
@media print {
  :root { color-scheme: light; }
  body { background: none; }
  .card, section { break-inside: avoid; }
  figure svg { min-width: 0; }
}
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: 0.4rem; } }
"""


def escape(text: str) -> str:
    return html.escape(text, quote=True).replace(" %", "\N{NO-BREAK SPACE}%")


def document(title: str, *, brand: str, header: str, body: Iterable[str], footer: str) -> str:
    """`title` is text, the rest is HTML."""
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">",
            f"<title>{escape(title)} · {brand}</title>\n<style>{PAGE_STYLE}</style>\n</head>\n<body>",
            f'<header><p class="brand">{brand}</p><h1>{escape(title)}</h1>{header}</header>\n<main>',
            *body,
            f"</main>\n<footer><p>Made by Steelyard {escape(version('steelyard'))}. {footer}</p></footer>",
            "</body>\n</html>\n",
        ]
    )


def card(title: str, *parts: str) -> str:
    return f'<div class="card"><h3>{escape(title)}</h3>{"".join(parts)}</div>'


def figure(svg: str, caption: str) -> str:
    """`caption` is HTML."""
    return f'<figure><div class="scroll">{svg}</div><figcaption>{caption}</figcaption></figure>'


def table(columns: Sequence[str], *bodies: Iterable[str], label: str = "") -> str:
    """`bodies`: groups of rows, as `row` and `group_row` make them."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    rows = "".join(f"<tbody>{''.join(body)}</tbody>" for body in bodies)
    named = f' aria-label="{escape(label)}"' if label else ""
    return f'<div class="scroll"><table{named}><thead><tr>{head}</tr></thead>{rows}</table></div>'


def row(name: str, cells: Iterable[str], kind: str = "") -> str:
    """`name` and `cells` are HTML; a cell may bring its own `<td …>`."""
    inner = "".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in cells)
    look = f' class="{kind}"' if kind else ""
    return f'<tr{look}><th scope="row">{name}</th>{inner}</tr>'


def group_row(name: str, columns: int) -> str:
    return f'<tr class="group"><th scope="rowgroup" colspan="{columns}">{escape(name)}</th></tr>'


def badge(text: str) -> str:
    return f'<span class="badge">{escape(text)}</span>'


def with_half_width(texts: tuple[str, str]) -> str:
    value, half = texts
    return f'{escape(value)} <span class="half">{escape(half)}</span>' if half else escape(value)


def definitions(meanings: dict[str, str]) -> str:
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in meanings.items())
    return f"<details><summary>What the columns mean</summary><dl>{items}</dl></details>"
