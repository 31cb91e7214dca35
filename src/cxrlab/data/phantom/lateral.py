"""The same chest from the side, facing left: its curves, its lungs and the projection of the healthy chest.

On a lateral image x counts millimetres towards the back, about 0 in the middle of the chest; y is that of the frontal
image. Both lungs lie over each other, so a lesion of one lung has the other in front of it or behind it.
"""

from __future__ import annotations

from collections.abc import Collection
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
    dome,
    ellipse_distance,
    smooth_path,
    solid,
    step,
    stroke,
)
from cxrlab.data.phantom.thorax import Thorax, branches, vessel_lines

SIDES = (Side.RIGHT, Side.LEFT)
# Knots (height, x): height is 0 at the apex of the lungs and 1 at the top of the diaphragm, x is that of an average chest.
_FRONT = ((-0.3, -14), (0.0, -32), (0.15, -54), (0.4, -82), (0.7, -97), (1.0, -101), (1.35, -97), (1.8, -90))
_BACK = ((-0.3, 34), (0.0, 56), (0.15, 80), (0.4, 101), (0.7, 108), (1.0, 106), (1.35, 98), (1.8, 92))
_SPINE = ((-0.3, 24), (0.0, 42), (0.25, 62), (0.5, 71), (0.8, 71), (1.1, 60), (1.5, 46), (1.8, 40))
_TOP = -22.0  # x of the top of the diaphragm
_VERTEBRA = 24.0  # distance of neighbouring vertebrae


class LateralThorax(Thorax):
    """One anatomy on a lateral image; findings in `posterior` lie behind the heart or the top of the diaphragm."""

    def __init__(self, frame: Frame, anatomy: Anatomy, posterior: Collection[Finding] = ()):
        super().__init__(frame, anatomy)
        self.posterior = posterior

    def place(
        self, finding: Finding, side: Side, rng: np.random.Generator, out: tuple[float, float]
    ) -> tuple[float, float]:
        """A point (x, y) at the height of the frontal image, anywhere between the front and the back of the lung."""
        _, y = super().place(finding, side, rng, out)
        share = float(rng.uniform(0.24, 0.8))
        if finding in self.posterior:
            share = 0.62 + 0.24 * share
        front, back = self.at_height(self.front, y), self.at_height(self.back, y)
        return front + share * (back - front), y

    def at_height(self, curve: NDArray[np.float64], y: float) -> float:
        """The value of a curve over `CURVE_Y` at one height."""
        return float(np.interp(y, CURVE_Y, curve))

    # -- curves over CURVE_Y, in millimetres ------------------------------------------------------

    def _curve(self, knots: tuple[tuple[float, float], ...]) -> NDArray[np.float64]:
        a = self.anatomy
        path = smooth_path([(a.apex + height * (a.widest - a.apex) / 0.82, x * a.cage / 128.0) for height, x in knots])
        curve: NDArray[np.float64] = np.interp(CURVE_Y, path[:, 0], path[:, 1])
        return curve

    @cached_property
    def front(self) -> NDArray[np.float64]:
        """The inner surface of the breast bone and the ribs; emphysema pushes it forward."""
        a = self.anatomy
        return self._curve(_FRONT) - 12.0 * a.flatness * np.clip((CURVE_Y - a.apex) / 60.0, 0.0, 1.0)

    @cached_property
    def back(self) -> NDArray[np.float64]:
        return self._curve(_BACK)

    @cached_property
    def spine(self) -> NDArray[np.float64]:
        """The middle of the vertebral bodies."""
        return self._curve(_SPINE)

    def diaphragm(self, side: Side) -> NDArray[np.float64]:
        """Height y of one dome over `CURVE_X`: it falls a little to the front and far to the back."""
        a = self.anatomy
        behind = np.clip((CURVE_X - _TOP) / a.cage, 0.0, 1.3)
        before = np.clip((_TOP - CURVE_X) / (0.6 * a.cage), 0.0, 1.3)
        return a.dome(side) + (1.0 - 0.7 * a.flatness) * (62.0 * behind**1.8 + 17.0 * before**2)

    def sulcus(self, side: Side) -> float:
        """Height y of the deepest point of one lung, between diaphragm and back."""
        return float(np.interp(0.8 * self.anatomy.cage, CURVE_X, self.diaphragm(side)))

    @cached_property
    def trachea(self) -> NDArray[np.float64]:
        """The middle of the trachea: it runs down and back."""
        return self.spine - 52.0 + 14.0 * np.clip((CURVE_Y - self.anatomy.apex) / 90.0, 0.0, 1.0)

    @property
    def hilum_at(self) -> tuple[float, float]:
        y = self.anatomy.carina_y + 20.0
        return self.at_height(self.trachea, y) - 4.0, y

    # -- fields over the whole image --------------------------------------------------------------

    @cached_property
    def wall(self) -> Array:
        """Millimetres inside the rib cage, from front or back (negative outside)."""
        rounded = np.clip(1.0 - np.clip((self.anatomy.apex + 26.0 - CURVE_Y) / 26.0, 0.0, 2.0) ** 2, 0.0, 1.0) ** 0.5
        half = (self.back - self.front) / 2 * np.where(rounded > 0, rounded, -0.5)
        distance = self.frame.x - self.image.along_y((self.back + self.front) / 2)
        inside: Array = self.image.along_y(half) - np.abs(distance)
        return inside

    def above_dome(self, side: Side) -> Array:
        """Millimetres above one dome of the diaphragm (negative below)."""
        return self.image.along_x(self.diaphragm(side)) - self.frame.y

    @cached_property
    def lung_of(self) -> dict[Side, Array]:
        """Each lung: 1 inside, 0 outside, soft at the rim."""
        inside = step(self.wall, 2.2)
        return {side: inside * step(self.above_dome(side), 1.6) for side in SIDES}

    @cached_property
    def lungs(self) -> Array:
        """1 where at least one lung lies."""
        return np.maximum(self.lung_of[Side.RIGHT], self.lung_of[Side.LEFT])

    @cached_property
    def lung_depth(self) -> Array:
        """How much air the beam crosses: 1 in the thickest part of both lungs."""
        rim = np.maximum(self.wall, 0.0)
        rim /= rim + np.float32(10.0)
        rim *= np.float32(0.5) * (self.lung_of[Side.RIGHT] + self.lung_of[Side.LEFT])
        return rim

    @property
    def heart_at(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Centre and half axes of the heart, which touches the breast bone; a larger one grows towards the spine."""
        a = self.anatomy
        half = 0.86 * a.cage * a.heart_ratio
        centre = self.at_height(self.front, a.heart_y) + half + 2.0
        return (centre, a.heart_y + 2.0), (half, a.heart_height * 0.94)


def project_lateral(thorax: LateralThorax) -> Array:
    """The attenuation [S, S] of a chest from the side, with its `vessels` and `shoulders`."""
    a = thorax.anatomy
    mu = _soft_tissue(thorax)
    mu -= np.float32(0.68 * a.lucency) * thorax.lung_depth
    mu += thorax.vessels * thorax.lungs
    for add in (_great_vessels, _airway, _heart, _spine, _ribs, _sternum, _abdomen):
        add(thorax, mu)
    mu += thorax.shoulders
    return np.maximum(mu, np.float32(0.01), out=mu)


def _soft_tissue(thorax: LateralThorax) -> Array:
    """Skin, muscle and breast around the chest, the neck, and the raised arms."""
    a = thorax.anatomy
    x, y = thorax.frame.x, thorax.frame.y
    breast = 30.0 * a.breast * np.exp(-(((CURVE_Y - a.widest + 42.0) / 36.0) ** 2))
    before = x - thorax.image.along_y(thorax.front - 20.0 * a.bulk - breast)
    behind = thorax.image.along_y(thorax.back + 25.0 * a.bulk) - x
    rim: Array = np.maximum(np.minimum(before, behind), 0.0)
    rim /= rim + np.float32(15.0)
    rim *= np.float32(1.12 * a.bulk)
    # Arms and shoulders: an oblique band from the top of the chest up to the front.
    above = np.float32(a.apex + 60.0) + np.float32(0.55) * x - y
    rim += np.float32(0.7 * a.bulk) * step(above, 46.0) * step(np.float32(118.0) - x, 30.0)
    return rim


def _great_vessels(thorax: LateralThorax, mu: Array) -> None:
    """Ascending aorta behind the clear space under the breast bone, the arch, and the descending aorta."""
    a = thorax.anatomy
    box = thorax.region(0.0, (a.arch_y + a.dome_left) / 2, 110.0, (a.dome_left - a.arch_y) / 2 + 60.0)
    trachea = thorax.at_height(thorax.trachea, a.arch_y)
    front = trachea - 20.0 - 1.0 * (a.pedicle_right + a.pedicle_left - 18.0)
    down = np.clip((CURVE_Y - a.arch_y) / 80.0, 0.0, 1.0)
    alive = np.clip((CURVE_Y - a.arch_y + 34.0) / 30.0, 0.0, 1.0) * np.clip((a.heart_y - CURVE_Y) / 40.0, 0.0, 1.0)
    band = step(box.x - box.along_y(front - 10.0 * down), 7.0) * step(
        box.along_y(trachea + 4.0 + 12.0 * down) - box.x, 9.0
    )
    out = band * box.along_y(0.34 * alive)
    arch = ellipse_distance(box.x, box.y, (trachea + 16.0, a.arch_y + 2.0), (a.arch_radius * 1.9, a.arch_radius * 1.15))
    out += np.float32(0.24) * solid(arch, 0.3)
    t = np.clip((CURVE_Y - a.arch_y) / (a.dome_left + 20.0 - a.arch_y), 0.0, 1.0)
    middle = thorax.spine - 12.0 + 0.9 * a.aorta_bow * np.sin(np.pi * t)
    alive = np.clip((CURVE_Y - a.arch_y) / 14.0, 0.0, 1.0) * np.clip((a.dome_left + 50.0 - CURVE_Y) / 30.0, 0.0, 1.0)
    off = np.abs(box.x - box.along_y(middle))
    out += step(np.float32(a.arch_radius) - off, 2.4) * box.along_y((0.09 + 0.006 * a.aorta_bow) * alive)
    mu[box.rows, box.cols] += out * step(box.of(thorax.wall), 6.0)


def _airway(thorax: LateralThorax, mu: Array) -> None:
    """Trachea, and the left upper lobe bronchus seen end on: dark."""
    a = thorax.anatomy
    low = a.carina_y + 12.0
    box = thorax.region(0.0, low / 2 - 10.0, 60.0, low / 2 + 26.0)
    alive = np.clip((CURVE_Y + 30.0) / 20.0, 0.0, 1.0) * np.clip((low - CURVE_Y) / 8.0, 0.0, 1.0)
    off = np.abs(box.x - box.along_y(thorax.trachea))
    mu[box.rows, box.cols] -= step(np.float32(8.0) - off, 2.6) * box.along_y(0.34 * alive)
    at = (thorax.hilum_at[0] + 3.0, a.carina_y + 22.0)
    box = thorax.region(*at, 9.0, 9.0)
    mu[box.rows, box.cols] -= np.float32(0.34) * solid(ellipse_distance(box.x, box.y, at, (6.5, 6.5)), 0.35)


def _heart(thorax: LateralThorax, mu: Array) -> None:
    centre, (long, high) = thorax.heart_at
    box = thorax.region(*centre, long * 1.3 + 8.0, high * 1.35 + 8.0)
    # The ventricles lean forward and down, so their long axis falls to the left.
    q = ellipse_distance(box.x, box.y, centre, (long * 1.06, high * 0.98), -24.0)
    out = np.float32(0.22) * solid(q, 0.16) + np.float32(0.50) * dome(q)
    out *= step(box.of(thorax.wall) + np.float32(3.0), 4.0)
    out *= step(box.of(thorax.above_dome(Side.LEFT)) + np.float32(10.0), 10.0)
    # Its upper border is lost in the great vessels.
    out *= box.along_y(np.clip((CURVE_Y - centre[1] + 1.02 * high) / (0.75 * high), 0.0, 1.0))
    mu[box.rows, box.cols] += out


def _spine(thorax: LateralThorax, mu: Array) -> None:
    """Vertebral bodies with denser end plates and darker discs, and the posterior arches."""
    middle = thorax.spine
    box = thorax.region(62.0, 172.0, 74.0, 220.0)
    along = box.x - box.along_y(middle)
    # Distance to the middle of the nearest vertebra; discs are at right angles to the spine.
    tilt = np.gradient(middle, CURVE_Y)
    phase = (box.y + along * box.along_y(tilt)) * np.float32(1.0 / _VERTEBRA)
    near = np.abs(phase - np.floor(phase) - np.float32(0.5))
    body = step(np.float32(15.5) - np.abs(along), 2.0)
    plates = step(np.float32(0.06) - np.abs(near - np.float32(0.40)), 0.05)
    edge = step(np.float32(2.4) - np.abs(np.abs(along) - np.float32(14.0)), 1.6)
    bone = step(np.float32(0.44) - near, 0.05)
    out = body * (np.float32(0.15) + bone * (np.float32(0.08) + np.float32(0.10) * edge) + np.float32(0.16) * plates)
    arch = along - np.float32(30.0)
    out += step(np.float32(15.0) - np.abs(arch), 7.0) * (np.float32(0.07) + np.float32(0.11) * bone)
    mu[box.rows, box.cols] += out


def _ribs(thorax: LateralThorax, mu: Array) -> None:
    """The ribs of both sides: they fall from the back to the front; those further from the detector look larger."""
    a = thorax.anatomy
    front, back = float(thorax.front.min()), float(thorax.back.max())
    wall = thorax.wall
    bony = step(wall + np.float32(4.0), 3.0) * thorax.image.along_y(np.clip((CURVE_Y - a.apex + 10.0) / 18.0, 0.0, 1.0))
    # Where the ribs end and cartilage begins, in front.
    bony *= thorax.image.along_x(np.clip((CURVE_X - front - 14.0) / 40.0, 0.0, 1.0))
    for shift, gap, density in ((0.0, a.rib_gap, 0.13), (6.0, a.rib_gap * 1.05, 0.08)):
        t = np.clip((back - CURVE_X) / (back - front), 0.0, 1.1)
        fall = 2.1 * a.rib_drop * t**1.15 - 16.0 * np.sin(np.pi * np.clip(1.6 * t, 0.0, 1.0))
        phase = (thorax.frame.y - np.float32(a.apex + 4.0 + shift) - thorax.image.along_x(fall)) * np.float32(1.0 / gap)
        near = np.abs(phase - np.floor(phase) - np.float32(0.5))
        half = np.float32(a.rib_half / gap)
        band = step(half - near, 0.05) * np.float32(0.6) + step(
            np.float32(0.06) - np.abs(near - half), 0.05
        ) * np.float32(0.5)
        mu += np.float32(density) * band * bony * (phase > np.float32(0.0)) * (phase < np.float32(11.0))
    mu += np.float32(0.10) * step(np.float32(4.0) - np.abs(wall + np.float32(2.0)), 2.4)


def _sternum(thorax: LateralThorax, mu: Array) -> None:
    """Manubrium and body of the breast bone with the joint between them, seen edge on."""
    a = thorax.anatomy
    for top, bottom in ((a.apex + 30.0, a.apex + 70.0), (a.apex + 75.0, a.heart_y + 6.0)):
        y = np.linspace(top, bottom, 12)
        path = np.stack([np.interp(y, CURVE_Y, thorax.front) - 6.5, y], axis=1)
        for aside, width, density in ((0.0, 10.0, 0.20), (-4.6, 1.6, 0.22), (4.6, 1.6, 0.22)):
            bone = stroke(thorax.frame, path + np.array([aside, 0.0]), width)
            mu[bone.rows, bone.cols] += np.float32(density) * bone.delta


def _abdomen(thorax: LateralThorax, mu: Array) -> None:
    """Liver under the right dome, and the left upper abdomen with gas in the stomach."""
    a = thorax.anatomy
    inside = step(thorax.wall - np.float32(1.0), 7.0)
    for side in SIDES:
        depth = -thorax.above_dome(side)
        out = np.clip(depth, 0.0, 70.0) * np.float32(0.26 / 70.0) + np.float32(0.27)
        mu += out * step(depth, 1.6) * inside
    at = (_TOP + 4.0, a.dome_left + 22.0)
    box = thorax.region(*at, 30.0, 16.0)
    mu[box.rows, box.cols] -= np.float32(0.5) * solid(ellipse_distance(box.x, box.y, at, (24.0, 10.0), 8.0), 0.25)


def draw_lateral_vessels(thorax: LateralThorax, rng: np.random.Generator) -> Array:
    """Added attenuation [S, S] of the vessels of both lungs from the side, and of both hila."""
    x, y = thorax.hilum_at
    paths: list[tuple[NDArray[np.float64], ...]] = []
    for s in (-1.0, 1.0):
        along, down, calibre = branches(rng, s, y)
        paths.append((x + 0.82 * (along - s * 22.0), down, 0.85 * calibre))
    out = vessel_lines(thorax.frame, paths)
    # The left hilum lies above and behind the right one.
    for at, axes in (((x - 9.0, y + 6.0), (14.0, 18.0)), ((x + 11.0, y - 11.0), (15.0, 11.0))):
        box = thorax.region(*at, 20.0, 22.0)
        q = ellipse_distance(box.x, box.y, at, axes, -20.0)
        out[box.rows, box.cols] += np.float32(0.26) * np.maximum(np.float32(1.0) - q, 0.0)
    return out


def draw_lateral_shoulders(thorax: LateralThorax) -> Array:
    """Attenuation [S, S] of the rear borders of both shoulder blades and of one upper arm."""
    a = thorax.anatomy
    out = np.zeros_like(thorax.frame.x)
    for shift in (0.0, 13.0):
        points = [(26.0 + shift, a.apex - 4.0), (50.0 + shift, a.apex + 36.0), (74.0 + shift, a.apex + 92.0)]
        line = stroke(thorax.frame, smooth_path(points), 4.0)
        out[line.rows, line.cols] += np.float32(0.11) * line.delta
    arm = stroke(
        thorax.frame, smooth_path([(-6.0, a.apex - 6.0), (-60.0, a.apex - 34.0), (-150.0, a.apex - 70.0)]), 19.0
    )
    out[arm.rows, arm.cols] += np.float32(0.22) * arm.delta
    return out
