"""Charts as SVG. Text stays text; colours are variables of the style sheet (html.py)."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import pairwise
from math import floor, log10

import numpy as np
from numpy.typing import NDArray

WIDTH = 760  # of a chart, in user units
LINE_HEIGHT = 14
INK, SOFT, FAINT = "var(--ink)", "var(--soft)", "var(--faint)"
SERIES = tuple(f"var(--series-{n})" for n in range(10))

Points = Sequence[tuple[float, float]]
Ticks = Sequence[tuple[float, str]]  # value and label

# Outlines of radius 1, told apart without colour.
MARKERS = (
    "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z",
    "M-.9-.9h1.8v1.8h-1.8z",
    "M0-1.1L1 .8H-1Z",
    "M0-1.3L1 0 0 1.3-1 0Z",
    "M0 1.1L1-.8H-1Z",
    "M-.4-1.1h.8v.7h.7v.8h-.7v.7h-.8v-.7h-.7v-.8h.7z",
    "M-.6-1.1L0-.5 .6-1.1 1.1-.6 .5 0 1.1 .6 .6 1.1 0 .5-.6 1.1-1.1 .6-.5 0-1.1-.6Z",
    "M-1.1 0L.8-1V1Z",
    "M1.1 0L-.8-1V1Z",
    "M0-1.1L1-.3 .6 .9H-.6L-1-.3Z",
    "M0-1.1L1-.5V.5L0 1.1-1 .5V-.5Z",
    "M0-1.4L.6 0 0 1.4-.6 0Z",
)


class Drawing:
    def __init__(self, height: float, width: float = WIDTH) -> None:
        self.width, self.height = width, height
        self._marks: list[str] = []

    def line(
        self,
        points: Points,
        colour: str,
        *,
        width: float = 1.6,
        dash: str = "",
        opacity: float = 1.0,
        steps: bool = False,
    ) -> None:
        look = f'fill="none" stroke="{colour}" stroke-width="{width:g}"{_optional("stroke-dasharray", dash)}'
        self._marks.append(f'<path d="{_path(points, steps=steps)}" {look}{_opacity(opacity)}/>')

    def area(self, upper: Points, lower: Points, colour: str, opacity: float, *, steps: bool = False) -> None:
        down = _path(lower, steps=steps, reverse=True).replace("M", "L", 1)
        self._marks.append(f'<path d="{_path(upper, steps=steps)}{down}Z" fill="{colour}"{_opacity(opacity)}/>')

    def rect(
        self, x: float, y: float, width: float, height: float, colour: str, opacity: float = 1.0, tip: str = ""
    ) -> None:
        place = f'x="{_(x)}" y="{_(y)}" width="{_(width)}" height="{_(height)}" fill="{colour}"{_opacity(opacity)}'
        self._marks.append(f"<rect {place}><title>{escape(tip)}</title></rect>" if tip else f"<rect {place}/>")

    def marker(self, shape: int, x: float, y: float, colour: str, radius: float = 3.2) -> None:
        place = f'transform="translate({_(x)} {_(y)}) scale({radius:g})"'
        self._marks.append(f'<path d="{MARKERS[shape % len(MARKERS)]}" {place} fill="{colour}"/>')

    def text(self, x: float, y: float, text: str, *, anchor: str = "", look: str = "", up: bool = False) -> None:
        """`look`: classes of the style sheet; `up`: read from below."""
        place = f'transform="translate({_(x)} {_(y)}) rotate(-90)"' if up else f'x="{_(x)}" y="{_(y)}"'
        look = _optional("text-anchor", anchor) + _optional("class", look)
        self._marks.append(f"<text {place}{look}>{escape(text)}</text>")

    def image(self, x: float, y: float, width: float, height: float, pixels: NDArray[np.uint8]) -> None:
        """Rows of RGBA pixels, stretched."""
        place = f'x="{_(x)}" y="{_(y)}" width="{_(width)}" height="{_(height)}" preserveAspectRatio="none"'
        data = b64encode(_png(pixels)).decode()
        self._marks.append(f'<image {place} href="data:image/png;base64,{data}"/>')

    def svg(self, title: str) -> str:
        opening = f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(title)}">'
        return f"{opening}<title>{escape(title)}</title>{''.join(self._marks)}</svg>"


class Axes:
    """Values beyond a scale are drawn at its end."""

    def __init__(
        self, drawing: Drawing, left: float, top: float, width: float, height: float, x: Scale, y: Scale
    ) -> None:
        self.drawing = drawing
        self.left, self.top, self.right, self.bottom = left, top, left + width, top + height
        self._x, self._y = x, y

    def x(self, value: float) -> float:
        return self.left + self._x(value) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - self._y(value) * (self.bottom - self.top)

    def places(self, points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(self.x(x), self.y(y)) for x, y in points]

    def grid_x(self, ticks: Ticks, label: str = "", look: str = "") -> None:
        for value, text in ticks:
            self.drawing.line([(self.x(value), self.top), (self.x(value), self.bottom)], FAINT, width=0.8)
            self.drawing.text(self.x(value), self.bottom + LINE_HEIGHT, text, anchor="middle", look=look)
        if label:
            middle = (self.left + self.right) / 2
            self.drawing.text(middle, self.bottom + 2 * LINE_HEIGHT + 2, label, anchor="middle")

    def grid_y(self, ticks: Ticks, label: str = "", look: str = "", lines: bool = True) -> None:
        for value, text in ticks:
            if lines:
                self.drawing.line([(self.left, self.y(value)), (self.right, self.y(value))], FAINT, width=0.8)
            self.drawing.text(self.left - 6, self.y(value) + 3, text, anchor="end", look=look)
        if label:
            self.drawing.text(11, (self.top + self.bottom) / 2, label, anchor="middle", up=True)


Scale = Callable[[float], float]  # a value's place, from 0 to 1


def linear(low: float, high: float) -> Scale:
    span = (high - low) or 1.0
    return lambda value: min(max((value - low) / span, 0.0), 1.0)


def logarithmic(low: float, high: float) -> Scale:
    inner = linear(log10(low), log10(high))
    return lambda value: inner(log10(max(value, low)))


def linear_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """1, 2 or 5 times a power of ten apart."""
    raw = (high - low) / most or 1.0
    power = 10.0 ** floor(log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = -floor(-low / step + 1e-9), floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(int(first), int(last) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; with 2 and 5 times them where there are few."""
    factors = (1.0,) if high / low > 300 else (1.0, 2.0, 5.0)
    powers = range(floor(log10(low)), floor(log10(high)) + 1)
    return [f * 10.0**n for n in powers for f in factors if low * 0.999 <= f * 10.0**n <= high * 1.001]


def _path(points: Points, *, steps: bool = False, reverse: bool = False) -> str:
    """Straight lines, or steps that change at each point."""
    if steps:
        later = (place for (_, before), (x, y) in pairwise(points) for place in ((x, before), (x, y)))
        points = [*points[:1], *later]
    if reverse:
        points = points[::-1]
    return "M" + "L".join(f"{_(x)} {_(y)}" for x, y in points)


def _(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _optional(name: str, value: str) -> str:
    return f' {name}="{value}"' if value else ""


def _opacity(value: float) -> str:
    return f' opacity="{value:g}"' if value < 1.0 else ""


def _png(pixels: NDArray[np.uint8]) -> bytes:
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    )
