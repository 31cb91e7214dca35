"""Settings of the ablations: corpora, the three stages of the full recipe, and what each variant changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.studies.variants import check_names, checked_variants

STAGES = (1, 2, 3)


@dataclass(frozen=True)
class Variant:
    """One way to train, told by what it changes in the full recipe.

    Args:
        changes: What is different, in one sentence.
        paper: What the paper calls it, where it is one of the paper's.
        stands_for: The published start or data that a phantom analogue stands for.
        stages: Which stages are run.
        vision_encoder: Start of the encoder instead of the recipe's: what stage 1 trains or, without stage 1, what
            stage 2 (or 3) takes as it is.
        language_model: Start of the language model instead of the recipe's.
        model: A whole model, its projector included, that stage 2 (or 3) starts from instead of separate parts.
        encoder: Settings of stage 1 that differ.
        align: Settings of stage 2 that differ.
        finetune: Settings of stage 3 that differ.
        prompts: Prompts that the trained model is asked with; those that it was trained with when left out.
        published: Metric → the paper's figure for it.
    """

    changes: str
    paper: str | None = None
    stands_for: str | None = None
    stages: tuple[int, ...] = STAGES
    vision_encoder: str | None = None
    language_model: str | None = None
    model: str | None = None
    encoder: Mapping[str, Any] = field(default_factory=dict)
    align: Mapping[str, Any] = field(default_factory=dict)
    finetune: Mapping[str, Any] = field(default_factory=dict)
    prompts: str | None = None
    published: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if set(self.stages) - set(STAGES) or not set(self.stages) & {2, 3}:
            raise ConfigError(
                f"stages={list(self.stages)} is not usable; list some of 1, 2, 3, with 2 or 3 among them: without "
                "either there is no model that writes."
            )
        if list(self.stages) != sorted(set(self.stages)):
            raise ConfigError(f"stages={list(self.stages)} is not usable; list each once, in order.")
        if self.model and (1 in self.stages or self.vision_encoder or self.language_model):
            raise ConfigError(
                "'model' is a whole model; it goes with neither stage 1 nor 'vision encoder' nor 'language_model'."
            )
        for stage, name in ((1, "encoder"), (2, "align"), (3, "finetune")):
            if getattr(self, name) and stage not in self.stages:
                raise ConfigError(f"'{name}' changes settings of stage {stage}, which this variant does not run.")


@dataclass(frozen=True)
class AblationsConfig:
    """What each stage and each kind of data is worth: variants of one recipe, several seeds each.

    Args:
        corpora: Name → folder of a corpus, or how to make one: phantom, scenes, structured or composed with settings.
        test: Name of the corpus whose test split the models are scored on.
        vision_encoder: Start of the vision encoder.
        language_model: Start of the language model.
        encoder: Settings of stage 1 in the full recipe; 'data' names a corpus of the list.
        align: Settings of stage 2.
        finetune: Settings of stage 3.
        variants: Name → what it changes; the first is the full recipe, to which the others are compared.
        seeds: One training each; data order, new weights and dropout come from it.
        at_once: Seeds that are trained side by side, each in a process of its own, at most one per
            core; small models leave a GPU waiting.
        metrics: Names of the metrics in the table, the most telling first.
        n: Test studies; every one when left out.
        control_studies: Test studies that each model is shown with wrong images too, to see whether it looks at them.
        batch_size: Images given to a model at once when it writes.
        max_new_tokens: Longest report, in tokens.
        loading: How the trained models are opened for writing (device, dtype).
        trials: Bootstrap resamples and swaps of the comparison within a seed.
    """

    corpora: Mapping[str, Any]
    test: str
    vision_encoder: str
    language_model: str
    variants: Mapping[str, Any]
    encoder: Mapping[str, Any] = field(default_factory=dict)
    align: Mapping[str, Any] = field(default_factory=dict)
    finetune: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (1, 2, 3)
    at_once: int = 1
    metrics: tuple[str, ...] = ("findings.f1.side", "findings.f1", "findings.f1.full", "green:rules", "rougeL:google")
    n: int | None = None
    control_studies: int = 50
    batch_size: int = 64
    max_new_tokens: int = 256
    loading: Mapping[str, Any] = field(default_factory=dict)
    trials: int = 1000

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ConfigError(f"seeds={list(self.seeds)} is not usable; list different whole numbers from 0.")
        if not self.metrics:
            raise ConfigError("metrics is empty; name at least one, such as findings.f1.side.")
        least_of = {"n": 1, "at_once": 1, "control_studies": 0, "batch_size": 1, "max_new_tokens": 1, "trials": 1}
        for name, least in least_of.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {least}.")
        check_names("corpora", self.corpora)
        check_names("variants", self.variants)
        if taken := {"scores", "comparison"} & set(self.variants):
            raise ConfigError(f"variants has the name '{min(taken)}', which is a folder of its own; choose another.")
        if self.test not in self.corpora:
            raise ConfigError(f"test='{self.test}' is no corpus of the list.{did_you_mean(self.test, self.corpora)}")
        self.chosen()  # refuses what is wrong with a variant

    def chosen(self) -> dict[str, Variant]:
        """The variants by name, every setting checked; all problems are told at once."""
        found = checked_variants(Variant, self.variants)
        if len(found) < 2:
            raise ConfigError("variants has fewer than two rows; give the full recipe first, then the others.")
        return found
