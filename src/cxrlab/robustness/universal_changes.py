"""One change for all images, made of images that are not tested, and kept in the run folder."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cxrlab.core.errors import DataError
from cxrlab.core.memory import BatchSize
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run
from cxrlab.robustness.cases import Case, Cases, image_tensor
from cxrlab.robustness.wishes import REPORT

if TYPE_CHECKING:
    from cxrlab.attacks.config import Budget
    from cxrlab.robustness.config import RobustnessConfig
    from cxrlab.robustness.targets import Target


def universal_change(
    run: Run, cases: Cases, target: Target, aim: str, budget: Budget, shape: tuple[int, ...], config: RobustnessConfig,
    batch_size: BatchSize,
) -> Tensor:  # fmt: skip
    """[1, C, H, W]: made of the first `universal_images` images of this shape in another split, or read where it was.

    Args:
        run: The open run.
        cases: Of the audit; their corpus has the other splits.
        target: The model that it is made for.
        aim: What it wants.
        budget: Its radius.
        shape: C, H and W of the images.
        config: Settings.
        batch_size: Images at once.
    """
    from cxrlab.attacks.universal import make_universal

    size = "x".join(map(str, shape))
    path = run.path(f"universal/{target.key}_{aim}_{budget.label.replace('/', '-')}_{size}.npy")
    if path.is_file():
        return torch.from_numpy(np.load(path)).to(target.device)
    split = "train" if config.split != "train" else "val"
    tested = {case.patient for case in cases.all}
    ids = cases.corpus.ids(split)
    order = generator(config.seed, "universal").permutation(len(ids))[: 4 * config.attack.universal_images].tolist()
    others = [case for case in cases.of([ids[place] for place in order]) if case.patient not in tested]
    told = aim != REPORT or config.against == "own" or not target.scores  # whether a study may lack a report
    chosen: list[Case] = []
    radiographs: list[Tensor] = []
    for case in others:
        ready = image_tensor(cases.image(case))
        if tuple(ready.shape) == shape and len(chosen) < config.attack.universal_images and (told or case.reference):
            chosen.append(case)
            radiographs.append(ready)
    if not chosen:
        lacking = "" if told else " with a report"
        raise DataError(
            f"the {split} split has no image of {shape[-2]} × {shape[-1]} pixels{lacking} to make a universal "
            "perturbation of; give --image-size, so that all images have one size."
        )
    images = torch.stack(radiographs).to(target.device)
    rows = range(len(chosen))
    clean = batch_size.map(rows, lambda some: target.examine(images[list(some)], [chosen[row] for row in some]))
    objective = target.objective(aim, chosen, clean, images)
    keys = [case.id for case in chosen]
    made = make_universal(objective, images, budget, config.attack, keys=keys, seed=config.seed, batch_size=batch_size)
    stream = io.BytesIO()
    np.save(stream, made.detach().cpu().numpy())
    run.write(str(path.relative_to(run.folder)), stream.getvalue())
    return made
