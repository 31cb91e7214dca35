"""What can be drawn around the lungs: fluid, air, thickening, plaques."""

from __future__ import annotations

import numpy as np

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Side
from cxrlab.data.phantom.anatomy import grade
from cxrlab.data.phantom.frame import CURVE_X, CURVE_Y, Array, Patch, cloud, ellipse_distance, step
from cxrlab.data.phantom.lung import place, sides, together
from cxrlab.data.phantom.thorax import SIGN, Region, Thorax


def _half(thorax: Thorax, side: Side) -> tuple[Region, Array]:
    """The box of one side of the chest, and the lung in it."""
    a = thorax.anatomy
    middle = (a.apex + a.dome(side)) / 2
    box = thorax.region(SIGN[side] * a.cage / 2, middle, a.cage / 2 + 14.0, (a.dome(side) - a.apex) / 2 + 46.0)
    return box, box.of(thorax.lungs) * step(box.x * np.float32(SIGN[side]), 3.0)


def effusion(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """Fluid over the diaphragm with a meniscus: higher at the flank than in the middle."""
    a = thorax.anatomy
    patches = []
    for side in sides(finding):
        box, lung = _half(thorax, side)
        rise = grade(finding, 20.0, 48.0, 88.0) * float(rng.uniform(0.93, 1.07))
        t = np.clip(CURVE_X * SIGN[side] / a.cage, 0.0, 1.1)
        surface = box.along_x(a.dome(side) + 6.0 - rise * (0.42 + 0.75 * t**2.4))
        patches.append(Patch(box.rows, box.cols, np.float32(0.88) * step(box.y - surface, 5.0) * lung))
    return together(patches)


def pneumothorax(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """Air around a fallen lung: a dark rim without vessels behind a thin white line."""
    a = thorax.anatomy
    patches = []
    for side in sides(finding):
        box, lung = _half(thorax, side)
        cap = grade(finding, 30.0, 46.0, 66.0) * float(rng.uniform(0.95, 1.05))
        rim = grade(finding, 12.0, 20.0, 33.0)
        down = np.clip((CURVE_Y - a.apex) / (a.dome(side) - a.apex), 0.0, 1.0)
        inward = box.along_y(rim * (1.0 - down) ** 0.6 + cap * np.exp(-down * 7.0)) - box.of(thorax.wall)
        line = step(np.float32(max(1.1, 0.75 * thorax.frame.mm)) - np.abs(inward), 1.2)
        air = step(inward, 1.4)
        delta = (np.float32(0.32) * line - (np.float32(0.24) + box.of(thorax.vessels)) * air) * lung
        patches.append(Patch(box.rows, box.cols, delta))
    return together(patches)


def thickening(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A band along the inner chest wall with an uneven inner border."""
    patches = []
    for side in sides(finding):
        box, lung = _half(thorax, side)
        _, y = place(thorax, finding, side, rng, (0.9, 0.9))
        thick = grade(finding, 9.0, 14.0, 20.0)
        long = grade(finding, 36.0, 46.0, 58.0)
        reach = np.clip(1.0 - ((CURVE_Y - y) / long) ** 2, 0.0, 1.0) ** 0.5
        wave = np.interp(CURVE_Y, np.arange(-60, 460, 9.0), rng.uniform(0.7, 1.2, 58))
        band = step(box.along_y(thick * reach * wave) - box.of(thorax.wall), 1.8)
        patches.append(Patch(box.rows, box.cols, np.float32(0.60) * band * lung))
    return together(patches)


def plaque(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A flat calcified patch seen from the front: ragged, with a dense rolled rim."""
    frame = thorax.frame
    patches = []
    for side in sides(finding):
        at = place(thorax, finding, side, rng, (0.6, 0.74))
        rows, cols = frame.box(*at, 34.0, 30.0)
        q = ellipse_distance(frame.x[rows, cols], frame.y[rows, cols], at, (22.0, 16.0), float(rng.uniform(-35, 35)))
        radius = np.sqrt(q) + np.float32(0.30) * cloud(rng, q.shape, 6.0, 2)
        inside = step(np.float32(1.0) - radius, 0.12)
        rim = step(np.float32(0.16) - np.abs(radius - np.float32(0.88)), 0.12)
        patches.append(
            Patch(rows, cols, (np.float32(0.36) * inside + np.float32(0.42) * rim) * thorax.lungs[rows, cols])
        )
    return together(patches)
