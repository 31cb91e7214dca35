"""Small synthetic pictures without any chest, with exact captions.

They replace photographs in the first training of a general model and in queries of an attacker without radiographs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.config import read_yaml
from cxrlab.core.image_codec import encode_png, to_uint8
from cxrlab.core.plan import Plan
from cxrlab.core.randomness import generator
from cxrlab.core.records import ImageFile, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.card import Card, card_settings
from cxrlab.data.config import ScenesConfig
from cxrlab.data.corpus import Corpus, assign_split
from cxrlab.data.corpus_writer import NewStudy, Recipe, build_corpus, plan_drawing
from cxrlab.findings.data_files import converted

# Increase it when the same settings yield other pictures or captions than before; it is on every card.
DRAWING = 1


@dataclass(frozen=True)
class Scene:
    """A picture with its truth."""

    image: NDArray[np.uint8]
    caption: str
    objects: tuple[SceneObject, ...]
    ground: str  # kind of the ground, a name of `GROUNDS`


def draw_scene(seed: int, number: int, size: int) -> Scene:
    """The scene of this number; content and caption depend on seed and number alone."""
    objects = place_objects(generator(seed, "scenes", number, "objects"))
    ground, picture = paint_ground(generator(seed, "scenes", number, "ground"), size)
    for index, one in enumerate(objects):
        paint_object(picture, one, generator(seed, "scenes", number, "paint", index))
    caption = write_caption(generator(seed, "scenes", number, "words"), objects, ground)
    return Scene(to_uint8(picture), caption, objects, ground)


def make_scenes(config: ScenesConfig, out: str | Path) -> Corpus:
    """Make or continue a corpus of scenes in the folder `out`."""
    card = Card(
        name="scenes",
        source="Drawn from a seed by cxrlab; no photograph and no patient behind it.",
        licence="Synthetic; free to use for any purpose.",
        citation="cxrlab, synthetic scenes.",
        settings={"drawing": DRAWING, **card_settings(config)},
        synthetic=True,
    )
    recipe = Recipe(
        items=range(config.n),
        ids=lambda number: (_study_id(number),),
        make_studies=partial(_draw_study, config.seed, config.size),
        label="drawing scenes",
        total=config.n,
    )
    return build_corpus(out, card, recipe, config.workers)


def plan_scenes(config: ScenesConfig, out: Path | None = None) -> Plan:
    """Draw two small corpora with the same settings in a scratch folder; a corpus in `out` is completed."""
    return plan_drawing("data make scenes", config.n, lambda n, to: make_scenes(replace(config, n=n), to), out)


def _study_id(number: int) -> str:
    return f"scene{number:06d}"


def _draw_study(seed: int, size: int, number: int) -> tuple[NewStudy, ...]:
    scene = draw_scene(seed, number, size)
    name = _study_id(number)
    path = f"images/{name}.png"
    study = Study(
        id=name,
        patient=name,
        images=(ImageFile(path, View.OTHER),),
        split=assign_split(name, seed),
        caption=scene.caption,
        extra={"ground": scene.ground, "objects": [one.to_json() for one in scene.objects]},
    )
    return (NewStudy(study, {path: encode_png(scene.image)}),)


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
    """One thing in a scene; a caption states its words, the numbers are where it was painted."""

    shape: str
    side: str  # left, centre or right, of the picture
    height: str
    size: str
    brightness: str
    colour: str
    x: float  # middle, as a share of the width from the left
    y: float  # middle, as a share of the height from the top
    radius: float  # half the extent, as a share of the picture's side
    turn: float

    def to_json(self) -> dict[str, Any]:
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}


def _star(u: Field, v: Field) -> Field:
    """Five points: the plane is folded into one tenth, where the edge is a straight line."""
    angle = np.abs(np.mod(np.arctan2(u, -v) + np.pi / 5, 2 * np.pi / 5) - np.pi / 5)
    along, across = np.hypot(u, v) * np.cos(angle), np.hypot(u, v) * np.sin(angle)
    inner, tip = 0.48, 1.1
    edge = np.array([inner * np.cos(np.pi / 5) - tip, inner * np.sin(np.pi / 5)])
    normal = np.array([edge[1], -edge[0]]) / np.hypot(*edge)
    return np.asarray((along - tip) * normal[0] + across * normal[1], np.float32)


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
        "crescent": lambda u, v: np.maximum(np.hypot(u, v) - 1.0, 0.85 - np.hypot(u - 0.5, v)),
    }
)


def place_objects(rng: np.random.Generator) -> tuple[SceneObject, ...]:
    """None, one or two objects that do not touch; two never share a side-and-height."""
    count = int(rng.choice(3, p=(0.06, 0.60, 0.34)))
    placed: list[SceneObject] = []
    while len(placed) < count:
        side, height, size, brightness, colour, shape = (
            str(rng.choice(list(words))) for words in (SIDES, HEIGHTS, SIZES, BRIGHTNESSES, COLOURS, SHAPES)
        )
        radius = float(rng.uniform(*SIZES[size]))
        middle = np.array([SIDES[side], HEIGHTS[height]]) + rng.uniform(-_JITTER, _JITTER, 2)
        x, y = (float(value) for value in np.clip(middle, radius + 0.01, 0.99 - radius))
        one = SceneObject(shape, side, height, size, brightness, colour, x, y, radius, float(rng.uniform(-0.25, 0.25)))
        if all(np.hypot(one.x - other.x, one.y - other.y) > one.radius + other.radius + _GAP for other in placed):
            placed.append(one)
    return tuple(placed)


def coverage(one: SceneObject, size: int, softness: float = 1.0, shift: float = 0.0) -> NDArray[np.float32]:
    """How much of each pixel the object covers, [size, size] in [0, 1]; `shift` moves it down and right."""
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


Words = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class _CaptionWords:
    """The words of `synthetic_scenes.yaml`."""

    shapes: Words
    colours: Words
    brightnesses: Words
    sizes: Words
    sides: Words
    heights: Words
    grounds: Words
    with_ground: tuple[str, ...]
    without_ground: tuple[str, ...]
    empty: tuple[str, ...]
    joins: tuple[str, ...]


_FILE = Path(__file__).with_suffix(".yaml")
WORDS: _CaptionWords = converted(_CaptionWords, read_yaml(_FILE)[0], _FILE.name)


def write_caption(rng: np.random.Generator, objects: tuple[SceneObject, ...], ground: str) -> str:
    """One or two short sentences that describe all objects of a scene."""
    backdrop = _pick(rng, WORDS.grounds[ground])
    if not objects:
        return _sentence(_pick(rng, WORDS.empty).format(ground=backdrop))
    order = rng.permutation(len(objects))
    joint, things = _pick(rng, WORDS.joins), list[str]()
    for one in (objects[int(index)] for index in order):
        size, brightness = _pick(rng, WORDS.sizes[one.size]), _pick(rng, WORDS.brightnesses[one.brightness])
        colour, shape = _pick(rng, WORDS.colours[one.colour]), _pick(rng, WORDS.shapes[one.shape])
        side, height = _pick(rng, WORDS.sides[one.side]), _pick(rng, WORDS.heights[one.height])
        thing = f"{brightness} {colour} {shape}"
        thing = f"{size} {thing}" if rng.random() < 0.7 else f"{thing}, {size} in size,"
        place = f"{height} {side}" if rng.random() < 0.5 else f"{side}, {height}"
        things.append(f"{'an' if thing[0] in 'aeiou' else 'a'} {thing} {place}")
    frame = _pick(rng, WORDS.with_ground if rng.random() < 0.5 else WORDS.without_ground)
    return _sentence(frame.format(things=joint.join(things), ground=backdrop, Ground=backdrop))


def _pick(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[int(rng.integers(len(words)))]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


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
    """A random field with amplitude f^-slope, mean 0 and deviation 1, [size, size]; unequal stretch gives grain."""
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


def overlapping_patches(rng: np.random.Generator, size: int) -> Field:
    """Dead leaves: opaque patches of power-law sizes that cover each other."""
    picture = np.empty((size, size, 3), np.float32)
    picture[:] = tones(rng)[1]
    palettes = [tones(rng) for _ in range(2)]
    # Radii with density r^-3, which makes the picture look alike at every scale.
    low, high = 0.045**-2, 0.26**-2
    for radius in np.asarray((low - rng.random(170) * (low - high)) ** -0.5):
        _cover(picture, rng, float(radius), palettes[int(rng.integers(2))])
    # A common light falls on all of them, which binds the patches into one picture.
    light = 1.0 + 0.06 * noise(rng, size, 1.2)
    return picture * light[..., None]


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
    {"texture": texture, "leaves": overlapping_patches, "landscape": landscape, "haze": haze}
)


def paint_ground(rng: np.random.Generator, size: int) -> tuple[str, Field]:
    """A ground of random kind: its name and the picture [size, size, 3], in [0.08, 0.85] with fine image grain."""
    kind = str(rng.choice(list(GROUNDS)))
    picture = GROUNDS[kind](rng, size)
    grain = rng.normal(0.0, 0.012, (size, size, 1)).astype(np.float32)
    return kind, np.clip(picture + grain, 0.08, 0.85)
