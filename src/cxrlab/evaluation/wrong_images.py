"""The same questions with the wrong image: what a model writes that does not look, whatever it scores.

    predictions_noise.jsonl     grey values drawn at random, pixel by pixel
    predictions_blank.jsonl     mid grey all over
    predictions_swapped.jsonl   the image of another patient among the studies chosen

The indication stays the study's own. Up to `control_studies` studies are chosen, by seed, the same for every model;
each image has the size of the right one, the swapped one its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cxrlab.core.memory import BatchSize
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run
from cxrlab.data.corpus import Corpus
from cxrlab.evaluation.answering import Images, Writer, answer_all
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.controls import other_patients

if TYPE_CHECKING:
    from cxrlab.core.protocols import Image

GREY = 0.5


def control_file(control: str) -> str:
    """Name of the predictions with this kind of wrong image."""
    return f"predictions_{control}.jsonl"


class WrongImages(Images):
    """A wrong image for each study.

    Args:
        corpus: Where the studies are.
        control: noise, blank or swapped.
        seed: Decides the noise.
        partners: For swapped: id of a study → id of the study whose image is shown.
        indications: False keeps the reasons back.
    """

    def __init__(
        self, corpus: Corpus, control: str, seed: int, partners: dict[str, str], *, indications: bool = True
    ) -> None:
        super().__init__(corpus, indications=indications)
        self.control, self.seed, self.partners = control, seed, partners

    def image(self, key: str) -> Image:
        """The wrong image in the shape of the right one, [H, W] or [H, W, 3] in [0, 1]."""
        if self.control == "swapped":
            return super().image(self.partners[key])
        shape = super().image(key).shape
        if self.control == "blank":
            return np.full(shape, GREY, np.float32)
        return generator(self.seed, "noise", key).random(shape, dtype=np.float32)


def answer_wrong_images(
    run: Run, writer: Writer, corpus: Corpus, ids: Sequence[str], config: GenerateConfig, batch_size: BatchSize
) -> dict[str, int]:
    """Answer the chosen studies with each kind of wrong image; returns how many answers each has.

    A kind that cannot be made (swapped, when one patient has more than half of the studies) has none. Nor has one of
    which a model behind an address refuses the first: a guard counts such pictures, and stops who goes on with them.

    Args:
        run: The open run.
        writer: What answers.
        corpus: Where the studies are.
        ids: Studies whose right image was read.
        config: Which kinds, how many studies, and the seed.
        batch_size: Images at once.
    """
    order = generator(config.seed, "controls").permutation(len(ids))[: config.control_studies]
    chosen = [ids[place] for place in sorted(order.tolist())]
    partners = other_patients(
        [corpus[key].patient for key in chosen], chosen, generator(config.seed, "controls", "swapped")
    )
    counts = dict.fromkeys(config.controls, 0)
    for control in counts if chosen else ():
        if control == "swapped" and partners is None:
            continue
        shown = {key: chosen[place] for key, place in zip(chosen, partners or (), strict=partners is not None)}
        images = WrongImages(corpus, control, config.seed, shown, indications=config.indication)
        label = f"the same with {control} images"
        file = control_file(control)
        if writer.model.capabilities.black_box:
            first = answer_all(run, file, writer, images, chosen[:1], BatchSize(1), f"the first of {label}")
            if any(one.refused for one in first):
                continue
        lost = answer_all(run, file, writer, images, chosen, batch_size, label)
        counts[control] = len(chosen) - len(lost)
    return counts
