"""The ablations of LLaVA-Rad: what each training stage and each kind of data is worth.

seedS/VARIANT/{encoder,align,finetune}   runs of the stages
seedS/VARIANT/reports                    reports of the trained model for the test split
seedS/scores/VARIANT                     their scores
seedS/comparison                         the variants against the full recipe, study by study
ablations.json                           the table over seeds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from cxrlab.core.config import check_at_least
from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.files import read_json
from cxrlab.core.json_values import plain
from cxrlab.core.records import Study
from cxrlab.core.runs import Run, state
from cxrlab.data.corpus import load_corpus
from cxrlab.data.views import selected_image
from cxrlab.evaluation.compare import compare
from cxrlab.evaluation.config import MetricResources
from cxrlab.evaluation.generate import select_studies
from cxrlab.evaluation.metric_presets import PRESETS, PresetRow
from cxrlab.evaluation.select_metrics import build_extra_families, list_given_families
from cxrlab.metrics.base import Family
from cxrlab.metrics.radgraph import PACKAGE_MODELS, by_package
from cxrlab.studies.engine import CACHE, CHECKPOINT, SUMMARY, Kind, StudyConfig, StudyRecipe, Trial, merged
from cxrlab.studies.over_seeds import number_at, over_seeds

STAGES = (1, 2, 3)
TABLE, COMPARISON = "ablations.json", "comparison"


@dataclass(frozen=True)
class AblationVariant:
    """One way to train, given by what it changes in the full recipe."""

    changes: str  # what is different, in one sentence
    paper: str | None = None  # what the paper calls it, where it is one of the paper's
    stands_for: str | None = None  # the published start or data that a phantom analogue stands for
    stages: tuple[int, ...] = STAGES  # which stages are run
    # Start of the encoder instead of the recipe's: what stage 1 trains or, without stage 1, what stage 2 (or 3) takes
    # as it is.
    vision_encoder: str | None = None
    language_model: str | None = None  # start of the language model instead of the recipe's
    # A whole model, its projector included, that stage 2 (or 3) starts from instead of separate parts.
    model: str | None = None
    encoder: Mapping[str, Any] = field(default_factory=dict)  # settings of stage 1 that differ
    align: Mapping[str, Any] = field(default_factory=dict)  # settings of stage 2 that differ
    finetune: Mapping[str, Any] = field(default_factory=dict)  # settings of stage 3 that differ
    prompts: str | None = None  # prompts for the trained model; those that it was trained with when left out
    published: Mapping[str, Any] = field(default_factory=dict)  # column of the preset → the paper's figure for it

    def __post_init__(self) -> None:
        if set(self.stages) - set(STAGES) or not set(self.stages) & {2, 3}:
            raise ConfigError(
                f"stages={list(self.stages)} is not usable; list some of 1, 2, 3, with 2 or 3 among them: without "
                "either there is no model that generates reports."
            )
        if list(self.stages) != sorted(set(self.stages)):
            raise ConfigError(f"stages={list(self.stages)} is not usable; list each once, in order.")
        if self.model and (1 in self.stages or self.vision_encoder or self.language_model):
            raise ConfigError(
                "'model' is a whole model; leave out stage 1, 'vision_encoder' and 'language_model', or 'model'."
            )
        for stage, name in ((1, "encoder"), (2, "align"), (3, "finetune")):
            if getattr(self, name) and stage not in self.stages:
                raise ConfigError(f"'{name}' changes settings of stage {stage}, which this variant does not run.")


@dataclass(frozen=True, kw_only=True)
class AblationsConfig(StudyConfig):
    """What each stage and each kind of data is worth: variants of one recipe, several seeds each.

    The first variant is the full recipe, to which the others are compared.

    Args:
        test: Name of the corpus whose test split the models are scored on.
        vision_encoder: Start of the vision encoder.
        language_model: Start of the language model.
        encoder: Settings of stage 1 in the full recipe; 'data' names a corpus of the list.
        align: Settings of stage 2.
        finetune: Settings of stage 3.
        preset: Columns of a paper beside its published figures, as in 'score'; their metrics are scored too. A column that
            lacks graphs or weights stays empty, with the reason.
        extras: Your weights for CheXbert, BERTScore and RadCliQ, and the name of a RadGraph model.
        unit: study (its first frontal image), or image: every frontal image of the test studies is a pair, as in the paper.
        n: Test studies (or images); all of them when left out.
        control_studies: Test studies that each model also gets with control images, to measure image dependence.
        batch_size: Images per batch of generation.
        max_new_tokens: Longest report, in tokens.
        loading: How the trained models are loaded for generation (device, dtype).
        trials: Bootstrap resamples and swaps of the comparison within a seed.
    """

    test: str
    vision_encoder: str
    language_model: str
    encoder: Mapping[str, Any] = field(default_factory=dict)
    align: Mapping[str, Any] = field(default_factory=dict)
    finetune: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[str, ...] = ("findings.f1.side", "findings.f1", "findings.f1.full", "green:rules", "rougeL:google")
    preset: Literal["paper", "llava-rad", "rexrank"] | None = None
    extras: MetricResources = MetricResources()
    unit: Literal["study", "image"] = "study"
    n: int | None = None
    control_studies: int = 50
    batch_size: int = 64
    max_new_tokens: int = 256
    loading: Mapping[str, Any] = field(default_factory=dict)
    trials: int = 1000
    variant_class = AblationVariant
    fewest_variants = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, n=1, control_studies=0, batch_size=1, max_new_tokens=1, trials=1)
        if taken := {"scores", COMPARISON} & set(self.variants):
            raise ConfigError(f"variants has the name '{min(taken)}', which is a folder of the study; choose another.")
        self.check_corpus("test")
        labels = [column.label for column in self.columns()]
        for name, variant in self.chosen().items():
            if labels and (unknown := [label for label in variant.published if label not in labels]):
                raise ConfigError(
                    f"variants, '{name}': published has '{unknown[0]}', which is no column of the preset "
                    f"{self.preset}.{did_you_mean(unknown[0], labels)}"
                )
        if self.extras.graphs is not None and not by_package(self.extras.graphs):
            raise ConfigError(
                f"extras.graphs={self.extras.graphs} is not usable: no file holds graphs of reports that are yet to be "
                f"generated. Name a model of the radgraph package: {', '.join(PACKAGE_MODELS)}."
            )

    def columns(self) -> tuple[PresetRow, ...]:
        """The columns of the preset, each with its metric or with what it lacks; none without a preset."""
        rows = PRESETS[self.preset] if self.preset else ()
        return tuple(row.resolve(vars(self.extras), ()) for row in rows)

    def scored(self) -> tuple[str, ...]:
        """The metrics of the tables: the chosen ones, then those of the preset."""
        return tuple(dict.fromkeys((*self.metrics, *(name for row in self.columns() for name in row.metrics))))


class Ablations(StudyRecipe):
    """Trains every variant with every seed and scores them on one test split."""

    config: AblationsConfig
    config_class = AblationsConfig
    title = "Ablations"
    kinds = MappingProxyType(
        {
            "encoder": Kind("cxrlab.training.config:EncoderConfig", "cxrlab.training.encoder:train_encoder"),
            "align": Kind("cxrlab.training.config:AlignConfig", "cxrlab.training.align_finetune:align"),
            "finetune": Kind("cxrlab.training.config:FinetuneConfig", "cxrlab.training.align_finetune:finetune"),
            "reports": Kind("cxrlab.evaluation.config:GenerateConfig", "cxrlab.evaluation.generate:generate"),
            "scores": Kind("cxrlab.evaluation.config:ScoreConfig", "cxrlab.evaluation.score:run_score"),
        }
    )

    def extra_families(self) -> Sequence[Family]:
        """Those that the extras suffice for."""
        return list_given_families(self.config.extras)

    def needed_files(self) -> Sequence[Path]:
        """Weights and tokenizers of the extras."""
        extras = self.config.extras
        return [path for path in (extras.chexbert, extras.bert, extras.encoder) if path is not None]

    def trial(self, name: str, variant: AblationVariant, seed: int) -> Mapping[str, str]:
        """The stages of a variant, the reports of its last stage, and their scores."""
        home, config = f"seed{seed}/{name}", self.config
        parts: dict[str, str] = {}

        def train(stage: str, start: Mapping[str, Any]) -> str:
            place = f"{stage} of '{home}'"
            given = self.with_folders(merged(getattr(config, stage), getattr(variant, stage)), place)
            own = {**start, "cache": str(self.out / CACHE), "optimisation": {"seed": seed}}
            parts[stage] = self.add(stage, f"{home}/{stage}", given, own, seed=seed, place=place).folder
            return str(self.out / parts[stage])

        start = {"encoder": variant.vision_encoder or config.vision_encoder}
        start["language_model"] = variant.language_model or config.language_model
        if 1 in variant.stages:
            start["encoder"] = f"hf:{train('encoder', {'vision_encoder': start['encoder']})}/{CHECKPOINT}"
        if variant.model is not None:
            start = {"start": variant.model}
        if 2 in variant.stages:
            start = {"start": train("align", start)}
        if 3 in variant.stages:
            start = {"start": train("finetune", start)}
        # Generation has one seed for all: every model gets the same studies.
        generation = {
            "model": f"hf:{start['start']}/{CHECKPOINT}",
            "data": str(self.corpora[config.test]),
            **{key: getattr(config, key) for key in ("unit", "n", "control_studies", "batch_size")},
            "decoding": {"max_new_tokens": config.max_new_tokens},
            "loading": {**config.loading, **({"prompts": variant.prompts} if variant.prompts else {})},
        }
        place, folder = f"reports of '{home}'", f"{home}/reports"
        reports = self.add("reports", folder, generation, {}, seed=seed, place=place, key=folder)
        scoring = {
            "references": str(self.corpora[config.test]),
            "predictions": str(self.out / reports.folder),
            "metrics": list(config.scored()),
            "trials": config.trials,
            "unit": config.unit,
            **{key: value for key, value in plain(config.extras).items() if value is not None},
        }
        folder = f"seed{seed}/scores/{name}"  # its last part is the label in a comparison
        scores = self.add("scores", folder, scoring, {}, seed=seed, place=f"scores of '{home}'", key=folder)
        return {**parts, "reports": reports.folder, "scores": scores.folder}

    def prepare(self, run: Run) -> None:
        """Train nothing when there is nothing to score on, or nothing to score with."""
        super().prepare(run)
        test = self.config.test
        self.check_splits(test, ["test"])
        reports = next(part.config for part in self.parts if part.kind == "reports")
        corpus = load_corpus(self.corpora[test])
        n = reports.n if reports.unit == "study" else None
        chosen = set(select_studies(corpus, reports.split, n, reports.seed))
        if unusable := [study.id for study in corpus.studies(reports.split) if study.id in chosen and _no_image(study)]:
            raise DataError(
                f"{len(unusable):,} of {len(chosen):,} test studies of '{test}' ({corpus.path}) have no frontal image, "
                f"such as {unusable[0]}; no model can report on them. Test on a composition that takes its views PA, AP "
                "and frontal alone (a corpus of the kind 'composed', or 'cxrlab data compose')."
            )
        build_extra_families(self.config.extras)  # missing or damaged weights are an error before training

    def measured(self, trial: Trial) -> Mapping[str, Any]:
        """Number of test studies, and value, interval and studies with a value of each metric."""
        scores: Mapping[str, Any] = read_json(self.out / trial.parts["scores"] / "scores.json")
        keys = ("value", "low", "high", "n")
        found = {name: {key: scores["metrics"][name][key] for key in keys} for name in self.config.scored()}
        return {"studies": scores["n"], "scores": found}

    def results(self, trials: list[Mapping[str, Any]]) -> dict[str, Any]:
        """The table over seeds; within each seed the variants are compared, paired by study and clustered by patient."""
        config = self.config
        for seed in config.seeds:
            folder = self.out / f"seed{seed}" / COMPARISON
            if state(folder) != "finished":
                runs = [self.out / trial.parts["scores"] for trial in self.trials if trial.seed == seed]
                compare(runs, out=folder, metrics=config.scored(), trials=config.trials)
        about = f"{len(config.variants)} ways to train; seeds: {len(config.seeds)}."
        return {TABLE: ablation_table(config, trials), SUMMARY: {"about": about}}

    def page_runs(self) -> list[Path]:
        """The full recipe's reports and the first comparison; the other models have the same name."""
        return [self.out / self.trials[0].parts["reports"], self.out / f"seed{self.config.seeds[0]}" / COMPARISON]


def _no_image(study: Study) -> bool:
    try:
        selected_image(study)
    except DataError:
        return True
    return False


def ablation_table(config: AblationsConfig, trials: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Content of ablations.json: each variant's mean with interval, and its difference to the first, seed by seed."""
    scores = {(str(trial["variant"]), int(trial["seed"])): trial["scores"] for trial in trials}

    def values(variant: str, metric: str) -> list[float]:
        return [number_at(scores[variant, seed], metric, "value") for seed in config.seeds]

    variants = config.chosen()
    baseline = next(iter(variants))
    rows: dict[str, Any] = {}
    for name, variant in variants.items():
        metrics = {}
        for metric in config.scored():
            own, base = values(name, metric), values(baseline, metric)
            gap = over_seeds(mine - theirs for mine, theirs in zip(own, base, strict=True))
            metrics[metric] = {**over_seeds(own), "difference": None if name == baseline else gap}
        rows[name] = {
            "changes": variant.changes,
            "paper": variant.paper,
            "stands_for": variant.stands_for,
            "stages": list(variant.stages),
            "published": dict(variant.published),
            "metrics": metrics,
        }
    return {
        "baseline": baseline,
        "seeds": list(config.seeds),
        "metrics": list(config.scored()),
        "columns": [
            {"label": row.label, "metric": next(iter(row.metrics), None), "missing": row.missing, "note": row.note}
            for row in config.columns()
        ],
        "n": max(int(trial["studies"]) for trial in trials),
        "variants": rows,
    }
