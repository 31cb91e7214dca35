"""What preference training with each loss and each judge gains and costs, and what it does to robustness.

seedS/start                the model that is aligned, where the study trains it
seedS/sample               reports sampled from it
seedS/judge/VARIANT        their rewards
seedS/pair/VARIANT         preference pairs
seedS/before/VARIANT       reports of the start for the test split
seedS/train/VARIANT        the aligned model, measured before and after
seedS/harden/CONTROL       positive controls of robustness: a hardened encoder,
seedS/finetune/CONTROL     or more training of the start, such as on noisy images
seedS/robustness           all aligned models and controls against their start on perturbed images, where asked for
preferences.json           the table over seeds
robustness_seeds.json      the audits over seeds: changes of drops over the drift, equivalence, calibration
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from string import ascii_lowercase
from types import MappingProxyType
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, short_repr
from cxrlab.core.files import read_json
from cxrlab.core.json_values import nan_if_none, plain
from cxrlab.core.runs import Run
from cxrlab.core.terminal import NoticeStream
from cxrlab.evaluation.config import MetricResources
from cxrlab.robustness.audit_records import WORST
from cxrlab.robustness.config import RobustnessConfig
from cxrlab.studies.dose_response import START, EquivalenceSettings, dose_response
from cxrlab.studies.engine import CACHE, CHECKPOINT, SUMMARY, Kind, Part, StudyConfig, StudyRecipe, Trial, merged
from cxrlab.studies.over_seeds import excludes_zero, number_at, over_seeds

TABLE, AUDITS = "preferences.json", "robustness_seeds.json"
ALPHA = 0.05
Record = Mapping[str, Any]


@dataclass(frozen=True)
class AlignmentVariant:
    """One way to align, given by what it changes in the shared settings."""

    changes: str  # what is different, in one sentence
    judge: Mapping[str, Any] = field(default_factory=dict)  # settings of the judge that differ
    pair: Mapping[str, Any] = field(default_factory=dict)  # settings of the pairs that differ
    train: Mapping[str, Any] = field(default_factory=dict)  # settings of the training that differ, such as its loss
    published: Mapping[str, Any] = field(default_factory=dict)  # metric → a published figure for it


@dataclass(frozen=True)
class PositiveControl:
    """A model made from the start that must differ in robustness: of `harden` and `finetune` exactly one."""

    changes: str  # what is different, in one sentence
    harden: Mapping[str, Any] = field(default_factory=dict)  # settings of `cxrlab harden`
    finetune: Mapping[str, Any] = field(default_factory=dict)  # settings of `cxrlab train finetune`

    def __post_init__(self) -> None:
        if bool(self.harden) == bool(self.finetune):
            raise ConfigError("a control needs settings under either 'harden' or 'finetune'.")


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
        controls: Positive controls of the audit: name → what is done to the start to change its robustness.
        equivalence: The claim about drops under attack that the audits test.
    """

    data: str
    start: Mapping[str, Any]
    sample: Mapping[str, Any] = field(default_factory=dict)
    judge: Mapping[str, Any] = field(default_factory=dict)
    pair: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    robustness: Mapping[str, Any] = field(default_factory=dict)
    controls: Mapping[str, Any] = field(default_factory=dict)
    equivalence: EquivalenceSettings = EquivalenceSettings()
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
        self.check_names("controls", self.controls)
        if self.controls and not self.robustness:
            raise ConfigError("controls are controls of the audit; give settings under robustness, or leave them out.")
        if both := set(self.checked_rows("controls", PositiveControl)) & set(self.variants):
            raise ConfigError(f"'{min(both)}' is both a variant and a control; rename one of them.")
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
            "start": Kind("cxrlab.training.config:FinetuneConfig", "cxrlab.training.align_finetune:finetune"),
            "sample": Kind("cxrlab.preference.config:SampleConfig", "cxrlab.preference.sample_candidates:sample"),
            "judge": Kind("cxrlab.preference.config:JudgeConfig", "cxrlab.preference.judge_candidates:judge"),
            "pair": Kind(
                "cxrlab.preference.config:PairConfig", "cxrlab.preference.make_pairs:pair", ("feedback", "data")
            ),
            "before": Kind(
                "cxrlab.preference.config:PreferConfig", "cxrlab.preference.measure_alignment:measure_start"
            ),
            "train": Kind("cxrlab.preference.config:PreferConfig", "cxrlab.preference.train:prefer", ("measure.data",)),
            "harden": Kind("cxrlab.robustness.config:HardenConfig", "cxrlab.robustness.harden:harden"),
            "finetune": Kind("cxrlab.training.config:FinetuneConfig", "cxrlab.training.align_finetune:finetune"),
            "robustness": Kind("cxrlab.robustness.config:RobustnessConfig", "cxrlab.robustness.audit:audit"),
        }
    )

    def plan(self) -> None:
        """Every variant with every seed; what is wrong beyond the form of a part's settings is found here too."""
        self._starts: dict[int, str] = {}
        super().plan()
        if self.config.robustness:
            self.title += " and robustness"
            for seed in self.config.seeds:
                self._plan_audit(seed)
        for part in self.parts:
            try:
                self._check_part(part.kind, part.config)
            except ConfigError as error:
                self.problems.append(f"{part.kind} of '{PurePosixPath(part.folder).name}': {error}")

    def _plan_audit(self, seed: int) -> None:
        """The controls of a seed, and one audit of its start against everything that was made from it."""
        data, start, made = str(self.corpora[self.config.data]), self._starts[seed], []
        common = {"data": data, "cache": str(self.out / CACHE)}
        for name, control in self.controls.items():
            kind, place = ("harden" if control.harden else "finetune"), f"control '{name}'"
            given, own = control.harden, {**common, "model": start, "seed": seed}
            if control.finetune:
                given, own = control.finetune, {**common, "start": start, "optimisation": {"seed": seed}}
            made.append(self.add(kind, f"seed{seed}/{kind}/{name}", given, own, seed=seed, place=place).folder)
        trials = [trial for trial in self.trials if trial.seed == seed]
        versus = [f"hf:{self.out / folder / CHECKPOINT}" for folder in (*(one.parts["train"] for one in trials), *made)]
        own = {"model": start, "versus": versus, "data": data, "split": "test", "seed": seed}
        folder = f"seed{seed}/robustness"
        self.add("robustness", folder, self.config.robustness, own, seed=seed, place="robustness")
        audited = {trial.id: replace(trial, parts={**trial.parts, "robustness": folder}) for trial in trials}
        self.trials = [audited.get(trial.id, trial) for trial in self.trials]

    @property
    def controls(self) -> dict[str, PositiveControl]:
        """The positive controls by name."""
        return self.config.checked_rows("controls", PositiveControl)

    @property
    def audit_keys(self) -> dict[str, str]:
        """Name of a variant or control → its key in every audit; the start is a."""
        return dict(zip((*self.config.chosen(), *self.controls), ascii_lowercase[1:], strict=False))

    def _check_part(self, kind: str, config: Any) -> None:
        """Refuse an unknown judge, a single candidate, and a training that measures nothing."""
        from cxrlab.preference.config import JudgeConfig, PreferConfig, SampleConfig
        from cxrlab.preference.judge_candidates import chosen_judge
        from cxrlab.preference.judges import metric_judge

        if isinstance(config, JudgeConfig) and config.extras == MetricResources():  # the run alone loads weights
            chosen_judge(config)
        if isinstance(config, SampleConfig) and config.answers + config.greedy < 2:
            raise ConfigError("answers=1 leaves nothing to choose from; give at least 2.")
        if kind == "train" and isinstance(config, PreferConfig):
            if not config.measure.n:
                raise ConfigError("measure.n=0 measures nothing, and the table would be empty; give a number from 1.")
            if config.validation.n:
                metric_judge(config.validation.judge)

    def trial(self, name: str, variant: AlignmentVariant, seed: int) -> Mapping[str, str]:
        """Start, candidates, rewards, pairs and training of one variant."""
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
        self._starts[seed] = model
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
        return {"pair": pair, "before": before, "train": train}

    def check(self) -> None:
        """Refuse starts without weights."""
        super().check()
        from cxrlab.training.report_model import check_has_weights

        for part in self.parts:
            if part.kind == "start" and part.config.start is not None:
                check_has_weights(part.config.start)

    def prepare(self, run: Run) -> None:
        """Train nothing when there is nothing to learn from, to select by or to measure."""
        super().prepare(run)
        selects = any(part.config.validation.n for part in self.parts if part.kind == "train")
        self.check_splits(self.config.data, ("train", *(("val",) if selects else ()), "test"))

    def make(self, part: Part) -> None:
        """Run a part; a judge that prefers nothing is an error."""
        folder, config = self.out / part.folder, part.config
        if part.kind == "before":
            from cxrlab.preference.measure_alignment import measure_start
            from cxrlab.training.report_model import start_model_name

            model = start_model_name(config.start)
            measure_start(model, config.data, config.measure, folder, config.optimisation.seed)
        elif part.kind == "train":
            from cxrlab.preference.train import prefer

            prefer(config, folder, self.out / part.needs[-1])
        elif part.kind == "pair":
            from cxrlab.preference.make_pairs import pair

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
            folders = {seed: self.out / f"seed{seed}/robustness" for seed in config.seeds}
            audits = {seed: read_json(folder / "robustness.json") for seed, folder in folders.items()}
            drift: dict[str, list[float]] = {name: [] for name in config.chosen()}
            for trial in trials:
                drift[trial["variant"]].append(number_at(trial["preference"], "drift", "kl_token"))
            keys, aims = self.audit_keys, config.robustness.get("aims", RobustnessConfig.aims)
            response = dose_response(folders, keys, list(self.controls), drift, aims, config.equivalence)
            rows = {**config.chosen(), **self.controls}
            table = robustness_table({name: row.changes for name, row in rows.items()}, keys, audits)
            aligned = {name: table["variants"].pop(name) for name in config.chosen()}
            for name, values in drift.items():
                aligned[name]["drift"] = over_seeds(values)
            found[AUDITS] = {
                **table,
                "variants": aligned,
                "controls": table["variants"],
                "independent_starts": "model" not in config.start,
                "dose_response": response,
            }
        about = [f"{len(config.variants)} ways to align; seeds: {len(config.seeds)}."]
        about += [one["sentence"] for one in found.get(AUDITS, {}).get("dose_response", {}).get("metrics", ())]
        for line in about[1:]:
            NoticeStream(sys.stderr).write(f"{line}\n")
        return {**found, SUMMARY: {"about": " ".join(about)}}

    def page_runs(self) -> list[Path]:
        """The first aligned model, with its reports before and after, and its audit."""
        parts = {role: self.out / folder for role, folder in self.trials[0].parts.items()}
        audits = [parts["robustness"]] if "robustness" in parts else []
        return [parts["train"], parts["before"] / "before", parts["train"] / "measured" / "after", *audits]


def alignment_table(
    variants: Mapping[str, AlignmentVariant], seeds: Sequence[int], metrics: Sequence[str], trials: Sequence[Record]
) -> dict[str, Any]:
    """Content of preferences.json: each variant's figures, as mean with Student's interval over seeds.

    Args:
        trials: Lines of trials.jsonl: variant, seed, summary of the pairs and content of preference.json.
    """
    by_id = {(str(trial["variant"]), int(trial["seed"])): trial for trial in trials}
    first = trials[0]["preference"]["difference"]
    return {
        "seeds": list(seeds),
        "metrics": list(metrics),
        "directions": {metric: first[metric]["direction"] for metric in metrics},
        "n": max(int(trial["preference"]["n"]) for trial in trials),
        "patients": max(int(trial["preference"]["patients"]) for trial in trials),
        "variants": {
            name: {
                "changes": variant.changes,
                "published": dict(variant.published),
                **_aligned_figures([by_id[name, seed] for seed in seeds], metrics),
            }
            for name, variant in variants.items()
        },
    }


def _aligned_figures(trials: Sequence[Record], metrics: Sequence[str]) -> dict[str, Any]:
    """Metrics, report length, drift, closed questions and training of one variant, over its seeds."""
    sides = ("before", "after")
    found = [trial["preference"] for trial in trials]

    def numbers(*keys: str) -> list[float]:
        return [number_at(one, *keys) for one in found]

    def both(*keys: str) -> dict[str, Any]:
        return {side: over_seeds(numbers(*keys, side)) for side in sides}

    def change(*keys: str) -> dict[str, Any]:
        """The change over seeds, and of each seed with its paired interval by patient."""
        by_seed = []
        for trial, *row in zip(trials, *(numbers(*keys, end) for end in ("difference", "low", "high")), strict=True):
            values = plain(dict(zip(("difference", "low", "high"), row, strict=True)))
            by_seed.append({"seed": trial["seed"], **values, "excludes_zero": excludes_zero(row[1], row[2])})
        return {"difference": over_seeds(numbers(*keys, "difference")), "by_seed": by_seed}

    reference = numbers("length", "reference")
    words = {side: numbers("length", "words", side) for side in sides}
    error = ("questions", "calibration_error")
    rise = [after - before for before, after in zip(numbers(*error, "before"), numbers(*error, "after"), strict=True)]
    return {
        "metrics": {
            metric: {
                **{side: over_seeds(numbers(side, metric, "value")) for side in sides},
                **change("difference", metric),
            }
            for metric in metrics
        },
        "words": {side: over_seeds(counts) for side, counts in {**words, "reference": reference}.items()},
        "length_ratio": {  # each ratio is one of means
            side: over_seeds(own / whole if whole else math.nan for own, whole in zip(counts, reference, strict=True))
            for side, counts in words.items()
        },
        "drift": {key: over_seeds(numbers("drift", key)) for key in ("kl_report", "kl_token")},
        "accuracy": {**both("questions", "accuracy"), **change("questions", "accuracy")},
        "calibration_error": {**both(*error), "difference": over_seeds(rise)},
        "pairs": over_seeds(nan_if_none(trial["pairs"]["kept"]) for trial in trials),
        "chosen_longer": over_seeds(nan_if_none(trial["pairs"]["chosen_longer"]) for trial in trials),
        "step": over_seeds(numbers("selection", "step")),
        "steps": over_seeds(numbers("selection", "of")),
    }


_CALIBRATION = (
    "closed_questions.confidence",
    "closed_questions.ece",
    "closed_questions.ece_fixed",
    "closed_questions.ece.scaled",
    "closed_questions.ece_fixed.scaled",
    "closed_questions.risk_coverage",
    "closed_questions.outside",
)


def robustness_table(
    changes: Mapping[str, str], keys: Mapping[str, str], audits: Mapping[int, Record]
) -> dict[str, Any]:
    """Content of robustness_seeds.json.

    Args:
        changes: Name of each model made from the start → what is different about it.
        keys: Its key in every audit.
        audits: Seed → content of robustness.json of its start (a) against these models.

    Returns:
        For each model, condition and quantity: start and aligned model, their difference under attack and the
        difference of their drops, as mean over seeds with Student's interval, and per seed with its paired interval
        and corrected p.
    """
    seeds, rows = list(audits), {}
    for name, key in keys.items():
        models = [{model["key"]: model for model in audit["models"].values()} for audit in audits.values()]
        pairs = [audit["comparison"][f"{START}:{key}"] for audit in audits.values()]
        shared = [one for one in pairs[0]["conditions"] if all(one in pair["conditions"] for pair in pairs)]
        rows[name] = {
            "changes": changes[name],
            "equal_clean": [pair["equal_clean"] for pair in pairs],
            "clean": _both([{role: one[role]["clean"] for role in (START, key)} for one in models], key),
            "conditions": {key: _condition([pair["conditions"][key] for pair in pairs], seeds) for key in shared},
            "calibration": {
                one: _both(
                    [{role: found[role]["attacks"].get(one, {}) for role in (START, key)} for found in models],
                    key,
                    _CALIBRATION,
                )
                for one in shared
                if not one.startswith(WORST)
            },
            "temperature": {
                role: over_seeds(number_at(found[place], "temperature", "temperature") for found in models)
                for place, role in ((START, "start"), (key, "aligned"))
            },
            "blanks_negative": {
                one: _both(
                    [{role: found[role]["blanks_negative"][one] for role in (START, key)} for found in models], key
                )
                for one in (("clean", *shared) if all("blanks_negative" in found[START] for found in models) else ())
                if not one.startswith(WORST)
            },
            "flips": {one: [pair["flips"].get(one) for pair in pairs] for one in shared},
            "transfer": {  # share of the harm that transfers
                one: {
                    direction: over_seeds(
                        number_at(pair["transfer"], one, way, "ratios", "findings.f1", "value") for pair in pairs
                    )
                    for way, direction in (("a_to_b", "start_to_aligned"), ("b_to_a", "aligned_to_start"))
                }
                for one in shared
            },
        }
    first = next(iter(audits.values()))
    one = first["comparison"][f"{START}:{next(iter(keys.values()))}"]
    return {
        "seeds": seeds,
        "n": one["n"],
        "patients": one["patients"],
        "threat": first["threat"],
        "warnings": sorted(line for audit in audits.values() for line in audit["warnings"]),  # repeats count audits
        "variants": rows,
    }


def _both(found: Sequence[Record], key: str, names: Sequence[str] = ()) -> dict[str, Any]:
    """Quantity → start and aligned model over seeds, for quantities that all have."""
    return {
        quantity: {
            role: over_seeds(number_at(one[place], quantity, "value") for one in found)
            for place, role in ((START, "start"), (key, "aligned"))
        }
        for quantity in names or found[0][START]
        if all(quantity in one[place] for one in found for place in (START, key))
    }


def _condition(audits: Sequence[Record], seeds: Sequence[int]) -> dict[str, Any]:
    """Every quantity under one condition."""
    found = {}
    for name in [name for name in audits[0] if all(name in audit for audit in audits)]:
        rows = [audit[name] for audit in audits]
        found[name] = {
            "start": over_seeds(row["a"] for row in rows),
            "aligned": over_seeds(row["b"] for row in rows),
            "difference": _tested(rows, "difference", seeds),
            "smallest_detectable": over_seeds(row.get("smallest_detectable") for row in rows),
        }
        if all("drop" in row for row in rows):
            found[name]["drop"] = _tested([row["drop"] for row in rows], "value", seeds)
    return found


def _tested(rows: Sequence[Record], key: str, seeds: Sequence[int]) -> dict[str, Any]:
    """A change over seeds and per seed, and in how many seeds it is significant after correction."""
    by_seed = [
        {"seed": seed, "value": row[key], "low": row["low"], "high": row["high"], "p_holm": row.get("p_holm")}
        for seed, row in zip(seeds, rows, strict=True)
    ]
    clear = [row for row in by_seed if row["p_holm"] is not None and row["p_holm"] < ALPHA]
    signs = {nan_if_none(row["value"]) > 0 for row in clear}
    return {**over_seeds(row[key] for row in rows), "by_seed": by_seed, "clear": len(clear), "same_way": len(signs) < 2}
