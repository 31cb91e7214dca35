"""The image plane: millimetres of the patient ⇄ pixels of the image, and the primitives drawn on it.

Patient coordinates in millimetres: x to the right of the image (the patient's left), 0 on the
spine; y downwards, 0 at the top of the image. A primitive returns values in [0, 1] that a caller
multiplies by an attenuation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

FIELD_MM = 344.0  # side of the square image


@dataclass(frozen=True)
class Patch:
    """Added attenuation in a box of the image: `delta` covers `image[rows, cols]`."""

    rows: slice
    cols: slice
    delta: Array

    def scaled(self, factor: float) -> Patch:
        return Patch(self.rows, self.cols, self.delta * np.float32(factor))


class Frame:
    """A square image of `size` pixels, with the patient turned (degrees), shifted (mm right, down) and zoomed."""

    def __init__(self, size: int, turn: float = 0.0, shift: tuple[float, float] = (0.0, 0.0), zoom: float = 1.0):
        self.size = size
        self.mm = FIELD_MM / size / zoom
        angle = math.radians(turn)
        self._cos, self._sin = math.cos(angle), math.sin(angle)
        self._shift = shift
        centre = (size - 1) / 2.0
        self._centre = centre
        axis = (np.arange(size, dtype=np.float32) - np.float32(centre)) * np.float32(self.mm)
        u, v = axis[None, :], axis[:, None]
        self.x: Array = u * np.float32(self._cos) + v * np.float32(self._sin) - np.float32(shift[0])
        self.y: Array = v * np.float32(self._cos) - u * np.float32(self._sin) + np.float32(FIELD_MM / 2 - shift[1])

    def pixels(
        self, x: NDArray[np.floating], y: NDArray[np.floating]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        a = np.asarray(x, dtype=np.float64) + self._shift[0]
        b = np.asarray(y, dtype=np.float64) - FIELD_MM / 2 + self._shift[1]
        col = (a * self._cos - b * self._sin) / self.mm + self._centre
        row = (a * self._sin + b * self._cos) / self.mm + self._centre
        return col, row

    def box(self, x: float, y: float, half_x: float, half_y: float) -> tuple[slice, slice]:
        """Rows and columns that hold the rectangle around a patient point; never empty."""
        reach = abs(half_x) * abs(self._cos) + abs(half_y) * abs(self._sin)
        drop = abs(half_x) * abs(self._sin) + abs(half_y) * abs(self._cos)
        col, row = self.pixels(np.array([x]), np.array([y]))
        return _span(row[0], drop / self.mm, self.size), _span(col[0], reach / self.mm, self.size)


# Functions of one coordinate are tabulated every half millimetre and looked up at each pixel:
# ten times cheaper than powers and roots over the whole image.
CURVE_Y = np.arange(-60.0, FIELD_MM + 60.0, 0.5)
CURVE_X = np.arange(-260.0, 260.5, 0.5)


def curve_index(at: Array, axis: NDArray[np.float64]) -> NDArray[np.int32]:
    """The index of each coordinate in a table over `axis`."""
    index = (at * np.float32(2.0) + np.float32(0.5 - 2.0 * axis[0])).astype(np.int32)
    return np.clip(index, 0, len(axis) - 1, out=index)


def _span(centre: float, half: float, size: int) -> slice:
    low = min(max(int(math.floor(centre - half)), 0), size - 1)
    high = max(min(int(math.ceil(centre + half)) + 1, size), low + 1)
    return slice(low, high)


def step(distance: Array, soft: float) -> Array:
    """0 far below zero, 1 far above, smooth over ±`soft` (same unit as `distance`)."""
    t = distance * np.float32(0.5 / soft)
    t += np.float32(0.5)
    np.clip(t, 0.0, 1.0, out=t)
    slope = np.float32(3.0) - np.float32(2.0) * t
    t *= t
    t *= slope
    return t


def ellipse_distance(
    x: Array, y: Array, centre: tuple[float, float], axes: tuple[float, float], turn: float = 0.0
) -> Array:
    """Squared normalised radius: 0 at the centre, 1 on the rim."""
    dx, dy = x - np.float32(centre[0]), y - np.float32(centre[1])
    if turn:
        c, s = np.float32(math.cos(math.radians(turn))), np.float32(math.sin(math.radians(turn)))
        dx, dy = dx * c + dy * s, dy * c - dx * s
    dx *= np.float32(1.0 / axes[0])
    dy *= np.float32(1.0 / axes[1])
    dx *= dx
    dy *= dy
    dx += dy
    return dx


def solid(q: Array, edge: float) -> Array:
    """A rounded body from a squared radius: full inside, falling over the outer `edge` share of the radius."""
    return step(np.float32(1.0) - np.sqrt(q), edge)


def dome(q: Array) -> Array:
    """Thickness of an ellipsoid along the beam: 1 at the centre, 0 from the rim outwards."""
    thickness: Array = np.sqrt(np.maximum(np.float32(1.0) - q, np.float32(0.0)))
    return thickness


def resample(points: NDArray[np.floating], spacing: float) -> NDArray[np.float64]:
    """Points [N, 2] of a polyline at equal arc length, first and last kept."""
    points = np.asarray(points, dtype=np.float64)
    length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    count = max(int(length[-1] / spacing) + 1, 2)
    at = np.linspace(0.0, length[-1], count)
    return np.stack([np.interp(at, length, points[:, 0]), np.interp(at, length, points[:, 1])], axis=1)


def smooth_path(points: NDArray[np.floating] | list[tuple[float, float]], samples: int = 16) -> NDArray[np.float64]:
    """A Catmull-Rom curve through the given points [N, 2]."""
    p = np.asarray(points, dtype=np.float64)
    p = np.concatenate([2 * p[:1] - p[1:2], p, 2 * p[-1:] - p[-2:-1]])
    corners = np.stack([p[:-3], p[1:-2], p[2:-1], p[3:]], axis=1)  # [N - 1, 4, 2]
    return np.concatenate([(_spline(samples) @ corners).reshape(-1, 2), p[-2:-1]])


@cache
def _spline(samples: int) -> NDArray[np.float64]:
    """Weights [samples, 4] of the four points around a segment."""
    t = np.linspace(0.0, 1.0, samples, endpoint=False)
    weights = [-t + 2 * t**2 - t**3, 2 - 5 * t**2 + 3 * t**3, t + 4 * t**2 - 3 * t**3, t**3 - t**2]
    return 0.5 * np.stack(weights, axis=1)


def normals(path: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unit vectors [N, 2] at right angles to a path."""
    along = np.empty_like(path)
    along[1:-1] = path[2:] - path[:-2]
    along[0], along[-1] = path[1] - path[0], path[-1] - path[-2]
    along /= np.maximum(np.hypot(along[:, 0], along[:, 1]), 1e-9)[:, None]
    return np.stack([-along[:, 1], along[:, 0]], axis=1)


def stroke(
    frame: Frame, points: NDArray[np.floating], width_mm: float, weights: NDArray[np.floating] | None = None
) -> Patch:
    """A line of the given width through patient points, about 1 on the line and at least one pixel wide."""
    path = resample(points, 0.45 * frame.mm)
    count = max(1, round(width_mm / frame.mm / 0.6))
    lanes = (np.arange(count) - (count - 1) / 2.0) * (width_mm / count)
    aside = normals(path)
    x = (path[:, 0, None] + aside[:, 0, None] * lanes).ravel()
    y = (path[:, 1, None] + aside[:, 1, None] * lanes).ravel()
    strength = np.full(len(x), 0.62 if count > 1 else 0.9)
    if weights is not None:
        along = np.interp(np.linspace(0, 1, len(path)), np.linspace(0, 1, len(weights)), weights)
        strength = strength * np.repeat(along, count)
    top = 1.0 if weights is None else float(np.max(weights))
    return splat(frame, x, y, strength, top)


def splat(
    frame: Frame, x: NDArray[np.floating], y: NDArray[np.floating], weight: NDArray[np.floating], top: float
) -> Patch:
    """Drop weighted points on the image (shared over four pixels), soften by one pixel, cut at `top`."""
    col, row = frame.pixels(x, y)
    low_c, low_r = int(np.floor(col.min())) - 2, int(np.floor(row.min())) - 2
    wide, tall = int(np.ceil(col.max())) + 3 - low_c, int(np.ceil(row.max())) + 3 - low_r
    c, r = col - low_c, row - low_r
    ci, ri = c.astype(np.int64), r.astype(np.int64)
    fc, fr = c - ci, r - ri
    flat = ri * wide + ci
    size = wide * tall
    grid = np.bincount(flat, weight * (1 - fc) * (1 - fr), size)
    grid += np.bincount(flat + 1, weight * fc * (1 - fr), size)
    grid += np.bincount(flat + wide, weight * (1 - fc) * fr, size)
    grid += np.bincount(flat + wide + 1, weight * fc * fr, size)
    image = soften(grid.reshape(tall, wide).astype(np.float32))
    np.minimum(image, np.float32(top), out=image)
    return cut_to_image(frame, image, low_r, low_c)


def cut_to_image(frame: Frame, image: Array, top: int, left: int) -> Patch:
    """The part of a box that is on the image; one dark pixel if there is none."""
    tall, wide = image.shape
    r0, r1 = max(top, 0), min(top + tall, frame.size)
    c0, c1 = max(left, 0), min(left + wide, frame.size)
    if r1 <= r0 or c1 <= c0:
        return Patch(slice(0, 1), slice(0, 1), np.zeros((1, 1), dtype=np.float32))
    return Patch(slice(r0, r1), slice(c0, c1), image[r0 - top : r1 - top, c0 - left : c1 - left])


def soften(image: Array) -> Array:
    """A 1-2-1 filter both ways; what lies outside the box counts as 0."""
    rows = image * np.float32(2.0)
    rows[1:] += image[:-1]
    rows[:-1] += image[1:]
    out = rows * np.float32(2.0 / 16.0)
    rows *= np.float32(1.0 / 16.0)
    out[:, 1:] += rows[:, :-1]
    out[:, :-1] += rows[:, 1:]
    return out


def cloud(rng: np.random.Generator, shape: tuple[int, int], cells: float, octaves: int = 3) -> Array:
    """Smooth noise in about [-1, 1]: `cells` blobs across the longer side, finer octaves at half strength."""
    total = np.zeros(shape, dtype=np.float32)
    longest, scale, strength = max(shape), cells, 1.0
    for _ in range(octaves):
        # Random values on a lattice, interpolated.
        tall = max(int(math.ceil(scale * shape[0] / longest)), 1) + 2
        wide = max(int(math.ceil(scale * shape[1] / longest)), 1) + 2
        grid = rng.uniform(-1.0, 1.0, (tall, wide)).astype(np.float32)
        rows = _smooth_axis(shape[0], scale / longest, tall)
        cols = _smooth_axis(shape[1], scale / longest, wide)
        total += np.float32(strength) * np.asarray((rows @ grid) @ cols.T, dtype=np.float32)
        scale *= 2.0
        strength *= 0.5
    return total


def _smooth_axis(length: int, per_pixel: float, knots: int) -> Array:
    """Weights [length, knots] of smooth interpolation between lattice points."""
    at = np.arange(length, dtype=np.float64) * per_pixel
    left = np.minimum(at.astype(np.int64), knots - 2)
    t = at - left
    t = t * t * (3 - 2 * t)
    weights = np.zeros((length, knots), dtype=np.float32)
    weights[np.arange(length), left] = 1 - t
    weights[np.arange(length), left + 1] = t
    return weights
