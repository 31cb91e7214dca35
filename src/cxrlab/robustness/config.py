"""Settings of `cxrlab robustness` and `cxrlab harden`: each field is a flag and a key of a YAML file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cxrlab.attacks.config import ATTACKS, AttackSettings, Budget, Norm, parse_eps
from cxrlab.attacks.corruptions import CORRUPTIONS, SEVERITIES
from cxrlab.attacks.input_transformations import InputTransformation, parse_transformation
from cxrlab.attacks.regions import parse_region
from cxrlab.core.config import check_at_least
from cxrlab.core.egress import connection_operational_fields
from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.records import SECTIONS, SPLITS
from cxrlab.core.registry import Registry
from cxrlab.core.vocabulary import observation
from cxrlab.data.config import ContextConfig
from cxrlab.evaluation.config import CONTROL_IMAGES
from cxrlab.models.baselines import REPORTS
from cxrlab.models.decoding import Decoding
from cxrlab.models.load_settings import LoadSettings

REPORT, ANSWERS, EMBEDDING = "report", "answers", "embedding"
TARGET, REMOVE, INVENT = "target", "remove", "invent"
TARGETED_AIMS = (TARGET, REMOVE, INVENT)
AIMS = (REPORT, ANSWERS, EMBEDDING, *TARGETED_AIMS)
ALL = "all"

# Settings that may differ when a run is continued: they change memory, speed and what is kept, not the results.
OPERATIONAL = (
    "batch_size",
    "micro_batch",
    "gradient_checkpointing",
    "smoothing.batch_size",
    *connection_operational_fields("loading.connection"),
)
HARDEN_OPERATIONAL = ("save_every", "cache", *connection_operational_fields("loading.connection"))

SMOOTHED, DEFENDED = "smoothed", "defended"
_EXAMPLE = f"write it like {SMOOTHED}:0.1:builtin:reporter"


@dataclass(frozen=True)
class AttackGoals:
    """Target report and findings of the aims target, remove and invent.

    Args:
        report: Target report of the aim target.
        remove: Finding to remove from the report; the first finding of each clean report when left out.
        invent: Finding to put into the report.
    """

    report: str = REPORTS["normal"]
    remove: str | None = None
    invent: str = "pneumothorax"

    def __post_init__(self) -> None:
        if not self.report.strip():
            raise ConfigError("goals.report is empty; give the target report with --goals.report.")
        for name in (self.remove, self.invent):
            if name is not None:
                observation(name)  # raises for a name that the vocabulary does not have


@dataclass(frozen=True)
class SmoothingSettings:
    """How models named smoothed:SIGMA:MODEL vote; SIGMA is the standard deviation of the noise.

    Args:
        copies: Noisy copies of an image that vote on each closed answer.
        attack_copies: Number of copies whose mean answer an attack follows.
        alpha: Probability with which a certified answer may be wrong.
        batch_size: Noisy copies per batch.
    """

    copies: int = 100
    attack_copies: int = 8
    alpha: float = 0.001
    batch_size: int = 32

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ConfigError(f"alpha={self.alpha} is not usable; give a probability between 0 and 1, such as 0.001.")
        check_at_least(self, batch_size=1)
        least = math.floor(1 - math.log2(self.alpha)) + 1  # (alpha / 2)^(1 / copies) must exceed one half
        if self.copies < least:
            raise ConfigError(
                f"copies={self.copies} give no majority at alpha={self.alpha:g} even if all agree; use copies >= {least}."
            )
        if not 1 <= self.attack_copies <= self.copies:
            raise ConfigError(
                f"attack_copies={self.attack_copies} is not usable; give a whole number from 1 to copies={self.copies}."
            )


def parse_smoothed(name: str) -> tuple[float, str] | None:
    """SIGMA and MODEL of smoothed:SIGMA:MODEL; None for other names, a `ConfigError` where either is missing."""
    kind, _, rest = name.partition(":")
    if kind != SMOOTHED:
        return None
    text, _, model = rest.partition(":")
    try:
        sigma = float(text)
    except ValueError:
        sigma = math.nan
    if not (math.isfinite(sigma) and sigma > 0):
        raise ConfigError(f"'{name}' has the noise '{text}', which is not a number above 0; {_EXAMPLE}.")
    if not model:
        raise ConfigError(f"'{name}' names no model to smooth; {_EXAMPLE}.")
    if model.partition(":")[0] in (SMOOTHED, DEFENDED):
        raise ConfigError(f"'{name}' defends a model twice; {_EXAMPLE}.")
    return sigma, model


def parse_defended(name: str) -> tuple[InputTransformation, str] | None:
    """Transformation and MODEL of defended:TRANSFORMATION:STRENGTH:MODEL; None for other names."""
    kind, _, rest = name.partition(":")
    if kind != DEFENDED:
        return None
    transformation, strength, model = (*rest.split(":", 2), "", "")[:3]
    if not strength or not model or model.partition(":")[0] in (SMOOTHED, DEFENDED):
        raise ConfigError(f"'{name}' is no model behind one input transformation; write it like "
                          f"{DEFENDED}:jpeg:50:builtin:reporter.")  # fmt: skip
    return parse_transformation(f"{transformation}:{strength}"), model


def undefended(name: str) -> str:
    """The model behind the defence that a name states, or the name itself."""
    found = parse_smoothed(name) or parse_defended(name)
    return found[1] if found else name


@dataclass(frozen=True)
class RobustnessConfig(ContextConfig):
    """How reports, answers and confidence of a model change when its images are perturbed.

    Audit only models that you own or may test. White-box attacks need open weights; a model that returns only text is
    tested with black-box attacks.

    Args:
        views: Views of a study that the model receives together, frontal first: attacks and corruptions change the
            frontal image, closed questions show it alone. One frontal image when left out.
        missing: placeholder alone: an audit takes every study.
        model: The model under audit: a report model or a contrastive encoder; smoothed:SIGMA:MODEL answers the closed
            questions of a report model by a vote over noisy copies of the image.
        data: Folder of the corpus.
        versus: Further models, compared with the first on the same images and radii.
        input_defence: Input transformations, each in front of the first model as a further model: jpeg:50, blur:1, bits:4,
            noise:0.05, resample:0.5, random-resample:0.5. Attacks on it differentiate through the transformation; images
            made for the first model show what an attack achieves that does not know it.
        eot_draws: Draws of a random input transformation whose mean gradient an attack follows at each step.
        split: train, val or test.
        n: Studies drawn from the split with the seed; all when left out.
        attacks: Any of fgsm, pgd, mi-fgsm, apgd, universal (one change for all images; these need gradients), square,
            random (need scores), square-report, random-report (need only the text), ensemble (the worst of several
            that the model allows), noise (control).
        eps: Radii, written as 2/255 or 0.01; pixels run from 0 to 1.
        norm: linf bounds the change of each pixel, l2 the length of the whole change.
        aims: Attack goals, in order: report makes the true report unlikely, answers makes closed answers (or the
            zero-shot classes of an encoder) wrong, embedding moves an encoder's image vector; target makes a chosen
            report likely, remove removes a finding from the report, invent puts one in.
        against: Report that becomes unlikely: reference, or own for the report that the model generated for the clean
            image, where a corpus has no reports.
        region: Where pixels may change: all, off-lungs, off-findings, border:0.1, patch:LEFT,TOP,RIGHT,BOTTOM.
        corruptions: Natural corruptions to apply as well, or all.
        severities: Severities of the corruptions, 1 to 5.
        labels: observations, chexpert or nih; read labels the reference reports by rule; auto chooses by what
            the corpus has.
        questions: own asks about each label by its name; drawn uses the words that the built-in models were trained
            on; none asks nothing, for a model that cannot answer questions.
        only_labels: Ask about these labels only; by default about each that is present in some studies and absent in
            others.
        blanks: What a CheXpert label counts as that the source leaves blank: unknown, negative, or both, which reports
            answers either way and lets attacks use the stated labels alone.
        section: Section of the reference report.
        image_size: Fit images into a square of this side before the attack; as stored when left out.
        batch_size: Images per batch; halved where they do not fit in memory.
        micro_batch: Images whose gradients are computed at once; by default estimated from the model and the free memory,
            and halved where they do not fit. Results are the same.
        gradient_checkpointing: Compute activations again in the backward pass, for less memory and a third more time:
            on, off, or auto, which uses it where the gradient of a single image does not fit without.
        uint8: Also examine each perturbed image rounded to 8 bits, as a file would hold it.
        rounded: Round every image to 8 bits before any model sees it, in place of examining both.
        transfer: Also examine with each model the images that were perturbed for the others.
        controls: Control images that show whether a model uses the image: noise, blank, swapped.
        control_studies: At most this many studies get control images.
        calibration_studies: Studies of the val split whose closed answers fit one temperature per model; calibration of
            the audited studies is then reported before and after it. 0 fits none.
        triptychs: Studies whose images are kept for the page.
        trials: Bootstrap resamples behind each interval.
        seed: Decides studies, starts, noise and resamples.
        i_am_authorised: Who permits this test and why; required for a model that runs elsewhere, kept and shown.
        goals: Target report and findings of the aims target, remove and invent.
        attack: Effort of the attacks.
        smoothing: How smoothed models vote.
        decoding: How reports are generated.
        loading: How models are loaded.
    """

    model: str
    data: Path
    versus: tuple[str, ...] = ()
    input_defence: tuple[str, ...] = ()
    eot_draws: int = 8
    split: str = "test"
    n: int | None = 200
    attacks: tuple[str, ...] = ("fgsm", "pgd", "apgd", "noise")
    eps: tuple[str, ...] = ("1/255", "2/255", "4/255")
    norm: Norm = "linf"
    aims: tuple[str, ...] = ("report", "answers")
    against: Literal["reference", "own"] = "reference"
    region: str = ALL
    corruptions: tuple[str, ...] = ()
    severities: tuple[int, ...] = (1, 3, 5)
    labels: Literal["auto", "observations", "chexpert", "nih", "read"] = "auto"
    questions: Literal["own", "drawn", "none"] = "drawn"
    only_labels: tuple[str, ...] = ()
    blanks: Literal["unknown", "negative", "both"] = "unknown"
    section: str = "findings"
    image_size: int | None = None
    batch_size: int = 16
    micro_batch: int | None = None
    gradient_checkpointing: Literal["auto", "on", "off"] = "auto"
    uint8: bool = True
    rounded: bool = False
    transfer: bool = True
    controls: tuple[str, ...] = CONTROL_IMAGES
    control_studies: int = 60
    calibration_studies: int = 0
    triptychs: int = 4
    trials: int = 1000
    seed: int = 7
    i_am_authorised: str | None = None
    goals: AttackGoals = AttackGoals()
    attack: AttackSettings = AttackSettings()
    smoothing: SmoothingSettings = SmoothingSettings()
    decoding: Decoding = Decoding()
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.views and self.views[0] != "frontal":
            raise ConfigError(f"views={','.join(self.views)}: an audit changes the frontal image; name frontal first.")
        if self.missing == "drop":
            raise ConfigError("missing=drop: an audit takes every study; leave it out, or choose other studies.")
        for setting, given, known in (
            ("attacks", self.attacks, ATTACKS.names()),
            ("aims", self.aims, AIMS),
            ("corruptions", self.corruptions, (ALL, *CORRUPTIONS.names())),
            ("controls", self.controls, CONTROL_IMAGES),
            ("split", (self.split,), SPLITS),
            ("section", (self.section,), SECTIONS),
            ("only_labels", self.only_labels, self.only_labels),
            ("severities", tuple(map(str, self.severities)), tuple(map(str, SEVERITIES))),
        ):
            for name in given:
                if name not in known:
                    raise ConfigError(f"{setting} has the unknown name '{name}'.{did_you_mean(name, known)} "
                                      f"Known: {', '.join(known)}.")  # fmt: skip
            if len(set(given)) < len(given):
                raise ConfigError(f"{setting} names something twice ({', '.join(given)}); name each once.")
        if not self.attacks and not self.corruptions:
            raise ConfigError("There is neither an attack nor a corruption; name one with --attacks or --corruptions.")
        if self.attacks and not self.eps:
            raise ConfigError("Attacks need a radius; give --eps, such as --eps 1/255,2/255,4/255.")
        if not self.aims:
            raise ConfigError(f"aims is empty; name at least one of {', '.join(AIMS)}.")
        self.budgets  # noqa: B018 - raises for an invalid radius
        parse_region(self.region)
        counts = ("n", "batch_size", "micro_batch", "trials")
        least = {"image_size": 8, **dict.fromkeys(("control_studies", "calibration_studies", "triptychs", "seed"), 0)}
        check_at_least(self, **dict.fromkeys(counts, 1), eot_draws=1, **least)
        if self.calibration_studies and self.split == "val":
            raise ConfigError(
                "calibration_studies fits temperatures on the val split, which split=val audits; audit another split."
            )
        if self.decoding.strategy == "sample":
            raise ConfigError(
                "decoding.strategy=sample generates another report for every changed pixel, which an audit would count "
                "as an effect of the attack; use greedy or beam."
            )
        if len(set(self.models)) < len(self.models):
            raise ConfigError("A model is named twice; name each of --model, --versus and --input-defence once.")
        for name in self.models:
            undefended(name)  # raises for an invalid noise or transformation before anything is loaded
        if self.input_defence and not self.transfer:
            raise ConfigError(
                "transfer=false leaves out the attack that does not know an input defence, with which the one that does "
                "is compared; leave it out of an audit with --input-defence."
            )

    @property
    def models(self) -> tuple[str, ...]:
        """Names of all models: the one under audit, those compared with it, and it behind each input defence."""
        behind = (f"{DEFENDED}:{parse_transformation(text)}:{self.model}" for text in self.input_defence)
        return (self.model, *self.versus, *behind)

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The radii, smallest first."""
        found = sorted((parse_eps(text, self.norm) for text in self.eps), key=lambda budget: budget.eps)
        if len({budget.eps for budget in found}) < len(found):
            raise ConfigError(f"eps names a radius twice ({', '.join(self.eps)}); name each once.")
        return tuple(found)

    @property
    def corrupted(self) -> tuple[str, ...]:
        """Corruptions by name."""
        return tuple(CORRUPTIONS.names()) if ALL in self.corruptions else self.corruptions


# Each row is a function from `StepFeatures` to a loss; its name is a key of `loss_weights` and of history.jsonl.
HARDENING_LOSSES = Registry(
    "hardening loss",
    {
        "attacked": "cxrlab.robustness.harden:attacked_loss",
        "clean": "cxrlab.robustness.harden:clean_loss",
    },
)


@dataclass(frozen=True)
class HardenConfig:
    """Adversarial fine-tuning of a vision encoder: features of attacked images should stay those of the clean ones.

    Args:
        model: A report model or contrastive encoder with weights: hf:FOLDER (an adapter is merged) or builtin:NAME.
        data: Corpus folder; only images are used, no reports.
        split: Split to train on.
        n: Number of images, drawn with the seed; all when left out.
        eps: Largest change of a pixel of the image at the size that the vision encoder takes, such as 4/255.
        attack_steps: Gradient steps of the attack within each training step.
        learning_rate: Peak learning rate: it rises over the first twentieth of the steps and falls to 0 along a cosine.
            A vision encoder with hundreds of millions of weights needs less, about 1e-5.
        epochs: Passes over the images.
        steps: Training steps in place of epochs.
        batch_size: Images per batch.
        loss_weights: Weights other than 1, written as clean=0.5; the losses are attacked and clean, for the features of
            attacked and of clean images.
        measure_n: Images of the val split on which the vision encoder is measured before and after; 0 for none.
        measure_steps: Gradient steps of the attack that measures.
        log_every: Steps between lines of history.jsonl.
        save_every: Steps between checkpoints from which a stopped run continues.
        seed: Decides images, their order and every start of the attack.
        cache: Folder for decoded images, may be shared between runs; RUN/cache when left out.
        loading: Device of the encoder, and in dtype the precision of the written weights, float32 for auto; training
            is always in float32.
    """

    model: str
    data: Path
    split: Literal["train"] = "train"
    n: int | None = None
    eps: str = "4/255"
    attack_steps: int = 5
    learning_rate: float = 1e-4
    epochs: int = 10
    steps: int | None = None
    batch_size: int = 16
    loss_weights: tuple[str, ...] = ()
    measure_n: int = 64
    measure_steps: int = 20
    log_every: int = 10
    save_every: int = 50
    seed: int = 7
    cache: Path | None = None
    loading: LoadSettings = LoadSettings()

    def __post_init__(self) -> None:
        counts = ("n", "attack_steps", "epochs", "steps", "batch_size", "measure_steps", "log_every", "save_every")
        check_at_least(self, **dict.fromkeys(counts, 1), measure_n=0, seed=0)
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ConfigError(f"learning_rate={self.learning_rate} is not usable; give a number above 0.")
        self.weights  # noqa: B018 - raises for an invalid weight
        if self.budget.eps == 0:
            raise ConfigError("eps=0 perturbs nothing; give a radius such as 4/255.")

    @property
    def budget(self) -> Budget:
        """The ball around each image."""
        return parse_eps(self.eps)

    @property
    def weights(self) -> dict[str, float]:
        """Weight of every hardening loss."""
        weights = dict.fromkeys(HARDENING_LOSSES, 1.0)
        for text in self.loss_weights:
            name, _, number = text.partition("=")
            if name not in weights:
                raise ConfigError(
                    f"loss_weights has the unknown loss '{name}'.{did_you_mean(name, weights)} Known: {', '.join(weights)}."
                )
            try:
                weights[name] = float(number)
            except ValueError:
                weights[name] = math.nan
            if not (math.isfinite(weights[name]) and weights[name] >= 0):
                raise ConfigError(
                    f"loss_weights={text} is not usable; give a number of at least 0, such as {name}=0.5."
                )
        return weights
