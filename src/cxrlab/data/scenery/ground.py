"""Grounds of the scenes: what fills the picture behind the objects.

Photographs share two statistics that these grounds copy: power falls as one over frequency, and
things cover each other at every scale. Colours stay muted and of middle brightness, so that a
bright or a dark object stands out on any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.floating[Any]]
Colour = NDArray[np.floating[Any]]

# Three tones each, dark to light, as red, green, blue in [0, 1].
PALETTES: Mapping[str, tuple[tuple[float, float, float], ...]] = MappingProxyType(
    {
        "earth": ((0.30, 0.22, 0.16), (0.49, 0.38, 0.28), (0.68, 0.58, 0.46)),
        "leaf": ((0.19, 0.27, 0.16), (0.36, 0.44, 0.26), (0.58, 0.62, 0.42)),
        "stone": ((0.28, 0.29, 0.31), (0.46, 0.47, 0.47), (0.66, 0.65, 0.62)),
        "sand": ((0.48, 0.40, 0.30), (0.64, 0.56, 0.43), (0.78, 0.71, 0.58)),
        "sea": ((0.16, 0.28, 0.34), (0.30, 0.45, 0.50), (0.55, 0.66, 0.68)),
        "dusk": ((0.30, 0.23, 0.32), (0.50, 0.38, 0.42), (0.72, 0.58, 0.52)),
    }
)


@lru_cache(maxsize=8)
def grid(size: int) -> tuple[Field, Field]:
    """Pixel centres in (0, 1): x to the right and y downwards, each [size, size]."""
    line = (np.arange(size, dtype=np.float32) + 0.5) / size
    x, y = np.meshgrid(line, line)
    return x, y


def noise(rng: np.random.Generator, size: int, slope: float = 1.0, stretch: tuple[float, float] = (1.0, 1.0)) -> Field:
    """A random field with amplitude f^-slope, mean 0 and deviation 1, [size, size].

    Args:
        rng: Source of randomness.
        size: Side in pixels.
        slope: 0 is white; 1 is natural; 2 is smooth like mist.
        stretch: Weights of the vertical and the horizontal frequency; unequal ones give grain.
    """
    fy, fx = np.fft.fftfreq(size)[:, None] * stretch[0], np.fft.rfftfreq(size)[None, :] * stretch[1]
    frequency = np.hypot(fy, fx)
    frequency[0, 0] = np.inf
    spectrum = np.fft.rfft2(rng.standard_normal((size, size))) * frequency**-slope
    field = np.fft.irfft2(spectrum, s=(size, size))
    return np.asarray(field / field.std(), np.float32)


def tones(rng: np.random.Generator, palette: str | None = None) -> Colour:
    """Three tones of one palette, slightly varied, [3, 3]."""
    name = palette or str(rng.choice(list(PALETTES)))
    base = np.array(PALETTES[name], np.float32)
    return np.clip(base + rng.normal(0.0, 0.03, (1, 3)) + rng.normal(0.0, 0.02, (3, 3)), 0.05, 0.9).astype(np.float32)


def coloured(level: Field, three: Colour) -> Field:
    """Paint a field of [0, 1] with three tones, dark to light: [H, W] → [H, W, 3]."""
    stops = np.array([0.0, 0.5, 1.0])
    return np.stack([np.interp(level, stops, three[:, c]) for c in range(3)], axis=-1).astype(np.float32)


def texture(rng: np.random.Generator, size: int) -> Field:
    """Stone, bark or cloth: one-over-f grain, sometimes stretched one way."""
    stretch = ((1.0, 1.0), (1.0, 4.0), (4.0, 1.0))[int(rng.choice(3, p=(0.6, 0.2, 0.2)))]
    level = 0.5 + 0.22 * noise(rng, size, float(rng.uniform(0.9, 1.4)), stretch)
    hue = 0.03 * noise(rng, size, 1.6)[..., None] * rng.normal(0.0, 1.0, 3).astype(np.float32)
    return coloured(level, tones(rng)) + hue


def leaves(rng: np.random.Generator, size: int) -> Field:
    """Dead leaves: opaque patches of power-law sizes that cover each other."""
    picture = np.empty((size, size, 3), np.float32)
    picture[:] = tones(rng)[1]
    palettes = [tones(rng) for _ in range(2)]
    for radius in _radii(rng, 170):
        _cover(picture, rng, float(radius), palettes[int(rng.integers(2))])
    # A common light falls on all of them, which binds the patches into one picture.
    light = 1.0 + 0.06 * noise(rng, size, 1.2)
    return picture * light[..., None]


def _radii(rng: np.random.Generator, count: int, least: float = 0.045, most: float = 0.26) -> NDArray[np.float64]:
    """Radii with density r^-3, which makes the picture look alike at every scale."""
    low, high = least**-2, most**-2
    return np.asarray((low - rng.random(count) * (low - high)) ** -0.5)


def _cover(picture: Field, rng: np.random.Generator, radius: float, three: Colour) -> None:
    """Paint one patch, an ellipse or a rounded box, inside its own bounding box."""
    size = picture.shape[0]
    cx, cy = rng.uniform(-0.05, 1.05, 2)
    turn, flat, power = rng.uniform(0, np.pi), rng.uniform(0.5, 1.0), rng.choice((2.0, 3.0))
    tone = coloured(np.array(rng.random()), three) + rng.normal(0.0, 0.03, 3).astype(np.float32)
    tone += 0.3 * (tone.mean() - tone)  # paler than any object, so that no patch is taken for one
    slope = rng.normal(0.0, 0.12, 2).astype(np.float32)
    low = np.maximum(np.floor((np.array([cx, cy]) - 1.2 * radius) * size).astype(int), 0)
    high = np.minimum(np.ceil((np.array([cx, cy]) + 1.2 * radius) * size).astype(int), size)
    if (high <= low).any():
        return
    x, y = grid(size)
    box = (slice(low[1], high[1]), slice(low[0], high[0]))
    dx, dy = (x[box] - cx) / radius, (y[box] - cy) / radius
    u, v = dx * np.cos(turn) + dy * np.sin(turn), (dy * np.cos(turn) - dx * np.sin(turn)) / flat
    distance = (np.abs(u) ** power + np.abs(v) ** power) ** (1.0 / power)
    cover = np.clip(0.5 + (1.0 - distance) * radius * flat * size, 0.0, 1.0)[..., None]
    shade = (1.0 + slope[0] * dx + slope[1] * dy - 0.10 * distance**4)[..., None]
    picture[box] += cover * (tone * shade - picture[box])


def landscape(rng: np.random.Generator, size: int) -> Field:
    """A sky with clouds above ridges of hills, each nearer one darker and more grained."""
    x, y = grid(size)
    sky = tones(rng, str(rng.choice(("sea", "dusk", "stone"))))
    clouds = np.clip(0.5 * noise(rng, size, 1.5, (1.6, 1.0)), 0.0, 1.0)
    picture = coloured(np.clip(0.35 + 0.55 * y + 0.30 * clouds, 0.0, 1.0), sky)
    ground = tones(rng, str(rng.choice(("earth", "leaf", "sand"))))
    horizon, layers = rng.uniform(0.4, 0.65), int(rng.integers(1, 4))
    grain = noise(rng, size, 1.0, (2.0, 1.0))
    for layer in range(layers):
        share = (layer + 1) / layers
        ridge = horizon + layer * rng.uniform(0.08, 0.14) + 0.05 * noise(rng, size, 1.7)[0] / share
        cover = np.clip(0.5 + (y - ridge[None, :]) * size, 0.0, 1.0)[..., None]
        near = np.clip(0.75 - 0.4 * share + 0.10 * share * grain + 0.2 * (y - horizon), 0.0, 1.0)
        # What is far takes on the colour of the sky.
        hill = coloured(near, ground) * share + (0.6 * picture + 0.12) * (1.0 - share)
        picture += cover * (hill - picture)
    return picture


def haze(rng: np.random.Generator, size: int) -> Field:
    """An out-of-focus background: a smooth gradient with soft discs of light."""
    x, y = grid(size)
    angle = rng.uniform(0, 2 * np.pi)
    level = 0.5 + 0.4 * ((x - 0.5) * np.cos(angle) + (y - 0.5) * np.sin(angle)) + 0.10 * noise(rng, size, 2.0)
    picture = coloured(np.clip(level, 0.0, 1.0).astype(np.float32), tones(rng))
    for radius in rng.uniform(0.05, 0.14, int(rng.integers(8, 20))):
        cx, cy, strength = rng.uniform(0, 1), rng.uniform(0, 1), rng.normal(0.0, 0.05)
        distance = np.hypot(x - cx, y - cy)
        picture += (strength * np.clip(0.5 + (radius - distance) / 0.05, 0.0, 1.0))[..., None]
    return picture


GROUNDS: Mapping[str, Callable[[np.random.Generator, int], Field]] = MappingProxyType(
    {"texture": texture, "leaves": leaves, "landscape": landscape, "haze": haze}
)


def paint_ground(rng: np.random.Generator, size: int) -> tuple[str, Field]:
    """A ground of random kind: its name and the picture [size, size, 3], in [0.08, 0.85] with fine image grain."""
    kind = str(rng.choice(list(GROUNDS)))
    picture = GROUNDS[kind](rng, size)
    grain = rng.normal(0.0, 0.012, (size, size, 1)).astype(np.float32)
    return kind, np.clip(picture + grain, 0.08, 0.85)
