"""Small natural-looking pictures without any chest, with captions that tell exactly what they show.

They stand in for photographs where none may be shipped: for the first training of a general
model, and for queries of an attacker who has no radiographs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.codec import encode_png, to_uint8
from cxrlab.core.randomness import generator
from cxrlab.core.records import ImageFile, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.building import Drawn, Recipe, build_corpus
from cxrlab.data.card import Card, card_settings
from cxrlab.data.config import ScenesConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.scenery.ground import paint_ground
from cxrlab.data.scenery.objects import SceneObject, paint_object, place_objects
from cxrlab.data.scenery.words import write_caption
from cxrlab.data.splits import assign_split

# Raised whenever the same settings give other pictures or captions than before; it stands in every card.
DRAWING = 1


@dataclass(frozen=True)
class Scene:
    """A picture with its truth.

    Args:
        image: uint8 [S, S, 3].
        caption: The truth in words.
        objects: The truth as records; empty for a ground without objects.
        ground: Kind of the ground, a name of `scenery.ground.GROUNDS`.
    """

    image: NDArray[np.uint8]
    caption: str
    objects: tuple[SceneObject, ...]
    ground: str


def draw_scene(seed: int, number: int, size: int) -> Scene:
    """The scene of this number; the same three numbers give the same scene in any process.

    What is shown and what is said do not depend on the size, only the pixels do.
    """
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
    draw = partial(_draw_study, config.seed, config.size)
    recipe = Recipe(items=range(config.n), ids=_study_ids, draw=draw, label="drawing scenes", total=config.n)
    return build_corpus(out, card, recipe, config.workers)


def _study_id(number: int) -> str:
    return f"scene{number:06d}"


def _study_ids(number: int) -> tuple[str, ...]:
    return (_study_id(number),)


def _draw_study(seed: int, size: int, number: int) -> tuple[Drawn, ...]:
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
    return (Drawn(study, {path: encode_png(scene.image)}),)
