"""What preference training with each loss and each judge gains and costs, and what it does to robustness.

seedS/start                the model that is aligned, where the study trains it
seedS/sample               reports that it draws
seedS/judge/VARIANT        their rewards
seedS/pair/VARIANT         preference pairs
seedS/before/VARIANT       reports of the start for the test split
seedS/train/VARIANT        the aligned model, measured before and after
seedS/robustness/VARIANT   the aligned model against its start on perturbed images, where the study asks for it
preferences.json           the table over seeds
robustness_seeds.json      the audits over seeds
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, short_repr
from cxrlab.core.files import read_json
from cxrlab.core.runs import Run
from cxrlab.evaluation.config import MetricResources
from cxrlab.studies.engine import CACHE, CHECKPOINT, SUMMARY, Kind, Part, StudyConfig, StudyRecipe, Trial, merged
from cxrlab.studies.preference_tables import alignment_table, robustness_table

TABLE, AUDITS = "preferences.json", "robustness_seeds.json"


@dataclass(frozen=True)
class AlignmentVariant:
    """One way to align, given by what it changes in the shared settings.

    Args:
        changes: What is different, in one sentence.
        judge: Settings of the judge that differ.
        pair: Settings of the pairs that differ.
        train: Settings of the training that differ, such as its loss.
        published: Metric → a published figure for it.
    """

    changes: str
    judge: Mapping[str, Any] = field(default_factory=dict)
    pair: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PreferenceStudyConfig(StudyConfig):
    """What alignment by each loss and each judge gains and costs: variants of one recipe, several seeds each.

    Args:
        data: Name of the corpus: pairs come from its train split, val selects the step, test is measured.
        start: The model that is aligned: settings of `train finetune`, trained anew with each seed; or 'model' alone,
            the name of an existing one (hf:FOLDER, builtin:NAME).
        sample: Settings of the candidates.
        judge: Settings of the judge that all variants share.
        pair: Settings of the pairs that all variants share.
        train: Settings of the training that all variants share.
        robustness: Settings of an audit of every aligned model against its start, on the same images; none without.
    """

    data: str
    start: Mapping[str, Any]
    sample: Mapping[str, Any] = field(default_factory=dict)
    judge: Mapping[str, Any] = field(default_factory=dict)
    pair: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    robustness: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[str, ...] = (
        "green:rules-lc",
        "findings.f1.side",
        "errors.significant",
        "green:rules",
        "crimson:rules",
        "clinical:rules",
        "findings.f1",
        "findings.f1.full",
        "chexpert14.micro.f1:uncertain-positive",
        "errors.total",
        "rougeL:google",
        "bleu4:coco",
    )
    variant_class = AlignmentVariant

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_corpus("data")
        if not self.start:
            raise ConfigError(
                "start is empty; give the settings of 'train finetune' that make the model to align, or 'model: NAME' "
                "of an existing one."
            )
        if "model" in self.start:
            if more := [str(key) for key in self.start if key != "model"]:
                raise ConfigError(f"start names an existing model and also gives '{more[0]}'; leave out one of them.")
            name = self.start["model"]
            if not isinstance(name, str) or not name.startswith(("hf:", "builtin:")):
                raise ConfigError(
                    f"start has the model {short_repr(name)}; name one with weights: hf:FOLDER or builtin:NAME."
                )


class PreferenceStudy(StudyRecipe):
    """Aligns one model with every variant and seed, and measures it before and after."""

    config: PreferenceStudyConfig
    config_class = PreferenceStudyConfig
    title = "Alignment by preference"
    kinds = MappingProxyType(
        {
            "start": Kind("cxrlab.training.config:FinetuneConfig", "cxrlab.training.report_training:finetune"),
            "sample": Kind("cxrlab.preference.config:SampleConfig", "cxrlab.preference.sample:sample"),
            "judge": Kind("cxrlab.preference.config:JudgeConfig", "cxrlab.preference.judge:judge"),
            "pair": Kind("cxrlab.preference.config:PairConfig", "cxrlab.preference.pair:pair", ("feedback", "data")),
            "before": Kind("cxrlab.preference.config:PreferConfig", "cxrlab.preference.measure:measure_start"),
            "train": Kind("cxrlab.preference.config:PreferConfig", "cxrlab.preference.train:prefer", ("measure.data",)),
            "robustness": Kind("cxrlab.robustness.settings:RobustnessConfig", "cxrlab.robustness.audit:audit"),
        }
    )

    def plan(self) -> None:
        """Every variant with every seed; what is wrong beyond the form of a part's settings is found here too."""
        super().plan()
        if self.config.robustness:
            self.title += " and robustness"
        for part in self.parts:
            try:
                _check_part(part)
            except ConfigError as error:
                self.problems.append(f"{part.kind} of '{PurePosixPath(part.folder).name}': {error}")

    def trial(self, name: str, variant: AlignmentVariant, seed: int) -> Mapping[str, str]:
        """Start, candidates, rewards, pairs, training and audit of one variant."""
        data, model = str(self.corpora[self.config.data]), self.config.start.get("model")
        training = {"cache": str(self.out / CACHE), "optimisation": {"seed": seed}}

        def add(kind: str, own: Mapping[str, Any], changed: Mapping[str, Any] | None = None, **how: Any) -> str:
            """The folder of a part; one that no variant changes belongs to the seed."""
            place, folder = (kind, f"seed{seed}/{kind}")
            if changed is not None:
                place, folder = (f"{kind} of '{name}'", f"{folder}/{name}")
            given = merged(getattr(self.config, kind), changed or {})
            if kind == "start":
                given = self.with_folders({"data": self.config.data, **given}, place)
            return self.add(kind, folder, given, own, seed=seed, place=place, **how).folder

        started: tuple[str, ...] = ()
        if model is None:
            started = (add("start", training),)
            model = f"hf:{self.out / started[0] / CHECKPOINT}"
        sample = add("sample", {"model": model, "data": data, "split": "train", "seed": seed})
        candidates = [str(self.out / sample)]
        judge = add("judge", {"candidates": candidates, "data": data, "seed": seed}, variant.judge)
        pair = add("pair", {"rewards": str(self.out / judge), "seed": seed}, variant.pair)
        own = {
            **{"data": data, "pairs": str(self.out / pair), "start": model, **training},
            "measure": {"split": "test", "metrics": list(self.config.metrics)},
        }
        # Reports of the start are written once for all trainings that are measured in the same way.
        given = merged(self.config.train, variant.train)
        same, place, folder = [model, data, given.get("measure")], f"train of '{name}'", f"seed{seed}/before/{name}"
        before = self.add("before", folder, given, own, seed=seed, place=place, needs=started, key=same).folder
        train = add("train", own, variant.train, needs=(pair, before))
        folders = {"pair": pair, "before": before, "train": train}
        if self.config.robustness:
            versus = [f"hf:{self.out / train / CHECKPOINT}"]
            audited = {"model": model, "versus": versus, "data": data, "split": "test", "seed": seed}
            folders["robustness"] = add("robustness", audited, {})
        return folders

    def check(self) -> None:
        """Refuse starts without weights."""
        super().check()
        from cxrlab.training.llava import check_has_weights

        for part in self.parts:
            if part.kind == "start" and part.config.start is not None:
                check_has_weights(part.config.start)

    def prepare(self, run: Run) -> None:
        """Train nothing when there is nothing to learn from, to select by or to measure."""
        super().prepare(run)
        from cxrlab.data.corpus import load_corpus

        corpus = load_corpus(folder := self.corpora[self.config.data])
        selects = any(part.config.validation.n for part in self.parts if part.kind == "train")
        for split in ("train", *(("val",) if selects else ()), "test"):
            if not corpus.ids(split):
                raise DataError(f"the corpus {folder} has no study in its {split} split; take a larger one.")

    def make(self, part: Part) -> None:
        """Run a part; a judge that prefers nothing is an error."""
        folder, config = self.out / part.folder, part.config
        if part.kind == "before":
            from cxrlab.preference.measure import measure_start
            from cxrlab.training.llava import start_model_name

            model = start_model_name(config.start)
            measure_start(model, config.data, config.measure, folder, config.optimisation.seed)
        elif part.kind == "train":
            from cxrlab.preference.train import prefer

            prefer(config, folder, self.out / part.needs[-1])
        elif part.kind == "pair":
            from cxrlab.preference.pair import pair

            found = pair(config, folder)
            reasons = ("ties", "below_margin", "too_long", "too_low", "cut", "not_preferred")
            counts = [f"{reason} {getattr(found, reason):,}" for reason in reasons if getattr(found, reason)]
            if not found.kept:
                raise DataError(
                    f"{found.judge} prefers none of {found.candidates:,} reports of {found.studies:,} studies, so "
                    f"there is no pair to learn from ({', '.join(counts) or 'no two to compare'}); draw more or longer "
                    "ones under 'sample', require less under 'pair', or choose another judge."
                )
        else:
            super().make(part)

    def measured(self, trial: Trial) -> Mapping[str, Any]:
        """Summary of the pairs, and the content of preference.json."""
        return {
            "pairs": read_json(self.out / trial.parts["pair"] / SUMMARY),
            "preference": read_json(self.out / trial.parts["train"] / "preference.json"),
        }

    def results(self, trials: list[Mapping[str, Any]]) -> dict[str, Any]:
        """The table over seeds, and the audits over seeds."""
        config = self.config
        found: dict[str, Any] = {TABLE: alignment_table(config.chosen(), config.seeds, config.metrics, trials)}
        if config.robustness:
            audits = {
                (trial.variant, trial.seed): read_json(self.out / trial.parts["robustness"] / "robustness.json")
                for trial in self.trials
            }
            found[AUDITS] = robustness_table(config.chosen(), config.seeds, audits)
        return {**found, SUMMARY: {"about": f"{len(config.variants)} ways to align; seeds: {len(config.seeds)}."}}

    def page_runs(self) -> list[Path]:
        """The first aligned model, with its reports before and after, and its audit."""
        parts = {role: self.out / folder for role, folder in self.trials[0].parts.items()}
        audits = [parts["robustness"]] if "robustness" in parts else []
        return [parts["train"], parts["before"] / "before", parts["train"] / "measured" / "after", *audits]


def _check_part(part: Part) -> None:
    """Refuse an unknown judge, a single candidate, and a training that measures nothing."""
    from cxrlab.preference.config import JudgeConfig, PreferConfig, SampleConfig
    from cxrlab.preference.judge import chosen_judge
    from cxrlab.preference.judges import metric_judge

    config = part.config
    if isinstance(config, JudgeConfig) and config.extras == MetricResources():  # weights are loaded by the run alone
        chosen_judge(config)
    if isinstance(config, SampleConfig) and config.answers + config.greedy < 2:
        raise ConfigError("answers=1 leaves nothing to choose from; give at least 2.")
    if part.kind == "train" and isinstance(config, PreferConfig):
        if not config.measure.n:
            raise ConfigError("measure.n=0 measures nothing, and the table would be empty; give a number from 1.")
        if config.validation.n:
            metric_judge(config.validation.judge)
