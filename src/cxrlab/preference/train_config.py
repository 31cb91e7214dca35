"""Settings of preference training; none of this imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, Literal

from cxrlab.core.errors import ConfigError
from cxrlab.training.config import Optimisation

# Settings that may differ when a run is continued: they change speed and what is kept, not the result.
FREE = ("optimisation.workers", "optimisation.save_every", "cache", "cache_images", "cache_gb", "watch.batch_size")
UNPAIRED = "kto"
# Loss → the strength it has when none is given, and the settings that it heeds beside it.
LOSSES: Mapping[str, tuple[float, tuple[str, ...]]] = {
    "dpo": (0.1, ()),
    "ipo": (0.1, ()),
    "kto": (0.1, ("desirable_weight", "undesirable_weight")),
    "orpo": (0.1, ()),
    "simpo": (2.0, ("gamma",)),
    "rdpo": (0.1, ("alpha",)),
    "robust": (0.1, ("flipped",)),
}
WITHOUT_REFERENCE = ("orpo", "simpo")  # losses that need no second model


@dataclass(frozen=True)
class LossSettings:
    """What is minimised.

    Args:
        name: dpo, ipo, kto (reports that are good or bad by themselves), orpo and simpo (no reference model), rdpo
            (longer reports are not preferred for their length), or robust (some pairs are the wrong way round).
        beta: How strongly the model is held to its start; for simpo and orpo the weight of the preference. Each loss
            has its own when left out.
        alpha: For rdpo; what a token of difference in length is worth.
        gamma: For simpo; margin that the scaled difference should exceed.
        flipped: For robust; share of pairs that are the wrong way round, below one half.
        desirable_weight: For kto.
        undesirable_weight: For kto.
    """

    name: Literal["dpo", "ipo", "kto", "orpo", "simpo", "rdpo", "robust"] = "dpo"
    beta: float | None = None
    alpha: float = 0.05
    gamma: float = 0.5
    flipped: float = 0.1
    desirable_weight: float = 1.0
    undesirable_weight: float = 1.0

    def __post_init__(self) -> None:
        heeded = ("name", "beta", *LOSSES[self.name][1])
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in heeded and value != field.default:
                able = [name for name, (_, more) in LOSSES.items() if field.name in more]
                raise ConfigError(
                    f"{field.name}={value} is not heeded by loss.name={self.name}; give loss.name="
                    f"{' or '.join(able)} with it."
                )
        if not self.strength > 0:
            raise ConfigError(f"beta={self.beta} is not usable; give a number above 0.")
        if not 0.0 <= self.flipped < 0.5:
            raise ConfigError(f"flipped={self.flipped} is not usable; give a share from 0 to below 0.5.")
        for name in ("desirable_weight", "undesirable_weight", "alpha", "gamma"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a number of at least 0.")

    @property
    def strength(self) -> float:
        """Beta, or the loss's own where none is given."""
        return LOSSES[self.name][0] if self.beta is None else self.beta

    @property
    def paired(self) -> bool:
        """Whether it compares two reports of one study."""
        return self.name != UNPAIRED

    @property
    def needs_reference(self) -> bool:
        """Whether it asks how likely the model found the reports before."""
        return self.name not in WITHOUT_REFERENCE


@dataclass(frozen=True)
class Watch:
    """Reports that are written and judged while the training runs, from which the best checkpoint is chosen.

    Args:
        split: Of the corpus; its studies must not be among the pairs.
        n: Number of studies, drawn with the seed; 0 watches nothing and keeps the last step.
        judge: A metric with a value a report, or a mix of them; see `cxrlab prefer judge`.
        select: Keep the step with the best length-controlled judgement (length-controlled), the best judgement
            (reward), or the last step (last).
        max_new_tokens: Longest report, in tokens.
        batch_size: Images at once.
    """

    split: Literal["val"] = "val"
    n: int = 100
    judge: str = "green:rules"
    select: Literal["length-controlled", "reward", "last"] = "length-controlled"
    max_new_tokens: int = 256
    batch_size: int = 16

    def __post_init__(self) -> None:
        for name, least in (("n", 0), ("max_new_tokens", 1), ("batch_size", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a whole number from {least}.")


@dataclass(frozen=True)
class Measure:
    """What is compared between the model before alignment and after it.

    Args:
        data: Corpus folder; that of the pairs when left out.
        split: Of the corpus; its studies must not be among the pairs.
        n: Number of studies, drawn with the seed; 0 measures nothing.
        metrics: Names, patterns or groups of metrics, which are also what the verdicts are corrected for; errors by
            kind are counted beside them.
        drift: Draw a report of the aligned model for every study and weigh it with both: KL(after from before).
        questions: Ask closed questions with known answers: whether another task has suffered.
        encoder: Name of a contrastive encoder, by which each report looks for its image; nothing is looked for when
            left out.
        control_studies: Studies that are also answered with wrong images, at most.
        max_new_tokens: Longest report, in tokens.
        batch_size: Images at once.
    """

    data: Path | None = None
    split: Literal["val", "test"] = "test"
    n: int = 200
    metrics: tuple[str, ...] = (
        "green:rules",
        "green:rules-lc",
        "crimson:rules",
        "clinical:rules",
        "findings.f1",
        "findings.f1.side",
        "findings.f1.full",
        "chexpert14.micro.f1:uncertain-positive",
        "errors.total",
        "errors.significant",
        "rougeL:google",
        "bleu4:coco",
    )
    drift: bool = True
    questions: bool = True
    encoder: str | None = None
    control_studies: int = 50
    max_new_tokens: int = 256
    batch_size: int = 16

    def __post_init__(self) -> None:
        for name, least in (("n", 0), ("max_new_tokens", 1), ("batch_size", 1), ("control_studies", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a whole number from {least}.")


@dataclass(frozen=True)
class PreferConfig:
    """Preference training: a report model learns to write what was judged better.

    Args:
        data: Corpus folder with the images of the pairs.
        pairs: Run of `prefer pair`, or a file of pairs; for kto also a file of single reports that are good or bad.
        start: The model to align, which is also the reference: a run of `train finetune`, hf:FOLDER (an adapter is
            allowed) or builtin:NAME.
        loss: What is minimised.
        train_projector: Train the projector too.
        lora_rank: Rank of the adapters on the language model's linear layers; 0 trains the whole language model.
        lora_alpha: Their scale, divided by the rank.
        lora_dropout: Share of their inputs that is dropped.
        prompts: Row of the prompts' table, or a YAML file of that form; that of the start when left out. The start is
            measured with its own.
        n: Number of pairs drawn; all when left out.
        watch: What is looked at while it runs; see optimisation.evaluate_every.
        measure: What is compared afterwards.
        optimisation: How the weights are moved; a sample is a pair.
        cache: Folder for decoded images, features of the frozen encoder and reference log-probabilities, may be shared
            between runs; RUN/cache when left out.
        cache_images: Decode every image once: auto (up to `cache_gb`), on or off.
        cache_features: Run the frozen vision encoder once over every image: auto (up to `cache_gb`), on or off.
        cache_gb: Largest cache that auto makes, in 10^9 bytes, for images and features each.
    """

    data: Path
    pairs: Path
    start: str
    loss: LossSettings = LossSettings()
    train_projector: bool = False
    lora_rank: int = 64
    lora_alpha: float = 128.0
    lora_dropout: float = 0.0
    prompts: str | None = None
    n: int | None = None
    watch: Watch = Watch()
    measure: Measure = Measure()
    optimisation: Optimisation = Optimisation(learning_rate=5e-6, warmup=0.1, batch_size=8)
    cache: Path | None = None
    cache_images: Literal["auto", "on", "off"] = "auto"
    cache_features: Literal["auto", "on", "off"] = "auto"
    cache_gb: float = 40.0

    train_language: ClassVar[bool] = True  # what `choose_trained` asks of every recipe
    train_vision_encoder: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.n is not None and self.n < 1:
            raise ConfigError(f"n={self.n} is not usable; give a whole number from 1.")
        if self.lora_rank < 0 or not self.lora_alpha > 0:
            raise ConfigError(f"lora_rank={self.lora_rank} with lora_alpha={self.lora_alpha} is not usable; give a "
                              "rank of at least 0 and an alpha above 0.")  # fmt: skip
        if not 0.0 <= self.lora_dropout < 1.0:
            raise ConfigError(f"lora_dropout={self.lora_dropout} is not usable; give a share from 0 to below 1.")
        if self.cache_gb < 0:
            raise ConfigError(f"cache_gb={self.cache_gb} is not usable; give a number of at least 0.")
        if not self.loss.paired and self.optimisation.batch_size < 2:
            raise ConfigError(
                f"optimisation.batch_size={self.optimisation.batch_size} is not usable; give at least 2 with "
                "loss.name=kto, which compares reports with those of other studies."
            )
