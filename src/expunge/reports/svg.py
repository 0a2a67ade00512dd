"""SVG charts as text. No fonts are measured, and nothing is run."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

INK, FAINT, LINE, BLUE, PALE = "#1f2933", "#5f6c7b", "#d5dce3", "#2f6fb3", "#a9c7e6"


@dataclass(frozen=True)
class PlotArea:
    """The area inside the margins of a picture; shares of it, from 0 to 1, count from the lower left corner."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int

    def x(self, share: float) -> float:
        """Return the horizontal position of a share of the width."""
        return self.left + share * (self.width - self.left - self.right)

    def y(self, share: float) -> float:
        """Return the vertical position of a share of the height."""
        return self.height - self.bottom - share * (self.height - self.top - self.bottom)


def svg_element(tag: str, content: str = "", /, **attributes: float | str) -> str:
    """Return an element; numbers are rounded to a tenth, ``class_`` stands for class, ``_`` in names for a hyphen.

    ``content`` is markup: escape text first.
    """
    parts = [tag]
    for name, value in attributes.items():
        text = f"{value:.1f}" if isinstance(value, float) else escape(str(value))
        parts.append(f'{name.strip("_").replace("_", "-")}="{text}"')
    return f"<{' '.join(parts)}>{content}</{tag}>" if content else f"<{' '.join(parts)}/>"


def tooltip(text: str) -> str:
    """Return a title element, which browsers show when its parent is pointed at; "" for no text."""
    return f"<title>{escape(text)}</title>" if text else ""


@dataclass
class SvgChart:
    """A chart with a horizontal and a vertical axis, each from (low, high)."""

    title: str
    x: tuple[float, float]
    y: tuple[float, float]
    labels: tuple[str, str]
    area: PlotArea = PlotArea(440, 330, left=66, right=16, top=34, bottom=52)
    _parts: list[str] = field(default_factory=list)

    def box(self, left: float, low: float, right: float, high: float, fill: str, tip: str = "") -> None:
        """Draw a filled box, given by its corners in the units of the axes, with a tooltip."""
        x0, x1, y0, y1 = self._x(left), self._x(right), self._y(high), self._y(low)
        size = {"width": max(x1 - x0, 0.5), "height": max(y1 - y0, 0.5)}
        self._parts.append(svg_element("rect", tooltip(tip), x=x0, y=y0, **size, fill=fill))

    def boxes(self, corners: Iterable[tuple[float, float, float, float]], fill: str, opacity: float) -> None:
        """Draw many boxes of one colour."""
        path = "".join(
            f"M{self._x(left):.1f} {self._y(low):.1f}H{self._x(right):.1f}V{self._y(high):.1f}H{self._x(left):.1f}Z"
            for left, low, right, high in corners
        )
        if path:
            self._parts.append(svg_element("path", d=path, fill=fill, fill_opacity=f"{opacity:.2f}"))

    def line(self, x0: float, y0: float, x1: float, y1: float, colour: str = INK, *, dashed: bool = False) -> None:
        """Draw a line between two points in the units of the axes."""
        ends = {"x1": self._x(x0), "y1": self._y(y0), "x2": self._x(x1), "y2": self._y(y1)}
        dash = {"stroke_dasharray": "4 3"} if dashed else {}
        self._parts.append(svg_element("line", **ends, stroke=colour, stroke_width=1.2, **dash))

    def to_svg(self) -> str:
        """Return the chart as an SVG element."""
        area = self.area
        parts = [
            tooltip(self.title),
            _text(self.title, area.left, 20, 14, INK, "start"),
            *self._grid(),
            *self._parts,
            _text(self.labels[0], area.x(0.5), area.height - 12, 12, FAINT, "middle"),
            _text(self.labels[1], -area.y(0.5), 14, 12, FAINT, "middle", transform="rotate(-90)"),
        ]
        view = f"0 0 {area.width} {area.height}"
        content = "\n" + "\n".join(parts) + "\n"
        return svg_element("svg", content, xmlns="http://www.w3.org/2000/svg", viewBox=view, role="img")

    def _grid(self) -> Iterator[str]:
        area = self.area
        for tick in ticks(*self.x):
            x = self._x(tick)
            yield svg_element("line", x1=x, y1=area.y(0), x2=x, y2=area.y(1), stroke=LINE)
            yield _text(format_tick(tick, self.x), x, area.y(0) + 16, 11, FAINT, "middle")
        for tick in ticks(*self.y):
            y = self._y(tick)
            yield svg_element("line", x1=area.x(0), y1=y, x2=area.x(1), y2=y, stroke=LINE)
            yield _text(format_tick(tick, self.y), area.left - 6, y + 4, 11, FAINT, "end")

    def _x(self, value: float) -> float:
        return self.area.x(_axis_share(value, *self.x))

    def _y(self, value: float) -> float:
        return self.area.y(_axis_share(value, *self.y))


def ticks(low: float, high: float) -> Sequence[float]:
    """Return about four to eight round numbers within a range."""
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(times for times in (5, 2, 1) if step * times * 4 <= (high - low) * (1 + 1e-9) or times == 1)
    return [k * step + 0.0 for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def format_tick(number: float, axis: tuple[float, float]) -> str:
    """Return a number with enough digits to tell it from its neighbours on an axis."""
    size, step = max(map(abs, axis)), (axis[1] - axis[0]) / 8
    if not 1e-4 <= size < 1e7:
        return f"{number:.{max(0, math.ceil(math.log10(size / step)))}g}"
    return f"{number:,.{max(0, -math.floor(math.log10(step)))}f}"


def _axis_share(value: float, low: float, high: float) -> float:
    """Return a value's position on an axis as a share of its length; values beyond its ends are moved there."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _text(text: str, x: float, y: float, size: int, colour: str, anchor: str, **attributes: str) -> str:
    style: dict[str, float | str] = {"font_size": size, "fill": colour, "text_anchor": anchor}
    return svg_element("text", escape(text), x=float(x), y=float(y), **style, **attributes)
