"""A published prediction file beside files that anyone could write without a model, on the IU X-ray test split.

    cxrlab data import openi --root OPENI --out corpora/openi
    python experiments/case_study_iu.py --data corpora/openi --predictions FILE

FILE is a table with R2Gen's ids (`dicom_id`) and `report`. Each file is certified against the findings sections of its
studies, with the reports of the train split as training reports. Prints tables of aggregates only.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import cxrlab
from cxrlab.core.randomness import generator
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation.certificate import Certificate
from cxrlab.evaluation.certify import BASELINES, CLINICAL, LEXICAL
from cxrlab.models.baselines import REPORTS


def main() -> None:
    """Certify every file and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the imported corpus openi; --rehearse uses phantoms")
    parser.add_argument("--predictions", type=Path, help="the published file; left out, only the files made here")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rehearse", action="store_true", help="a few phantoms, to check that it runs")
    given = parser.parse_args()
    if given.rehearse:
        given.data = make_phantom(PhantomConfig(n=300, size=32, masks=False, workers=1), Path("phantoms")).path
    if given.data is None:
        parser.error("give --data, the imported corpus")
    files: dict[str, Path | Mapping[str, str]] = (
        {} if given.predictions is None else {"published file": given.predictions}
    )
    files |= files_without_a_model(given.data, given.seed)
    found = {
        name: cxrlab.certify(file, given.data, training=given.data, seed=given.seed) for name, file in files.items()
    }
    print_overview(found)
    name, certificate = next(iter(found.items()))
    for baseline in ("shuffled", "constant"):
        title, what = BASELINES[baseline]
        print_gains(f"{name}: {title}", what, certificate.check(title).numbers)


def files_without_a_model(data: Path, seed: int) -> dict[str, Mapping[str, str]]:
    """One normal report, training reports, and the references shuffled among patients."""
    corpus = cxrlab.load_corpus(data)
    tested, trained = (
        {
            study.id: study.sections.findings
            for study in corpus.studies(split)
            if study.sections and study.sections.findings
        }
        for split in ("test", "train")
    )
    keys, texts = list(tested), list(trained.values())
    rng = generator(seed, "case study")
    (commonest, _), *_ = Counter(texts).most_common(1)
    return {
        "one normal report": dict.fromkeys(keys, REPORTS["normal"]),
        "the most frequent training report": dict.fromkeys(keys, commonest),
        "training reports at random": {
            key: texts[place] for key, place in zip(keys, rng.integers(len(texts), size=len(keys)), strict=True)
        },
        "references shuffled among patients": dict(
            zip(keys, [tested[keys[k]] for k in rng.permutation(len(keys))], strict=True)
        ),
        "references": tested,
    }


def print_overview(found: Mapping[str, Certificate]) -> None:
    """One row for each file."""
    metrics = ("findings.f1", "clinical:rules", *LEXICAL)
    print("| file | verdict | rule | different reports | normal |", " | ".join(metrics), "|")
    print("|---|---|---|--:|--:|" + "--:|" * len(metrics))
    for name, one in found.items():
        values = one.check("better than a constant report").numbers
        normal = one.check("content").numbers["normal"]["predictions"].value
        cells = [f"{values[metric]['predictions']:.3f}" for metric in metrics]
        distinct = one.check("variety").numbers["reports"]["distinct"]
        print("|", " | ".join([name, one.severity, one.rule, f"{distinct:,}", f"{normal:.1%}", *cells]), "|")
    for name, one in found.items():
        print(f"\n{name}: {one.headline}")


def print_gains(title: str, what: str, numbers: Mapping[str, Mapping[str, object]]) -> None:
    """The metrics of one file beside a baseline."""
    print(f"\n{title}\n\n| metric | file | {what} | gain |\n|---|--:|--:|--:|")
    for metric in (*CLINICAL, *LEXICAL):
        row = numbers[metric]
        gain = row["gain"]
        print(
            f"| `{metric}` | {row['predictions']:.3f} | {row['baseline']:.3f} | "
            f"{gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] |"  # type: ignore[attr-defined]
        )


if __name__ == "__main__":
    main()
