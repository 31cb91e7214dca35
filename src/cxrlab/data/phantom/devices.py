"""Lines, tubes and hardware, each ending where the finding says its tip lies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Side
from cxrlab.data.phantom.frame import Patch, normals, smooth_path, step, stroke
from cxrlab.data.phantom.lung import sides, together
from cxrlab.data.phantom.thorax import SIGN, Thorax


def _tube(thorax: Thorax, path: NDArray[np.float64], width: float, wall: float, stripe: float) -> Patch:
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
    return _tube(thorax, smooth_path(points), 8.5, 0.34, 0.75)


def enteric(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A thin tube down the oesophagus, into the stomach or short of it."""
    a = thorax.anatomy
    lean = float(0.3 * thorax.spine_at(150.0))
    # Behind and to the left of the trachea, so that it is told from a tube inside it.
    points = [(lean + 7.0, -40.0), (lean + 9.0, 60.0), (lean + 10.0, 130.0)]
    low = a.dome_left
    if finding.tip == "distal esophagus":
        points += [(lean + 11.0, low - 34.0)]
    elif finding.tip == "beyond film":
        points += [(lean + 12.0, low - 20.0), (lean + 26.0, low + 22.0), (lean + 40.0, low + 120.0)]
    else:
        points += [
            (lean + 12.0, low - 20.0),
            (lean + 22.0, low + 10.0),
            (0.40 * a.cage, low + 26.0),
            (0.60 * a.cage, low + 24.0),
        ]
    return stroke(thorax.frame, smooth_path(points), 3.2).scaled(0.85)


_VEIN_END = {
    "brachiocephalic vein": -22.0,
    "superior vena cava": 4.0,
    "cavoatrial junction": 30.0,
    "right atrium": 58.0,
}


def central_line(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A catheter from the neck or under the clavicle into the superior vena cava."""
    a = thorax.anatomy
    patches = []
    end = a.carina_y + _VEIN_END.get(finding.tip or "", 4.0)
    for side in sides(finding):
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
        patches.append(stroke(thorax.frame, smooth_path(points), 2.6).scaled(1.0))
    return together(patches)


def chest_tube(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A wide tube through the chest wall, up to the apex or along the base."""
    a = thorax.anatomy
    patches = []
    for side in sides(finding):
        s = SIGN[side]
        entry_y = a.widest - 22.0
        entry = (s * (float(thorax.cage_at(entry_y)) + 36.0), entry_y + 26.0)
        wall = (s * (float(thorax.cage_at(entry_y)) - 4.0), entry_y)
        if finding.tip == "base":
            points = [entry, wall, (s * 0.66 * a.cage, a.dome(side) - 26.0), (s * 0.36 * a.cage, a.dome(side) - 18.0)]
        else:
            points = [entry, wall, (s * 0.68 * a.cage, a.apex + 95.0), (s * 0.40 * a.cage, a.apex + 30.0)]
        patches.append(_tube(thorax, smooth_path(points), 7.5, 0.42, 0.70))
    return together(patches)


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
        start = [
            (s * 82.0, a.clavicle_y + 12.0),
            (s * 48.0, a.clavicle_y + 8.0),
            (-14.0, a.apex + 60.0),
            (-20.0, a.carina_y + 26.0),
        ]
        ends = [[(-20.0, a.heart_y + 10.0), (16.0, a.heart_y + 34.0), (44.0, a.heart_y + 30.0)]]
        if finding.tip == "right atrium and right ventricle":
            ends.append([(-24.0, a.heart_y - 6.0), (-34.0, a.heart_y - 16.0)])
        for end in ends:
            patches.append(stroke(frame, smooth_path([*start, *end]), 2.0).scaled(1.1))
    return together(patches)


def sternal_wires(thorax: Thorax, finding: Finding, rng: np.random.Generator) -> Patch:
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
