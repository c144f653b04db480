"""A matplotlib figure as SVG for the inside of an HTML page: coloured by the page's style sheet, ids of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from ...core.errors import SteelyardError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that stand for a variable of the page, so that a chart follows it into the dark. Nothing else uses them.
INK, SOFT, FAINT = "#010101", "#020202", "#030303"
SERIES = tuple(f"#0505{n:02x}" for n in range(10))
_VARIABLES = {INK: "--ink", SOFT: "--soft", FAINT: "--faint"} | {
    colour: f"--series-{n}" for n, colour in enumerate(SERIES)
}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # real text: it can be read aloud, searched and copied
    "text.parse_math": False,  # a $ in a name is a $
    "svg.hashsalt": "steelyard",  # the same figure, the same bytes
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the layout does not depend on the machine
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.minor.width": 0.5,
    "ytick.minor.width": 0.5,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
}


class MissingExtraError(SteelyardError, ImportError):
    reason = "missing_extra"


def require_matplotlib() -> None:
    """Fail now, with a remedy, rather than after a long run."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtraError("the report's charts need matplotlib: pip install 'steelyard[sim]'") from None


@contextmanager
def chart_style() -> Iterator[None]:
    """Figures made here have the house style, whatever the user's matplotlibrc says."""
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def inline_svg(figure: Figure, prefix: str, title: str) -> str:
    """The figure as an `<svg>` element; `prefix` keeps its ids apart from other charts', `title` is read aloud."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    box = re.search(r'viewBox="([^"]*)"', svg)
    assert box is not None
    opening = f'<svg viewBox="{box[1]}" role="img" aria-label="{escape(title, quote=True)}">'
    svg = opening + svg[svg.index(">") + 1 :]
    for pattern, replacement in _CLEANUPS:
        svg = pattern.sub(replacement, svg)
    svg = _PATH.sub(lambda path: _SPACE.sub(" ", _DECIMALS.sub(r"\1", path[0])), svg)
    svg = _PLACEHOLDER_COLOUR.sub(lambda colour: f"var({_VARIABLES.get(colour[0], '--ink')})", svg)
    for before in ('id="', "url(#", 'href="#'):
        svg = svg.replace(before, f"{before}{prefix}-")
    return svg.strip()


# Namespaces, prolog, notes and a style sheet that would leak into the page go; so do digits nobody can see.
_CLEANUPS = (
    (re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", re.DOTALL), ""),
    (re.compile(r' transform="rotate\(-0 [^"]*\)"'), ""),
    (re.compile(r"xlink:href="), "href="),
    (re.compile(r"\s*\n\s*(?=<)"), ""),
)
_PATH = re.compile(r'(?<= d=")[^"]*')
_DECIMALS = re.compile(r"(\d\.\d{2})\d+")
_SPACE = re.compile(r"\s+")
_PLACEHOLDER_COLOUR = re.compile(r"#0[1-5]0[1-5]0[0-9]\b")
