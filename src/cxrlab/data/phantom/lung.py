"""What can be drawn into the lungs: opacities, lesions, patterns.

Every function here takes the chest, the finding and its own generator, and returns added
attenuation. The generator is named after patient, observation and place, so a lesion keeps its form
and position from visit to visit.
"""

from __future__ import annotations

import numpy as np

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Side
from cxrlab.data.phantom.anatomy import grade
from cxrlab.data.phantom.frame import Array, Patch, cloud, ellipse_distance, solid, splat, stroke
from cxrlab.data.phantom.thorax import SIGN, Thorax

_HEIGHT = {"apex": 0.17, "upper zone": 0.24, "mid zone": 0.50, "perihilar": 0.52, "lower zone": 0.77, "base": 0.86}


def sides(finding: Finding) -> tuple[Side, ...]:
    """The sides to draw on; a finding without a side is drawn on both."""
    return (finding.side,) if finding.side in SIGN else (Side.RIGHT, Side.LEFT)


def place(
    thorax: Thorax, finding: Finding, side: Side, rng: np.random.Generator, out: tuple[float, float]
) -> tuple[float, float]:
    """A point (x, y) in the lung zone that the finding names, `out` of the way to the wall."""
    a = thorax.anatomy
    top, bottom = a.apex, a.dome(side)
    y = top + (bottom - top) * (_HEIGHT.get(finding.location or "", 0.5) + float(rng.uniform(-0.05, 0.05)))
    share = float(rng.uniform(*out))
    return SIGN[side] * share * float(thorax.cage_at(y)), y


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
        at = place(thorax, finding, side, rng, out)
        patches.append(_blob(thorax, at, half, rng, ragged, edge).scaled(density))
    return together(patches)


def opacity(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A hazy patch without structure through which vessels are still seen."""
    half = grade(finding, 27.0, 34.0, 42.0)
    return _bodies(thorax, finding, rng, half, (0.52, 0.66), ragged=0.25, edge=0.7, density=0.42)


def consolidation(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A dense patch with a ragged, soft rim and dark air bronchograms that branch and thin out."""
    patches = []
    for side in sides(finding):
        half = grade(finding, 24.0, 32.0, 41.0)
        at = place(thorax, finding, side, rng, (0.52, 0.68))
        body = _blob(thorax, at, half, rng, 0.5, 0.45)
        dense = np.float32(0.66) * body.delta
        root = np.array([at[0] - SIGN[side] * half * 0.8, at[1] - half * 0.1])
        for heading in rng.uniform(-0.8, 0.8, 5):
            steps = heading + np.cumsum(rng.normal(0.0, 0.22, 9))
            path = root + np.cumsum(np.stack([SIGN[side] * np.cos(steps), np.sin(steps)], axis=1), axis=0) * half * 0.16
            air = stroke(thorax.frame, np.concatenate([root[None], path]), 1.8, np.linspace(1.0, 0.15, 10))
            _under(dense, body, air, 0.26)
        patches.append(Patch(body.rows, body.cols, dense))
    return together(patches)


def _under(dense: Array, body: Patch, line: Patch, strength: float) -> None:
    """Take a line out of a body, where the two overlap."""
    r0, r1 = max(body.rows.start, line.rows.start), min(body.rows.stop, line.rows.stop)
    c0, c1 = max(body.cols.start, line.cols.start), min(body.cols.stop, line.cols.stop)
    if r1 <= r0 or c1 <= c0:
        return
    area = dense[r0 - body.rows.start : r1 - body.rows.start, c0 - body.cols.start : c1 - body.cols.start]
    cut = line.delta[r0 - line.rows.start : r1 - line.rows.start, c0 - line.cols.start : c1 - line.cols.start]
    area -= np.minimum(np.float32(strength) * cut, area * np.float32(0.8))


def pneumonia(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """Many fluffy spots of different size close together, running into each other."""
    patches = []
    for side in sides(finding):
        x, y = place(thorax, finding, side, rng, (0.55, 0.66))
        spread = grade(finding, 20.0, 26.0, 33.0)
        for _ in range(round(grade(finding, 8, 11, 15))):
            at = (x + float(rng.normal(0, spread * 0.62)), y + float(rng.normal(0, spread * 0.62)))
            patches.append(_blob(thorax, at, float(rng.uniform(5.0, 10.5)), rng, 0.0, 0.7).scaled(0.36))
    return together(patches)


def atelectasis(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """Plates: one to three straight bands, nearly level."""
    patches = []
    for side in sides(finding):
        x, y = place(thorax, finding, side, rng, (0.56, 0.66))
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


def cavity(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A thick-walled ring around air."""
    half = (finding.size_mm or 40.0) / 2
    patches = []
    for side in sides(finding):
        at = place(thorax, finding, side, rng, (0.5, 0.62))
        outer = _blob(thorax, at, half, rng, 0.0, 0.14)
        frame = thorax.frame
        q = ellipse_distance(
            frame.x[outer.rows, outer.cols], frame.y[outer.rows, outer.cols], at, (half * 0.62, half * 0.60)
        )
        hole = solid(q, 0.2) * thorax.lungs[outer.rows, outer.cols]
        patches.append(Patch(outer.rows, outer.cols, np.float32(0.62) * outer.delta - np.float32(0.74) * hole))
    return together(patches)


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
