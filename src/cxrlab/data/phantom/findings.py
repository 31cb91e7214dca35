"""Draw findings: each function takes the chest, the finding and a generator, and returns added attenuation.

The generator is seeded by patient, observation and place, so a lesion keeps its form and position from visit to visit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Side
from cxrlab.data.phantom.anatomy import grade
from cxrlab.data.phantom.image_plane import (
    CURVE_X,
    CURVE_Y,
    Array,
    Patch,
    cloud,
    ellipse_distance,
    normals,
    smooth_path,
    solid,
    splat,
    step,
    stroke,
)
from cxrlab.data.phantom.thorax import SIGN, Region, Thorax


def sides(finding: Finding) -> tuple[Side, ...]:
    """The sides to draw on; a finding without a side is drawn on both."""
    return (finding.side,) if finding.side in SIGN else (Side.RIGHT, Side.LEFT)


def together(patches: list[Patch]) -> Patch:
    """One patch that covers several."""
    rows = slice(min(p.rows.start for p in patches), max(p.rows.stop for p in patches))
    cols = slice(min(p.cols.start for p in patches), max(p.cols.stop for p in patches))
    delta = np.zeros((rows.stop - rows.start, cols.stop - cols.start), dtype=np.float32)
    for p in patches:
        delta[
            p.rows.start - rows.start : p.rows.stop - rows.start, p.cols.start - cols.start : p.cols.stop - cols.start
        ] += p.delta
    return Patch(rows, cols, delta)


Draw = Callable[[Thorax, Finding, np.random.Generator], Patch]


def on_each_side(draw: Callable[[Thorax, Finding, Side, np.random.Generator], Patch]) -> Draw:
    """Draw one side at a time, on each side that the finding names."""

    def on_sides(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
        return together([draw(thorax, finding, side, rng) for side in sides(finding)])

    return on_sides


def _blob(
    thorax: Thorax, at: tuple[float, float], half: float, rng: np.random.Generator, ragged: float, edge: float
) -> Patch:
    """A body with an uneven rim inside the lungs, 0 to 1; `ragged` 0 is a smooth ellipse."""
    frame = thorax.frame
    rows, cols = frame.box(*at, half * 1.5, half * 1.5)
    x, y = frame.x[rows, cols], frame.y[rows, cols]
    q = ellipse_distance(x, y, at, (half, half * float(rng.uniform(0.8, 1.0))), float(rng.uniform(-40, 40)))
    if ragged:
        q = q * (np.float32(1.0) + np.float32(ragged) * cloud(rng, q.shape, 5.0, 2))
    return Patch(rows, cols, solid(np.maximum(q, 0.0), edge) * thorax.lungs[rows, cols])


def _bodies(
    thorax: Thorax,
    finding: Finding,
    rng: np.random.Generator,
    half: float,
    out: tuple[float, float],
    ragged: float,
    edge: float,
    density: float,
) -> Patch:
    """One body of half width `half` on each side that the finding names."""
    patches = []
    for side in sides(finding):
        at = thorax.place(finding, side, rng, out)
        patches.append(_blob(thorax, at, half, rng, ragged, edge).scaled(density))
    return together(patches)


def opacity(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A hazy patch without structure through which vessels are still seen."""
    half = grade(finding, 27.0, 34.0, 42.0)
    return _bodies(thorax, finding, rng, half, (0.52, 0.66), ragged=0.25, edge=0.7, density=0.42)


@on_each_side
def consolidation(thorax: Thorax, finding: Finding, side: Side, rng: np.random.Generator) -> Patch:
    """A dense patch with a ragged, soft rim and dark air bronchograms that branch and thin out."""
    half = grade(finding, 24.0, 32.0, 41.0)
    at = thorax.place(finding, side, rng, (0.52, 0.68))
    body = _blob(thorax, at, half, rng, 0.5, 0.45)
    dense = np.float32(0.66) * body.delta
    root = np.array([at[0] - SIGN[side] * half * 0.8, at[1] - half * 0.1])
    for heading in rng.uniform(-0.8, 0.8, 5):
        steps = heading + np.cumsum(rng.normal(0.0, 0.22, 9))
        path = root + np.cumsum(np.stack([SIGN[side] * np.cos(steps), np.sin(steps)], axis=1), axis=0) * half * 0.16
        air = stroke(thorax.frame, np.concatenate([root[None], path]), 1.8, np.linspace(1.0, 0.15, 10))
        # Take the air out of the body where the two overlap.
        r0, r1 = max(body.rows.start, air.rows.start), min(body.rows.stop, air.rows.stop)
        c0, c1 = max(body.cols.start, air.cols.start), min(body.cols.stop, air.cols.stop)
        if r1 > r0 and c1 > c0:
            area = dense[r0 - body.rows.start : r1 - body.rows.start, c0 - body.cols.start : c1 - body.cols.start]
            cut = air.delta[r0 - air.rows.start : r1 - air.rows.start, c0 - air.cols.start : c1 - air.cols.start]
            area -= np.minimum(np.float32(0.26) * cut, area * np.float32(0.8))
    return Patch(body.rows, body.cols, dense)


def pneumonia(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """Many fluffy spots of different size close together, running into each other."""
    patches = []
    for side in sides(finding):
        x, y = thorax.place(finding, side, rng, (0.55, 0.66))
        spread = grade(finding, 20.0, 26.0, 33.0)
        for _ in range(round(grade(finding, 8, 11, 15))):
            at = (x + float(rng.normal(0, spread * 0.62)), y + float(rng.normal(0, spread * 0.62)))
            patches.append(_blob(thorax, at, float(rng.uniform(5.0, 10.5)), rng, 0.0, 0.7).scaled(0.36))
    return together(patches)


def atelectasis(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """Plates: one to three straight bands, nearly level."""
    patches = []
    for side in sides(finding):
        x, y = thorax.place(finding, side, rng, (0.56, 0.66))
        slope = float(rng.uniform(-0.2, 0.2))
        for number in range(round(grade(finding, 1, 2, 3))):
            long = grade(finding, 52.0, 62.0, 72.0) * float(rng.uniform(0.9, 1.1))
            tilt = slope + float(rng.uniform(-0.05, 0.05))
            middle = np.array([x, y - 13.0 * number])
            reach = np.array([long / 2, long / 2 * tilt])
            band = stroke(thorax.frame, np.stack([middle - reach, middle + [0, 1.5], middle + reach]), 4.6)
            patches.append(
                Patch(band.rows, band.cols, np.float32(0.42) * band.delta * thorax.lungs[band.rows, band.cols])
            )
    return together(patches)


def edema(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """Haze spreading from both hila, thickened vessels, and short level lines at the flanks."""
    frame, a = thorax.frame, thorax.anatomy
    reach = grade(finding, 0.8, 1.0, 1.25)
    haze = np.zeros_like(frame.x)
    for side in (Side.RIGHT, Side.LEFT):
        q = ellipse_distance(frame.x, frame.y, (SIGN[side] * 44.0, a.carina_y + 42.0), (62.0 * reach, 74.0 * reach))
        haze += np.maximum(np.float32(1.0) - q, 0.0) ** 2 * np.float32(1.5)
    fluff = np.float32(1.0) + np.float32(0.55) * cloud(rng, haze.shape, 16.0, 3)
    out = np.float32(grade(finding, 0.30, 0.42, 0.56)) * haze * np.maximum(fluff, np.float32(0.2)) * thorax.lungs
    for side in (Side.RIGHT, Side.LEFT):
        for number in range(round(grade(finding, 5, 7, 9))):
            y = a.dome(side) - 14.0 - 7.0 * number
            wall = float(thorax.cage_at(y)) - 2.0
            line = stroke(frame, np.array([[SIGN[side] * (wall - 17.0), y + 1.0], [SIGN[side] * wall, y]]), 1.3)
            out[line.rows, line.cols] += np.float32(0.22) * line.delta * thorax.lungs[line.rows, line.cols]
    return Patch(slice(0, frame.size), slice(0, frame.size), out)


def nodule(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """One round, well-defined spot of the stated size."""
    half = max((finding.size_mm or 18.0) / 2, 0.9 * thorax.frame.mm)
    return _bodies(thorax, finding, rng, half, (0.55, 0.72), ragged=0.0, edge=0.3, density=0.46)


def mass(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A large lobed body of the stated size."""
    half = (finding.size_mm or 45.0) / 2
    return _bodies(thorax, finding, rng, half, (0.5, 0.6), ragged=0.22, edge=0.12, density=0.62)


@on_each_side
def cavity(thorax: Thorax, finding: Finding, side: Side, rng: np.random.Generator) -> Patch:
    """A thick-walled ring around air."""
    half = (finding.size_mm or 40.0) / 2
    at = thorax.place(finding, side, rng, (0.5, 0.62))
    outer = _blob(thorax, at, half, rng, 0.0, 0.14)
    frame = thorax.frame
    q = ellipse_distance(
        frame.x[outer.rows, outer.cols], frame.y[outer.rows, outer.cols], at, (half * 0.62, half * 0.60)
    )
    hole = solid(q, 0.2) * thorax.lungs[outer.rows, outer.cols]
    return Patch(outer.rows, outer.cols, np.float32(0.62) * outer.delta - np.float32(0.74) * hole)


def granuloma(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A small calcified spot, much denser than a nodule."""
    half = max((finding.size_mm or 7.0) / 2, 1.1 * thorax.frame.mm)
    return _bodies(thorax, finding, rng, half, (0.5, 0.75), ragged=0.0, edge=0.35, density=1.5)


def interstitial(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A net of fine crossing lines in both lungs, at the bases or the upper zones."""
    frame, a = thorax.frame, thorax.anatomy
    upper = finding.location in ("upper zone", "apex")
    reach = grade(finding, 0.26, 0.36, 0.48)  # of the height of the lung
    count, xs, ys = round(1300 * reach), [], []
    along = np.linspace(-0.5, 0.5, 9)
    for side in (Side.RIGHT, Side.LEFT):
        length = a.dome(side) - a.apex
        down = rng.uniform(0.10, 0.10 + reach, count) if upper else rng.uniform(1.02 - reach, 1.02, count)
        y = a.apex + length * down
        x = SIGN[side] * np.sqrt(rng.uniform(0.1, 1.0, count)) * thorax.cage_at(y)
        angle, long = rng.uniform(0, np.pi, count), rng.uniform(5.0, 11.0, count)
        xs.append((x[:, None] + along * (long * np.cos(angle))[:, None]).ravel())
        ys.append((y[:, None] + along * (long * np.sin(angle))[:, None]).ravel())
    px, py = np.concatenate(xs), np.concatenate(ys)
    weight = np.full(len(px), 0.42 * min(1.0, 1.5 / frame.mm))
    net = splat(frame, px, py, weight, 1.6)
    return Patch(
        net.rows, net.cols, np.float32(grade(finding, 0.24, 0.28, 0.33)) * net.delta * thorax.lungs[net.rows, net.cols]
    )


def _half(thorax: Thorax, side: Side) -> tuple[Region, Array]:
    """The box of one side of the chest, and the lung in it."""
    a = thorax.anatomy
    middle = (a.apex + a.dome(side)) / 2
    box = thorax.region(SIGN[side] * a.cage / 2, middle, a.cage / 2 + 14.0, (a.dome(side) - a.apex) / 2 + 46.0)
    return box, box.of(thorax.lungs) * step(box.x * np.float32(SIGN[side]), 3.0)


@on_each_side
def effusion(thorax: Thorax, finding: Finding, side: Side, rng: np.random.Generator) -> Patch:
    """Fluid over the diaphragm with a meniscus: higher at the flank than in the middle."""
    a = thorax.anatomy
    box, lung = _half(thorax, side)
    rise = grade(finding, 20.0, 48.0, 88.0) * float(rng.uniform(0.93, 1.07))
    t = np.clip(CURVE_X * SIGN[side] / a.cage, 0.0, 1.1)
    surface = box.along_x(a.dome(side) + 6.0 - rise * (0.42 + 0.75 * t**2.4))
    return Patch(box.rows, box.cols, np.float32(0.88) * step(box.y - surface, 5.0) * lung)


@on_each_side
def pneumothorax(thorax: Thorax, finding: Finding, side: Side, rng: np.random.Generator) -> Patch:
    """Air around a collapsed lung: a dark rim without vessels behind a thin white line."""
    a = thorax.anatomy
    box, lung = _half(thorax, side)
    cap = grade(finding, 30.0, 46.0, 66.0) * float(rng.uniform(0.95, 1.05))
    rim = grade(finding, 12.0, 20.0, 33.0)
    down = np.clip((CURVE_Y - a.apex) / (a.dome(side) - a.apex), 0.0, 1.0)
    inward = box.along_y(rim * (1.0 - down) ** 0.6 + cap * np.exp(-down * 7.0)) - box.of(thorax.wall)
    line = step(np.float32(max(1.1, 0.75 * thorax.frame.mm)) - np.abs(inward), 1.2)
    air = step(inward, 1.4)
    delta = (np.float32(0.32) * line - (np.float32(0.24) + box.of(thorax.vessels)) * air) * lung
    return Patch(box.rows, box.cols, delta)


@on_each_side
def thickening(thorax: Thorax, finding: Finding, side: Side, rng: np.random.Generator) -> Patch:
    """A band along the inner chest wall with an uneven inner border."""
    box, lung = _half(thorax, side)
    _, y = thorax.place(finding, side, rng, (0.9, 0.9))
    thick = grade(finding, 9.0, 14.0, 20.0)
    long = grade(finding, 36.0, 46.0, 58.0)
    reach = np.clip(1.0 - ((CURVE_Y - y) / long) ** 2, 0.0, 1.0) ** 0.5
    wave = np.interp(CURVE_Y, np.arange(-60, 460, 9.0), rng.uniform(0.7, 1.2, 58))
    band = step(box.along_y(thick * reach * wave) - box.of(thorax.wall), 1.8)
    return Patch(box.rows, box.cols, np.float32(0.60) * band * lung)


@on_each_side
def plaque(thorax: Thorax, finding: Finding, side: Side, rng: np.random.Generator) -> Patch:
    """A flat calcified patch seen from the front: ragged, with a dense rolled rim."""
    frame = thorax.frame
    at = thorax.place(finding, side, rng, (0.6, 0.74))
    rows, cols = frame.box(*at, 34.0, 30.0)
    q = ellipse_distance(frame.x[rows, cols], frame.y[rows, cols], at, (22.0, 16.0), float(rng.uniform(-35, 35)))
    radius = np.sqrt(q) + np.float32(0.30) * cloud(rng, q.shape, 6.0, 2)
    inside = step(np.float32(1.0) - radius, 0.12)
    rim = step(np.float32(0.16) - np.abs(radius - np.float32(0.88)), 0.12)
    return Patch(rows, cols, (np.float32(0.36) * inside + np.float32(0.42) * rim) * thorax.lungs[rows, cols])


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
    return hernia_sac(thorax, finding, float(rng.uniform(6.0, 16.0)))


def hernia_sac(thorax: Thorax, finding: Finding, x_mm: float) -> Patch:
    """The sac of a hiatal hernia in any view, with its middle at `x_mm`."""
    frame, a = thorax.frame, thorax.anatomy
    radius = grade(finding, 21.0, 27.0, 34.0)
    at = (x_mm, a.dome_left - radius * 0.55)
    rows, cols = frame.box(*at, radius + 3, radius + 3)
    x, y = frame.x[rows, cols], frame.y[rows, cols]
    q = ellipse_distance(x, y, at, (radius, radius * 0.9))
    inside = solid(q, 0.07)
    wall = step(np.float32(0.07) - np.abs(np.sqrt(q) - np.float32(0.96)), 0.05)
    level = np.float32(at[1] + 0.25 * radius)
    gas = inside * step(level - y, 0.8)
    fluid = inside * step(y - level, 0.8)
    return Patch(rows, cols, np.float32(0.45) * wall + np.float32(0.35) * fluid - np.float32(0.78) * gas)


@on_each_side
def free_air(thorax: Thorax, finding: Finding, side: Side, rng: np.random.Generator) -> Patch:
    """A dark crescent between diaphragm and liver."""
    frame, a = thorax.frame, thorax.anatomy
    middle = SIGN[side] * 0.5 * a.cage
    rows, cols = frame.box(middle, a.dome(side) + 14.0, 0.48 * a.cage, 34.0)
    x = frame.x[rows, cols]
    t = (x - np.float32(middle)) / np.float32(0.42 * a.cage)
    thick = np.float32(grade(finding, 9.0, 13.0, 18.0)) * np.sqrt(np.maximum(np.float32(1.0) - t * t, 0.0))
    depth = -thorax.above[rows, cols] - np.float32(2.4)
    air = step(depth, 0.9) * step(thick - depth, 1.2)
    return Patch(rows, cols, np.float32(-1.0) * air)


def _bone(thorax: Thorax, path: NDArray[np.float64], width: float, density: float) -> list[Patch]:
    """A piece of bone along a path: a body and two denser edges."""
    aside = normals(path) * (width / 2 - 0.6)
    body = stroke(thorax.frame, path, width).scaled(0.7 * density)
    return [body, *(stroke(thorax.frame, path + k * aside, 1.2).scaled(0.6 * density) for k in (-1.0, 1.0))]


def _broken(thorax: Thorax, path: NDArray[np.float64], at: int, width: float, density: float, shift: float) -> Patch:
    """A bone path [N, 2] of this density, broken at index `at`: a gap, and the outer piece pushed aside."""
    outer = path[at + 2 : at + 12]
    old = stroke(thorax.frame, path[at : at + 12], width + 0.5).scaled(-0.95 * density)
    normal = normals(outer)
    down = np.sign(normal[0, 1]) or 1.0
    moved = outer + down * shift * np.linspace(1.0, 0.5, len(outer))[:, None] * normal
    inner = _bone(thorax, path[at - 3 : at + 1], width, 0.5 * density)
    return together([old, *inner, *_bone(thorax, moved, width, 1.5 * density)])


@on_each_side
def rib_fracture(thorax: Thorax, finding: Finding, side: Side, rng: np.random.Generator) -> Patch:
    """A back rib with a gap and a displaced outer end, at the rib that the finding names."""
    a = thorax.anatomy
    number = int((finding.location or "rib 6").split()[1])
    where = float(rng.uniform(0.5, 0.66))
    x = SIGN[side] * np.linspace(where - 0.2, where + 0.3, 26) * a.cage * (0.78 if number < 4 else 1.0)
    path = np.stack([x, thorax.rib_at(number, x)], axis=1)
    return _broken(thorax, path, 10, 2 * a.rib_half, 0.12, 9.0)


@on_each_side
def clavicle_fracture(thorax: Thorax, finding: Finding, side: Side, rng: np.random.Generator) -> Patch:
    """The middle third broken, the outer end dropped."""
    path = thorax.clavicle(side)
    return _broken(thorax, path, int(rng.integers(20, 28)), 9.5, 0.22, 12.0)


@on_each_side
def chest_wall_air(thorax: Thorax, finding: Finding, side: Side, rng: np.random.Generator) -> Patch:
    """Dark streaks and bubbles in the soft tissue beside the ribs."""
    frame, a = thorax.frame, thorax.anatomy
    count = round(grade(finding, 70, 130, 210))
    low, deep = grade(finding, 90.0, 130.0, 175.0), grade(finding, 17.0, 22.0, 28.0)
    along = np.linspace(-0.5, 0.5, 15)
    y = rng.uniform(a.apex + 34.0, a.apex + 34.0 + low, count)
    x = SIGN[side] * (thorax.cage_at(y) + rng.uniform(5.0, deep, count))
    long = rng.uniform(8.0, 20.0, count)
    lean = SIGN[side] * rng.uniform(-0.15, 0.5, count)
    px, py = x[:, None] + along * (long * lean)[:, None], y[:, None] + along * long[:, None]
    weight = np.full(px.size, 0.42 * min(1.0, 1.5 / frame.mm))
    return splat(frame, px.ravel(), py.ravel(), weight, 1.5).scaled(-0.30)


def tube(thorax: Thorax, path: NDArray[np.float64], width: float, wall: float, stripe: float) -> Patch:
    """A hollow tube: two walls and a dense stripe."""
    normal = normals(path)
    parts = [stroke(thorax.frame, path + k * width / 2 * normal, 1.3).scaled(wall) for k in (-1.0, 1.0)]
    parts.append(stroke(thorax.frame, path, 1.6).scaled(stripe))
    return together(parts)


def endotracheal(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A tube in the trachea; its end at the stated height above the carina."""
    a = thorax.anatomy
    lean = float(0.35 * thorax.spine_at(a.carina_y - 40.0)) - 2.0
    points = [(lean + 4.0, -40.0), (lean + 1.0, 10.0)]
    if finding.tip == "right main bronchus":
        points += [(lean, a.carina_y - 22.0), (lean - 9.0, a.carina_y + 6.0), (lean - 20.0, a.carina_y + 17.0)]
    else:
        height = finding.tip_mm if finding.tip_mm is not None else (85.0 if finding.tip == "high" else 40.0)
        points.append((lean, max(a.carina_y - height, 14.0)))
    return tube(thorax, smooth_path(points), 8.5, 0.34, 0.75)


def enteric(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A thin tube down the oesophagus, into the stomach or short of it."""
    a = thorax.anatomy
    lean = float(0.3 * thorax.spine_at(150.0))
    # Behind and to the left of the trachea, so that it is distinct from a tube inside it.
    points = [(lean + 7.0, -40.0), (lean + 9.0, 60.0), (lean + 10.0, 130.0)]
    low = a.dome_left
    if finding.tip == "distal esophagus":
        points += [(lean + 11.0, low - 34.0)]
    elif finding.tip == "beyond image":
        points += [(lean + 12.0, low - 20.0), (lean + 26.0, low + 22.0), (lean + 40.0, low + 120.0)]
    else:
        points += [(lean + 12.0, low - 20.0), (lean + 22.0, low + 10.0)]
        points += [(0.40 * a.cage, low + 26.0), (0.60 * a.cage, low + 24.0)]
    return stroke(thorax.frame, smooth_path(points), 3.2).scaled(0.85)


VEIN_END = {
    "brachiocephalic vein": -22.0,
    "superior vena cava": 4.0,
    "cavoatrial junction": 30.0,
    "right atrium": 58.0,
}


@on_each_side
def central_line(thorax: Thorax, finding: Finding, side: Side, rng: np.random.Generator) -> Patch:
    """A catheter from the neck or under the clavicle into the superior vena cava."""
    a = thorax.anatomy
    end = a.carina_y + VEIN_END.get(finding.tip or "", 4.0)
    cava = -0.86 * a.pedicle_right
    if side is Side.RIGHT:
        points = [(-46.0, -30.0), (-41.0, 20.0), (-27.0, a.apex + 34.0), (cava - 1.0, a.apex + 62.0)]
    else:
        points = [
            (118.0, a.clavicle_y - 6.0),
            (72.0, a.clavicle_y + 8.0),
            (30.0, a.clavicle_y + 14.0),
            (-4.0, a.apex + 56.0),
        ]
    if end > points[-1][1] + 6.0:
        points.append((cava, (points[-1][1] + end) / 2 + 4.0))
        points.append((cava - (4.0 if finding.tip == "right atrium" else 0.0), end))
    return stroke(thorax.frame, smooth_path(points), 2.6).scaled(1.0)


@on_each_side
def chest_tube(thorax: Thorax, finding: Finding, side: Side, rng: np.random.Generator) -> Patch:
    """A wide tube through the chest wall, up to the apex or along the base."""
    a = thorax.anatomy
    s = SIGN[side]
    entry_y = a.widest - 22.0
    entry = (s * (float(thorax.cage_at(entry_y)) + 36.0), entry_y + 26.0)
    wall = (s * (float(thorax.cage_at(entry_y)) - 4.0), entry_y)
    if finding.tip == "base":
        points = [entry, wall, (s * 0.66 * a.cage, a.dome(side) - 26.0), (s * 0.36 * a.cage, a.dome(side) - 18.0)]
    else:
        points = [entry, wall, (s * 0.68 * a.cage, a.apex + 95.0), (s * 0.40 * a.cage, a.apex + 30.0)]
    return tube(thorax, smooth_path(points), 7.5, 0.42, 0.70)


def pacemaker(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A generator below the clavicle and one or two leads into the right heart."""
    frame, a = thorax.frame, thorax.anatomy
    patches = []
    for side in sides(finding):
        s = SIGN[side]
        at = (s * 98.0, a.clavicle_y + 26.0)
        rows, cols = frame.box(*at, 27.0, 27.0)
        dx, dy = np.abs(frame.x[rows, cols] - np.float32(at[0])), np.abs(frame.y[rows, cols] - np.float32(at[1]))
        outside = np.hypot(np.maximum(dx - np.float32(8.0), 0.0), np.maximum(dy - np.float32(11.0), 0.0))
        box = step(np.float32(12.0) - outside, 1.2)
        inner = step(np.float32(7.0) - outside, 1.0)
        patches.append(Patch(rows, cols, (np.float32(1.9) * box + np.float32(0.5) * inner).astype(np.float32)))
        start = [(s * 82.0, a.clavicle_y + 12.0), (s * 48.0, a.clavicle_y + 8.0)]
        start += [(-14.0, a.apex + 60.0), (-20.0, a.carina_y + 26.0)]
        ends = [[(-20.0, a.heart_y + 10.0), (16.0, a.heart_y + 34.0), (44.0, a.heart_y + 30.0)]]
        if finding.tip == "right atrium and right ventricle":
            ends.append([(-24.0, a.heart_y - 6.0), (-34.0, a.heart_y - 16.0)])
        for end in ends:
            patches.append(stroke(frame, smooth_path([*start, *end]), 2.0).scaled(1.1))
    return together(patches)


def sternotomy_sutures(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A column of small wire loops in the midline."""
    a = thorax.anatomy
    angle = np.linspace(0.0, 2 * np.pi, 28)
    patches = []
    for y in np.linspace(a.apex + 58.0, a.heart_y + 4.0, 6):
        x, turn = float(rng.uniform(-2.5, 2.5)), float(rng.uniform(-0.25, 0.25))
        loop = np.stack(
            [x + 8.5 * np.cos(angle) + turn * 3 * np.sin(angle), y + 4.2 * np.sin(angle) + turn * 5 * np.cos(angle)],
            axis=1,
        )
        patches.append(stroke(thorax.frame, loop, 1.4).scaled(1.9))
    return together(patches)


@dataclass(frozen=True)
class Appearance:
    """One row: `sign` +1 whitens and -1 darkens the image; `draw` is None for findings that reshape the chest."""

    contrast: float
    draw: Callable[..., Patch] | None = None  # a `Draw`, or one of a lateral thorax
    sign: int = 1


APPEARANCE: MappingProxyType[str, Appearance] = MappingProxyType(
    {
        "lung opacity": Appearance(0.12, opacity),
        "consolidation": Appearance(0.18, consolidation),
        "pneumonia": Appearance(0.11, pneumonia),
        "atelectasis": Appearance(0.11, atelectasis),
        "edema": Appearance(0.09, edema),
        "nodule": Appearance(0.12, nodule),
        "mass": Appearance(0.18, mass),
        "cavity": Appearance(0.15, cavity),
        "granuloma": Appearance(0.25, granuloma),
        "emphysema": Appearance(0.05, None, -1),
        "interstitial pattern": Appearance(0.08, interstitial),
        "low lung volumes": Appearance(0.08, None),
        "pleural effusion": Appearance(0.20, effusion),
        "pneumothorax": Appearance(0.10, pneumothorax, -1),
        "pleural thickening": Appearance(0.13, thickening),
        "pleural plaque": Appearance(0.13, plaque),
        "cardiomegaly": Appearance(0.10, None),
        "enlarged cardiomediastinum": Appearance(0.10, None),
        "hilar enlargement": Appearance(0.12, hilum),
        "tortuous aorta": Appearance(0.06, None),
        "aortic calcification": Appearance(0.12, aortic_calcification),
        "hiatal hernia": Appearance(0.10, hernia, -1),
        "elevated hemidiaphragm": Appearance(0.12, None),
        "pneumoperitoneum": Appearance(0.16, free_air, -1),
        "rib fracture": Appearance(0.09, rib_fracture),
        "clavicle fracture": Appearance(0.09, clavicle_fracture),
        "scoliosis": Appearance(0.04, None),
        "subcutaneous emphysema": Appearance(0.08, chest_wall_air, -1),
        "endotracheal tube": Appearance(0.10, endotracheal),
        "enteric tube": Appearance(0.11, enteric),
        "central venous catheter": Appearance(0.12, central_line),
        "chest tube": Appearance(0.12, chest_tube),
        "pacemaker": Appearance(0.20, pacemaker),
        "sternal wires": Appearance(0.14, sternotomy_sutures),
    }
)
