"""Which perceptual hash separates different chest radiographs and still matches re-encoded copies?

    python experiments/image_hashes.py [--images FOLDER] [--n 300]

Without a folder it uses phantoms. For each hash: the smallest distance of two different images, and the number of bits
that change if an image is saved as a low-quality JPEG, brightened or cropped. A hash is usable if different images are
farther apart than changed copies. 3,000 images of 224 pixels take about two minutes on one core.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from cxrlab.core.randomness import generator
from cxrlab.data.config import PhantomConfig
from cxrlab.data.duplicates import NEAR_BITS, hash_rows, perceptual_hash
from cxrlab.data.images import load_image
from cxrlab.data.phantom.corpus import patients_with_visits
from cxrlab.data.phantom.render import PhantomPatient, render
from cxrlab.findings.simulated_patients import draw_patient

ImageArray = np.ndarray


def shrunk(image: ImageArray, width: int, height: int) -> ImageArray:
    """The image resized to this size."""
    pil_image = Image.fromarray(np.ascontiguousarray(image, np.float32))
    return np.asarray(pil_image.resize((width, height), Image.Resampling.BILINEAR), np.float64)


def waves(image: ImageArray, count: int) -> np.ndarray:
    """Signs of the count × count lowest cosine coefficients without the constant ones (pHash)."""
    cosines = np.cos(np.pi * np.outer(np.arange(1, count + 1), (2 * np.arange(64) + 1) / 128))
    return (cosines @ shrunk(image, 64, 64) @ cosines.T > 0).ravel()


def steps(image: ImageArray, count: int) -> np.ndarray:
    """Whether each of count × count cells is brighter than its left neighbour (dHash)."""
    small = shrunk(image, count + 1, count)
    return (small[:, 1:] > small[:, :-1]).ravel()


def package_hash(image: ImageArray) -> np.ndarray:
    """The hash of the package as bits."""
    return np.unpackbits(hash_rows([perceptual_hash(image)])[0]).astype(bool)


HASHES: dict[str, Callable[[ImageArray], np.ndarray]] = {
    "steps, 64 bits": lambda image: steps(image, 8),
    "waves, 64 bits": lambda image: waves(image, 8),
    "steps, 256 bits": lambda image: steps(image, 16),
    "waves, 144 bits": lambda image: waves(image, 12),
    "cxrlab (waves, 256 bits)": package_hash,
}


def poor_jpeg(image: ImageArray) -> ImageArray:
    """The image saved at quality 30."""
    data = io.BytesIO()
    Image.fromarray(np.rint(image * 255).astype(np.uint8)).save(data, "JPEG", quality=30)
    return np.asarray(Image.open(data), np.float32) / 255


def cropped(image: ImageArray, share: float) -> ImageArray:
    """The image without a border."""
    top, left = (round(side * share / 2) for side in image.shape)
    return image[top : image.shape[0] - top, left : image.shape[1] - left]


CHANGES: dict[str, Callable[[ImageArray], ImageArray]] = {
    "JPEG 30": poor_jpeg,
    "gamma 1.3": lambda image: image**1.3,
    "crop 1 %": lambda image: cropped(image, 0.01),
    "crop 2 %": lambda image: cropped(image, 0.02),
    "crop 5 %": lambda image: cropped(image, 0.05),
}


def phantoms(count: int) -> list[ImageArray]:
    """One image each of `count` phantoms."""
    config = PhantomConfig(n=4 * count, size=192, seed=7)
    images: list[ImageArray] = []
    for order in patients_with_visits(config):
        case = draw_patient(config.seed, order.patient)
        visit = case.visits[0]
        phantom_patient = PhantomPatient(config.seed, case.patient, visit.sex, visit.age)
        images.append(render(phantom_patient, visit.number, visit.view, visit.findings, config.size, masks=False).image)
        if len(images) == count:
            break
    return images


def folder_images(folder: Path, count: int) -> list[ImageArray]:
    """At most `count` random images of a folder."""
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg", ".png", ".dcm"))
    drawn = generator(7, "films").permutation(len(files))[:count]
    return [load_image(files[k]) for k in drawn.tolist()]


def between(bits: np.ndarray) -> np.ndarray:
    """Sorted Hamming distances of all pairs of rows [N, B]."""
    ones = bits.astype(np.float32)
    apart = ones @ (1 - ones).T
    return np.sort((apart + apart.T)[np.triu_indices(len(bits), 1)])


def main() -> None:
    """Hash, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=Path)
    parser.add_argument("--n", type=int, default=300)
    args = parser.parse_args()
    images = phantoms(args.n) if args.images is None else folder_images(args.images, args.n)
    print(f"{len(images)} images; bits that differ between images (closest, 1 pair in 10,000) and bits that a change")
    print("flips (95 % quantile, maximum)\n")
    print("| hash | closest | 1 in 10,000 | " + " | ".join(CHANGES) + " |")
    print("|---|--:|--:|" + "--:|" * len(CHANGES))
    for name, hashed in HASHES.items():
        bits = np.stack([hashed(image) for image in images])
        apart = between(bits)
        cells = [f"{apart[0]:.0f}", f"{apart[len(apart) // 10_000]:.0f}"]
        for change in CHANGES.values():
            moved = [int((row != hashed(change(image))).sum()) for row, image in zip(bits[:200], images, strict=False)]
            cells.append(f"{np.quantile(moved, 0.95):.0f}, {max(moved)}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"\ncxrlab treats images as near duplicates up to {NEAR_BITS} bits")


if __name__ == "__main__":
    main()
