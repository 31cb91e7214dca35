"""What do the prior study and the lateral image add to a report model? On phantoms.

    python experiments/prior_and_lateral.py --out FOLDER [--n 3000] [--steps 80] [--seeds 1,2,3] [--arms A,B]

Fine-tunes builtin:reporter on follow-up visits of phantom patients: on the frontal image alone, with image and report of
the prior study, and with the lateral image. All arms learn the same visits for the same number of steps and report on the
same visits of other patients. Half of the small effusions and lower-zone opacities are hidden on the frontal image.
Prints the share of changes that the reports state rightly and the F1 of findings, with paired differences from the
frontal image alone: intervals by patient and seed. A stopped run continues. 80 steps are too few to learn
to use the prior (experiments/LOG.md).
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cxrlab.core.files import make_folder, write_json
from cxrlab.core.json_values import nan_if_none
from cxrlab.core.jsonl import JsonlAppender, read_jsonl
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Change
from cxrlab.data.config import ContextConfig, PhantomConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import PREDICTIONS, generate
from cxrlab.evaluation.scored_runs import ScoredRun
from cxrlab.findings.merge_statements import side_by_side
from cxrlab.findings.reader import read
from cxrlab.metrics.base import Metric, Tally, ratio
from cxrlab.metrics.finding_comparison import compare_merged_findings
from cxrlab.metrics.finding_scores import FindingsF1
from cxrlab.metrics.report_pairs import Batch, Context, Pair
from cxrlab.models.decoding import Decoding
from cxrlab.studies.over_seeds import paired_seeds
from cxrlab.training.align_finetune import finetune
from cxrlab.training.config import FinetuneConfig, Optimisation, Validation

BASELINE = "frontal"
ARMS = {
    BASELINE: ContextConfig(),
    "frontal + prior": ContextConfig(prior=("image", "report"), missing="drop"),
    "frontal + lateral": ContextConfig(views=("frontal", "lateral")),
}
CHANGES = {
    "changes": tuple(Change),
    "changes: worse, improved, unchanged": (Change.INCREASED, Change.DECREASED, Change.UNCHANGED),
    "changes: worse, improved": (Change.INCREASED, Change.DECREASED),
    "changes: unchanged": (Change.UNCHANGED,),
    "changes: new": (Change.NEW,),
    "changes: resolved": (Change.RESOLVED,),
}


def make_corpora(folder: Path, n: int) -> tuple[Path, Path]:
    """All visits, and the follow-up visits alone; patients that are not trained on are tested."""
    drawn = make_phantom(PhantomConfig(n=n, size=128, seed=31, lateral=True, hidden=0.5, masks=False), folder / "drawn")
    every, followups = folder / "every_visit", folder / "followups"
    for path in (every, followups):
        if path.is_dir():
            continue
        part = make_folder(path.with_suffix(".part"))
        shutil.copytree(drawn.path / "images", part / "images", dirs_exist_ok=True)
        (part / "studies.jsonl").unlink(missing_ok=True)
        with JsonlAppender(part / "studies.jsonl") as out:
            for _, study in read_jsonl(drawn.file):
                if path is every or study.get("prior"):
                    out.append({**study, "split": "train" if study["split"] == "train" else "test"})
        shutil.copy(drawn.path / "card.yaml", part / "card.yaml")
        part.rename(path)
    return every, followups


def write_reports(arm: str, seed: int, data: Path, folder: Path, steps: int) -> Path:
    """Train one arm from one seed, and generate its reports; the run folder with the predictions."""
    name, context = f"{arm.replace(' + ', '_')}_{seed}", ARMS[arm]
    given: dict[str, Any] = {"views": context.views, "prior": context.prior, "missing": context.missing}
    optimisation = Optimisation(
        learning_rate=2e-3, steps=steps, batch_size=16, max_length=600, save_every=10_000, seed=seed
    )
    config = FinetuneConfig(
        data=data,
        start="builtin:reporter",
        prompts="llava-rad/2",
        lora_rank=16,
        lora_alpha=32.0,
        lora_dropout=0.0,
        cache=folder / "cache",
        validation=Validation(n=0),
        optimisation=optimisation,
        **given,
    )
    model = folder / f"{name}.model"
    finetune(config, model)
    generate(
        GenerateConfig(
            model=f"hf:{model / 'checkpoint'}",
            data=data,
            allow_missing=True,  # first visits, which have no prior
            examples=0,
            control_studies=0,
            decoding=Decoding(max_new_tokens=160),
            **given,
        ),
        folder / f"{name}.reports",
    )
    return folder / f"{name}.reports"


def score(run: Path, followups: Path) -> ScoredRun:
    """Counts for each study: changes stated rightly, findings, and hidden findings."""
    corpus = load_corpus(followups)
    reports = {str(row["id"]): str(row["report"]) for _, row in read_jsonl(run / PREDICTIONS)}
    studies = [corpus[name] for name in corpus.ids("test")]
    texts = [reports[study.id] for study in studies]
    pairs = [
        Pair(study.id, study.sections.findings if study.sections else None, text, findings=study.findings)
        for study, text in zip(studies, texts, strict=True)
    ]
    found = {tally.metric.name: tally for tally in FindingsF1().tallies(Batch(pairs))[:2]}
    truths = [study.findings or () for study in studies]
    stated = [read(text).findings for text in texts]
    for name, kinds in CHANGES.items():
        rows = [changes_right(*both, kinds) for both in zip(truths, stated, strict=True)]
        found[name] = share(name, rows)
    hidden = [
        hidden_found(truth, said, study.extra.get("hidden", ()))
        for truth, said, study in zip(truths, stated, studies, strict=True)
    ]
    found["hidden findings"] = share("hidden findings", hidden)
    signatures = {name: tally.metric.signature for name, tally in found.items()}
    patients = tuple(study.patient for study in studies)
    return ScoredRun(run, tuple(study.id for study in studies), patients, "phantom truth", found, signatures)


def changes_right(truth: Sequence[Finding], said: Sequence[Finding], kinds: Sequence[Change]) -> tuple[int, int]:
    """Of the true findings with one of these changes, how many are stated with it, and how many there are."""
    truth, said = side_by_side(truth, said)
    compared = compare_merged_findings(truth, said, Context())
    right = sum(match.candidate.change is match.reference.change in kinds for match in compared.matches)
    total = sum(match.reference.change in kinds for match in compared.matches)
    total += sum(missing.finding.change in kinds for missing in compared.missing)
    if Change.RESOLVED in kinds:
        gone, ends = (
            {one.observation for one in side if not one.present and one.change is Change.RESOLVED}
            for side in (truth, said)
        )
        right, total = right + len(gone & ends), total + len(gone)
    return right, total


def hidden_found(truth: Sequence[Finding], said: Sequence[Finding], hidden: Sequence[int]) -> tuple[int, int]:
    """Of the findings that the frontal image hardly shows, how many the report names on the right side."""
    wanted = {(truth[index].observation, truth[index].side) for index in hidden}
    named = {(one.observation, one.side) for one in said if one.present}
    return len(wanted & named), len(wanted)


def share(name: str, rows: Sequence[tuple[int, int]]) -> Tally:
    """A share of (right, all) over all studies."""
    counts = np.array(rows, dtype=np.float64)
    metric = Metric(name, "higher", (0.0, 1.0), 1.0, "studies without one", {"average": "micro"}, about=name)
    return Tally(metric, counts, counts[:, 1] > 0, lambda sums: ratio(sums[..., 0], sums[..., 1]))


def main() -> None:
    """Train, generate, score and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--n", type=int, default=3000)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--arms", default=",".join(arm for arm in ARMS if arm != BASELINE))
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    every, followups = make_corpora(options.out, options.n)
    runs: dict[str, list[ScoredRun]] = {}
    for arm in [BASELINE, *options.arms.split(",")]:
        data = every if ARMS[arm].prior else followups
        runs[arm] = [score(write_reports(arm, seed, data, options.out, options.steps), followups) for seed in seeds]
    names = list(runs[BASELINE][0].tallies)
    counts = {name: int(runs[BASELINE][0].tallies[name].rows.sum(axis=0)[-1]) for name in names}
    result: dict[str, Any] = {
        "train": len(load_corpus(followups).ids("train")),
        "test": len(runs[BASELINE][0].ids),
        "patients": len(set(runs[BASELINE][0].patients)),
    }
    print(result)
    for arm in runs:
        if arm != BASELINE:
            pairs = list(zip(runs[BASELINE], runs[arm], strict=True))
            result[arm] = paired_seeds(pairs, seeds, names, swaps=1000)
    for name in names:
        print(f"\n{name}" + ("" if "f1" in name else f" ({counts[name]} in the truth)"))
        for arm in runs:
            values = [run.tallies[name].value for run in runs[arm]]
            line = f"  {arm:20} {np.mean(values):.3f}  ({', '.join(f'{value:.3f}' for value in values)})"
            if arm != BASELINE:
                gap = result[arm][name]["pooled"]
                low, high = (nan_if_none(gap[end]) for end in ("low", "high"))
                line += f"  difference {gap['value']:+.3f} [{low:+.3f}, {high:+.3f}]"
            print(line)
    write_json(options.out / "result.json", result)


if __name__ == "__main__":
    main()
