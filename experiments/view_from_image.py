"""Accuracy of the view classifier on phantoms, and on images whose view is known.

    python experiments/view_from_image.py --phantoms 200
    python experiments/view_from_image.py --root IU_XRAY --truth VIEWS [--seed 11]

VIEWS has a line of JSON for each study: `id`, `frontal` and `lateral`, files below IU_XRAY/images (lateral null where
there is none). The studies are cut in two halves at random: constants of `data/views.py` were set by looking at the
first (seed 11), the second only measures them. Each image is also inverted, mirrored, padded, cropped, turned,
darkened and shrunk. Five minutes for 2,344 studies.

Columns: studies; share whose frontal image is classified as frontal, with the images of a study classified together;
share of images with the right view, classified together and alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from cxrlab.core.errors import CxrlabError, DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.vocabulary import View
from cxrlab.data.config import PhantomConfig
from cxrlab.data.images import ImageArray, fit, load_image
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.data.views import classify_views

# The images of a study with their true views.
Case = list[tuple[ImageArray, View]]
BANDS = (0.5, 0.8, 0.95, 0.99, 1.01)
CHANGES: dict[str, Callable[[ImageArray], ImageArray]] = {
    "as they are": lambda image: image,
    "inverted": lambda image: 1 - image,
    "mirrored": lambda image: image[:, ::-1],
    "padded to a square": lambda image: fit(image, max(image.shape) + 60),
    "white frame": lambda image: np.pad(image, 20, constant_values=1.0),
    "darkened (power 2.2)": lambda image: image**2.2,
    "a fifth of the contrast": lambda image: (0.4 + image / 5).astype(np.float32),
    "7 % cut off each edge": lambda image: image[_inner(image.shape[0]), _inner(image.shape[1])],
    "turned by 8 degrees": lambda image: np.asarray(Image.fromarray(image).rotate(8, Image.Resampling.BILINEAR)),
    "40 pixels high": lambda image: fit(image, 40),
}


def _inner(length: int) -> slice:
    return slice(round(0.07 * length), round(0.93 * length))


def phantom_cases(n: int, seed: int) -> list[Case]:
    """Phantoms of both presets, all of them frontal."""
    cases = []
    for preset in ("standard", "shifted"):
        with TemporaryDirectory() as folder:
            config = PhantomConfig(n=n, seed=seed, preset=preset, masks=False, normal=0.1)
            for study in make_phantom(config, folder):
                cases.append([(load_image(Path(folder) / image.path), View.FRONTAL) for image in study.images])
    return cases


def real_cases(root: Path, truth: Path, seed: int) -> dict[str, list[Case]]:
    """The images of both halves; only images whose view the truth gives."""
    cases: dict[str, Case] = {}
    for number, row in read_jsonl(truth):
        if not isinstance(row.get("id"), str) or not isinstance(row.get("frontal"), str):
            raise DataError(f"{truth}:{number} needs the texts 'id' and 'frontal'.")
        known = [(row["frontal"], View.FRONTAL), (row.get("lateral"), View.LATERAL)]
        cases[row["id"]] = [(load_image(root / "images" / path), view) for path, view in known if path]
    # A plain generator over the sorted ids: the cut that was made when the constants were set.
    order = np.random.default_rng(seed).permutation(sorted(cases))
    middle = len(order) // 2
    halves = {"first half": order[:middle], "second half": order[middle:]}
    return {name: [cases[study] for study in half] for name, half in halves.items()}


def shares(cases: Iterable[Case], change: Callable[[ImageArray], ImageArray]) -> tuple[float, float, float]:
    """Studies with the frontal image right, images right together, images right alone."""
    frontal, together, alone = [], [], []
    for case in cases:
        images, views = [change(image) for image, _ in case], [view for _, view in case]
        correct = [guess.view is view for guess, view in zip(classify_views(images), views, strict=True)]
        together += correct
        frontal += [right for right, view in zip(correct, views, strict=True) if view is View.FRONTAL]
        alone += [classify_views([image])[0].view is view for image, view in zip(images, views, strict=True)]
    return float(np.mean(frontal)), float(np.mean(together)), float(np.mean(alone))


def print_confidence(name: str, cases: Iterable[Case]) -> None:
    """Accuracy by confidence, for unchanged images."""
    results = [
        (guess.confidence, guess.view is view)
        for case in cases
        for guess, (_, view) in zip(classify_views([image for image, _ in case]), case, strict=True)
    ]
    for low, high in pairwise(BANDS):
        inside = [one for one in results if low <= one[0] < high]
        if inside:
            mean, right = np.mean(inside, axis=0)
            print(
                f"{name}, confidence {low} to {min(high, 1)}: {len(inside)} images, mean {mean:.3f}, right {right:.1%}"
            )


def main() -> None:
    """Load, change, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, help="folder of IU X-ray in R2Gen's layout")
    parser.add_argument("--truth", type=Path, help="file with the true views")
    parser.add_argument("--phantoms", type=int, default=0, metavar="N", help="N phantoms of each preset")
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    if not options.phantoms and not (options.root and options.truth):
        parser.error("give --phantoms N, or --root and --truth")
    try:
        groups = {"phantoms": phantom_cases(options.phantoms, options.seed)} if options.phantoms else {}
        if options.root and options.truth:
            groups |= real_cases(options.root, options.truth, options.seed)
    except CxrlabError as error:
        parser.exit(1, f"{error}\n")
    print(
        "| images | change | studies | frontal right | all images right | each image alone |\n|---|---|--:|--:|--:|--:|"
    )
    for change, function in CHANGES.items():
        for name, cases in groups.items():
            values = " | ".join(f"{share:.1%}" for share in shares(cases, function))
            print(f"| {name} | {change} | {len(cases)} | {values} |", flush=True)
    for name, cases in groups.items():
        print_confidence(name, cases)


if __name__ == "__main__":
    main()
