"""Detect burned-in text in images: boxes around rows of letter-like parts, in both polarities and both directions.

Nothing is read: letters are small, thin against their height, brighter or darker than their background, and in a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.image_codec import to_uint8
from cxrlab.data.images import ImageArray

Grey = NDArray[np.uint8]
Corners = tuple[int, int, int, int]

# Grey steps of 255 between a letter and its background, for any of its pixels and for its clearest one; and the same
# in standard deviations of the image's noise, whichever is more.
CONTRAST, PEAK = 30, 64
CONTRAST_NOISE, PEAK_NOISE = 4.0, 8.5
EDGE = 0.42
SMALLEST = 5
# An image with more candidates than this is texture; the clearest are looked at.
MOST_PARTS = 2500
FEWEST = 3


@dataclass(frozen=True)
class TextBox:
    """A rectangle with burned-in signs, in pixels; right and bottom are exclusive."""

    corners: Corners
    marker: bool = False


def text_boxes(image: ImageArray) -> tuple[TextBox, ...]:
    """Boxes around burned-in text of an image, [H, W] in [0, 1], from the top down; they do not overlap."""
    grey = to_uint8(image)
    dark = [replace(line, bright=False) for line in _both_ways(255 - grey)]
    found = [*_both_ways(grey), *dark]
    markers = [line for line in found if line.marker]
    text = [line.box for line in found if not line.marker and not any(_remnant(line, marker) for marker in markers)]
    boxes = _merged([_grown(box, grey.shape) for box in text])
    signs = _merged([_grown(line.box, grey.shape) for line in markers])
    part = [box for box in signs if any(_beside(box, other) for other in boxes)]
    boxes = _merged([*boxes, *part])
    lone = [box for box in signs if not any(_touch(box, other) for other in boxes)]
    all_boxes = [*(TextBox(box) for box in boxes), *(TextBox(box, marker=True) for box in lone)]
    return tuple(sorted(all_boxes, key=lambda box: (box.corners[1], box.corners[0])))


@dataclass(frozen=True)
class _Line:
    """Letters side by side: the box around them, how many, whether they spell a side marker, and whether on dark."""

    box: Corners
    letters: int
    marker: bool
    bright: bool = True


@dataclass(frozen=True)
class _Layer:
    """Bright parts of an image at one thickness of strokes, all [H, W]."""

    mask: NDArray[np.bool_]  # where something is brighter than what is behind it
    hat: Grey  # by how much
    steps: Grey  # how steep the image is there
    peak: float  # least contrast of the clearest pixel of a letter

    def turned(self) -> _Layer:
        """Rows and columns exchanged."""
        return _Layer(self.mask.T, self.hat.T, self.steps.T, self.peak)


def _both_ways(grey: Grey) -> Iterator[_Line]:
    """Lines of letters brighter than what is behind them, level and upright."""
    side, steps = min(grey.shape), _steps(grey)
    # Standard deviation of the image's grain: nine in ten differences of neighbours, if they are pure grain, stay below
    # 1.645 of their own deviation, which is the root of 2 of the grain's. Edges are few.
    differences = np.abs(np.diff(grey.astype(np.int16), axis=1))
    noise = float(np.percentile(differences, 90)) / (1.645 * 2**0.5) if differences.size else 0.0
    for window in sorted({max(5, side // 64 | 1), max(9, side // 32 | 1)}):  # for thin and for thick strokes
        # Morphological opening: removes bright things that no square of this side fits into.
        opened = grey
        for operation in (np.minimum, np.maximum):
            for axis in (0, 1):
                opened = _running(opened, window, operation, axis)
        hat = grey - opened
        mask = hat >= max(CONTRAST, CONTRAST_NOISE * noise)
        layer = _Layer(mask, hat, steps, max(PEAK, PEAK_NOISE * noise))
        yield from _lines(layer)
        for line in _lines(layer.turned()):
            left, top, right, bottom = line.box
            yield replace(line, box=(top, left, bottom, right))


def _steps(grey: Grey) -> Grey:
    """The largest difference of each pixel to the four beside, above and below it."""
    steps = np.zeros_like(grey)
    for axis in (0, 1):
        rows, most = np.moveaxis(grey, axis, 0), np.moveaxis(steps, axis, 0)
        step = np.maximum(rows[1:], rows[:-1]) - np.minimum(rows[1:], rows[:-1])
        np.maximum(most[1:], step, out=most[1:])
        np.maximum(most[:-1], step, out=most[:-1])
    return steps


def _running(grey: Grey, window: int, operation: np.ufunc, axis: int) -> Grey:
    """The least or greatest of a centred window along an axis, by doubling; edges repeat the last pixel."""
    half = window // 2
    rows = np.moveaxis(np.pad(grey, [(half, half) if k == axis else (0, 0) for k in (0, 1)], mode="edge"), axis, 0)
    span = 1
    while 2 * span <= window:
        rows = operation(rows[:-span], rows[span:])
        span *= 2
    if span < window:
        rows = operation(rows[: span - window], rows[window - span :])
    return np.moveaxis(rows, 0, axis)


def _lines(layer: _Layer) -> Iterator[_Line]:
    """Rows of letters side by side."""
    # Parts that may be letters, or several that touch.
    side = min(layer.mask.shape)
    parts = parts_of(layer.mask, layer.hat, layer.steps)
    clear = (parts.peak >= layer.peak) & (parts.edge >= EDGE * parts.peak)
    sized = (parts.height >= SMALLEST) & (parts.height <= side // 8) & (parts.width <= side // 2)
    parts = parts.chosen(clear & sized & (parts.area > 0.1 * parts.height * parts.width))
    if len(parts) > MOST_PARTS:
        parts = parts.chosen(np.sort(np.argsort(-parts.peak, kind="stable")[:MOST_PARTS]))
    one, other = np.nonzero(_neighbours(parts))
    roots = _connected(one, other, len(parts))
    for root in np.unique(roots):
        members = np.flatnonzero(roots == root)
        line = parts.chosen(members[np.argsort(parts.left[members], kind="stable")])
        box = int(line.left.min()), int(line.top.min()), int(line.right.max()), int(line.bottom.max())
        # How many letters a line has; letters of small text touch, so a wide part that is crossed often is several.
        height = float(np.median(line.height))
        several = np.minimum(line.width / (0.75 * height), line.strokes)
        letters = int(np.maximum(1, np.rint(several)).sum())
        areas = zip(line.top, line.bottom, line.left, line.right, strict=True)
        if letters <= 3 and is_marker([layer.mask[top:bottom, left:right] for top, bottom, left, right in areas]):
            yield _Line(box, letters, marker=True)
        elif letters >= FEWEST:
            yield _Line(box, letters, marker=False)


def _neighbours(parts: Parts) -> NDArray[np.bool_]:
    """[N, N]: which two parts may be neighbours in one line."""

    def pairs(values: Ints) -> tuple[Ints, Ints]:
        return values[:, None], values[None, :]

    (h1, h2), (l1, l2), (r1, r2) = pairs(parts.height), pairs(parts.left), pairs(parts.right)
    (t1, t2), (b1, b2), (p1, p2) = pairs(parts.top), pairs(parts.bottom), pairs(parts.peak)
    taller, lower = np.maximum(h1, h2), np.minimum(h1, h2)
    gap = np.maximum(l1, l2) - np.minimum(r1, r2)
    near = (gap <= 1.0 * taller) & (gap >= -0.3 * lower)
    alike = (taller <= 2.0 * lower) & (np.minimum(p1, p2) >= 0.55 * np.maximum(p1, p2))
    slack = np.maximum(1.0, 0.2 * taller)
    level = (np.abs(b1 - b2) <= slack) | (np.abs(t1 - t2) <= slack)
    return np.asarray(near & alike & level)


def _grown(box: Corners, shape: tuple[int, ...]) -> Corners:
    """A box with a margin, for the soft edges of letters and the dots and commas around them; inside the image."""
    left, top, right, bottom = box
    along, across = (max(2, round(share * min(bottom - top, right - left))) for share in (0.6, 0.3))
    side, rim = (along, across) if right - left >= bottom - top else (across, along)
    return max(0, left - side), max(0, top - rim), min(shape[1], right + side), min(shape[0], bottom + rim)


def _merged(boxes: list[Corners]) -> list[Corners]:
    """Boxes that overlap become one, until none do."""
    done: list[Corners] = []
    for box in boxes:
        while (hit := next((other for other in done if _touch(box, other)), None)) is not None:
            done.remove(hit)
            box = (min(box[0], hit[0]), min(box[1], hit[1]), max(box[2], hit[2]), max(box[3], hit[3]))
        done.append(box)
    return done


def _remnant(line: _Line, marker: _Line) -> bool:
    """Whether a line is no text but part of a marker: gaps that touch it, pieces within it."""
    if line.letters > marker.letters + 2:
        return False
    left, top, right, bottom = marker.box
    if line.bright != marker.bright and _touch(line.box, (left - 1, top - 1, right + 1, bottom + 1)):
        return True
    box, rim = line.box, (bottom - top) // 2
    other = (left - rim, top - rim, right + rim, bottom + rim)
    width, height = (min(box[k + 2], other[k + 2]) - max(box[k], other[k]) for k in (0, 1))
    return width > 0 and height > 0 and width * height > 0.7 * (box[2] - box[0]) * (box[3] - box[1])


def _beside(box: Corners, line: Corners) -> bool:
    """Whether a box is in the row (or, for an upright line, the column) of a line, at most a letter's width away."""
    along = 0 if line[2] - line[0] >= line[3] - line[1] else 1
    across = 1 - along
    side = box[across + 2] - box[across]
    shared = min(box[across + 2], line[across + 2]) - max(box[across], line[across])
    gap = max(box[along], line[along]) - min(box[along + 2], line[along + 2])
    return 2 * shared >= side and gap <= side


def _touch(one: Corners, other: Corners) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


Ints = NDArray[np.intp]


def _connected(one: Ints, other: Ints, count: int) -> Ints:
    """[count]: the first member of each item's connected component, by pairs of linked items."""
    root = np.arange(count)
    while (root[one] != root[other]).any():
        least = np.minimum(root[one], root[other])
        np.minimum.at(root, root[one], least)
        np.minimum.at(root, root[other], least)
        while (root[root] != root).any():
            root = root[root]
    return root


@dataclass(frozen=True)
class Parts:
    """Parts of a mask, one entry each; right and bottom are exclusive."""

    left: Ints
    top: Ints
    right: Ints
    bottom: Ints
    area: Ints
    peak: Ints
    edge: NDArray[np.float64]  # mean over its outline of the steps given with the mask
    strokes: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.left)

    @property
    def height(self) -> Ints:
        return self.bottom - self.top

    @property
    def width(self) -> Ints:
        return self.right - self.left

    def chosen(self, which: NDArray[np.bool_] | Ints) -> Parts:
        return Parts(*(getattr(self, name)[which] for name in self.__dataclass_fields__))


def parts_of(mask: NDArray[np.bool_], values: NDArray[np.uint8], steps: NDArray[np.uint8]) -> Parts:
    """The 8-connected parts of a mask, [H, W], in the order of their first pixel."""
    # Row, first column and column after the last of every unbroken stretch, row by row.
    edges = np.zeros((mask.shape[0], mask.shape[1] + 1), bool)
    edges[:, 1:-1] = mask[:, 1:] != mask[:, :-1]
    edges[:, 0], edges[:, -1] = mask[:, 0], mask[:, -1]
    edge_rows, edge_columns = np.nonzero(edges)
    rows, starts, ends = edge_rows[::2], edge_columns[::2], edge_columns[1::2]
    if not len(rows):
        none, nothing = np.zeros(0, np.intp), np.zeros(0)
        return Parts(none, none, none, none, none, none, nothing, nothing)
    # Stretches of neighbouring rows that touch, at a corner too: one below may start where this one has just ended.
    stride = mask.shape[1] + 2
    below = (rows + 1) * stride
    first = np.searchsorted(rows * stride + ends, below + starts, "left")
    after = np.searchsorted(rows * stride + starts, below + ends, "right")
    many = np.maximum(after - first, 0)
    upper = np.repeat(np.arange(len(rows)), many)
    lower = np.arange(len(upper)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many)
    roots, part = np.unique(_connected(upper, lower, len(rows)), return_inverse=True)
    count = len(roots)
    left, top = np.full(count, mask.shape[1]), np.full(count, mask.shape[0])
    right, bottom, area, peak = (np.zeros(count, np.intp) for _ in range(4))
    np.minimum.at(left, part, starts)
    np.minimum.at(top, part, rows)
    np.maximum.at(right, part, ends)
    np.maximum.at(bottom, part, rows + 1)
    np.add.at(area, part, ends - starts)
    # The pixels of all runs in order are those of the mask in order, so a run is a stretch of them.
    stretches = np.concatenate([[0], np.cumsum(ends - starts)[:-1]])
    np.maximum.at(peak, part, np.maximum.reduceat(values[mask], stretches).astype(np.intp))
    # Pixels of a mask with a neighbour above, below or beside them that is not of it; so are those at the rim.
    framed = np.pad(mask, 1)
    inner = framed[:-2, 1:-1] & framed[2:, 1:-1] & framed[1:-1, :-2] & framed[1:-1, 2:]
    rim = (mask & ~inner)[mask]
    rims, total = np.zeros(count), np.zeros(count)
    np.add.at(rims, part, np.add.reduceat(rim, stretches, dtype=np.intp))
    np.add.at(total, part, np.add.reduceat(steps[mask] * rim, stretches, dtype=np.intp))
    strokes = np.bincount(part, minlength=count) / (bottom - top)
    return Parts(left, top, right, bottom, area, peak, total / rims, strokes)


Shape = NDArray[np.float64]

# Letters of a side marker on a grid of 5 x 7: block letters, and the narrower foot and bowl of drawn ones.
_LETTERS = {
    "L": ("10000 10000 10000 10000 10000 10000 11111", "11000 11000 11000 11000 11000 11111 11111"),
    "R": ("11110 10001 10001 11110 10100 10010 10001", "11110 11011 11011 11110 11110 11011 11011"),
    "A": ("01110 10001 10001 11111 10001 10001 10001", "00100 01100 01010 01010 11110 10001 10001"),
    "P": ("11110 10001 10001 11110 10000 10000 10000", "11110 11011 11011 11110 11000 11000 11000"),
    "T": ("11111 00100 00100 00100 00100 00100 00100", "11111 11111 01100 01100 01100 01100 01100"),
}
WORDS = ("L", "R", "LT", "RT", "AP", "PA", "LAP", "RAP", "LPA", "RPA")
_GRID = (7, 5)
_WAYS = 8
_PLACES = {name: place for place, name in enumerate(_LETTERS)}
ALIKE = 0.7
# [35, patterns]: every drawing of every letter, of mean 0 and spread 1.
_DRAWN = np.array([[float(bit) for bit in one.replace(" ", "")] for drawn in _LETTERS.values() for one in drawn])
_PATTERNS = ((_DRAWN - _DRAWN.mean(axis=1, keepdims=True)) / _DRAWN.std(axis=1, keepdims=True)).T


def is_marker(letters: list[NDArray[np.bool_]]) -> bool:
    """Whether masks of letters, in reading order, spell a side marker, upright, turned or mirrored."""
    if not 1 <= len(letters) <= len(WORDS[-1]):
        return False
    similarity = [_similarity(letter) for letter in letters]
    words = [word for word in WORDS if len(word) == len(letters)]
    # An image that is turned or mirrored has all its letters turned or mirrored alike, and maybe read backwards.
    return any(
        all(one[way, place] >= ALIKE for one, place in zip(order, (_PLACES[name] for name in word), strict=True))
        for word in words
        for way in range(_WAYS)
        for order in (similarity, similarity[::-1])
    )


def _similarity(letter: NDArray[np.bool_]) -> Shape:
    """[8, letters]: the best correlation, -1 to 1, with each letter in each way to turn and mirror it."""
    found = np.full((_WAYS, len(_LETTERS)), -1.0)
    for first, seen in ((0, letter), (4, np.rot90(letter))):
        height, width = seen.shape
        if 0.35 * height <= width <= 1.1 * height:  # the proportions of a capital letter
            # How much of each cell of the grid a letter covers, [7, 5].
            weights: list[Shape] = []
            for side, cells in zip(seen.shape, _GRID, strict=True):
                edges, pixels = np.linspace(0, side, cells + 1), np.arange(side)
                over = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
                weights.append(np.asarray(np.maximum(over, 0.0) * cells / side))
            grid = np.asarray(weights[0] @ seen.astype(np.float64) @ weights[1].T)
            views = np.stack([grid, grid[::-1], grid[:, ::-1], grid[::-1, ::-1]]).reshape(4, -1)
            spread = views.std(axis=1, keepdims=True)
            centred = (views - views.mean(axis=1, keepdims=True)) / np.maximum(spread, 1e-9)
            alike = centred @ _PATTERNS / views.shape[1]
            found[first : first + 4] = alike.reshape(4, len(_LETTERS), -1).max(axis=2)
    return found
