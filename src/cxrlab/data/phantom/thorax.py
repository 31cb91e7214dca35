"""One anatomy on one image: its curves in millimetres, its fields in pixels, and the projection of the healthy chest.

Parts of the chest are drawn in their `Region`, a box of the image, which is why an image takes milliseconds.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Side
from cxrlab.data.phantom.anatomy import Anatomy
from cxrlab.data.phantom.image_plane import (
    CURVE_X,
    CURVE_Y,
    Array,
    Frame,
    curve_index,
    dome,
    ellipse_distance,
    smooth_path,
    soften,
    solid,
    splat,
    step,
    stroke,
)

# Where a location lies between the apex of the lung (0) and its diaphragm (1).
_HEIGHT = {"apex": 0.17, "upper zone": 0.24, "mid zone": 0.50, "perihilar": 0.52, "lower zone": 0.77, "base": 0.86}
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
        return Region(self, *self.frame.box(x, y, half_x, half_y))

    def place(
        self, finding: Finding, side: Side, rng: np.random.Generator, out: tuple[float, float]
    ) -> tuple[float, float]:
        """A point (x, y) in the lung zone that the finding names, `out` of the way to the wall."""
        a = self.anatomy
        top, bottom = a.apex, a.dome(side)
        y = top + (bottom - top) * (_HEIGHT.get(finding.location or "", 0.5) + float(rng.uniform(-0.05, 0.05)))
        share = float(rng.uniform(*out))
        return SIGN[side] * share * float(self.cage_at(y)), y

    # -- curves, in millimetres ------------------------------------------------------------------

    def cage_at(self, y: NDArray[np.floating] | float) -> NDArray[np.float64]:
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
        a = self.anatomy
        t = (np.asarray(y, dtype=np.float64) - 40.0) / 300.0
        return a.spine_curve * np.sin(np.pi * np.clip(1.16 * t, -0.3, 1.3))

    def rib_at(self, number: float, x: NDArray[np.floating] | float) -> NDArray[np.float64]:
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


def project(thorax: Thorax) -> Array:
    """The attenuation [S, S] of a chest with its `vessels` and `shoulders`."""
    a = thorax.anatomy
    mu = _soft_tissue(thorax)
    body = np.minimum(mu * np.float32(4.0), np.float32(1.0))  # nothing sticks out of the skin
    mu -= np.float32(0.56 * a.lucency) * thorax.lung_depth
    mu += thorax.vessels * thorax.lungs
    for add in (_pedicle, _aorta, _airway, _heart, _spine, _ribs, _abdomen):
        add(thorax, mu)
    mu += thorax.shoulders * body
    if a.breast:
        for side in (Side.LEFT, Side.RIGHT):
            s = SIGN[side]
            at = (s * 0.62 * a.cage, a.widest + 8.0)
            box = thorax.region(*at, 64.0, 60.0)
            lower = box.along_y(np.clip((CURVE_Y - at[1] + 52.0) / 64.0, 0.0, 1.0))
            shape = dome(ellipse_distance(box.x, box.y, at, (62.0, 52.0), s * -12.0))
            mu[box.rows, box.cols] += np.float32(0.26 * a.breast) * shape * lower
    return np.maximum(mu, np.float32(0.01), out=mu)


def _soft_tissue(thorax: Thorax) -> Array:
    """Neck, shoulders and flanks: thin at the skin, even inside."""
    a = thorax.anatomy
    shoulders = a.neck + (290.0 - a.neck) * np.clip((CURVE_Y - (a.shoulder_y - 46.0)) / 66.0, 0.0, 1.0) ** 1.7
    t = np.clip((CURVE_Y - a.widest + 70.0) / 70.0, 0.0, 1.0)
    flank = 260.0 + (a.cage + 30.0 * a.bulk - 260.0) * t**0.5
    rim = thorax.image.along_y(np.minimum(shoulders, flank))
    rim -= thorax.image.ax
    np.maximum(rim, 0.0, out=rim)
    rim /= rim + np.float32(17.0)
    rim *= np.float32(0.98 * a.bulk)
    return rim


def _pedicle(thorax: Thorax, mu: Array) -> None:
    """The great vessels between the lungs, aortic knob and pulmonary trunk."""
    a = thorax.anatomy
    reach = max(a.pedicle_left, a.pedicle_right) * 1.25 + 24.0
    box = thorax.region(0.0, (a.dome_left - 40.0) / 2, reach, (a.dome_left + 60.0) / 2)
    down = np.clip((CURVE_Y - a.apex - 10.0) / 120.0, 0.0, 1.2)
    band = step(box.x + box.along_y(a.pedicle_right * (0.80 + 0.34 * down)), 3.2)
    band *= step(box.along_y(a.pedicle_left * (0.80 + 0.26 * down)) - box.x, 3.2)
    fade = np.clip((CURVE_Y - a.apex + 40.0) / 50.0, 0.3, 1.0) * np.clip((a.dome_left + 5.0 - CURVE_Y) / 40.0, 0.0, 1.0)
    band *= box.along_y(fade)
    knob = ellipse_distance(
        box.x, box.y, (a.pedicle_left + 1.5, a.arch_y), (a.arch_radius * 0.95, a.arch_radius * 1.15)
    )
    trunk = ellipse_distance(box.x, box.y, (a.pedicle_left + 3.0, a.arch_y + 33.0), (13.0, 20.0))
    out = np.float32(0.40) * solid(knob, 0.16) * (np.float32(1.0) - np.float32(0.55) * band)
    out += np.float32(0.30) * solid(trunk, 0.25) * (np.float32(1.0) - np.float32(0.7) * band)
    out += np.float32(0.52) * band
    mu[box.rows, box.cols] += out


def _aorta(thorax: Thorax, mu: Array) -> None:
    """The descending aorta beside the spine, bowing to the left when tortuous."""
    a = thorax.anatomy
    reach = (a.pedicle_left + a.aorta_bow + 20.0) / 2
    box = thorax.region(reach - 10.0, (a.arch_y + a.dome_left) / 2, reach, (a.dome_left - a.arch_y) / 2 + 14.0)
    t = np.clip((CURVE_Y - a.arch_y) / (a.dome_left + 10.0 - a.arch_y), 0.0, 1.0)
    rim = a.pedicle_left + 3.0 - 7.0 * t + a.aorta_bow * np.sin(np.pi * np.clip(t * 1.06, 0, 1)) ** 0.7
    alive = np.clip((CURVE_Y - a.arch_y) / 12.0, 0, 1) * np.clip((a.dome_left + 12.0 - CURVE_Y) / 20.0, 0, 1)
    inside = step(box.along_y(rim) - box.x, 1.8) * step(box.x, 8.0)
    mu[box.rows, box.cols] += inside * box.along_y((0.20 + 0.012 * a.aorta_bow) * alive)


def _airway(thorax: Thorax, mu: Array) -> None:
    """Trachea and main bronchi: dark."""
    a = thorax.anatomy
    box = thorax.region(0.0, a.carina_y / 2 - 10.0, 30.0 + abs(a.spine_curve) * 0.4, a.carina_y / 2 + 20.0)
    lean = box.along_y(0.35 * thorax.spine_at(CURVE_Y) - 2.0)
    alive = np.clip((CURVE_Y + 30.0) / 20.0, 0, 1) * np.clip((a.carina_y + 3.0 - CURVE_Y) / 6.0, 0, 1)
    mu[box.rows, box.cols] -= step(np.float32(8.2) - np.abs(box.x - lean), 2.4) * box.along_y(0.34 * alive)
    box = thorax.region(0.0, a.carina_y + 14.0, 45.0, 22.0)
    for side, drop, reach in ((Side.RIGHT, 24.0, 32.0), (Side.LEFT, 20.0, 40.0)):
        along = (box.x * np.float32(SIGN[side]) + np.float32(1.0)) / np.float32(reach)
        off = np.abs(box.y - np.float32(a.carina_y + 1.0) - np.float32(drop) * along)
        fade = step(along - np.float32(0.08), 0.1) * step(np.float32(0.95) - along, 0.25)
        mu[box.rows, box.cols] -= np.float32(0.24) * step(np.float32(5.6) - off, 2.6) * fade


def _heart(thorax: Thorax, mu: Array) -> None:
    a = thorax.anatomy
    width = 2.0 * a.cage * a.heart_ratio
    left, right = a.heart_left * width + 8.0, (1.0 - a.heart_left) * width + 8.0
    box = thorax.region((left - right) / 2, a.heart_y, (left + right) / 2, a.heart_height * 1.45)
    ventricles, atrium = thorax.heart(box)
    out = np.float32(0.46) * np.maximum(solid(ventricles, 0.055), solid(atrium, 0.08))
    out += np.float32(0.40) * np.maximum(dome(ventricles), np.float32(0.8) * dome(atrium))
    out *= step(box.of(thorax.above) + np.float32(14.0), 10.0)
    # Its upper border is lost in the great vessels.
    out *= box.along_y(np.clip((CURVE_Y - a.heart_y + 0.98 * a.heart_height) / (0.55 * a.heart_height), 0.0, 1.0))
    mu[box.rows, box.cols] += out


def _spine(thorax: Thorax, mu: Array) -> None:
    """Vertebral bodies with discs between them, pedicles and spinous processes."""
    reach = abs(thorax.anatomy.spine_curve) + 22.0
    box = thorax.region(0.0, 172.0, reach, 220.0)
    off = np.abs(box.x - box.along_y(thorax.spine_at(CURVE_Y)))
    wave = np.cos(2 * np.pi * (CURVE_Y - 6.0) / 21.5)
    out = step(np.float32(16.0) - off, 2.2) * box.along_y(0.22 + 0.07 * np.clip(wave, -1.0, 0.4))
    out += step(np.float32(3.4) - np.abs(off - np.float32(10.5)), 2.0) * box.along_y(0.12 * np.clip(wave, 0, 1) ** 2)
    out += step(np.float32(2.2) - off, 2.0) * box.along_y(0.12 * np.clip(-wave, 0, 1) ** 2)
    mu[box.rows, box.cols] += out


def _ribs(thorax: Thorax, mu: Array) -> None:
    """Back ribs, the fainter front ribs crossing them, and the rim of the cage."""
    a = thorax.anatomy
    low = thorax.rib_zero + 11 * a.rib_gap + 1.3 * a.rib_drop
    box = thorax.region(0.0, (a.apex + low) / 2, a.cage + 8.0, (low - a.apex) / 2 + 8.0)
    height = a.rib_half / a.rib_gap
    depth = box.y - np.float32(thorax.rib_zero)
    phase = (depth - box.along_x(thorax.rib_fall(CURVE_X))) * np.float32(1.0 / a.rib_gap)
    out = _bands(phase, height, 11.0) * box.along_x(0.155 * np.clip((np.abs(CURVE_X) - 9.0) / 8.0, 0.0, 1.0))
    # How far a front rib lies below its back end: it meets it at the flank and falls inwards.
    t = np.clip(np.abs(CURVE_X) / a.cage, 0.0, 1.1)
    fall = a.rib_drop * 1.25 * 0.88**2.1 + 84.0 * (1.0 - t) - 30.0 * (1.0 - t) ** 2
    fall = fall - 10.0 * np.clip(t - 0.8, 0, None) / 0.2
    phase = (depth - box.along_x(fall)) * np.float32(1.0 / (a.rib_gap * 1.06))
    reach = np.clip((np.abs(CURVE_X) - 0.30 * a.cage) / (0.25 * a.cage), 0.0, 1.0)
    out += _bands(phase, height * 1.3, 6.0) * box.along_x(0.055 * reach)
    wall = box.of(thorax.wall)
    out += np.float32(0.10) * step(np.float32(4.2) - np.abs(wall + np.float32(2.0)), 2.4)
    out *= step(wall + np.float32(5.0), 2.5)
    out *= box.along_y(np.clip((CURVE_Y - a.apex + 14.0) / 16.0, 0.0, 1.0))
    mu[box.rows, box.cols] += out


def _bands(phase: Array, height: float, last: float) -> Array:
    """Bands with brighter rims, one in each whole step of the phase from 0 to `last`."""
    near = np.abs(phase - np.floor(phase) - np.float32(0.5))
    body = step(np.float32(height) - near, 0.045)
    body *= np.float32(0.68)
    near += np.float32(0.04 - height)
    body += np.float32(0.42) * step(np.float32(0.06) - np.abs(near), 0.05)
    body *= (phase > np.float32(0.0)) & (phase < np.float32(last))
    return body


def draw_shoulders(thorax: Thorax) -> Array:
    """Attenuation [S, S] of clavicles, heads of the humeri and shoulder blades."""
    out = np.zeros_like(thorax.frame.x)
    for side in (Side.LEFT, Side.RIGHT):
        a, s = thorax.anatomy, SIGN[side]
        high = a.clavicle_y - a.clavicle_rise
        clavicle = thorax.clavicle(side)
        for path, width, density in ((clavicle, 9.5, 0.25), (clavicle + np.array([0.0, 4.3]), 1.2, 0.09)):
            bone = stroke(thorax.frame, path, width)
            out[bone.rows, bone.cols] += np.float32(density) * bone.delta
        box = thorax.region(s * 172.0, high + 30.0, 30.0, 32.0)
        head = ellipse_distance(box.x, box.y, (s * 172.0, high + 30.0), (25.0, 27.0))
        out[box.rows, box.cols] += np.float32(0.26) * solid(head, 0.22)
        # The shoulder blade: its two borders, then its plate.
        inner = 150.0 - 42.0 * a.scapula
        border = [(10, 24), (-2, 60), (4, 105), (22, 138)]
        outer = [(22, 138), (34, 90), (44, 45)]
        for points, width, density in ((border, 3.5, 0.13), (outer, 4.5, 0.15)):
            line = stroke(thorax.frame, smooth_path([(s * (inner + x), high + y) for x, y in points]), width)
            out[line.rows, line.cols] += np.float32(density) * line.delta
        box = thorax.region(s * (inner + 23.0), high + 79.0, 26.0, 62.0)
        t = np.clip((CURVE_Y - high - 20.0) / 118.0, 0.0, 1.0)
        alive = ((CURVE_Y > high + 20) & (CURVE_Y < high + 138)).astype(np.float64)
        out_x = box.x * np.float32(s)
        plate = step(out_x - box.along_y(inner + 22.0 * t**2), 2.0)
        plate = plate * step(box.along_y(inner + 46.0 - 24.0 * t) - out_x, 3.0)
        out[box.rows, box.cols] += plate * box.along_y(0.085 * alive)
    return out


def _abdomen(thorax: Thorax, mu: Array) -> None:
    """Everything below the diaphragm, with gas in the stomach."""
    a = thorax.anatomy
    top = min(a.dome_left, a.dome_right) - 6.0
    box = thorax.region(0.0, top + 120.0, a.cage + 14.0, 120.0)
    depth = -box.of(thorax.above)
    out = np.clip(depth, 0.0, 70.0) * np.float32(0.55 / 70.0)
    out += np.float32(0.50)
    out *= step(depth, 1.6)
    out *= step(box.of(thorax.wall) - np.float32(2.0), 15.0)
    mu[box.rows, box.cols] += out
    at = (0.47 * a.cage, a.dome_left + 26.0)
    box = thorax.region(*at, 32.0, 20.0)
    mu[box.rows, box.cols] -= np.float32(0.62) * solid(ellipse_distance(box.x, box.y, at, (27.0, 13.0), -8.0), 0.2)


_STEPS = 34  # points of one vessel


def draw_vessels(thorax: Thorax, rng: np.random.Generator) -> Array:
    """Added attenuation [S, S] of the lung vessels: tapering branches from both hila, and the hila themselves."""
    a = thorax.anatomy
    hila = [(SIGN[side], a.carina_y + low) for side, low in ((Side.RIGHT, 31.0), (Side.LEFT, 22.0))]
    out = vessel_lines(thorax.frame, [branches(rng, s, y) for s, y in hila])
    for s, y in hila:
        at = (s * 32.0, y)
        box = thorax.region(*at, 24.0, 36.0)
        q = ellipse_distance(box.x, box.y, at, (12.0, 23.0), s * -20.0)
        out[box.rows, box.cols] += np.float32(0.22) * np.maximum(np.float32(1.0) - q, 0.0)
    return out


def vessel_lines(frame: Frame, paths: list[tuple[NDArray[np.float64], ...]]) -> Array:
    """Added attenuation [S, S] of tapering vessels: x, y and calibre [N, steps] of each group."""
    x, y, calibre = (np.concatenate([part[k] for part in paths]) for k in range(3))
    xs = [x[:, :-1] + t * (x[:, 1:] - x[:, :-1]) for t in (0.0, 1 / 3, 2 / 3)]
    ys = [y[:, :-1] + t * (y[:, 1:] - y[:, :-1]) for t in (0.0, 1 / 3, 2 / 3)]
    weight = np.tile(calibre[:, :-1].ravel(), 3) * (1.0 / frame.mm)
    fine = splat(frame, np.concatenate(xs).ravel(), np.concatenate(ys).ravel(), weight, 1.3)
    lines = fine.delta
    for _ in range(round(1.5 / frame.mm) - 1):  # on a large image a vessel is several pixels wide
        lines = np.float32(1.35) * soften(lines)
    out = np.zeros((frame.size, frame.size), dtype=np.float32)
    out[fine.rows, fine.cols] = np.float32(0.19) * lines + np.float32(0.17) * soften(lines)
    return out


def branches(rng: np.random.Generator, s: float, hilum_y: float) -> tuple[NDArray[np.float64], ...]:
    """Paths of one lung's vessels: x, y and calibre, each [N, steps]; twigs leave the main branches."""
    main, twigs = 11, 46
    x0 = 24.0 + rng.uniform(0, 8.0, main)
    y0 = hilum_y + rng.normal(0, 9.0, main)
    heading = np.linspace(-1.25, 1.35, main) + rng.normal(0, 0.15, main)
    x, y, turn = _walk(rng, x0, y0, heading, rng.uniform(2.5, 3.9, main))
    calibre = rng.uniform(0.6, 1.0, main)[:, None] * np.linspace(1.0, 0.10, _STEPS) ** 0.9
    parent, start = rng.integers(0, main, twigs), rng.integers(2, _STEPS - 12, twigs)
    heading = turn[parent, start] + rng.choice([-1.0, 1.0], twigs) * rng.uniform(0.25, 0.75, twigs)
    tx, ty, _ = _walk(rng, x[parent, start], y[parent, start], heading, rng.uniform(1.0, 2.2, twigs))
    taper = np.linspace(0.8, 0.06, _STEPS)
    tc = calibre[parent, start][:, None] * taper
    return s * np.concatenate([x, tx]), np.concatenate([y, ty]), np.concatenate([calibre, tc])


def _walk(
    rng: np.random.Generator,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    heading: NDArray[np.float64],
    pace: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Wandering paths [N, steps] from starting points with a heading (radians from outwards, down)."""
    turn = heading[:, None] + np.cumsum(rng.normal(0, 0.06, (len(x), _STEPS)), axis=1)
    xs = x[:, None] + np.cumsum(np.cos(turn) * pace[:, None], axis=1)
    ys = y[:, None] + np.cumsum(np.sin(turn) * pace[:, None] * 1.12, axis=1)
    return xs, ys, turn
