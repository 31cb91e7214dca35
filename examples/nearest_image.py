"""Ask two baselines about the images of a test split and put their reports side by side on a page.

python examples/nearest_image.py runs/nearest
"""

from __future__ import annotations

import sys
from pathlib import Path

import cxrlab
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import generate
from cxrlab.render.page import write_page


def main(out: Path) -> None:
    """Make corpus, runs and page in `out`."""
    corpus = make_phantom(PhantomConfig(n=120, size=96, seed=7), out / "corpus")

    # One image by hand …
    model = cxrlab.load_model(f"retrieval:{corpus.path}")
    study = next(corpus.studies("test"))
    answer = model.generate([corpus.image(study)])[0]
    print(f"{study.id} looks most like {answer.extra['neighbour']} (cosine {answer.extra['similarity']})")

    # … and a whole split, into run folders that a page can show.
    names = {"normal": "stub:normal", "nearest": model.name}
    for folder, name in names.items():
        done = generate(GenerateConfig(model=name, data=corpus.path), out / folder)
        print(f"{folder}: {done.predictions} reports, {done.distinct_reports} of them different")
    print(write_page([out / folder for folder in names], out / "page.html"))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/nearest"))
