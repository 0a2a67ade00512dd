"""Plain SVG: a frame with two axes, and what is drawn in it. No fonts are measured, and nothing is run."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

INK, FAINT, LINE, BLUE, PALE = "#1f2933", "#5f6c7b", "#d5dce3", "#2f6fb3", "#a9c7e6"

_WIDE, _HIGH = 440, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 16, 34, 52  # margins, for the title and the labels


@dataclass
class Frame:
    """A picture with a horizontal and a vertical axis, from (low, high) to (low, high)."""

    title: str
    x: tuple[float, float]
    y: tuple[float, float]
    labels: tuple[str, str]
    _parts: list[str] = field(default_factory=list)

    def box(self, left: float, low: float, right: float, high: float, fill: str, tip: str = "") -> None:
        """Draw a filled box, given by its corners in the units of the axes; whoever points at it sees ``tip``."""
        x0, x1, y0, y1 = self._x(left), self._x(right), self._y(high), self._y(low)
        shape = f'x="{x0:.1f}" y="{y0:.1f}" width="{max(x1 - x0, 0.5):.1f}" height="{max(y1 - y0, 0.5):.1f}"'
        inside = f"<title>{escape(tip)}</title>" if tip else ""
        self._parts.append(f'<rect {shape} fill="{fill}">{inside}</rect>')

    def boxes(self, corners: Iterable[tuple[float, float, float, float]], fill: str, opacity: float) -> None:
        """Draw many boxes of one colour."""
        path = "".join(
            f"M{self._x(left):.1f} {self._y(low):.1f}H{self._x(right):.1f}V{self._y(high):.1f}H{self._x(left):.1f}Z"
            for left, low, right, high in corners
        )
        if path:
            self._parts.append(f'<path d="{path}" fill="{fill}" fill-opacity="{opacity:.2f}"/>')

    def line(self, x0: float, y0: float, x1: float, y1: float, colour: str = INK, *, dashed: bool = False) -> None:
        """Draw a line between two points in the units of the axes."""
        ends = f'x1="{self._x(x0):.1f}" y1="{self._y(y0):.1f}" x2="{self._x(x1):.1f}" y2="{self._y(y1):.1f}"'
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._parts.append(f'<line {ends} stroke="{colour}" stroke-width="1.2"{dash}/>')

    def drawn(self) -> str:
        """Return the picture as an SVG element."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {_HIGH}" role="img">',
                f"<title>{escape(self.title)}</title>",
                _text(_LEFT, 20, self.title, 14, INK, "start"),
                *self._grid(),
                *self._parts,
                _text((_LEFT + _WIDE - _RIGHT) / 2, _HIGH - 12, self.labels[0], 12, FAINT, "middle"),
                _text(
                    -(_TOP + _HIGH - _BOTTOM) / 2, 14, self.labels[1], 12, FAINT, "middle", ' transform="rotate(-90)"'
                ),
                "</svg>",
            ]
        )

    def _grid(self) -> Iterable[str]:
        low, high = self._y(self.y[0]), self._y(self.y[1])
        for tick in ticks(*self.x):
            x = self._x(tick)
            yield f'<line x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}" stroke="{LINE}"/>'
            yield _text(x, low + 16, shown(tick, self.x), 11, FAINT, "middle")
        for tick in ticks(*self.y):
            y = self._y(tick)
            yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDE - _RIGHT}" y2="{y:.1f}" stroke="{LINE}"/>'
            yield _text(_LEFT - 6, y + 4, shown(tick, self.y), 11, FAINT, "end")

    def _x(self, value: float) -> float:
        return _LEFT + (_WIDE - _LEFT - _RIGHT) * _part(value, *self.x)

    def _y(self, value: float) -> float:
        return _HIGH - _BOTTOM - (_HIGH - _TOP - _BOTTOM) * _part(value, *self.y)


def ticks(low: float, high: float) -> Sequence[float]:
    """Return some four to eight round numbers within a range."""
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(times for times in (5, 2, 1) if step * times * 4 <= (high - low) * (1 + 1e-9) or times == 1)
    return [k * step + 0.0 for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def shown(number: float, within: tuple[float, float]) -> str:
    """Return a number with as many digits as tell it from its neighbours on an axis."""
    size, step = max(map(abs, within)), (within[1] - within[0]) / 8
    if not 1e-4 <= size < 1e7:
        return f"{number:.{max(0, math.ceil(math.log10(size / step)))}g}"
    return f"{number:,.{max(0, -math.floor(math.log10(step)))}f}"


def _part(value: float, low: float, high: float) -> float:
    """Return how far along an axis a value lies; what is beyond its ends is at the end."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _text(x: float, y: float, text: str, size: int, colour: str, anchor: str, more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{more}'
    return f"<text {place}>{escape(text)}</text>"
