"""Recall and false positives of the detection of burned-in text.

    python experiments/burned_in_text.py --n 60
    python experiments/burned_in_text.py --n 250 --sizes 256,320
    python experiments/burned_in_text.py --images FOLDER

On phantoms: each image is examined unchanged, and then with a text of random size, position, grey level and direction
drawn on it with Pillow. A text counts as found if at least 95 % of its pixels are in a text box. A text with a contrast
of less than 50 of 255 grey levels is not counted. With --images: how many images of a folder (PNG, JPEG or
DICOM, subfolders too) get a box of text, a side marker alone, or nothing. A minute for 60 images of each size.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cxrlab.core.errors import CxrlabError
from cxrlab.core.image_codec import to_uint8
from cxrlab.core.randomness import generator
from cxrlab.data.burned_in_text import TextBox, text_boxes
from cxrlab.data.config import PhantomConfig
from cxrlab.data.images import load_image
from cxrlab.data.phantom.corpus import make_phantom

WORDS = (
    "DOE JOHN", "MRN 00412233", "12/05/2019", "SMITH^ANNA", "HOSP ST MARY", "PORTABLE", "14:32", "ID:88231", "F 071Y",
    "Dr. Miller", "supine ap 85kV", "A.B. Jones 1950-01-02", "2/2", "DOB 1.1.70", "ERECT", "J. Doe", "semi-upright",
)  # fmt: skip
VISIBLE = 50
Grey = NDArray[np.uint8]


def letters(rng: np.random.Generator, side: int) -> NDArray[np.float64]:
    """How much of each pixel some words cover, cut to the ink; one in four stands upright."""
    font = ImageFont.load_default(int(rng.integers(max(9, side // 40), max(14, side // 14))))
    words = WORDS[rng.integers(len(WORDS))]
    _, _, right, bottom = font.getbbox(words)
    canvas = Image.new("L", (int(right) + 4, int(bottom) + 4))
    ImageDraw.Draw(canvas).text((2, 2), words, 255, font)
    cover = np.asarray(canvas, np.float64) / 255
    cover = np.rot90(cover, int(rng.choice([1, 3]))) if rng.random() < 0.25 else cover
    rows, columns = np.nonzero(cover > 0.3)
    return np.asarray(cover[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1])


def place(rng: np.random.Generator, room: tuple[int, int], margin: int) -> tuple[int, int]:
    """Row and column: a corner, an edge or anywhere, each in one of three cases."""
    kind = rng.integers(3)
    ends = [int(rng.choice([min(margin, most), max(0, most - margin)])) for most in room]
    loose = [int(rng.integers(0, most + 1)) for most in room]
    if kind == 0:
        return ends[0], ends[1]
    if kind == 1:
        return (ends[0], loose[1]) if rng.random() < 0.5 else (loose[0], ends[1])
    return loose[0], loose[1]


def burned(image: Grey, rng: np.random.Generator) -> tuple[Grey, NDArray[np.bool_]] | None:
    """An image with text and where its ink lies; None where the text has no room or cannot be seen."""
    cover = letters(rng, image.shape[0])
    height, width = cover.shape
    room = (image.shape[0] - height, image.shape[1] - width)
    if min(room) < 4:
        return None
    top, left = place(rng, room, max(2, image.shape[0] // 60))
    out = image.copy()
    look, area = rng.integers(3), (slice(top, top + height), slice(left, left + width))
    bright = float(np.median(image[area])) >= 128
    ink = 0 if bright else 255
    if look == 0:  # a flat plate behind the letters
        plate, ink = (0, 255) if rng.random() < 0.5 else (255, 0)
        out[max(0, top - 2) : top + height + 2, max(0, left - 2) : left + width + 2] = plate
    elif look == 1:  # grey letters
        ink = int(np.clip(np.median(image[area]) + (-130 if bright else 130), 0, 255))
    before = out[area].astype(np.float64)
    out[area] = np.rint(before * (1 - cover) + ink * cover).astype(np.uint8)
    seen = (cover > 0.5) & (np.abs(out[area] - before) > VISIBLE)
    if seen.sum() < 0.9 * (cover > 0.5).sum():
        return None
    mask = np.zeros(image.shape, bool)
    mask[area] = seen
    return out, mask


def covered(boxes: tuple[TextBox, ...], ink: NDArray[np.bool_]) -> float:
    """Share of the ink in boxes of text; markers do not count."""
    inside = np.zeros(ink.shape, bool)
    for left, top, right, bottom in (box.corners for box in boxes if not box.marker):
        inside[top:bottom, left:right] = True
    return float((inside & ink).sum() / ink.sum())


def on_phantoms(size: int, preset: str, n: int, seed: int) -> str:
    """One row of the table."""
    rng = generator(seed, "burned in", size, preset)
    with TemporaryDirectory() as folder:
        settings = PhantomConfig(n=n, size=size, seed=seed, preset=preset, masks=False)
        corpus = make_phantom(settings, Path(folder) / "c")
        images = [to_uint8(corpus.image(study)) for study in corpus]
    flagged = sum(any(not box.marker for box in boxes(image)) for image in images)
    tried = [case for image in images for _ in range(3) if (case := burned(image, rng)) is not None]
    found = sum(covered(boxes(image), ink) >= 0.95 for image, ink in tried)
    return f"| {preset} | {size} | {found} of {len(tried)} | {found / len(tried):.1%} | {flagged} of {len(images)} |"


def boxes(image: Grey) -> tuple[TextBox, ...]:
    """Text boxes of a uint8 image."""
    return text_boxes(image.astype(np.float32) / 255)


def on_images(folder: Path) -> Counter[str]:
    """Number of images in a folder with text, with a side marker alone, and with neither."""
    tally: Counter[str] = Counter()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        try:
            found = text_boxes(load_image(path))
        except CxrlabError:
            tally["not an image"] += 1
            continue
        tally["text" if any(not box.marker for box in found) else "marker alone" if found else "nothing"] += 1
    return tally


def main() -> None:
    """Print the table, or the counts of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=60, help="phantoms of each kind")
    parser.add_argument("--sizes", default="224,512,1024")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--images", type=Path)
    given = parser.parse_args()
    if given.images is not None:
        for what, count in on_images(given.images).items():
            print(f"{count:,} {what}")
        return
    print("| phantoms | pixels | texts found | | clean images with a box of text |\n|---|---|---|---|---|")
    for preset in ("standard", "shifted"):
        for size in (int(word) for word in given.sizes.split(",")):
            print(on_phantoms(size, preset, given.n, given.seed), flush=True)


if __name__ == "__main__":
    main()
