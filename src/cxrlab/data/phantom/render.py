"""Render one visit of one patient: a frontal image and the exact mask of every finding on it, and a lateral image.

A mask is where the noise-free image would look different without the finding. Anatomy, exposure, noise and each finding
have generators of their own, so the same visit without a finding differs by that finding and what it moves alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.randomness import generator, uniform
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Severity, View
from cxrlab.data.phantom.acquisition_presets import Preset
from cxrlab.data.phantom.acquisition_presets import preset as preset_named
from cxrlab.data.phantom.anatomy import RESHAPES, at_visit, draw_anatomy, reshape, strength
from cxrlab.data.phantom.findings import APPEARANCE, Appearance
from cxrlab.data.phantom.image_plane import Array, Frame, Patch, cloud, step
from cxrlab.data.phantom.lateral import LateralThorax, draw_lateral_shoulders, draw_lateral_vessels, project_lateral
from cxrlab.data.phantom.lateral_findings import LATERAL
from cxrlab.data.phantom.thorax import Thorax, draw_shoulders, draw_vessels, project

MASK_SHARE = 0.2  # of a finding's peak difference: below it, a pixel is outside the mask
MOST_TRIES = 10  # strengthenings of a drawing that falls short of its contrast
HIDDEN = 0.1  # share of its contrast that a hidden finding has on the frontal image
MASK_LEAST = 0.008  # least difference of image density inside a mask
HIDEABLE = frozenset({"lung opacity", "consolidation", "pneumonia", "atelectasis"})


@dataclass(frozen=True)
class PhantomPatient:
    """The properties of a patient that are the same at all visits."""

    seed: int
    patient: str
    sex: str
    age: float


@dataclass(frozen=True)
class RenderedImage:
    """A finished radiograph."""

    image: Array
    masks: dict[int, NDArray[np.bool_]]  # index of a present finding → bool [S, S]
    contrast: dict[int, float]  # index → mean change of image density inside the mask, without noise and blur


def render(
    patient: PhantomPatient,
    visit: int,
    view: View,
    findings: Sequence[Finding],
    size: int = 224,
    preset: str = "standard",
    masks: bool = True,
    hidden: Collection[Finding] = (),
) -> RenderedImage:
    """Draw one frontal image (PA or AP); masks are optional, since they take a fifth of the time.

    Args:
        hidden: Findings behind the heart or the top of the diaphragm, drawn with a tenth of their contrast and
            without a mask.
    """
    machine = preset_named(preset)
    seed, name = patient.seed, patient.patient
    healthy = draw_anatomy(generator(seed, "anatomy", name), patient.sex, patient.age, machine)
    healthy = at_visit(healthy, generator(seed, "breath", name, visit), view)
    exposure = draw_exposure(generator(seed, "exposure", name, visit), machine, view)
    frame = Frame(size, exposure.turn, exposure.shift, exposure.zoom)
    anatomy = reshape(healthy, findings)
    thorax = Thorax(frame, anatomy)
    thorax.vessels = draw_vessels(thorax, generator(seed, "vessels", name))
    thorax.shoulders = draw_shoulders(thorax)
    mu = project(thorax)
    radiograph = _Layers(mu, masks)
    for index, finding in enumerate(findings):
        row = APPEARANCE[finding.observation]
        if finding.present and row.draw is not None:
            patch = row.draw(thorax, finding, _lesion(patient, finding))
            radiograph.add(index, row, strength(finding) * (HIDDEN if finding in hidden else 1.0), patch)
            if finding in hidden:
                radiograph.masks.pop(index, None)
    # Masks of the findings that changed the chest itself: project it once more without each.
    for index, finding in enumerate(findings if masks else ()):
        if finding.observation in RESHAPES and finding.present:
            row = APPEARANCE[finding.observation]
            others = [other for other in findings if other is not finding]
            without = radiograph.mu - mu + project(thorax.reshaped(reshape(healthy, others)))
            difference = (tone(radiograph.mu) - tone(np.maximum(without, np.float32(0.005)))) * np.float32(row.sign)
            radiograph.masks[index], radiograph.contrast[index] = _inside(difference, row.contrast)
    image = develop(radiograph.mu, exposure, frame, generator(seed, "noise", name, visit))
    return RenderedImage(image, radiograph.masks, radiograph.contrast)


def render_lateral(
    patient: PhantomPatient,
    visit: int,
    findings: Sequence[Finding],
    size: int = 224,
    preset: str = "standard",
    hidden: Collection[Finding] = (),
) -> Array:
    """Draw the lateral image of a visit: the same body, breath and findings, taken upright, without masks."""
    machine = preset_named(preset)
    seed, name = patient.seed, patient.patient
    healthy = draw_anatomy(generator(seed, "anatomy", name), patient.sex, patient.age, machine)
    healthy = at_visit(healthy, generator(seed, "breath", name, visit), View.LATERAL)
    exposure = draw_exposure(generator(seed, "lateral exposure", name, visit), machine, View.LATERAL)
    frame = Frame(size, exposure.turn, exposure.shift, exposure.zoom)
    thorax = LateralThorax(frame, reshape(healthy, findings), hidden)
    thorax.vessels = draw_lateral_vessels(thorax, generator(seed, "lateral vessels", name))
    thorax.shoulders = draw_lateral_shoulders(thorax)
    radiograph = _Layers(project_lateral(thorax), keep_masks=False)
    for index, finding in enumerate(findings):
        row = LATERAL.get(finding.observation)
        if finding.present and row is not None and row.draw is not None:
            radiograph.add(index, row, strength(finding), row.draw(thorax, finding, _lesion(patient, finding)))
    return develop(radiograph.mu, exposure, frame, generator(seed, "lateral noise", name, visit))


def hidden_findings(patient: PhantomPatient, findings: Sequence[Finding], share: float) -> tuple[Finding, ...]:
    """The findings that the frontal image hardly shows: a share of small effusions and of opacities of the lower zone.

    The choice depends on the lesion, so that it stays hidden from visit to visit until an effusion grows.
    """
    return tuple(finding for finding in findings if _may_hide(finding) and _hides(patient, finding) < share)


def _may_hide(finding: Finding) -> bool:
    if not finding.present:
        return False
    if finding.observation == "pleural effusion":
        return finding.severity in (Severity.TRACE, Severity.MILD)
    return finding.observation in HIDEABLE and finding.location == "lower zone"


def _hides(patient: PhantomPatient, finding: Finding) -> float:
    """A number of [0, 1) that belongs to the lesion."""
    place = (finding.observation, str(finding.side), str(finding.location))
    return uniform(patient.seed, "hidden", patient.patient, *place)


def _lesion(patient: PhantomPatient, finding: Finding) -> np.random.Generator:
    """The generator of a lesion's form, the same at every visit and in both views."""
    place = (finding.observation, str(finding.side), str(finding.location))
    return generator(patient.seed, "finding", patient.patient, *place)


class _Layers:
    """The attenuation so far, and what each finding added to it."""

    def __init__(self, mu: Array, keep_masks: bool):
        self.mu = mu.copy()
        self.masks: dict[int, NDArray[np.bool_]] = {}
        self.contrast: dict[int, float] = {}
        self._keep = keep_masks

    def add(self, index: int, row: Appearance, share: float, patch: Patch) -> None:
        """Add a drawing at no less than this share of its stated contrast."""
        area = self.mu[patch.rows, patch.cols]
        before = tone(area)
        target = row.contrast * share
        for _ in range(MOST_TRIES):
            after = np.maximum(area + patch.delta, np.float32(0.005))
            inside, mean = _inside((tone(after) - before) * np.float32(row.sign), target)
            faint = target < row.contrast
            if mean <= 0.0 or (mean >= target and not (faint and mean > 1.1 * target)):
                break
            patch = patch.scaled(min(max(target / mean, 0.25), 2.5) * (1.0 if faint else 1.05))
        self.mu[patch.rows, patch.cols] = after
        self.contrast[index] = mean
        if self._keep:
            mask = np.zeros(self.mu.shape, dtype=np.bool_)
            mask[patch.rows, patch.cols] = inside
            self.masks[index] = mask


def _inside(difference: Array, contrast: float) -> tuple[NDArray[np.bool_], float]:
    """The mask of a signed difference of density, and the mean in it; the peak counts up to twice the contrast."""
    level = max(MASK_LEAST, MASK_SHARE * min(float(difference.max()), 2.0 * contrast))
    inside = difference > np.float32(level)
    return inside, float(difference[inside].mean()) if inside.any() else 0.0


# 5 × 7 letters of the side marker.
LETTERS = {
    "L": ("10000", "10000", "10000", "10000", "10000", "10000", "11111"),
    "R": ("11110", "10001", "10001", "11110", "10100", "10010", "10001"),
    "A": ("01110", "10001", "10001", "11111", "10001", "10001", "10001"),
    "P": ("11110", "10001", "10001", "11110", "10000", "10000", "10000"),
}


@dataclass(frozen=True)
class Exposure:
    """How one image was taken; drawn from a preset's ranges."""

    gain: float
    gamma: float
    noise: float
    blur_mm: float
    scatter: float
    turn: float
    shift: tuple[float, float]
    zoom: float
    border: tuple[float, float, float, float] | None
    grid: float
    marker: str
    marker_at: tuple[float, float]


def draw_exposure(rng: np.random.Generator, preset: Preset, view: View) -> Exposure:
    """Everything about an image that is not the patient."""

    def between(limits: tuple[float, float]) -> float:
        return float(rng.uniform(*limits))

    portable = view is View.AP
    border = tuple(float(v) for v in rng.uniform(0.0, 0.05, 4)) if rng.random() < preset.collimation else None
    side = "L" if rng.random() < 0.75 else "R"
    across = rng.uniform(0.07, 0.14)
    down = rng.uniform(0.05, 0.11) if preset.marker_corner == "top" else rng.uniform(0.84, 0.9)
    return Exposure(
        gain=between(preset.exposure) * (0.96 if portable else 1.0),
        gamma=between(preset.gamma),
        noise=between(preset.noise) * (1.3 if portable else 1.0),
        blur_mm=between(preset.blur_mm) * (1.25 if portable else 1.0),
        scatter=between(preset.scatter) * (1.3 if portable else 1.0),
        turn=between(preset.turn) * (1.4 if portable else 1.0),
        shift=(between(preset.shift_mm), between(preset.shift_mm)),
        zoom=between(preset.zoom) * (1.03 if portable else 1.0),
        border=border,  # type: ignore[arg-type]
        grid=preset.grid,
        marker=side + ("AP" if portable and rng.random() < 0.7 else ""),
        marker_at=(1.0 - across if side == "L" else across, down),
    )


def tone(mu: Array) -> Array:
    """Image density of an attenuation: 0 black for air, towards 1 for metal; always rising."""
    return np.float32(1.0) - np.exp(-mu)


def develop(mu: Array, exposure: Exposure, frame: Frame, rng: np.random.Generator) -> Array:
    """The finished image, float32 in [0, 1], of an attenuation [S, S]."""
    size = frame.size
    mu = mu * (np.float32(1.0) + np.float32(0.035) * cloud(rng, (size, size), 9.0))
    image = tone(mu * np.float32(exposure.gain))
    # Focal blur and wide scatter in one pass through the Fourier plane.
    f2 = _squared_frequency(size)
    sharp = np.float32(-2.0 * np.pi**2 * (exposure.blur_mm / frame.mm) ** 2)
    wide = np.float32(-2.0 * np.pi**2 * (38.0 / frame.mm) ** 2)
    transfer = np.float32(1.0 - exposure.scatter) * np.exp(sharp * f2)
    transfer = transfer + np.float32(exposure.scatter) * np.exp(wide * f2)
    image = np.fft.irfft2(np.fft.rfft2(image) * transfer, s=(size, size)).astype(np.float32)
    np.clip(image, 0.0, 1.0, out=image)
    image **= np.float32(exposure.gamma)
    noise = rng.standard_normal((size, size), dtype=np.float32)
    image += noise * (np.float32(exposure.noise) * (np.float32(0.55) + np.float32(0.9) * image))
    if exposure.grid:
        image += np.float32(exposure.grid) * np.cos(np.arange(size, dtype=np.float32) * np.float32(2.1))[None, :]
    if exposure.border:
        at = np.arange(size, dtype=np.float32) / np.float32(size)
        top, bottom, left, right = exposure.border
        rows = step(at - np.float32(top), 0.004) * step(np.float32(1 - bottom) - at, 0.004)
        cols = step(at - np.float32(left), 0.004) * step(np.float32(1 - right) - at, 0.004)
        image *= rows[:, None] * cols[None, :]
    # The side marker: its first letter names its side.
    scale = max(1, round(size / 128))
    row = int(exposure.marker_at[1] * size)
    col = int(exposure.marker_at[0] * size) - 3 * scale * len(exposure.marker)
    for letter in exposure.marker:
        glyph = np.array([[bit == "1" for bit in line] for line in LETTERS[letter]]).repeat(scale, 0).repeat(scale, 1)
        r, c = min(row, size - glyph.shape[0]), min(max(col, 0), size - glyph.shape[1])
        area = image[r : r + glyph.shape[0], c : c + glyph.shape[1]]
        area[glyph] = np.maximum(area[glyph], 0.93)
        col += 6 * scale
    return np.clip(image, 0.0, 1.0)


@cache
def _squared_frequency(size: int) -> Array:
    """Cycles per pixel, squared, on the half plane of a real transform: [S, S // 2 + 1]."""
    fy = np.fft.fftfreq(size).astype(np.float32)[:, None]
    fx = np.fft.rfftfreq(size).astype(np.float32)[None, :]
    f2: Array = fy * fy + fx * fx
    return f2
