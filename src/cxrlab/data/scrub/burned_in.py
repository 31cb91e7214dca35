"""Text that is burned into the pixels of an image: where it stands, never what it says.

Letters are small, thin against their height, brighter or darker than what is behind them, and stand
in a row. Everything of that kind is looked for in both polarities and both reading directions;
nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.codec import to_uint8
from cxrlab.data.grey import ImageArray
from cxrlab.data.scrub.components import Ints, Parts, parts_of
from cxrlab.data.scrub.markers import is_marker

Grey = NDArray[np.uint8]
Corners = tuple[int, int, int, int]

# Grey steps of 255 by which a pixel of a letter stands out, and by which the clearest of its pixels does; and the same
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
    """A rectangle with burned-in signs, in pixels; right and bottom are exclusive.

    Args:
        corners: Left, top, right, bottom.
        marker: A side marker such as L, RT or LAP, not text.
    """

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
    told = [*(TextBox(box) for box in boxes), *(TextBox(box, marker=True) for box in lone)]
    return tuple(sorted(told, key=lambda box: (box.corners[1], box.corners[0])))


@dataclass(frozen=True)
class _Line:
    """Letters side by side: the box around them, how many, whether they spell a side marker, and whether on dark."""

    box: Corners
    letters: int
    marker: bool
    bright: bool = True


@dataclass(frozen=True)
class _Layer:
    """What stands out of an image at one thickness of strokes, all [H, W].

    Args:
        mask: Where something is brighter than what is behind it.
        hat: By how much.
        steps: How steep the image is there.
        peak: How much the clearest pixel of a letter must stand out.
    """

    mask: NDArray[np.bool_]
    hat: Grey
    steps: Grey
    peak: float

    def turned(self) -> _Layer:
        """Rows and columns exchanged."""
        return _Layer(self.mask.T, self.hat.T, self.steps.T, self.peak)


def _both_ways(grey: Grey) -> Iterator[_Line]:
    """Lines of letters brighter than what is behind them, level and upright."""
    for layer in _layers(grey):
        yield from _lines(layer)
        for line in _lines(layer.turned()):
            left, top, right, bottom = line.box
            yield replace(line, box=(top, left, bottom, right))


def _layers(grey: Grey) -> Iterator[_Layer]:
    """What stands out, for thin and for thick strokes."""
    side, steps, noise = min(grey.shape), _steps(grey), _noise(grey)
    for window in sorted({max(5, side // 64 | 1), max(9, side // 32 | 1)}):
        hat = grey - _opened(grey, window)
        yield _Layer(hat >= max(CONTRAST, CONTRAST_NOISE * noise), hat, steps, max(PEAK, PEAK_NOISE * noise))


def _letters(layer: _Layer) -> Parts:
    """Parts that may be letters, or several that touch."""
    side = min(layer.mask.shape)
    parts = parts_of(layer.mask, layer.hat, layer.steps)
    clear = (parts.peak >= layer.peak) & (parts.edge >= EDGE * parts.peak)
    sized = (parts.height >= SMALLEST) & (parts.height <= side // 8) & (parts.width <= side // 2)
    parts = parts.chosen(clear & sized & (parts.area > 0.1 * parts.height * parts.width))
    if len(parts) > MOST_PARTS:
        parts = parts.chosen(np.sort(np.argsort(-parts.peak, kind="stable")[:MOST_PARTS]))
    return parts


def _noise(grey: Grey) -> float:
    """Standard deviation of the image's grain, from how much neighbours in a row differ; edges are few."""
    differ = np.abs(np.diff(grey.astype(np.int16), axis=1))
    # Nine in ten differences of pure grain stay below 1.645 of their deviation, which is the root of 2 of the grain's.
    return float(np.percentile(differ, 90)) / (1.645 * 2**0.5) if differ.size else 0.0


def _steps(grey: Grey) -> Grey:
    """The largest difference of each pixel to the four beside, above and below it."""
    steps = np.zeros_like(grey)
    for axis in (0, 1):
        rows, most = np.moveaxis(grey, axis, 0), np.moveaxis(steps, axis, 0)
        step = np.maximum(rows[1:], rows[:-1]) - np.minimum(rows[1:], rows[:-1])
        np.maximum(most[1:], step, out=most[1:])
        np.maximum(most[:-1], step, out=most[:-1])
    return steps


def _opened(grey: Grey, window: int) -> Grey:
    """What stays when bright things are taken away that no square of this side fits into."""
    for operation in (np.minimum, np.maximum):
        for axis in (0, 1):
            grey = _running(grey, window, operation, axis)
    return grey


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
    """Letters that stand side by side."""
    parts = _letters(layer)
    for members in _groups(_neighbours(parts)):
        line = parts.chosen(members[np.argsort(parts.left[members], kind="stable")])
        box = int(line.left.min()), int(line.top.min()), int(line.right.max()), int(line.bottom.max())
        letters = _count(line)
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


def _groups(linked: NDArray[np.bool_]) -> list[Ints]:
    """Members of each set of parts that are linked with one another, directly or through others."""
    root = np.arange(len(linked))
    one, other = np.nonzero(linked)
    while (root[one] != root[other]).any():
        least = np.minimum(root[one], root[other])
        np.minimum.at(root, root[one], least)
        np.minimum.at(root, root[other], least)
        while (root[root] != root).any():
            root = root[root]
    return [np.flatnonzero(root == first) for first in np.unique(root)]


def _count(line: Parts) -> int:
    """How many letters a line has; letters of small text touch, so a wide part that is crossed often is several."""
    height = float(np.median(line.height))
    several = np.minimum(line.width / (0.75 * height), line.strokes)
    return int(np.maximum(1, np.rint(several)).sum())


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
    """Whether a line is no text but what stands out in and beside a marker: gaps that touch it, pieces within it."""
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
    """Whether a box stands in the row (or, where the line is upright, the column) of a line, a letter's width away."""
    along = 0 if line[2] - line[0] >= line[3] - line[1] else 1
    across = 1 - along
    side = box[across + 2] - box[across]
    shared = min(box[across + 2], line[across + 2]) - max(box[across], line[across])
    gap = max(box[along], line[along]) - min(box[along + 2], line[along + 2])
    return 2 * shared >= side and gap <= side


def _touch(one: Corners, other: Corners) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
