"""What can be drawn outside lungs and pleura: mediastinum, diaphragm, bones, soft tissue."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Side
from cxrlab.data.phantom.anatomy import grade
from cxrlab.data.phantom.frame import Patch, ellipse_distance, normals, solid, splat, step, stroke
from cxrlab.data.phantom.lung import sides, together
from cxrlab.data.phantom.thorax import SIGN, Thorax


def hilum(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A lobed swelling of the hilum."""
    frame, a = thorax.frame, thorax.anatomy
    patches = []
    for side in sides(finding):
        size = grade(finding, 19.0, 23.0, 28.0)
        y = a.carina_y + (30.0 if side is Side.RIGHT else 22.0)
        for dx, dy, share in ((0.0, 0.0, 1.0), (0.5, -0.75, 0.62), (0.55, 0.7, 0.66)):
            at = (SIGN[side] * (38.0 + dx * size * 0.7), y + dy * size)
            rows, cols = frame.box(*at, size, size)
            q = ellipse_distance(frame.x[rows, cols], frame.y[rows, cols], at, (size * share * 0.95, size * share))
            patches.append(Patch(rows, cols, np.float32(0.36) * solid(q, 0.3)))
    out = together(patches)
    return Patch(out.rows, out.cols, np.minimum(out.delta, np.float32(0.58)))


def aortic_calcification(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A dense arc on the outer rim of the aortic knob."""
    a = thorax.anatomy
    half = grade(finding, 0.8, 1.25, 1.8)
    angle = np.linspace(-half, half, 24) - 0.35
    x = a.pedicle_left + 1.5 + (a.arch_radius - 2.0) * np.cos(angle)
    y = a.arch_y + (a.arch_radius * 1.15 - 2.0) * np.sin(angle)
    arc = stroke(thorax.frame, np.stack([x, y], axis=1), grade(finding, 1.8, 2.4, 3.2))
    return arc.scaled(1.1)


def hernia(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A rounded sac behind the heart with gas over a level of fluid."""
    frame, a = thorax.frame, thorax.anatomy
    radius = grade(finding, 21.0, 27.0, 34.0)
    at = (float(rng.uniform(6.0, 16.0)), a.dome_left - radius * 0.55)
    rows, cols = frame.box(*at, radius + 3, radius + 3)
    x, y = frame.x[rows, cols], frame.y[rows, cols]
    q = ellipse_distance(x, y, at, (radius, radius * 0.9))
    inside = solid(q, 0.07)
    wall = step(np.float32(0.07) - np.abs(np.sqrt(q) - np.float32(0.96)), 0.05)
    level = np.float32(at[1] + 0.25 * radius)
    gas = inside * step(level - y, 0.8)
    fluid = inside * step(y - level, 0.8)
    return Patch(rows, cols, np.float32(0.45) * wall + np.float32(0.35) * fluid - np.float32(0.78) * gas)


def free_air(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A dark crescent between diaphragm and liver."""
    frame, a = thorax.frame, thorax.anatomy
    patches = []
    for side in sides(finding):
        middle = SIGN[side] * 0.5 * a.cage
        rows, cols = frame.box(middle, a.dome(side) + 14.0, 0.48 * a.cage, 34.0)
        x = frame.x[rows, cols]
        t = (x - np.float32(middle)) / np.float32(0.42 * a.cage)
        thick = np.float32(grade(finding, 9.0, 13.0, 18.0)) * np.sqrt(np.maximum(np.float32(1.0) - t * t, 0.0))
        depth = -thorax.above[rows, cols] - np.float32(2.4)
        air = step(depth, 0.9) * step(thick - depth, 1.2)
        patches.append(Patch(rows, cols, np.float32(-1.0) * air))
    return together(patches)


def _bone(thorax: Thorax, path: NDArray[np.float64], width: float, density: float) -> list[Patch]:
    """A piece of bone along a path: a body and two denser edges."""
    aside = normals(path) * (width / 2 - 0.6)
    body = stroke(thorax.frame, path, width).scaled(0.7 * density)
    return [body, *(stroke(thorax.frame, path + k * aside, 1.2).scaled(0.6 * density) for k in (-1.0, 1.0))]


def _broken(thorax: Thorax, path: NDArray[np.float64], at: int, width: float, density: float, shift: float) -> Patch:
    """A bone path [N, 2] broken at index `at`: a gap, and the outer piece pushed aside.

    `density` is that of the intact bone, which is taken away where the pieces no longer lie.
    """
    outer = path[at + 2 : at + 12]
    old = stroke(thorax.frame, path[at : at + 12], width + 0.5).scaled(-0.95 * density)
    normal = normals(outer)
    down = np.sign(normal[0, 1]) or 1.0
    moved = outer + down * shift * np.linspace(1.0, 0.5, len(outer))[:, None] * normal
    inner = _bone(thorax, path[at - 3 : at + 1], width, 0.5 * density)
    return together([old, *inner, *_bone(thorax, moved, width, 1.5 * density)])


def rib_fracture(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A back rib with a gap and a displaced outer end, at the rib that the finding names."""
    a = thorax.anatomy
    number = int((finding.location or "rib 6").split()[1])
    patches = []
    for side in sides(finding):
        where = float(rng.uniform(0.5, 0.66))
        x = SIGN[side] * np.linspace(where - 0.2, where + 0.3, 26) * a.cage * (0.78 if number < 4 else 1.0)
        path = np.stack([x, thorax.rib_at(number, x)], axis=1)
        patches.append(_broken(thorax, path, 10, 2 * a.rib_half, 0.12, 9.0))
    return together(patches)


def clavicle_fracture(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """The middle third broken, the outer end dropped."""
    patches = []
    for side in sides(finding):
        path = thorax.clavicle(side)
        patches.append(_broken(thorax, path, int(rng.integers(20, 28)), 9.5, 0.22, 12.0))
    return together(patches)


def chest_wall_air(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """Dark streaks and bubbles in the soft tissue beside the ribs."""
    frame, a = thorax.frame, thorax.anatomy
    count = round(grade(finding, 70, 130, 210))
    low, deep = grade(finding, 90.0, 130.0, 175.0), grade(finding, 17.0, 22.0, 28.0)
    patches = []
    along = np.linspace(-0.5, 0.5, 15)
    for side in sides(finding):
        y = rng.uniform(a.apex + 34.0, a.apex + 34.0 + low, count)
        x = SIGN[side] * (thorax.cage_at(y) + rng.uniform(5.0, deep, count))
        long = rng.uniform(8.0, 20.0, count)
        lean = SIGN[side] * rng.uniform(-0.15, 0.5, count)
        px, py = x[:, None] + along * (long * lean)[:, None], y[:, None] + along * long[:, None]
        weight = np.full(px.size, 0.42 * min(1.0, 1.5 / frame.mm))
        patches.append(splat(frame, px.ravel(), py.ravel(), weight, 1.5).scaled(-0.30))
    return together(patches)
