"""One anatomy laid over one image: its curves in millimetres and its fields in pixels.

`Thorax` is what findings are placed by (lungs, diaphragm, rib curves). A `Region` is a box of the
image with the same coordinates and look-ups: parts of the chest are drawn in their box only, which
is what makes an image take milliseconds.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.vocabulary import Side
from cxrlab.data.phantom.anatomy import Anatomy
from cxrlab.data.phantom.frame import CURVE_X, CURVE_Y, Array, Frame, curve_index, ellipse_distance, smooth_path, step

SIGN = {Side.RIGHT: -1.0, Side.LEFT: 1.0}  # direction on the image of the patient's sides


class Region:
    """A box of the image: patient coordinates at each of its pixels."""

    def __init__(self, thorax: Thorax, rows: slice, cols: slice):
        self._thorax = thorax
        self.rows, self.cols = rows, cols
        self.x: Array = thorax.frame.x[rows, cols]
        self.y: Array = thorax.frame.y[rows, cols]

    @cached_property
    def ax(self) -> Array:
        """Distance from the midline."""
        return np.abs(self.x)

    def along_y(self, values: NDArray[np.floating]) -> Array:
        """A function of y tabulated over `CURVE_Y`, at every pixel."""
        return values.astype(np.float32)[self._thorax.index_y[self.rows, self.cols]]

    def along_x(self, values: NDArray[np.floating]) -> Array:
        """A function of x tabulated over `CURVE_X`, at every pixel."""
        return values.astype(np.float32)[self._thorax.index_x[self.rows, self.cols]]

    def of(self, field: Array) -> Array:
        """The part of a whole-image field that lies in the box."""
        return field[self.rows, self.cols]


class Thorax:
    """One anatomy over one image."""

    def __init__(self, frame: Frame, anatomy: Anatomy):
        self.frame = frame
        self.anatomy = anatomy
        self.index_y = curve_index(frame.y, CURVE_Y)
        self.index_x = curve_index(frame.x, CURVE_X)
        self.image = Region(self, slice(0, frame.size), slice(0, frame.size))
        # Attenuation of what findings do not reshape: drawn once for an image and shared by its variants.
        self.vessels: Array = np.zeros_like(frame.x)
        self.shoulders: Array = np.zeros_like(frame.x)

    def reshaped(self, anatomy: Anatomy) -> Thorax:
        """Another anatomy on the same image, with the same vessels and shoulders."""
        other = Thorax(self.frame, anatomy)
        other.vessels, other.shoulders = self.vessels, self.shoulders
        return other

    def region(self, x: float, y: float, half_x: float, half_y: float) -> Region:
        """The box of the image around a patient point."""
        return Region(self, *self.frame.box(x, y, half_x, half_y))

    # -- curves, in millimetres ------------------------------------------------------------------

    def cage_at(self, y: NDArray[np.floating] | float) -> NDArray[np.float64]:
        """Half width of the rib cage at height y; 0 above the apices."""
        a = self.anatomy
        y = np.asarray(y, dtype=np.float64)
        up = np.clip((a.widest - y) / (a.widest - a.apex), 0.0, 1.0)
        down = np.clip((y - a.widest) / 100.0, 0.0, 1.5)
        half: NDArray[np.float64] = a.cage * (1.0 - up**2.7) ** (1 / 1.9) * (1.0 - 0.06 * down**2)
        return half

    def diaphragm_at(self, x: NDArray[np.floating] | float) -> NDArray[np.float64]:
        """Height y of the upper border of the diaphragm at x; the two domes meet smoothly behind the heart."""
        a = self.anatomy
        x = np.asarray(x, dtype=np.float64)
        middle = 0.46 * a.cage
        out = np.clip((np.abs(x) - middle) / (a.cage - middle), 0.0, 1.4)
        inside = np.clip((middle - np.abs(x)) / middle, 0.0, 1.0)
        side = np.clip(x / 24.0, -1.0, 1.0)
        top = a.dome_right + (a.dome_left - a.dome_right) * (0.5 + 0.5 * side)
        border: NDArray[np.float64] = top + (1.0 - 0.8 * a.flatness) * (27.0 * out**2.2 + 10.0 * inside**2)
        return border

    def spine_at(self, y: NDArray[np.floating] | float) -> NDArray[np.float64]:
        """Position x of the middle of the spine at height y."""
        a = self.anatomy
        t = (np.asarray(y, dtype=np.float64) - 40.0) / 300.0
        return a.spine_curve * np.sin(np.pi * np.clip(1.16 * t, -0.3, 1.3))

    def rib_at(self, number: float, x: NDArray[np.floating] | float) -> NDArray[np.float64]:
        """Height y of the middle of a back rib (1 to 12) at x."""
        return self.rib_zero + self.anatomy.rib_gap * (number - 0.5) + self.rib_fall(x)

    @property
    def rib_zero(self) -> float:
        """Height y of the upper border of the first rib at the spine."""
        return self.anatomy.apex - 14.0

    def rib_fall(self, x: NDArray[np.floating] | float) -> NDArray[np.float64]:
        """How far a back rib lies below its end at the spine."""
        a = self.anatomy
        t = np.abs(np.asarray(x, dtype=np.float64)) / a.cage
        return a.rib_drop * (1.25 * np.clip(t - 0.12, 0, None) ** 2.1) - 11.0 * np.sin(np.pi * np.clip(t * 1.3, 0, 1))

    def clavicle(self, side: Side) -> NDArray[np.float64]:
        """Points [N, 2] of the clavicle from the sternum outwards."""
        a, s = self.anatomy, SIGN[side]
        y, rise = a.clavicle_y, a.clavicle_rise
        out = ((17, -0.16), (45, 0.10), (90, 0.62), (125, 0.9), (158, 1.0))
        return smooth_path([(s * x, y - share * rise) for x, share in out])

    # -- fields over the whole image --------------------------------------------------------------

    @cached_property
    def wall(self) -> Array:
        """Millimetres inside the rib cage, sideways (negative outside)."""
        return self.image.along_y(self.cage_at(CURVE_Y)) - self.image.ax

    @cached_property
    def above(self) -> Array:
        """Millimetres above the diaphragm (negative below)."""
        return self.image.along_x(self.diaphragm_at(CURVE_X)) - self.frame.y

    @cached_property
    def lungs(self) -> Array:
        """1 in the lungs, 0 outside, soft at the rim; the mediastinum lies over their inner part."""
        out = step(self.wall, 2.2)
        out *= step(self.above, 1.6)
        out *= step(self.image.ax - np.float32(9.0), 7.0)
        return out

    @cached_property
    def lung_depth(self) -> Array:
        """How much air the beam crosses: 0 outside, 1 in the thickest lung."""
        rim = np.maximum(self.wall, 0.0)
        rim /= rim + np.float32(9.0)
        base = np.maximum(self.above, 0.0)
        base /= base + np.float32(26.0)
        base *= np.float32(0.28)
        base += np.float32(0.72)
        base *= rim
        base *= self.lungs
        return base

    def heart(self, box: Region) -> tuple[Array, Array]:
        """Squared radii of the ventricles and of the right atrium: 0 at the centre, 1 on the rim."""
        a = self.anatomy
        width = 2.0 * a.cage * a.heart_ratio
        left, right = a.heart_left * width, (1.0 - a.heart_left) * width
        # The ventricles lean down to the left; their turned ellipse reaches `left` sideways.
        lean = np.radians(31.0)
        long, short = 0.70 * (left + 0.5 * right), a.heart_height * 0.80
        reach = float(np.hypot(long * np.cos(lean), short * np.sin(lean)))
        ventricles = ellipse_distance(box.x, box.y, (left - reach, a.heart_y + 6.0), (long, short), 31.0)
        atrium = ellipse_distance(box.x, box.y, (-0.28 * right, a.heart_y - 2.0), (0.72 * right, 0.86 * a.heart_height))
        return ventricles, atrium
