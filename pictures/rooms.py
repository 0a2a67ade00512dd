"""The picture of the rooms: the layers of the import contract, each room with its promise and its files."""

from .house import PACKAGE, Room, contracts, house
from .svg import FAINT, INK, Drawing, leading, wrapped

WIDE, EDGE, GAP, PAD = 1000, 20, 8, 12
_NAME, _TEXT, _FILE = 14.0, 12.5, 12.0  # sizes of type
_SIDE = 190  # the width of a closed room beside an open one
_LEAST = 145  # the width of a room inside another; more rooms of a layer than fit stand in several rows
_NEEDS = "#a3480b"
_GAP = "\u00a0 "  # between files; of plain blanks only one would be shown

_FILLS = {"cli": "#eef1f4", "paper": "#f6eef8", "vault": "#fdf3e3", "errors": "#eef1f4", "doors": "#eef1f4"}
_FACE, _CORE, _INSIDE = "#e6f0fb", "#e8f5ec", "#fffaf0"
_EDGES = {"#eef1f4": "#b6c1cc", "#f6eef8": "#cfb3d9", "#fdf3e3": "#e0b667", _FACE: "#9dc0e6", _CORE: "#9fceac"}


def drawn() -> str:
    """Draw the rooms."""
    drawing = Drawing(WIDE, "The rooms of expunge: a room imports only from rooms below it")
    drawing.text(EDGE, 32, "The rooms of expunge", 18, bold=True)
    told = (
        "A room imports only from rooms below it. Files are in the order of reading: each imports only those before it."
    )
    drawing.text(EDGE, 52, told, _TEXT, color=FAINT)
    y = 66.0
    for layer in house():
        y += _layer(drawing, layer, EDGE, y, WIDE - 2 * EDGE) + GAP
    for note in _notes():
        lines = wrapped(note, _TEXT, WIDE - 2 * EDGE)
        drawing.lines(EDGE, y + 14, lines, _TEXT, color=FAINT)
        y += len(lines) * leading(_TEXT) + 4
    return drawing.finished(y + 14)


def _layer(drawing: Drawing, layer: tuple[Room, ...], x: float, y: float, w: float) -> float:
    """Draw rooms side by side; returns how high they are."""
    widths = _widths(layer, w)
    high = max(_height(room, each) for room, each in zip(layer, widths, strict=True))
    for room, each in zip(layer, widths, strict=True):
        _box(drawing, room, x, y, each, high)
        x += each + GAP
    return high


def _widths(layer: tuple[Room, ...], w: float) -> list[float]:
    rest = w - GAP * (len(layer) - 1)
    closed = [room for room in layer if not room.inner]
    if len(closed) == len(layer):
        return [rest / len(layer)] * len(layer)
    return [_SIDE if room in closed else rest - _SIDE * len(closed) for room in layer]


def _rows(room: Room, w: float) -> list[tuple[Room, ...]]:
    """The layers inside a room, those of many rooms in several rows of about the same length."""
    found, most = list[tuple[Room, ...]](), int((w + GAP) // (_LEAST + GAP))
    for layer in room.inner:
        each = -(-len(layer) // -(-len(layer) // most))
        found += [layer[k : k + each] for k in range(0, len(layer), each)]
    return found


def _is_row(room: Room, w: float) -> bool:
    """Whether name, promise and files stand beside each other."""
    return w > 640 and not room.inner


def _columns(room: Room, w: float) -> tuple[float, float]:
    """Where the promise and the files of a row begin."""
    return (130, w * 0.58) if room.files else (130, w - 125 * bool(room.needs))


def _blocks(room: Room, w: float) -> tuple[list[str], list[str], list[str]]:
    """The lines of promise, files and needs."""
    first, second = _columns(room, w) if _is_row(room, w) else (0.0, 0.0)
    promise = wrapped(room.promise, _TEXT, (second or w) - first - PAD * (1 if second else 2))
    space = w - second - PAD * (1 if second else 2)
    files = [] if room.inner else wrapped(" ".join(room.files), _FILE, space, mono=True, gap=_GAP)
    if w <= _SIDE:
        files = list(room.files)
    needs = [] if room.inner else wrapped(f"needs {', '.join(room.needs)}" if room.needs else "", _FILE, space)
    return promise, files, needs


def _height(room: Room, w: float) -> float:
    promise, files, needs = (len(lines) for lines in _blocks(room, w))
    text, file = leading(_TEXT), leading(_FILE)
    if _is_row(room, w):
        return max(promise * text, (files + needs) * file, text) + PAD + 2
    high = 24 + promise * text + (files + needs) * file + PAD - 2 + 4 * bool(files + needs)
    return high + sum(_layer_height(row, w - 2 * PAD) + GAP for row in _rows(room, w - 2 * PAD))


def _layer_height(layer: tuple[Room, ...], w: float) -> float:
    return max(_height(room, each) for room, each in zip(layer, _widths(layer, w), strict=True))


def _box(drawing: Drawing, room: Room, x: float, y: float, w: float, h: float) -> None:
    fill = _fill(room)
    drawing.box(x, y, w, h, fill=fill, edge=_EDGES.get(fill, "#e0b667"))
    promise, files, needs = _blocks(room, w)
    drawing.text(x + PAD, y + 19, room.label, _NAME, mono=True, bold=True)
    if _is_row(room, w):
        first, second = _columns(room, w)
        drawing.lines(x + first, y + 19, promise, _TEXT)
        _files(drawing, files, needs, x + second, y + 19)
        return
    drawing.lines(x + PAD, y + 38, promise, _TEXT)
    y += 41 + len(promise) * leading(_TEXT)
    _files(drawing, files, needs, x + PAD, y)
    y -= 9
    for row in _rows(room, w - 2 * PAD):
        y += _layer(drawing, row, x + PAD, y, w - 2 * PAD) + GAP


def _files(drawing: Drawing, files: list[str], needs: list[str], x: float, y: float) -> None:
    drawing.lines(x, y, files, _FILE, color=INK, mono=True)
    drawing.lines(x, y + len(files) * leading(_FILE), needs, _FILE, color=_NEEDS)


def _fill(room: Room) -> str:
    first, *deeper = room.name.split(".")[1:]
    if deeper:
        return _INSIDE
    return _FILLS.get(first, _CORE if room.files else _FACE)


def _notes() -> list[str]:
    """What the contract forbids, in words."""
    notes = []
    for contract in contracts("forbidden"):
        names = [name.removeprefix(f"{PACKAGE}.") for name in contract["source_modules"]]
        inside = all(name.startswith("vault.") for name in names)
        where = "other rooms of the vault" if inside else ", ".join(names)
        what = " and ".join(contract["forbidden_modules"])
        notes.append(f"{contract['name']}: {what} may not be imported in {where}.")
    return notes
