"""Make a small phantom corpus, read it back and look at one image with its truth.

python examples/look_at_phantoms.py corpora/small
"""

from __future__ import annotations

import sys
from pathlib import Path

import cxrlab
from cxrlab.data.config import PhantomConfig, SheetConfig
from cxrlab.data.contact_sheet import contact_sheet, finding_words
from cxrlab.data.phantom.corpus import make_phantom


def main(out: Path) -> None:
    """Make the corpus in `out` and say what is in it."""
    make_phantom(PhantomConfig(n=30, size=128, seed=7), out)

    corpus = cxrlab.load_corpus(out)
    study = next(study for study in corpus.studies() if study.masks)
    image = corpus.image(study)  # float32 [H, W] in [0, 1]
    print(f"{len(corpus)} studies; {study.id} is {image.shape[1]} x {image.shape[0]} pixels")

    for index, finding in enumerate(study.findings or ()):
        mask = corpus.mask(study, index)
        if mask is not None:
            inside, around = image[mask].mean(), image[~mask].mean()
            print(f"  {finding_words(finding)}: mean {inside:.2f} inside its mask, {around:.2f} around it")
    print(f"  report: {study.sections.findings if study.sections else None}")

    print(contact_sheet(corpus, SheetConfig(n=12, columns=6, masks=True), out / "sheet.png").path)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "corpora/small"))
