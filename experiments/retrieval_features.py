"""Which image features retrieve the image with the same findings? The basis of `retrieval:CORPUS`.

    python experiments/retrieval_features.py [--n 2400]

Draws phantoms, divides them in five folds by patient, and looks for each image's nearest neighbour in
the other four. The figure is the F1 of (finding, side) pairs that the two images share, over all images.
Two cores, about half a minute.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np

from cxrlab.core.randomness import generator, uniform
from cxrlab.data.config import PhantomConfig
from cxrlab.data.parallel import ordered_map
from cxrlab.data.phantom.corpus import PatientVisits, patients_with_visits
from cxrlab.data.phantom.render import PhantomPatient, render
from cxrlab.findings.simulated_patients import draw_patient
from cxrlab.models import baselines

ImageArray = tuple[int, np.ndarray, frozenset]


def images(config: PhantomConfig, order: PatientVisits) -> list[ImageArray]:
    """Fold, image and its (finding, side) pairs for each visit of one patient."""
    case = draw_patient(config.seed, order.patient)
    out = []
    for visit in case.visits[: order.visits]:
        phantom_patient = PhantomPatient(config.seed, case.patient, visit.sex, case.visits[0].age)
        image = render(phantom_patient, visit.number, visit.view, visit.findings, config.size, masks=False).image
        pairs = frozenset((f.observation, f.side) for f in visit.present)
        out.append((int(5 * uniform(config.seed, "fold", order.patient)), image, pairs))
    return out


def shared_f1(truth: list[frozenset], found: list[frozenset]) -> float:
    """F1 over all images of the pairs that two lists of images share."""
    hits = sum(len(a & b) for a, b in zip(truth, found, strict=True))
    return 2 * hits / (sum(map(len, truth)) + sum(map(len, found)))


def folded(rows: np.ndarray, folds: np.ndarray, pairs: list[frozenset], whiten: bool) -> float:
    """Nearest neighbour across folds, with or without equal variance of the directions."""
    truth, found = [], []
    for fold in range(5):
        library, queries = np.nonzero(folds != fold)[0], np.nonzero(folds == fold)[0]
        if whiten:
            near, _ = baselines.Index.build(rows[library]).nearest(rows[queries])
        else:
            near = (rows[queries] @ rows[library].T).argmax(axis=1)
        truth += [pairs[k] for k in queries]
        found += [pairs[library[k]] for k in near]
    return shared_f1(truth, found)


def main() -> None:
    """Draw, describe, compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=2400)
    args = parser.parse_args()
    config = PhantomConfig(n=args.n, size=96, seed=7)
    drawn = [image for some in ordered_map(partial(images, config), patients_with_visits(config)) for image in some]
    folds, pairs = np.array([fold for fold, _, _ in drawn]), [pair for _, _, pair in drawn]
    order = generator(7, "random neighbour").permutation(len(pairs))
    print(f"random neighbour                  {shared_f1(pairs, [pairs[k] for k in order]):.3f}")
    for side in (16, 24, 32):
        baselines.THUMBNAIL = side
        rows = np.stack([baselines.describe(image) for _, image, _ in drawn])
        for whiten in (False, True):
            name = f"{side} x {side}, {'equal variance' if whiten else 'as it is'}"
            print(f"{name:33s} {folded(rows, folds, pairs, whiten):.3f}", flush=True)


if __name__ == "__main__":
    main()
