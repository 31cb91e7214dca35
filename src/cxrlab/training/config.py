"""Settings of all training stages: optimisation, augmentation, corpora, caches, and one config per stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from cxrlab.core.config import check_at_least, parse_group, raise_problems
from cxrlab.core.errors import ConfigError
from cxrlab.data.config import ContextConfig


@dataclass(frozen=True)
class Augmentation:
    """Largest change of each kind; all 0 leaves images as they are.

    An image is never mirrored: left and right would change places while the report keeps them.

    Args:
        shift: Sideways and up or down, as a share of the image's side.
        scale: Larger or smaller, as a share.
        rotation: Degrees to either side.
        brightness: Added or taken off, where the image spans 0 to 1.
        contrast: More or less, as a share, about middle grey.
        gamma: Exponent between 1 / (1 + gamma) and 1 + gamma.
        noise: Standard deviation of noise on every pixel.
    """

    shift: float = 0.04
    scale: float = 0.05
    rotation: float = 4.0
    brightness: float = 0.05
    contrast: float = 0.1
    gamma: float = 0.2
    noise: float = 0.02

    def __post_init__(self) -> None:
        limits = {"shift": 0.5, "scale": 0.5, "rotation": 45.0, "brightness": 1.0, "contrast": 0.9, "gamma": 4.0}
        for one in fields(self):
            value, most = getattr(self, one.name), limits.get(one.name, 1.0)
            if not 0.0 <= value <= most:
                raise ConfigError(f"{one.name}={value} is not usable; give a number from 0 to {most:g}.")

    @property
    def none(self) -> bool:
        """Whether images stay as they are."""
        return not any(getattr(self, one.name) for one in fields(self))


NONE = Augmentation(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


Tracker = Literal["tensorboard", "wandb", "mlflow", "trackio"]

# Settings that may differ when a run is continued: they change speed and what is kept, not the result.
OPERATIONAL = ("optimisation.workers", "optimisation.save_every", "cache", "cache_images", "cache_gb", "track")


@dataclass(frozen=True)
class Optimisation:
    """Optimiser, batches, precision and checkpoints; the same for every stage.

    Args:
        learning_rate: Highest learning rate, reached at the end of the warm-up.
        schedule: How the rate falls after the warm-up: cosine or linear (to 0), or constant.
        warmup: Share of all steps in which the rate rises from 0.
        weight_decay: AdamW's decay of weight matrices; biases and norms are not decayed.
        clip: Largest norm of the gradient; 0 does not clip.
        epochs: Passes through the data; fractions are allowed.
        steps: Optimiser steps, in place of epochs.
        batch_size: Samples per device and forward pass.
        accumulate: Forward passes per step; the result equals a batch that many times as large.
        precision: float32, or bfloat16 (frozen weights stored in it, trained ones in float32, autocast).
        gradient_checkpointing: Recompute activations in the backward pass; saves memory, takes a third more time.
        compiled: Compile the layers of the language model, for long runs on a GPU: a minute's wait, then 1.4 times as
            fast.
        sharding: fsdp2 shares weights, gradients and optimiser states among the processes that train together, layer by
            layer; with none each process has them all. Needs a launcher such as torchrun.
        max_length: Most tokens per sample, image tokens included; a longer report is truncated.
        group_by_length: Put samples of similar length into one step, to save padding.
        workers: Processes that read images, at most one per core; 0 reads in the main process.
        seed: Decides order, new weights and dropout.
        deterministic: On a GPU, use deterministic algorithms; slower. A CPU always does.
        save_every: Steps between checkpoints.
        log_every: Steps between lines of history.jsonl.
    """

    learning_rate: float = 1e-4
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: float = 0.03
    weight_decay: float = 0.0
    clip: float = 1.0
    epochs: float = 1.0
    steps: int | None = None
    batch_size: int = 16
    accumulate: int = 1
    precision: Literal["float32", "bfloat16"] = "float32"
    gradient_checkpointing: bool = False
    compiled: bool = False
    sharding: Literal["none", "fsdp2"] = "none"
    max_length: int = 2048
    group_by_length: bool = True
    workers: int = 0
    seed: int = 7
    deterministic: bool = False
    save_every: int = 500
    log_every: int = 10

    def __post_init__(self) -> None:
        check_at_least(
            self, batch_size=1, accumulate=1, max_length=1, save_every=1, log_every=1, steps=1, workers=0, seed=0
        )
        for name in ("weight_decay", "clip"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a number of at least 0.")
        for name in ("learning_rate", "epochs"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a number above 0.")
        if not 0.0 <= self.warmup < 1.0:
            raise ConfigError(f"warmup={self.warmup} is not usable; give a share of the steps from 0 to below 1.")


@dataclass(frozen=True, kw_only=True)
class PairSelection:
    """Which image-text pairs of a corpus are learnt.

    Args:
        text: Text to learn: sections (the source's), report (the whole), structured (by anyone) or the name of its
            author; several, separated by commas, make one pair each. When left out: the texts that the composition
            chose or, in other corpora, the source's findings. Pictures without a chest use their caption.
        views: Views to learn, every image of a study with each text. When left out: all images that the composition
            kept or, in other corpora, one frontal image per study.
        members: Members of a composition to learn from; all when left out.
    """

    text: str | None = None
    views: tuple[Literal["PA", "AP", "frontal", "lateral", "other"], ...] = ()
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class Validation:
    """Loss on the validation split during training. The weights of the step with the lowest loss become RUN/best.

    Args:
        every: Steps between validations, with one more after the last step; no validation when left out. With
            `--objective findings` the step with the highest mean AUROC is kept.
        n: Most studies, drawn with the seed, with all their pairs; 0 switches validation off.
        patience: Stop after this many validations in a row without a lower loss; train to the end when left out.
        data: Corpus folder with the validation split; the main corpus of the training when left out. Its text and views
            are those of the main corpus; members count in a composed corpus alone.
    """

    every: int | None = None
    n: int = 256
    patience: int | None = None
    data: Path | None = None

    def __post_init__(self) -> None:
        check_at_least(self, every=1, patience=1, n=0)
        if self.every is None and self.patience is not None:
            raise ConfigError(f"patience={self.patience} needs validations to count; give every with it.")


@dataclass(frozen=True)
class ExtraCorpus(PairSelection):
    """A further training corpus beside the main one.

    Args:
        data: Corpus folder.
        weight: Passes through it per pass through the main corpus; 0.5 draws a random half each time.
        images: false trains on the text alone, without an image.
        findings_in_prompt: With images=false, put a list of the findings into the prompt in place of the image: the
            exact findings, or those read from the report. Without it the text has no prompt.
        questions: true trains on closed questions about the images instead of reports: per study one answered by yes
            and one by no, from its exact findings or its labels.
        prompts: Row of the prompts table for this corpus; that of the training when left out.
    """

    data: Path
    weight: float = 1.0
    images: bool = True
    findings_in_prompt: bool = False
    questions: bool = False
    prompts: str | None = None

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise ConfigError(f"weight={self.weight} is not usable; give a number above 0.")
        if self.findings_in_prompt and (self.images or self.questions):
            raise ConfigError(
                "findings_in_prompt=true replaces the image and cannot be combined with questions; add images=false."
            )
        if self.questions and (not self.images or self.text is not None or self.views):
            raise ConfigError(
                "questions=true asks about one frontal image per study and learns no text; leave out images, text and "
                "views."
            )


def parse_extra_corpora(values: Mapping[str, Any]) -> dict[str, ExtraCorpus]:
    """The further corpora of a config by name; all problems are reported at once."""
    found: dict[str, ExtraCorpus] = {}
    problems: list[str] = []
    for name, given in values.items():
        one, wrong = parse_group(ExtraCorpus, given, f"extra_corpora, '{name}'")
        problems += wrong
        if one is not None:
            found[str(name)] = one
    raise_problems(problems)
    return found


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of every training.

    Args:
        data: Corpus folder; its train split is used.
        n: Number of studies, drawn with the seed, with all their pairs; all studies when left out.
        cache: Folder for decoded images and whatever else is computed once; runs may share it. RUN/cache when left out.
        cache_images: Decode every image once: auto (up to `cache_gb`), on or off.
        cache_gb: Largest cache that auto makes, in 10^9 bytes, for images and features each.
        track: Experiment trackers that get the history too: tensorboard, wandb, mlflow, trackio. It stays on this
            machine.
    """

    data: Path
    _: KW_ONLY
    n: int | None = None
    cache: Path | None = None
    cache_images: Literal["auto", "on", "off"] = "auto"
    cache_gb: float = 40.0
    track: tuple[Tracker, ...] = ()

    def __post_init__(self) -> None:
        if self.n is not None and self.n < 1:
            raise ConfigError(f"n={self.n} is not usable; give a whole number from 1.")
        if self.cache_gb < 0:
            raise ConfigError(f"cache_gb={self.cache_gb} is not usable; give a number of at least 0.")


@dataclass(frozen=True)
class LabelSettings:
    """Labels of `--objective findings`: observations that `cxrlab read` finds in the reports, and `normal`.

    Args:
        min_positives: Fewest studies with an observation for it to be learnt.
        unmentioned: An observation that a report does not mention is absent (negative), or has no label (ignored).
    """

    min_positives: int = 25
    unmentioned: Literal["negative", "ignored"] = "negative"

    def __post_init__(self) -> None:
        check_at_least(self, min_positives=1)


@dataclass(frozen=True)
class EncoderConfig(TrainingConfig, PairSelection):
    """Stage 1: train a vision encoder contrastively with a text encoder, or on findings read from reports.

    Args:
        objective: contrastive: each image close to its report. findings: which observations each study has, from the mean
            of the feature vectors of its images (those of `views`); takes no text encoder.
        labels: Labels of the objective findings.
        vision_encoder: Vision encoder, such as hf:FOLDER (DINOv2, ViT, ResNet, a dual encoder or LLaVA), builtin:encoder,
            fresh:phantom or package:efficientnet-lite2.
        text_encoder: Text encoder, such as hf:FOLDER of a BERT or dual encoder, or fresh:phantom.
        start: Dual encoder to continue from, hf:FOLDER or builtin:encoder, in place of `vision_encoder` and `text_encoder`.
        statements: all sentences of a report, or only present and possible findings (present). Which findings a report
            denies cannot be seen on the image.
        extra_corpora: Further corpora, name → {data, weight, text, views, members}.
        projection_dim: Width of the joint embedding space.
        text_head: Text pooling: bert (its own pooler and one matrix), or biomedclip (first token and two matrices).
        image_size: Side of the image in pixels, for an encoder whose image processor gives another size; the image is
            resized to a square and normalised with CLIP's mean and deviation.
        augmentation: How images are varied.
        validation: Loss on the validation split.
        optimisation: Optimiser settings. A step compares batch_size x accumulate x processes pairs with one another;
            max_length counts the tokens of a report alone.
    """

    _: KW_ONLY
    objective: Literal["contrastive", "findings"] = "contrastive"
    labels: LabelSettings = LabelSettings()
    vision_encoder: str | None = None
    text_encoder: str | None = None
    start: str | None = None
    statements: Literal["all", "present"] = "all"
    extra_corpora: Mapping[str, Any] = field(default_factory=dict)
    projection_dim: int = 512
    text_head: Literal["bert", "biomedclip"] = "bert"
    image_size: int | None = None
    augmentation: Augmentation = Augmentation()
    validation: Validation = Validation()
    optimisation: Optimisation = Optimisation(
        learning_rate=5e-4, weight_decay=0.2, max_length=256, batch_size=64, group_by_length=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("projection_dim", "image_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} is not usable; give a whole number from 1.")
        if self.objective == "contrastive":
            _check_start(self.start, vision_encoder=self.vision_encoder, text_encoder=self.text_encoder)
        elif self.vision_encoder is None or self.text_encoder is not None or self.start is not None:
            raise ConfigError("objective=findings learns without a text encoder; give vision_encoder alone.")
        for name, one in parse_extra_corpora(self.extra_corpora).items():
            if not one.images or one.questions:
                raise ConfigError(
                    f"extra_corpora, '{name}': training of an encoder needs an image and a report in every pair."
                )
        if self.optimisation.compiled:
            raise ConfigError("compiled=true: stage 1 has no language model whose layers could be compiled.")


@dataclass(frozen=True)
class ReportConfig(TrainingConfig):
    """Settings of every training of a report model; by default its projector alone is trained.

    Args:
        optimisation: Optimiser settings.
        cache_features: Compute the features of a frozen vision encoder once per image: auto (up to `cache_gb`), on or
            off.
    """

    _: KW_ONLY
    optimisation: Optimisation = Optimisation()
    cache_features: Literal["auto", "on", "off"] = "auto"

    @property
    def train_projector(self) -> bool:
        """Whether the projector is trained."""
        return True

    @property
    def train_language(self) -> bool:
        """Whether the language model is trained, by adapters or whole."""
        return False

    @property
    def train_vision_encoder(self) -> bool:
        """Whether the vision encoder is trained."""
        return False


@dataclass(frozen=True)
class AlignConfig(ReportConfig, PairSelection):
    """Stage 2: train a new projector between a frozen vision encoder and a frozen language model.

    Args:
        encoder: Vision encoder, such as hf:FOLDER (dual encoder, LLaVA or encoder), builtin:encoder or fresh:phantom.
        language_model: Language model, such as hf:FOLDER (causal model or LLaVA), builtin:general or fresh:phantom.
        start: In place of both, a whole LLaVA whose projector is trained further: hf:FOLDER or builtin:NAME.
        image_size: As in `train encoder`, for an encoder that stage 1 has not trained.
        extra_corpora: Further corpora, name → {data, weight, text, views, members, questions, prompts}.
        prompts: Row of the prompts table, or a YAML file of that form.
        conversation: Text around image and prompt: plain, as in LLaVA; others as in `train finetune`.
        validation: Loss on the validation split.
    """

    _: KW_ONLY
    encoder: str | None = None
    language_model: str | None = None
    start: str | None = None
    image_size: int | None = None
    extra_corpora: Mapping[str, Any] = field(default_factory=dict)
    prompts: str = "llava-rad/1"
    conversation: str = "plain"
    validation: Validation = Validation()
    optimisation: Optimisation = Optimisation(learning_rate=1e-3)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_start(self.start, encoder=self.encoder, language_model=self.language_model)
        if self.image_size is not None and (self.start is not None or self.image_size < 1):
            raise ConfigError(f"image_size={self.image_size} needs encoder and language_model, and a number from 1.")
        _check_images(self.extra_corpora, "a projector alone")


@dataclass(frozen=True)
class AdapterConfig(ReportConfig):
    """Settings of trainings that adapt the language model, by adapters (LoRA) or whole.

    Args:
        train_projector: Train the projector too.
        train_vision_encoder: Train the vision encoder too; its features are then not cached.
        lora_rank: Rank of the adapters on the language model's linear layers; 0 trains the whole language model.
        lora_alpha: Scale of the adapters, divided by the rank.
        lora_dropout: Dropout on the adapters' inputs.
        quantise: 4bit stores the linear layers of the language model, which adapters leave frozen, in 4 bits (QLoRA);
            needs a GPU and bitsandbytes.
    """

    _: KW_ONLY
    train_projector: bool = True
    train_vision_encoder: bool = False
    lora_rank: int = 64
    lora_alpha: float = 128.0
    lora_dropout: float = 0.05
    quantise: Literal["none", "4bit"] = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lora_rank < 0 or not self.lora_alpha > 0:
            raise ConfigError(f"lora_rank={self.lora_rank} with lora_alpha={self.lora_alpha} is not usable; give a "
                              "rank of at least 0 and an alpha above 0.")  # fmt: skip
        if not 0.0 <= self.lora_dropout < 1.0:
            raise ConfigError(f"lora_dropout={self.lora_dropout} is not usable; give a share from 0 to below 1.")
        if self.train_vision_encoder and self.cache_features == "on":
            raise ConfigError("train_vision_encoder=true and cache_features=on contradict each other: the features of "
                              "an encoder that is trained change at every step.")  # fmt: skip
        check_quantise(self.quantise, self.lora_rank, train_vision_encoder=self.train_vision_encoder)

    @property
    def train_language(self) -> bool:
        """Whether the language model is trained, by adapters or whole."""
        return True


def check_quantise(quantise: str, lora_rank: int, *, train_vision_encoder: bool) -> None:
    """Refuse weights in 4 bits where they are trained, or saved in a whole model."""
    if quantise != "none" and (not lora_rank or train_vision_encoder):
        raise ConfigError(
            f"quantise={quantise} is for adapters on a frozen model; give a lora_rank above 0, and leave "
            "train_vision_encoder out, whose result is a whole model."
        )


@dataclass(frozen=True)
class FinetuneConfig(AdapterConfig, PairSelection, ContextConfig):
    """Stage 3: train projector and language model to write the report for image and indication.

    Args:
        views: Views of a study that the model receives together, one image of each, in this order: frontal (PA before
            AP before frontal), lateral, PA, AP, other. With one view, every image of it is a sample. When left out: one
            frontal image per study or, in a composed corpus, every image that the composition kept.
        unit: study (when left out), or image: every image of `views` is a sample of its own, as in the other stages.
        start: Model to start from: the run of `train align` or of another training, hf:FOLDER of an image-text-to-text
            model of any family or of an adapter, or builtin:NAME; else `encoder` and `language_model`.
        encoder: Vision encoder, for a start without alignment.
        language_model: Language model, for a start without alignment.
        extra_corpora: Further corpora, name → {data, weight, text, views, members, images,
            findings_in_prompt, questions, prompts}.
        indication: Put the indication into the prompt.
        augmentation: How images are varied, with train_vision_encoder alone; not at all by default.
        train_language: Train the language model; if not, `lora_rank` must be 0.
        prompts: Row of the prompts table, or a YAML file of that form.
        conversation: Text around image and prompt: own, the chat template of the start or of its language model, plain
            if there is none; plain, without a template; vicuna-v1, that of LLaVA 1.5 and LLaVA-Rad;
            mistral-instruct, that of LLaVA-Med 1.5; or a file with a chat template. It is saved with the checkpoint.
        validation: Loss on the validation split.
    """

    _: KW_ONLY
    start: str | None = None
    encoder: str | None = None
    language_model: str | None = None
    extra_corpora: Mapping[str, Any] = field(default_factory=dict)
    unit: Literal["study", "image"] | None = None
    indication: bool = True
    augmentation: Augmentation = NONE
    train_language: bool = True
    prompts: str = "llava-rad/1"
    conversation: str = "own"
    validation: Validation = Validation()
    optimisation: Optimisation = Optimisation(epochs=3.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        ContextConfig.__post_init__(self)
        _check_start(self.start, encoder=self.encoder, language_model=self.language_model)
        parse_extra_corpora(self.extra_corpora)
        if self.unit == "image" and self.prior:
            raise ConfigError("unit=image and prior contradict each other; leave one of them out.")
        if not self.train_vision_encoder and not self.augmentation.none:
            raise ConfigError("augmentation needs train_vision_encoder=true: a frozen encoder is run once per image.")
        if not self.train_language:
            _check_images(self.extra_corpora, "a frozen language model")
            if self.lora_rank or not (self.train_projector or self.train_vision_encoder):
                raise ConfigError(
                    "train_language=false needs lora_rank=0, and train_projector or train_vision_encoder."
                )


def _check_images(extra_corpora: Mapping[str, Any], what: str) -> None:
    for name, one in parse_extra_corpora(extra_corpora).items():
        if not one.images:
            raise ConfigError(f"extra_corpora, '{name}': {what} learns nothing from text without images; leave it out.")


def _check_start(start: str | None, **parts: str | None) -> None:
    first, second = parts
    if start is None and None in parts.values():
        raise ConfigError(f"there is no start; give start, or both {first} and {second}.")
    if start is not None and set(parts.values()) != {None}:
        raise ConfigError(f"start and {first} or {second} contradict each other; give start alone, or both parts.")
