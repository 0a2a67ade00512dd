"""Plain SVG, written by hand: boxes, lines, dots and text, the same bytes on every machine.

Nothing measures a font here: which one is used is the reader's affair. Widths are estimated for a wide one (DejaVu
Sans), so that text fits in any other, too.
"""

import re
from xml.sax.saxutils import escape

INK, FAINT, PAPER, LINE = "#1f2933", "#5f6c7b", "#ffffff", "#c3ccd5"
_SANS = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_WIDTHS = {"ijl|' ": 0.32, "ftr.,:;()[]!/-": 0.42, "ckszvxy": 0.59, "mwMW@%": 0.99}  # of an em


def width(text: str, size: float, *, mono: bool = False, bold: bool = False) -> float:
    """Estimate how wide a text is, rather too wide than too narrow."""
    text = text.replace("`", "")
    if mono:
        return 0.61 * size * len(text)
    return size * sum(map(_em, text)) * (1.1 if bold else 1.0)


def _em(letter: str) -> float:
    for letters, em in _WIDTHS.items():
        if letter in letters:
            return em
    return 0.78 if letter.isupper() else 0.635


def wrapped(text: str, size: float, room: float, *, mono: bool = False, gap: str = " ") -> list[str]:
    """Break a text into lines that fit; ``gap`` is put between words."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]}{gap}{word}" if lines else word
        if lines and width(longer, size, mono=mono) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def fitted(text: str, size: float, room: float) -> str:
    """Cut a text that is too long for one line where a clause ends."""
    while width(text, size) > room and (cut := max(text.rfind(mark) for mark in ("; ", ": ", ", ", " ("))) > 0:
        text = text[:cut]
    return text


class Drawing:
    """A picture that grows from top to bottom."""

    def __init__(self, wide: int, title: str) -> None:
        self.wide, self._title = wide, title
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, w: float, h: float, *, fill: str = PAPER, edge: str = LINE, round_: float = 6
    ) -> None:
        """Draw a rectangle."""
        place = f'x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="{h:.0f}" rx="{round_:.0f}"'
        self._parts.append(f'<rect {place} fill="{fill}" stroke="{edge}"/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        *,
        color: str = INK,
        mono: bool = False,
        bold: bool = False,
        anchor: str = "start",
    ) -> None:
        """Write one line, whose foot is at ``y``; what stands in `backquotes` is in italics."""
        kind = f'class="{"m" if mono else "s"}" font-size="{size:g}" fill="{color}"'
        more = ' font-weight="600"' * bold + f' text-anchor="{anchor}"' * (anchor != "start")
        self._parts.append(f'<text x="{x:.0f}" y="{y:.0f}" {kind}{more}>{_italics(text)}</text>')

    def lines(self, x: float, y: float, lines: list[str], size: float, *, color: str = INK, mono: bool = False) -> None:
        """Write lines, the foot of the first at ``y``."""
        for k, line in enumerate(lines):
            self.text(x, y + k * leading(size), line, size, color=color, mono=mono)

    def path(self, points: str, *, color: str = LINE, thick: float = 1) -> None:
        """Draw a path, given as SVG writes it."""
        self._parts.append(f'<path d="{points}" fill="none" stroke="{color}" stroke-width="{thick:g}"/>')

    def dot(self, x: float, y: float, radius: float, color: str) -> None:
        """Draw a dot."""
        self._parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{radius:g}" fill="{color}" stroke="{PAPER}"/>')

    def finished(self, high: float) -> str:
        """Return the picture as the text of a file."""
        size = f'width="{self.wide}" height="{high:.0f}" viewBox="0 0 {self.wide} {high:.0f}"'
        head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(self._title)}</title>",
            f"<style>.s{{font-family:{_SANS}}}.m{{font-family:{_MONO};white-space:pre}}</style>",
            f'<rect width="{self.wide}" height="{high:.0f}" rx="8" fill="{PAPER}"/>',
        ]
        return "\n".join([*head, *self._parts, "</svg>\n"])


def _italics(text: str) -> str:
    return re.sub(r"`([^`]*)`", r'<tspan font-style="italic">\1</tspan>', escape(text))


def leading(size: float) -> float:
    """Return the distance from line to line."""
    return round(size * 1.35)
