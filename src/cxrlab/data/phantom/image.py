"""From attenuation to an image: tone, blur, scatter, noise, collimation and the burned-in side marker."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from cxrlab.core.vocabulary import View
from cxrlab.data.phantom.frame import Array, Frame, cloud, step
from cxrlab.data.phantom.presets import Preset

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
    image = _spread(image, exposure, frame)
    np.clip(image, 0.0, 1.0, out=image)
    image **= np.float32(exposure.gamma)
    noise = rng.standard_normal((size, size), dtype=np.float32)
    image += noise * (np.float32(exposure.noise) * (np.float32(0.55) + np.float32(0.9) * image))
    if exposure.grid:
        image += np.float32(exposure.grid) * np.cos(np.arange(size, dtype=np.float32) * np.float32(2.1))[None, :]
    if exposure.border:
        image *= _collimator(size, exposure.border)
    _stamp(image, exposure)
    return np.clip(image, 0.0, 1.0)


@cache
def _squared_frequency(size: int) -> Array:
    """Cycles a pixel, squared, on the half plane of a real transform: [S, S // 2 + 1]."""
    fy = np.fft.fftfreq(size).astype(np.float32)[:, None]
    fx = np.fft.rfftfreq(size).astype(np.float32)[None, :]
    f2: Array = fy * fy + fx * fx
    return f2


def _spread(image: Array, exposure: Exposure, frame: Frame) -> Array:
    """Focal blur and wide scatter in one pass through the Fourier plane."""
    size = frame.size
    f2 = _squared_frequency(size)
    sharp = np.float32(-2.0 * np.pi**2 * (exposure.blur_mm / frame.mm) ** 2)
    wide = np.float32(-2.0 * np.pi**2 * (38.0 / frame.mm) ** 2)
    transfer = np.float32(1.0 - exposure.scatter) * np.exp(sharp * f2) + np.float32(exposure.scatter) * np.exp(
        wide * f2
    )
    out: Array = np.fft.irfft2(np.fft.rfft2(image) * transfer, s=(size, size)).astype(np.float32)
    return out


def _collimator(size: int, border: tuple[float, float, float, float]) -> Array:
    at = np.arange(size, dtype=np.float32) / np.float32(size)
    top, bottom, left, right = border
    rows = step(at - np.float32(top), 0.004) * step(np.float32(1 - bottom) - at, 0.004)
    cols = step(at - np.float32(left), 0.004) * step(np.float32(1 - right) - at, 0.004)
    return rows[:, None] * cols[None, :]


def _stamp(image: Array, exposure: Exposure) -> None:
    """Burn the marker in: the first letter names the side that it stands on."""
    size = image.shape[0]
    scale = max(1, round(size / 128))
    row = int(exposure.marker_at[1] * size)
    col = int(exposure.marker_at[0] * size) - 3 * scale * len(exposure.marker)
    for letter in exposure.marker:
        glyph = np.array([[bit == "1" for bit in line] for line in LETTERS[letter]]).repeat(scale, 0).repeat(scale, 1)
        r, c = min(row, size - glyph.shape[0]), min(max(col, 0), size - glyph.shape[1])
        area = image[r : r + glyph.shape[0], c : c + glyph.shape[1]]
        area[glyph] = np.maximum(area[glyph], 0.93)
        col += 6 * scale
