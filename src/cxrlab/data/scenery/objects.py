"""Objects of the scenes: what is where, how large, how bright, of which colour; and how it is painted.

Sides are those of the picture as it is looked at: `left` is the viewer's left. (On a chest radiograph the
words mean the patient's sides; a scene has no patient.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.data.scenery.ground import Field, grid, noise

SIDES: Mapping[str, float] = MappingProxyType({"left": 0.2, "centre": 0.5, "right": 0.8})
HEIGHTS: Mapping[str, float] = MappingProxyType({"top": 0.2, "middle": 0.5, "bottom": 0.8})
SIZES: Mapping[str, tuple[float, float]] = MappingProxyType({"small": (0.07, 0.10), "large": (0.16, 0.20)})
BRIGHTNESSES = ("bright", "dark")
# Bright and dark variant; every bright one is lighter than every dark one by 0.1 in luminance.
COLOURS: Mapping[str, tuple[tuple[float, float, float], tuple[float, float, float]]] = MappingProxyType(
    {
        "red": ((1.00, 0.36, 0.32), (0.42, 0.03, 0.05)),
        "orange": ((1.00, 0.64, 0.20), (0.46, 0.20, 0.02)),
        "yellow": ((1.00, 0.92, 0.32), (0.38, 0.33, 0.02)),
        "green": ((0.48, 0.94, 0.42), (0.02, 0.26, 0.08)),
        "blue": ((0.42, 0.70, 1.00), (0.03, 0.10, 0.44)),
        "purple": ((0.84, 0.56, 1.00), (0.24, 0.04, 0.36)),
        "grey": ((0.92, 0.92, 0.92), (0.12, 0.12, 0.13)),
    }
)
_JITTER = 0.045
_GAP = 0.05


@dataclass(frozen=True)
class SceneObject:
    """One thing in a scene; words are the truth that a caption tells, numbers say where it was painted.

    Args:
        shape: A name of `SHAPES`.
        side: left, centre or right, of the picture.
        height: top, middle or bottom.
        size: small or large.
        brightness: bright or dark.
        colour: A name of `COLOURS`.
        x: Middle, as a share of the width from the left.
        y: Middle, as a share of the height from the top.
        radius: Half the extent, as a share of the picture's side.
        turn: Rotation in radians.
    """

    shape: str
    side: str
    height: str
    size: str
    brightness: str
    colour: str
    x: float
    y: float
    radius: float
    turn: float

    def to_json(self) -> dict[str, Any]:
        """Plain values, numbers to four digits."""
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}


def _star(u: Field, v: Field) -> Field:
    """Five points: the plane is folded into one tenth, where the edge is a straight line."""
    angle = np.abs(np.mod(np.arctan2(u, -v) + np.pi / 5, 2 * np.pi / 5) - np.pi / 5)
    along, across = np.hypot(u, v) * np.cos(angle), np.hypot(u, v) * np.sin(angle)
    inner, tip = 0.48, 1.1
    edge = np.array([inner * np.cos(np.pi / 5) - tip, inner * np.sin(np.pi / 5)])
    normal = np.array([edge[1], -edge[0]]) / np.hypot(*edge)
    return np.asarray((along - tip) * normal[0] + across * normal[1], np.float32)


def _crescent(u: Field, v: Field) -> Field:
    return np.asarray(np.maximum(np.hypot(u, v) - 1.0, 0.85 - np.hypot(u - 0.5, v)))


# Signed distance to the outline, negative inside, for an object of radius 1.
SHAPES: Mapping[str, Callable[[Field, Field], Field]] = MappingProxyType(
    {
        "disc": lambda u, v: np.hypot(u, v) - 1.0,
        "square": lambda u, v: np.maximum(np.abs(u), np.abs(v)) - 0.88,
        "triangle": lambda u, v: np.maximum(np.abs(u) * 0.88 - v * 0.47 - 0.5, v - 0.72),
        "ring": lambda u, v: np.abs(np.hypot(u, v) - 0.76) - 0.24,
        "star": _star,
        "cross": lambda u, v: np.minimum(
            np.maximum(np.abs(u) - 0.3, np.abs(v) - 1.0), np.maximum(np.abs(u) - 1.0, np.abs(v) - 0.3)
        ),
        "bar": lambda u, v: np.maximum(np.abs(u) - 1.1, np.abs(v) - 0.33),
        "crescent": _crescent,
    }
)


def place_objects(rng: np.random.Generator) -> tuple[SceneObject, ...]:
    """None, one or two objects that do not touch; two never share a side-and-height."""
    count = int(rng.choice(3, p=(0.06, 0.60, 0.34)))
    placed: list[SceneObject] = []
    while len(placed) < count:
        one = _random_object(rng)
        if all(np.hypot(one.x - other.x, one.y - other.y) > one.radius + other.radius + _GAP for other in placed):
            placed.append(one)
    return tuple(placed)


def _random_object(rng: np.random.Generator) -> SceneObject:
    side, height, size, brightness, colour, shape = (
        str(rng.choice(list(words))) for words in (SIDES, HEIGHTS, SIZES, BRIGHTNESSES, COLOURS, SHAPES)
    )
    radius = float(rng.uniform(*SIZES[size]))
    middle = np.array([SIDES[side], HEIGHTS[height]]) + rng.uniform(-_JITTER, _JITTER, 2)
    x, y = (float(value) for value in np.clip(middle, radius + 0.01, 0.99 - radius))
    return SceneObject(shape, side, height, size, brightness, colour, x, y, radius, float(rng.uniform(-0.25, 0.25)))


def coverage(one: SceneObject, size: int, softness: float = 1.0, shift: float = 0.0) -> NDArray[np.float32]:
    """How much of each pixel the object covers, [size, size] in [0, 1].

    Args:
        one: The object.
        size: Side of the picture in pixels.
        softness: Width of the edge in pixels.
        shift: Move it down and to the right by this share of the side (for a shadow).
    """
    x, y = grid(size)
    dx, dy = (x - one.x - shift) / one.radius, (y - one.y - shift) / one.radius
    cos, sin = np.cos(one.turn), np.sin(one.turn)
    distance = SHAPES[one.shape](dx * cos + dy * sin, dy * cos - dx * sin)
    return np.asarray(np.clip(0.5 - distance * one.radius * size / softness, 0.0, 1.0), np.float32)


def paint_object(picture: Field, one: SceneObject, rng: np.random.Generator) -> None:
    """Lay a soft shadow and then the object, lit from the upper left and slightly grained, over a picture."""
    size = picture.shape[0]
    shadow = coverage(one, size, softness=0.05 * size, shift=0.018)
    picture *= 1.0 - 0.45 * shadow[..., None]
    x, y = grid(size)
    light = 1.0 - 0.09 * ((x - one.x) + (y - one.y)) / one.radius + 0.035 * noise(rng, size, 1.0)
    colour = np.array(COLOURS[one.colour][BRIGHTNESSES.index(one.brightness)], np.float32)
    picture += coverage(one, size)[..., None] * (np.clip(colour * light[..., None], 0.0, 1.0) - picture)
