"""Draw findings on the lateral image; a finding without a row in `LATERAL` is not drawn there.

Lesions in the lungs are drawn by the functions of the frontal image, since a lateral thorax places them.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Side
from cxrlab.data.phantom import findings as frontal
from cxrlab.data.phantom.anatomy import grade
from cxrlab.data.phantom.findings import VEIN_END, Appearance, sides, together, tube
from cxrlab.data.phantom.image_plane import (
    CURVE_X,
    CURVE_Y,
    Array,
    Patch,
    cloud,
    ellipse_distance,
    smooth_path,
    solid,
    splat,
    step,
    stroke,
)
from cxrlab.data.phantom.lateral import LateralThorax


def effusion(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """Fluid that fills the angle between diaphragm and back first, with a meniscus that rises to the back."""
    a = thorax.anatomy
    rise = grade(finding, 34.0, 66.0, 108.0) * float(rng.uniform(0.93, 1.07))
    out = np.zeros_like(thorax.frame.x)
    for side in sides(finding):
        t = np.clip((CURVE_X + 30.0) / a.cage, 0.0, 1.1)
        surface = thorax.image.along_x(thorax.sulcus(side) - rise * (0.45 + 0.6 * t**2.4))
        out += np.float32(0.5) * step(thorax.frame.y - surface, 5.0) * thorax.lung_of[side]
    return _whole(thorax, out)


def thickening(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A band along the back of the chest wall with an uneven inner border."""
    thick, long = grade(finding, 10.0, 15.0, 21.0), grade(finding, 36.0, 46.0, 58.0)
    out = np.zeros_like(thorax.frame.x)
    for side in sides(finding):
        _, y = thorax.place(finding, side, rng, (0.9, 0.9))
        reach = np.clip(1.0 - ((CURVE_Y - y) / long) ** 2, 0.0, 1.0) ** 0.5
        wave = np.interp(CURVE_Y, np.arange(-60, 460, 9.0), rng.uniform(0.7, 1.2, 58))
        inward = thorax.image.along_y(thick * reach * wave) - (thorax.image.along_y(thorax.back) - thorax.frame.x)
        out += np.float32(0.4) * step(inward, 1.8) * thorax.lungs
    return _whole(thorax, out)


def edema(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """Haze around the hila, and fissures thickened by fluid."""
    frame, a = thorax.frame, thorax.anatomy
    x, y = thorax.hilum_at
    reach = grade(finding, 0.8, 1.0, 1.25)
    q = ellipse_distance(frame.x, frame.y, (x, y + 26.0), (78.0 * reach, 74.0 * reach))
    fluff = np.float32(1.0) + np.float32(0.55) * cloud(rng, q.shape, 16.0, 3)
    out = np.float32(grade(finding, 0.34, 0.46, 0.60)) * np.maximum(np.float32(1.0) - q, 0.0) * np.maximum(fluff, 0.2)
    high, low = a.carina_y - 24.0, a.dome(Side.RIGHT)
    for path in (
        [(thorax.at_height(thorax.back, high), high), (x, y + 12.0), (x - 50.0, low)],
        [(x, y + 12.0), (-80.0, y + 4.0)],
    ):
        line = stroke(frame, smooth_path(path), 1.6)
        out[line.rows, line.cols] += np.float32(0.24) * line.delta
    return _whole(thorax, out * thorax.lungs)


def interstitial(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A net of fine crossing lines, at the bases or the upper zones."""
    frame, a = thorax.frame, thorax.anatomy
    reach = grade(finding, 0.26, 0.36, 0.48)  # of the height of the lung
    count = round(2200 * reach)
    upper = finding.location in ("upper zone", "apex")
    down = rng.uniform(0.10, 0.10 + reach, count) if upper else rng.uniform(1.1 - reach, 1.25, count)
    y = a.apex + (a.dome_right - a.apex) * down
    front, back = np.interp(y, CURVE_Y, thorax.front), np.interp(y, CURVE_Y, thorax.back)
    x = front + rng.uniform(0.03, 0.97, count) * (back - front)
    angle, long = rng.uniform(0, np.pi, count), rng.uniform(5.0, 11.0, count)
    along = np.linspace(-0.5, 0.5, 9)
    px, py = x[:, None] + along * (long * np.cos(angle))[:, None], y[:, None] + along * (long * np.sin(angle))[:, None]
    net = splat(frame, px.ravel(), py.ravel(), np.full(px.size, 0.42 * min(1.0, 1.5 / frame.mm)), 1.6)
    delta = np.float32(grade(finding, 0.24, 0.28, 0.33)) * net.delta * thorax.lungs[net.rows, net.cols]
    return Patch(net.rows, net.cols, delta)


def hilum(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A lobed swelling around the bronchus; the right hilum lies in front of it, the left one above and behind."""
    x, y = thorax.hilum_at
    size = grade(finding, 19.0, 23.0, 28.0)
    patches = []
    for side in sides(finding):
        middle = (x - 10.0, y + 6.0) if side is Side.RIGHT else (x + 11.0, y - 10.0)
        for dx, dy, share in ((0.0, 0.0, 1.0), (0.4, -0.7, 0.62), (-0.4, 0.75, 0.66)):
            at = (middle[0] + dx * size, middle[1] + dy * size)
            box = thorax.region(*at, size, size)
            q = ellipse_distance(box.x, box.y, at, (size * share * 0.95, size * share))
            patches.append(Patch(box.rows, box.cols, np.float32(0.34) * solid(q, 0.3)))
    return together(patches)


def aortic_calcification(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A dense arc on the upper rim of the aortic arch."""
    a = thorax.anatomy
    half = grade(finding, 0.6, 0.95, 1.35)
    angle = np.linspace(-half, half, 24) - 0.9
    x = thorax.at_height(thorax.trachea, a.arch_y) + 16.0 + (1.9 * a.arch_radius - 2.0) * np.cos(angle)
    y = a.arch_y + 2.0 + (1.15 * a.arch_radius - 2.0) * np.sin(angle)
    return stroke(thorax.frame, np.stack([x, y], axis=1), grade(finding, 1.8, 2.4, 3.2)).scaled(1.1)


def hernia(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """The sac between heart and spine."""
    spine = thorax.at_height(thorax.spine, thorax.anatomy.dome_left)
    return frontal.hernia_sac(thorax, finding, spine - 44.0 + float(rng.uniform(-5.0, 5.0)))


def free_air(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A dark crescent under the front half of each named dome."""
    thick = np.float32(grade(finding, 9.0, 13.0, 18.0))
    out = np.zeros_like(thorax.frame.x)
    for side in sides(finding):
        t = (CURVE_X + 40.0) / (0.5 * thorax.anatomy.cage)
        depth = -thorax.above_dome(side) - np.float32(2.4)
        crescent = thorax.image.along_x(float(thick) * np.sqrt(np.maximum(1.0 - t * t, 0.0)))
        out -= np.float32(0.8) * step(depth, 0.9) * step(crescent - depth, 1.2) * step(thorax.wall, 2.0)
    return _whole(thorax, out)


def endotracheal(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A tube in the trachea that ends at the height of the frontal image."""
    a = thorax.anatomy
    if finding.tip == "right main bronchus":
        end = a.carina_y + 17.0
    else:
        height = finding.tip_mm if finding.tip_mm is not None else (85.0 if finding.tip == "high" else 40.0)
        end = max(a.carina_y - height, 14.0)
    y = np.linspace(-40.0, end, 12)
    return tube(thorax, np.stack([np.interp(y, CURVE_Y, thorax.trachea), y], axis=1), 8.5, 0.34, 0.75)


def enteric(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A thin tube behind the trachea and the heart, into the stomach or short of it."""
    low = thorax.anatomy.dome_left
    y = np.linspace(-40.0, low - 34.0, 9)
    points = list(zip(np.interp(y, CURVE_Y, thorax.spine) - 30.0, y, strict=True))
    x = points[-1][0]
    if finding.tip == "beyond image":
        points += [(x - 10.0, low - 8.0), (x - 30.0, low + 26.0), (x - 46.0, low + 120.0)]
    elif finding.tip != "distal esophagus":
        points += [(x - 10.0, low - 8.0), (x - 26.0, low + 14.0), (x - 52.0, low + 26.0), (x - 78.0, low + 24.0)]
    return stroke(thorax.frame, smooth_path(points), 3.2).scaled(0.85)


def central_line(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A catheter from the neck down the superior vena cava, in front of the trachea."""
    a = thorax.anatomy
    end = a.carina_y + VEIN_END.get(finding.tip or "", 4.0)
    y = np.linspace(-30.0, end, 9)
    x = np.interp(y, CURVE_Y, thorax.trachea) - 16.0 - 10.0 * np.clip((y - a.apex) / 60.0, 0.0, 1.0)
    return stroke(thorax.frame, smooth_path(np.stack([x, y], axis=1)), 2.6).scaled(1.0)


def chest_tube(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A wide tube from the flank, up to the apex or down to the sulcus."""
    a = thorax.anatomy
    patches = []
    for side in sides(finding):
        entry = (-6.0, a.widest - 10.0)
        if finding.tip == "base":
            points = [entry, (30.0, a.dome(side) - 6.0), (62.0, a.dome(side) + 2.0)]
        else:
            points = [entry, (26.0, a.apex + 110.0), (16.0, a.apex + 32.0)]
        patches.append(tube(thorax, smooth_path(points), 7.5, 0.42, 0.70))
    return together(patches)


def pacemaker(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A generator edge on under the skin in front, and one or two leads into the right heart."""
    a = thorax.anatomy
    y = a.clavicle_y + 26.0
    at = (thorax.at_height(thorax.front, y) - 13.0, y)
    box = thorax.region(*at, 12.0, 26.0)
    body = solid(ellipse_distance(box.x, box.y, at, (6.5, 22.0), 18.0), 0.15)
    patches = [Patch(box.rows, box.cols, np.float32(1.9) * body)]
    cava = thorax.at_height(thorax.trachea, a.carina_y) - 26.0
    (centre, middle), (long, _) = thorax.heart_at
    start = [(at[0] + 6.0, y - 12.0), (cava - 20.0, a.apex + 30.0), (cava, a.apex + 70.0), (cava, a.carina_y + 26.0)]
    ends = [[(centre + 0.1 * long, middle), (centre - 0.62 * long, middle + 26.0)]]
    if finding.tip == "right atrium and right ventricle":
        ends.append([(centre + 0.15 * long, middle - 12.0), (centre - 0.3 * long, middle - 22.0)])
    patches += [stroke(thorax.frame, smooth_path([*start, *end]), 2.0).scaled(1.1) for end in ends]
    return together(patches)


def sternal_cerclage(thorax: LateralThorax, finding: Finding, rng: np.random.Generator) -> Patch:
    """A column of wire loops around the breast bone, seen edge on."""
    a = thorax.anatomy
    angle = np.linspace(0.0, 2 * np.pi, 28)
    patches = []
    for y in np.linspace(a.apex + 58.0, a.heart_y + 4.0, 6):
        x = thorax.at_height(thorax.front, y) - 6.5
        loop = np.stack([x + 7.0 * np.cos(angle), y + 1.5 * np.sin(angle)], axis=1)
        patches.append(stroke(thorax.frame, loop, 1.4).scaled(1.9))
    return together(patches)


def _whole(thorax: LateralThorax, delta: Array) -> Patch:
    size = thorax.frame.size
    return Patch(slice(0, size), slice(0, size), delta)


# Lesions of one lung have three quarters of the contrast of the frontal image, since the other lung lies over them.
LATERAL: MappingProxyType[str, Appearance] = MappingProxyType(
    {
        "lung opacity": Appearance(0.09, frontal.opacity),
        "consolidation": Appearance(0.13, frontal.consolidation),
        "pneumonia": Appearance(0.09, frontal.pneumonia),
        "atelectasis": Appearance(0.09, frontal.atelectasis),
        "edema": Appearance(0.08, edema),
        "nodule": Appearance(0.10, frontal.nodule),
        "mass": Appearance(0.14, frontal.mass),
        "cavity": Appearance(0.12, frontal.cavity),
        "granuloma": Appearance(0.22, frontal.granuloma),
        "interstitial pattern": Appearance(0.07, interstitial),
        "pleural effusion": Appearance(0.16, effusion),
        "pleural thickening": Appearance(0.10, thickening),
        "pleural plaque": Appearance(0.10, frontal.plaque),
        "hilar enlargement": Appearance(0.11, hilum),
        "aortic calcification": Appearance(0.11, aortic_calcification),
        "hiatal hernia": Appearance(0.11, hernia, -1),
        "pneumoperitoneum": Appearance(0.12, free_air, -1),
        "endotracheal tube": Appearance(0.10, endotracheal),
        "enteric tube": Appearance(0.11, enteric),
        "central venous catheter": Appearance(0.12, central_line),
        "chest tube": Appearance(0.12, chest_tube),
        "pacemaker": Appearance(0.20, pacemaker),
        "sternal wires": Appearance(0.14, sternal_cerclage),
    }
)
