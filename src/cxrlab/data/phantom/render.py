"""One visit of one patient → one image and the exact mask of every finding on it.

A mask is where the noise-free image would look different without the finding, in the finding's own
direction (whiter or darker). Anatomy, exposure, noise and each finding have generators of their own,
so the same visit without one finding differs from the full one by that finding, and by what it moves,
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import View
from cxrlab.data.phantom.anatomy import RESHAPES, Anatomy, at_visit, draw_anatomy, reshape, strength
from cxrlab.data.phantom.appearance import APPEARANCE
from cxrlab.data.phantom.frame import Array, Frame, Patch
from cxrlab.data.phantom.image import develop, draw_exposure, tone
from cxrlab.data.phantom.presets import preset as preset_named
from cxrlab.data.phantom.projection import draw_shoulders, draw_vessels, project
from cxrlab.data.phantom.thorax import Thorax

MASK_SHARE = 0.2  # of a finding's peak difference: below it, a pixel is outside the mask
MOST_TRIES = 10  # strengthenings of a drawing that falls short of its contrast
MASK_LEAST = 0.008  # image density that no mask goes below


@dataclass(frozen=True)
class Sitter:
    """Who is in front of the machine: what stays the same over all visits of a patient."""

    seed: int
    patient: str
    sex: str
    age: float


@dataclass(frozen=True)
class RenderedImage:
    """A finished radiograph.

    Args:
        image: float32 [S, S] in [0, 1].
        masks: Index of a present finding → bool [S, S].
        contrast: Index → mean change of image density inside the mask, without noise and blur.
    """

    image: Array
    masks: dict[int, NDArray[np.bool_]]
    contrast: dict[int, float]


def render(
    sitter: Sitter,
    visit: int,
    view: View,
    findings: Sequence[Finding],
    size: int = 224,
    preset: str = "standard",
    masks: bool = True,
) -> RenderedImage:
    """Draw one image.

    Args:
        sitter: The patient.
        visit: Number of the visit; another breath, position and exposure for each.
        view: PA or AP.
        findings: What is on the image; absent ones are skipped.
        size: Pixels a side.
        preset: A name of `presets.PRESETS`.
        masks: Whether to work the masks out (a fifth of the time).
    """
    machine = preset_named(preset)
    seed, patient = sitter.seed, sitter.patient
    healthy = draw_anatomy(generator(seed, "anatomy", patient), sitter.sex, sitter.age, machine)
    healthy = at_visit(healthy, generator(seed, "breath", patient, visit), view)
    exposure = draw_exposure(generator(seed, "exposure", patient, visit), machine, view)
    frame = Frame(size, exposure.turn, exposure.shift, exposure.zoom)
    anatomy = reshape(healthy, findings)
    thorax = Thorax(frame, anatomy)
    thorax.vessels = draw_vessels(thorax, generator(seed, "vessels", patient))
    thorax.shoulders = draw_shoulders(thorax)
    mu = project(thorax)
    radiograph = _Layers(mu, masks)
    for index, finding in enumerate(findings):
        draw = APPEARANCE[finding.observation].draw
        if finding.present and draw is not None:
            rng = generator(seed, "finding", patient, finding.observation, str(finding.side), str(finding.location))
            radiograph.add(index, finding, draw(thorax, finding, rng))
    if masks:
        _mask_reshaped(radiograph, healthy, findings, thorax, mu)
    image = develop(radiograph.mu, exposure, frame, generator(seed, "noise", patient, visit))
    return RenderedImage(image, radiograph.masks, radiograph.contrast)


class _Layers:
    """The attenuation so far, and what each finding added to it."""

    def __init__(self, mu: Array, masks: bool):
        self.mu = mu.copy()
        self.masks: dict[int, NDArray[np.bool_]] = {}
        self.contrast: dict[int, float] = {}
        self._keep = masks

    def add(self, index: int, finding: Finding, patch: Patch) -> None:
        """Add a drawing at no less than its stated contrast."""
        row = APPEARANCE[finding.observation]
        area = self.mu[patch.rows, patch.cols]
        before = tone(area)
        target = row.contrast * strength(finding)
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
    """The mask of a signed difference of image density, and the mean difference in it.

    The peak counts up to twice the contrast: the white box of a pacemaker must not hide its leads.
    """
    level = max(MASK_LEAST, MASK_SHARE * min(float(difference.max()), 2.0 * contrast))
    inside = difference > np.float32(level)
    return inside, float(difference[inside].mean()) if inside.any() else 0.0


def _mask_reshaped(image: _Layers, healthy: Anatomy, findings: Sequence[Finding], thorax: Thorax, mu: Array) -> None:
    """Masks of the findings that changed the chest itself: project it once more without each."""
    for index, finding in enumerate(findings):
        if finding.observation not in RESHAPES or not finding.present:
            continue
        row = APPEARANCE[finding.observation]
        others = [other for other in findings if other is not finding]
        without = image.mu - mu + project(thorax.reshaped(reshape(healthy, others)))
        difference = tone(image.mu) - tone(np.maximum(without, np.float32(0.005)))
        image.masks[index], image.contrast[index] = _inside(difference * np.float32(row.sign), row.contrast)
