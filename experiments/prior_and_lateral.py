"""What do the prior study and the lateral image add to a report model? On phantoms, on a CPU.

    python experiments/prior_and_lateral.py --out FOLDER [--seeds 1,2,3] [--split test] [--arms A,B]

The reports are short: one sentence per finding that is present or has resolved, in a fixed order. All arms start from one
model: builtin:reporter, whose language model is trained on first visits, for which nobody has a prior, and on lists of
findings in place of images. Each arm then learns the same follow-up visits for the same number of steps, and reports on
the same visits of other patients; the arms differ in what they see. A control gives the trained model the prior of another
patient. Half of the small effusions and lower-zone opacities are hidden on the frontal image.

Prints the share of changes that the reports state rightly, the F1 of findings and the share of hidden findings, with paired
differences from the frontal image alone: intervals by patient and seed. Settings were chosen on the split val with one
seed. A stopped run continues. Results: docs/results.md, "The prior study and the lateral image, on phantoms".
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cxrlab.core.files import make_folder, write_json
from cxrlab.core.json_values import nan_if_none
from cxrlab.core.jsonl import JsonlAppender, read_jsonl
from cxrlab.core.randomness import generator
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

PROMPTS, NORMAL = "llava-rad/2", "No acute findings."
SETTINGS: dict[str, Any] = {"max_length": 600, "save_every": 10_000, "log_every": 20, "precision": "bfloat16"}
FIRST, FOLLOWUP = "first visit", "follow-up visit"  # names of texts
BASELINE = "frontal"
ARMS = {
    BASELINE: ContextConfig(),
    "frontal + prior report": ContextConfig(prior=("report",), missing="drop"),
    "frontal + prior image and report": ContextConfig(prior=("image", "report"), missing="drop"),
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


def make_corpora(folder: Path, n: int) -> dict[str, Path]:
    """All visits, to learn from; held-out follow-up visits, alone and with the prior of another patient as their own."""
    settings = PhantomConfig(n=n, size=128, seed=31, lateral=True, hidden=0.5, masks=False)
    drawn = make_phantom(settings, folder / "drawn")
    studies = {str(study["id"]): in_short(study) for _, study in read_jsonl(drawn.file)}
    held_out = [study for study in studies.values() if study["split"] != "train" and study.get("prior")]
    parts = {
        "visits": list(studies.values()),
        "followups": held_out,
        "swapped": [one for pair in swapped_priors(held_out, studies) for one in pair],
    }
    for name, chosen in parts.items():
        if (folder / name).is_dir():
            continue
        part = make_folder(folder / f"{name}.part")
        shutil.copytree(drawn.path / "images", part / "images", copy_function=_link, dirs_exist_ok=True)
        (part / "studies.jsonl").unlink(missing_ok=True)
        with JsonlAppender(part / "studies.jsonl") as out:
            for study in chosen:
                out.append(study)
        shutil.copy(drawn.path / "card.yaml", part / "card.yaml")
        part.rename(folder / name)
    return {name: folder / name for name in parts}


def _link(source: str, target: str) -> str:
    Path(target).unlink(missing_ok=True)
    os.link(source, target)
    return target


def in_short(study: dict[str, Any]) -> dict[str, Any]:
    """The study with a short report: one sentence per finding that is present or has resolved, always in one order."""
    findings = [Finding.from_json(one) for one in study["findings"]]
    stated = [one for one in findings if one.present or one.change is Change.RESOLVED]
    text = " ".join(map(sentence, sorted(stated, key=lambda one: (one.observation, one.side or "")))) or NORMAL
    sections = {"findings": text, "indication": study["sections"]["indication"]}
    # Named texts, so that a training can take the visits of one kind alone.
    kind = FOLLOWUP if study.get("prior") else FIRST
    return {**study, "sections": sections, "structured": {kind: {"findings": text}}}


def sentence(finding: Finding) -> str:
    """A sentence such as 'Mild left pleural effusion, increased.' or 'Left pleural effusion has resolved.'."""
    gone = finding.change is Change.RESOLVED
    words = [None if gone else finding.severity, finding.side, finding.observation, "has resolved" if gone else None]
    text = " ".join(word for word in words if word)
    text += f", {finding.change}" if finding.change and not gone else ""
    return f"{text[0].upper()}{text[1:]}."


def swapped_priors(
    followups: Sequence[dict[str, Any]], studies: dict[str, dict[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Every visit with image and report of another patient's prior, which count as the patient's own."""
    order = generator(31, "swapped priors").permutation(len(followups))
    found = []
    for place, number in enumerate(order):
        visit = followups[number]
        others = (followups[order[(place + step) % len(order)]] for step in range(1, len(order)))
        other = next(one for one in others if one["patient"] != visit["patient"])
        own = {"id": f"{visit['id']}x", "patient": visit["patient"], "split": visit["split"]}
        prior = {**studies[other["prior"]], **own}
        prior.pop("prior", None)
        found.append((prior, {**visit, "prior": prior["id"]}))
    return found


def warm_start(data: Path, folder: Path, steps: int, rate: float) -> Path:
    """The start of all arms: builtin:reporter, trained on first visits, which have no prior, and on lists of findings."""
    config = FinetuneConfig(
        data=data,
        text=FIRST,
        start="builtin:reporter",
        prompts=PROMPTS,
        lora_rank=0,
        extra_corpora={"lists": {"data": data, "text": FIRST, "images": False, "findings_in_prompt": True}},
        cache=folder / "cache",
        validation=Validation(n=0),
        optimisation=Optimisation(learning_rate=rate, steps=steps, **SETTINGS),
    )
    finetune(config, folder / "start")
    return folder / "start"


def train(arm: str, seed: int, start: Path, data: Path, folder: Path, options: argparse.Namespace) -> Path:
    """Train one arm with one seed on the follow-up visits; its run folder."""
    out = folder / f"{arm.replace(' + ', '_').replace(' ', '_')}_{seed}"
    config = FinetuneConfig(
        data=data,
        text=FOLLOWUP,
        start=str(start),
        prompts=PROMPTS,
        lora_rank=0,
        cache=folder / "cache",
        validation=Validation(n=0),
        optimisation=Optimisation(learning_rate=options.rate, steps=options.steps, seed=seed, **SETTINGS),
        **given(arm),
    )
    finetune(config, out)
    return out


def given(arm: str) -> dict[str, Any]:
    """What an arm sees, as settings of training and generation."""
    context = ARMS[arm]
    return {"views": context.views, "prior": context.prior, "missing": context.missing}


def write_reports(arm: str, model: Path, data: Path, split: str, out: Path) -> Path:
    """Generate the reports of the follow-up visits of a split; the run folder with the predictions."""
    config = GenerateConfig(
        model=f"hf:{model / 'checkpoint'}",
        data=data,
        split=split,
        allow_missing=True,  # first visits, which have no prior
        examples=0,
        control_studies=0,
        batch_size=32,
        decoding=Decoding(max_new_tokens=120),
        **given(arm),
    )
    generate(config, out)
    return out


def score(run: Path, followups: Path, split: str) -> ScoredRun:
    """Counts for each study: changes stated rightly, findings, and hidden findings."""
    corpus = load_corpus(followups)
    reports = {str(row["id"]): str(row["report"]) for _, row in read_jsonl(run / PREDICTIONS)}
    studies = [corpus[name] for name in corpus.ids(split)]
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
    parser.add_argument("--n", type=int, default=9000, help="phantom studies")
    parser.add_argument("--start-steps", type=int, default=400, help="steps of the common start")
    parser.add_argument("--steps", type=int, default=250, help="steps of each arm")
    parser.add_argument("--rate", type=float, default=5e-4, help="learning rate of start and arms")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--split", choices=("val", "test"), default="test")
    parser.add_argument("--arms", default=",".join(arm for arm in ARMS if arm != BASELINE))
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    corpora = make_corpora(options.out, options.n)
    start = warm_start(corpora["visits"], options.out, options.start_steps, options.rate)
    runs: dict[str, list[ScoredRun]] = {}
    for seed in seeds:
        for arm in [BASELINE, *options.arms.split(",")]:
            model = train(arm, seed, start, corpora["visits"], options.out, options)
            tests = {arm: corpora["visits" if ARMS[arm].prior else "followups"]}
            if ARMS[arm].prior:
                tests[f"{arm}, of another patient"] = corpora["swapped"]
            for name, data in tests.items():
                out = options.out / f"{model.name}.{data.name}.{options.split}"
                write_reports(arm, model, data, options.split, out)
                runs.setdefault(name, []).append(score(out, corpora["followups"], options.split))
    names = list(runs[BASELINE][0].tallies)
    counts = {name: int(runs[BASELINE][0].tallies[name].rows.sum(axis=0)[-1]) for name in names}
    result: dict[str, Any] = {
        "train": sum(
            one.split == "train" and one.prior is not None for one in load_corpus(corpora["visits"]).studies()
        ),
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
            values = [float(run.tallies[name].value) for run in runs[arm]]
            result.setdefault("values", {}).setdefault(name, {})[arm] = values
            line = f"  {arm:52} {np.mean(values):.3f}  ({', '.join(f'{value:.3f}' for value in values)})"
            if arm != BASELINE:
                gap = result[arm][name]["pooled"]
                low, high = (nan_if_none(gap[end]) for end in ("low", "high"))
                line += f"  difference {gap['value']:+.3f} [{low:+.3f}, {high:+.3f}]"
            print(line)
    write_json(options.out / "result.json", result)


if __name__ == "__main__":
    main()
