"""The ablations of LLaVA-Rad: what each stage and each kind of data is worth, over several seeds.

    corpora/                             what the file asks to be drawn
    seedS/VARIANT/{encoder,align,finetune}   runs of the stages; what variants share stands with the first of them
    seedS/VARIANT/reports                what the model wrote for the test split
    seedS/scores/VARIANT                 how good it is
    seedS/comparison/                    the variants against the full recipe, study by study
    trials.jsonl                         one line a variant and seed: which stages, which scores
    ablations.json page.html             the table over seeds

A study that was stopped goes on with the part that it was in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cxrlab.core.config import parse_group, raise_problems
from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.json_values import plain
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.runs import Run, finished, state
from cxrlab.core.terminal import track
from cxrlab.render.page import PAGE, write_page
from cxrlab.studies.ablation_config import AblationsConfig
from cxrlab.studies.ablation_plan import ALIGN, CHECKPOINT, ENCODER, FINETUNE, Plan, Trial, plan
from cxrlab.studies.over_seeds import over_seeds
from cxrlab.studies.parts import Part, raise_absent_models
from cxrlab.studies.side_by_side import side_by_side
from cxrlab.studies.study_corpora import corpus_folders, make_corpora, raise_absent

CORPORA, REPORTS, SCORES, COMPARISON = "corpora", "reports", "scores", "comparison"
OPERATIONAL = ("at_once",)  # may differ when a study is continued
TRIALS, TABLE, SUMMARY = "trials.jsonl", "ablations.json", "summary.json"


def run_ablations(config: AblationsConfig, out: Path) -> Path:
    """Train every variant with every seed, score them on one test split and end with a page.

    Args:
        config: Settings.
        out: Folder of the study; a stopped one is continued, a finished one is shown again.
    """
    folders = corpus_folders(config.corpora, out / CORPORA)
    planned = plan(config, folders, out)
    if not finished(out, config, operational=OPERATIONAL):
        _check_metrics(config)
        raise_absent(config.corpora, folders)
        _check_starts(planned, out)
        with Run.open(out, config, operational=OPERATIONAL) as run:
            make_corpora(config.corpora, folders)
            _check_test(config, folders[config.test])
            if config.at_once > 1:
                work = partial(_one_seed, config, planned, folders[config.test], out)
                side_by_side(work, dict.fromkeys(config.seeds, ()), config.at_once, "seed {}".format)
            for part in track(planned.parts, "training stages"):
                _train(part, out / part.folder)
            done = run.done(TRIALS)
            for trial in track(planned.trials, "scoring variants"):
                found = _scores(config, trial, folders[config.test], out)
                if trial.folder not in done:
                    run.append(TRIALS, {"id": trial.folder, **plain(trial), **found})
            for seed in config.seeds:
                _compare(config, planned, seed, out)
            run.write(TABLE, table(config, _trials(out)))
            run.write(SUMMARY, {"about": f"{len(config.variants)} ways to train; seeds: {len(config.seeds)}."})
    # Of twelve models with the same name a page would tell nobody apart: it shows the full recipe's reports.
    parts = [out / planned.trials[0].folder / REPORTS, out / f"seed{config.seeds[0]}" / COMPARISON]
    return write_page([out, *parts], out / PAGE, title="Ablations")


def _check_metrics(config: AblationsConfig) -> None:
    """A metric that does not exist is refused before anything is trained."""
    from cxrlab.evaluation.score import score

    score(["No effusion."], ["No effusion."], metrics=config.metrics, floors=False, slices=False, trials=1)


def _check_starts(planned: Plan, out: Path) -> None:
    """A folder that the last variant starts from and that is not there is told before the first is trained."""
    keys = ("vision_encoder", "text_encoder", "encoder", "language_model", "start")
    raise_absent_models((getattr(part.config, key, None) for part in planned.parts for key in keys), out)


def _check_test(config: AblationsConfig, folder: Path) -> None:
    """Nothing is trained when there is nothing to score it on."""
    from cxrlab.data.corpus import load_corpus

    if not load_corpus(folder).ids("test"):
        raise DataError(f"the corpus '{config.test}' ({folder}) has no study in its test split; take a larger one.")


def _one_seed(config: AblationsConfig, planned: Plan, test: Path, out: Path, seed: int) -> None:
    for part in planned.of(seed).parts:
        _train(part, out / part.folder)
    for trial in planned.of(seed).trials:
        _scores(config, trial, test, out)


def _train(part: Part, out: Path) -> None:
    """Run a stage; one that was stopped is continued, one that is finished with these settings is left as it is."""
    if part.kind == ENCODER:
        from cxrlab.training.encoder import train_encoder

        train_encoder(part.config, out)
    elif part.kind == ALIGN:
        from cxrlab.training.report_training import align

        align(part.config, out)
    else:
        assert part.kind == FINETUNE
        from cxrlab.training.report_training import finetune

        finetune(part.config, out)


def _scores(config: AblationsConfig, trial: Trial, corpus: Path, out: Path) -> dict[str, Any]:
    """Studies of the test split, and metric → value, interval and studies with a value, of one model."""
    from cxrlab.evaluation.config import GenerateConfig, ScoreConfig
    from cxrlab.evaluation.generate import generate
    from cxrlab.evaluation.score import run_score
    from cxrlab.models.decoding import Decoding
    from cxrlab.models.load_settings import LoadSettings

    home = out / trial.folder
    told = {**config.loading, **({"prompts": trial.prompts} if trial.prompts else {})}
    loading, problems = parse_group(LoadSettings, told, "loading")
    raise_problems(problems)
    assert loading is not None
    # One seed for all: every model is asked about the same studies.
    asked = GenerateConfig(
        model=f"hf:{out / trial.model / CHECKPOINT}",
        data=corpus,
        n=config.n,
        control_studies=config.control_studies,
        batch_size=config.batch_size,
        decoding=Decoding(max_new_tokens=config.max_new_tokens),
        loading=loading,
    )
    generate(asked, home / REPORTS)
    scored = out / f"seed{trial.seed}" / SCORES / trial.variant  # the folder's name is the label in a comparison
    if state(scored) != "finished":
        run_score(
            ScoreConfig(
                references=corpus,
                predictions=home / REPORTS,
                metrics=config.metrics,
                trials=config.trials,
            ),
            scored,
        )
    sheet: Mapping[str, Any] = read_json(scored / "scores.json")
    keys = ("value", "low", "high", "n")
    scores = {name: {key: sheet["metrics"][name][key] for key in keys} for name in config.metrics}
    return {"studies": sheet["n"], "scores": scores}


def _compare(config: AblationsConfig, planned: Plan, seed: int, out: Path) -> None:
    """The variants of one seed against the full recipe, paired by study and clustered by patient."""
    from cxrlab.evaluation.compare import compare

    folder = out / f"seed{seed}" / COMPARISON
    runs = [out / f"seed{seed}" / SCORES / trial.variant for trial in planned.trials if trial.seed == seed]
    if state(folder) != "finished":
        compare(runs, out=folder, metrics=config.metrics, trials=config.trials)


def _trials(out: Path) -> list[Mapping[str, Any]]:
    return [record for _, record in read_jsonl(out / TRIALS)]


def table(config: AblationsConfig, trials: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures over seeds: each variant's mean with interval, and its difference to the first, seed by seed.

    Args:
        config: Settings.
        trials: Lines of trials.jsonl: variant, seed and scores of each.
    """
    values = {
        (str(row["variant"]), int(row["seed"]), metric): _number(row["scores"][metric]["value"])
        for row in trials
        for metric in config.metrics
    }
    variants = config.chosen()
    full = next(iter(variants))
    rows: dict[str, Any] = {}
    for name, variant in variants.items():
        metrics = {}
        for metric in config.metrics:
            own = [values[name, seed, metric] for seed in config.seeds]
            base = [values[full, seed, metric] for seed in config.seeds]
            gap = over_seeds([mine - theirs for mine, theirs in zip(own, base, strict=True)])
            metrics[metric] = {**plain(over_seeds(own)), "difference": None if name == full else plain(gap)}
        rows[name] = {
            "changes": variant.changes,
            "paper": variant.paper,
            "stands_for": variant.stands_for,
            "stages": list(variant.stages),
            "published": dict(variant.published),
            "metrics": metrics,
        }
    return {
        "baseline": full,
        "seeds": list(config.seeds),
        "metrics": list(config.metrics),
        "n": max(int(row["studies"]) for row in trials),
        "variants": rows,
    }


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
