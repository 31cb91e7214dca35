"""Captions of scenes: the truth about the objects, in varied words.

Every caption names shape, colour, brightness, size, side and height of each object, and nothing
that is not so. No word of it belongs to a radiology report's findings.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from cxrlab.data.scenery.objects import SceneObject

Words = Mapping[str, tuple[str, ...]]

SHAPE_WORDS: Words = MappingProxyType(
    {
        "disc": ("disc", "circle", "ball"),
        "square": ("square", "box", "block"),
        "triangle": ("triangle", "wedge", "pyramid"),
        "ring": ("ring", "hoop", "loop"),
        "star": ("star", "five-pointed star"),
        "cross": ("cross", "plus sign"),
        "bar": ("bar", "strip", "plank"),
        "crescent": ("crescent", "half moon", "sickle"),
    }
)
COLOUR_WORDS: Words = MappingProxyType(
    {
        "red": ("red", "scarlet"),
        "orange": ("orange", "amber"),
        "yellow": ("yellow", "lemon"),
        "green": ("green", "emerald"),
        "blue": ("blue", "azure"),
        "purple": ("purple", "violet"),
        "grey": ("grey", "silver"),
    }
)
BRIGHTNESS_WORDS: Words = MappingProxyType({"bright": ("bright", "light", "luminous"), "dark": ("dark", "deep", "dim")})
SIZE_WORDS: Words = MappingProxyType({"small": ("small", "little", "tiny"), "large": ("large", "big", "huge")})
SIDE_WORDS: Words = MappingProxyType(
    {
        "left": ("on the left", "to the left", "on the left-hand side"),
        "centre": ("in the centre", "halfway across", "in the central column"),
        "right": ("on the right", "to the right", "on the right-hand side"),
    }
)
HEIGHT_WORDS: Words = MappingProxyType(
    {
        "top": ("at the top", "high up", "in the upper part"),
        "middle": ("at mid-height", "in the middle row", "halfway up"),
        "bottom": ("at the bottom", "low down", "in the lower part"),
    }
)
GROUND_WORDS: Words = MappingProxyType(
    {
        "texture": ("a rough texture", "a grained surface", "something like bark or stone"),
        "leaves": ("a heap of overlapping patches", "scattered leaves", "a litter of coloured scraps"),
        "landscape": ("hills under a sky", "an open landscape", "a wide view of land and sky"),
        "haze": ("a blurred background", "a soft haze", "an out-of-focus backdrop"),
    }
)
_WITH_GROUND = (
    "{things}, against {ground}.",
    "{Ground}, with {things} in front.",
    "A picture of {things}; behind, {ground}.",
    "In front of {ground} there is {things}.",
    "{things} before {ground}.",
)
_WITHOUT_GROUND = ("{things}.", "There is {things}.", "The picture shows {things}.", "One sees {things}.")
_EMPTY = ("{ground}, and nothing else.", "Only {ground}.", "{ground} without any object.", "An empty view of {ground}.")
_JOINS = (" and ", ", together with ", ", as well as ")


def write_caption(rng: np.random.Generator, objects: tuple[SceneObject, ...], ground: str) -> str:
    """One or two short sentences that tell the whole truth about the objects of a scene."""
    backdrop = _pick(rng, GROUND_WORDS[ground])
    if not objects:
        return _sentence(_pick(rng, _EMPTY).format(ground=backdrop))
    order = rng.permutation(len(objects))
    things = _pick(rng, _JOINS).join(_describe(rng, objects[int(index)]) for index in order)
    frame = _pick(rng, _WITH_GROUND if rng.random() < 0.5 else _WITHOUT_GROUND)
    return _sentence(frame.format(things=things, ground=backdrop, Ground=backdrop))


def _describe(rng: np.random.Generator, one: SceneObject) -> str:
    size, brightness = _pick(rng, SIZE_WORDS[one.size]), _pick(rng, BRIGHTNESS_WORDS[one.brightness])
    colour, shape = _pick(rng, COLOUR_WORDS[one.colour]), _pick(rng, SHAPE_WORDS[one.shape])
    side, height = _pick(rng, SIDE_WORDS[one.side]), _pick(rng, HEIGHT_WORDS[one.height])
    thing = f"{brightness} {colour} {shape}"
    thing = f"{size} {thing}" if rng.random() < 0.7 else f"{thing}, {size} in size,"
    place = f"{height} {side}" if rng.random() < 0.5 else f"{side}, {height}"
    return f"{_article(thing)} {thing} {place}"


def _pick(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[int(rng.integers(len(words)))]


def _article(phrase: str) -> str:
    return "an" if phrase[0] in "aeiou" else "a"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
