"""What input transformations cost honest users: findings F1, changed reports and milliseconds per image.

    python experiments/input_defence_cost.py --data corpora/small --n 100

Prints one row per transformation and strength. Reports with and without the transformation are for the same studies;
intervals are by patient.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from cxrlab.attacks.input_transformations import parse_transformation
from cxrlab.core.image_codec import to_uint8
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.images import grey_image
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation.generate import Images, select_studies
from cxrlab.evaluation.load_model import open_model
from cxrlab.evaluation.score_inputs import read_references
from cxrlab.extraction.defence.base import DEFENCES, defended
from cxrlab.extraction.defence.defend import BenignCase, benign_cost
from cxrlab.metrics.report_pairs import Pair
from cxrlab.models.load_settings import LoadSettings

STRENGTHS = (
    *("jpeg:75", "jpeg:50", "jpeg:20", "blur:0.5", "blur:1", "blur:2", "bits:5", "bits:4", "bits:3"),
    *("noise:0.02", "noise:0.05", "noise:0.1", "resample:0.75", "resample:0.5", "random-resample:0.5"),
)


def main() -> None:
    """Measure every transformation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=Path("corpora/small"), help="corpus folder; drawn if it is not there"
    )
    parser.add_argument("--phantoms", type=int, default=1000, help="phantoms that are then drawn, a tenth of them test")
    parser.add_argument("--model", default="builtin:reporter", help="report model")
    parser.add_argument("--n", type=int, default=150, help="studies of the test split")
    parser.add_argument("--seed", type=int, default=7, help="seed of studies, draws and resamples")
    parser.add_argument("--batch", type=int, default=25, help="images at once")
    given = parser.parse_args()
    if not given.data.exists():
        make_phantom(PhantomConfig(n=given.phantoms, size=128, seed=7), given.data)
    corpus, model = load_corpus(given.data), open_model(given.model, LoadSettings(), [])
    images, references = Images(corpus), read_references(given.data, "findings").items
    ids = select_studies(corpus, "test", given.n, given.seed)
    pixels = [to_uint8(grey_image(images.image(key))) for key in ids]

    def reports(writer: object) -> list[str]:
        found: list[str] = []
        for start in range(0, len(ids), given.batch):
            batch = [one / 255 for one in pixels[start : start + given.batch]]
            found += [one.text for one in writer.generate([one.astype("float32") for one in batch])]  # type: ignore[attr-defined]
        return found

    before = reports(model)
    cases = []
    for key, text, image in zip(ids, before, pixels, strict=True):
        one = references[key]
        cases.append(BenignCase(Pair(key, one.text, text, one.patient, one.findings, one.context), image))
    print(f"{len(cases)} studies of {given.data.name}, {given.model}")
    print("transformation | findings F1 | difference | significant errors, difference | other findings | ms per image")
    for text in STRENGTHS:
        transformation = parse_transformation(text)
        defence = DEFENCES.load(transformation.name)(transformation, given.seed)
        after = reports(defended(model, defence))
        cost = benign_cost(defence, cases, reports=after, trials=1000, seed=given.seed)
        f1, errors = (cost["difference"][name] for name in ("findings.f1", "errors.significant"))
        print(
            f"{text} | {f1['b']:.3f} | {f1['difference']:+.3f} [{f1['low']:+.3f}, {f1['high']:+.3f}] | "
            f"{errors['difference']:+.2f} [{errors['low']:+.2f}, {errors['high']:+.2f}] | "
            f"{cost['other_findings']['value']:.2f} | {cost['milliseconds']:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
