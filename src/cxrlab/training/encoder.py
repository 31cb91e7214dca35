"""Stage 1: contrastive training of a vision encoder with a text encoder, on images and their reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.terminal import track
from cxrlab.data.parallel import ordered_map
from cxrlab.findings.excerpts import present_sentences
from cxrlab.models.components import folder_of, load_text_encoder, load_vision_encoder
from cxrlab.models.dual_encoder import longest_text, open_encoder
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.local_files import first_line, quiet_loading
from cxrlab.models.model_card import ModelCard, of_corpora, trained_on, write_model_card
from cxrlab.models.random_init import build_dual_encoder, build_image_processor
from cxrlab.training.config import OPERATIONAL, EncoderConfig, ExtraCorpus, Optimisation, parse_extra_corpora
from cxrlab.training.memory import Memory
from cxrlab.training.run_folder import (
    CACHE,
    RESULT,
    RunFolder,
    TrainingResult,
    finish_run,
    read_result,
    training_finished,
    training_run,
)
from cxrlab.training.samples import Sample, Source, read_source

if TYPE_CHECKING:
    from cxrlab.training.contrastive import ContrastiveDataset, PairEncoder, Texts
    from cxrlab.training.trainer import Order

_BLOCK = 128  # reports that a worker is given at once

Evaluate = Callable[[Any, int], Mapping[str, float]]
"""(dual encoder, step) → name → number."""


def train_encoder(config: EncoderConfig, out: Path, on_evaluate: Evaluate | None = None) -> TrainingResult:
    """Train a contrastive encoder into RUN/checkpoint, which `load_encoder` and stages 2 and 3 open.

    The loss of guessing is the logarithm of the pairs that a step compares; `extra` of the result has their number.

    Args:
        config: Settings.
        out: Run folder; a stopped run goes on, a finished one with the same settings is left as it is.
        on_evaluate: Asked for numbers every `evaluate_every` steps and at the end; they go into the history.
    """
    require("models")
    settings = config.optimisation
    if training_finished(config, out, settings.seed, OPERATIONAL):
        return read_result(out)
    from cxrlab.training.contrastive import tokenise
    from cxrlab.training.processes import count

    compared = settings.batch_size * settings.accumulate * count()
    if compared < 2:
        raise ConfigError("a step of one pair has nothing to compare it with; use a batch_size of at least 2.")
    sources = _sources(config)
    parts = load_parts(config)
    texts = tokenise(parts.tokenizer, [one.report for source in sources for one in source.samples], parts.longest)
    order = _order(config, sources, texts, compared)
    module, unreached = _module(config, parts)
    with training_run(config, out, settings.seed, OPERATIONAL) as run:
        rows = _rows(config, sources, parts, texts, run)
        steps, samples, loss = _fit(config, module, rows, order, run, on_evaluate)
        left_out: Counter[str] = sum((Counter(source.left_out) for source in sources), Counter())
        result = TrainingResult(
            stage="encoder",
            checkpoint=RESULT,
            steps=steps,
            samples=samples,
            loss=loss,
            rows=len(rows),
            left_out=left_out,
            cut=texts.cut,
            trained_parameters=sum(value.numel() for value in module.parameters() if value.requires_grad),
            parameters=sum(value.numel() for value in module.parameters()),
            extra={
                "compared": compared,
                "distinct_reports": len(np.unique(texts.keys)),
                "scale": float(parts.model.logit_scale.detach().exp()),
                "not_trained": unreached,
            },
        )
        finish_run(run, partial(write_encoder, parts, _card(config, sources, parts, result)), result)
    return result


def write_encoder(parts: EncoderParts, card: ModelCard, folder: Path) -> None:
    """Model, tokenizer, image processor and card into a folder that `load_encoder` opens."""
    with quiet_loading():
        parts.model.cpu().eval().save_pretrained(folder)
    parts.tokenizer.save_pretrained(folder)
    parts.image_processor.save_pretrained(folder)
    write_model_card(card, folder)


def _sources(config: EncoderConfig) -> list[Source]:
    """The corpora; together they must hold at least two different reports."""
    main = read_source(ExtraCorpus(config.data, text=config.text), config.n, config.optimisation.seed)
    sources = [main, *(read_source(one) for one in parse_extra_corpora(config.extra_corpora).values())]
    if config.statements == "present":
        sources = [_of_what_is_there(source) for source in sources]
    if len({sample.report for source in sources for sample in source.samples}) < 2:
        raise DataError(
            f"the reports of {', '.join(str(source.path) for source in sources)} are all the same, so no image can be "
            "told from another by its report."
        )
    return sources


def _of_what_is_there(source: Source) -> Source:
    """The same images with the sentences that state something present; captions are taken whole."""
    chests = [sample for sample in source.samples if sample.image is not None and not sample.image.rgb]
    blocks = [chests[first : first + _BLOCK] for first in range(0, len(chests), _BLOCK)]
    told: dict[str, str] = {}
    for found in track(ordered_map(_present, blocks), "reading reports", len(chests), size=len):
        told.update(found)
    samples = (replace(sample, report=told.get(sample.id, sample.report)) for sample in source.samples)
    return replace(source, samples=tuple(samples))


def _present(samples: Sequence[Sample]) -> list[tuple[str, str]]:
    return [(sample.id, present_sentences(sample.report)) for sample in samples]


def _order(config: EncoderConfig, sources: Sequence[Source], texts: Texts, compared: int) -> Order:
    from cxrlab.training.trainer import Part, plan

    settings = config.optimisation
    passes = [Part(len(source.samples), source.weight) for source in sources]
    # Grouped by length an image would be compared with reports as long as its own: another, harder task.
    lengths = texts.lengths if settings.group_by_length else None
    return plan(passes, compared, settings.epochs, settings.steps, settings.seed, lengths)


def _module(config: EncoderConfig, parts: EncoderParts) -> tuple[PairEncoder, list[str]]:
    """What is trained, and the parts of it that the loss does not reach; a pair that does not fit is refused."""
    import torch

    from cxrlab.training.contrastive import PairEncoder, freeze_unreached
    from cxrlab.training.memory import check_memory

    settings = config.optimisation
    module = PairEncoder(parts.model, parts.image_processor, config.augmentation, settings.batch_size)
    try:
        unreached = freeze_unreached(
            module, parts.tokenizer(["a", "b"], padding=True, return_tensors="pt")["input_ids"]
        )
    except (RuntimeError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ConfigError(f"vision encoder and text encoder do not work as a pair ({first_line(error)}).") from error
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check_memory(memory(parts.model, settings, parts.longest), device)
    if settings.gradient_checkpointing:
        # The model of two encoders has no such switch itself; CLIP has one for both.
        whole = parts.model.supports_gradient_checkpointing
        for part in (parts.model,) if whole else (parts.model.vision_model, parts.model.text_model):
            part.gradient_checkpointing_enable({"use_reentrant": False})
    return module, [name.removeprefix("model.") for name in unreached]


def _rows(
    config: EncoderConfig, sources: Sequence[Source], parts: EncoderParts, texts: Texts, run: RunFolder
) -> ContrastiveDataset:
    from cxrlab.training.contrastive import ContrastiveDataset
    from cxrlab.training.images import distinct, open_images
    from cxrlab.training.processes import first_alone
    from cxrlab.training.trainer import length_multiple

    images = [sample.image for source in sources for sample in source.samples if sample.image is not None]
    files, image_of = distinct(images)
    with first_alone():  # the others find the images decoded
        opened = open_images(
            files, parts.image_processor, config.cache or run.folder / CACHE,
            cache=config.cache_images, most_gb=config.cache_gb,
        )  # fmt: skip
    return ContrastiveDataset(opened, image_of, texts, int(parts.tokenizer.pad_token_id), length_multiple())


def _fit(
    config: EncoderConfig, module: PairEncoder, rows: ContrastiveDataset, order: Order, run: RunFolder,
    on_evaluate: Evaluate | None,
) -> tuple[int, int, float]:  # fmt: skip
    """Steps taken, pairs seen, and the last loss."""
    from cxrlab.training.contrastive import ContrastiveTrainer
    from cxrlab.training.trainer import Job, fit

    settings = config.optimisation
    evaluate = None if on_evaluate is None else lambda trained, step: on_evaluate(trained.model, step)
    job = Job(module, rows, order, "contrastive training", ContrastiveTrainer, evaluate)
    # The engine sees the step's pairs of this process as one batch; the step itself takes them in pieces.
    whole = replace(settings, batch_size=settings.batch_size * settings.accumulate, accumulate=1)
    fitted = fit(job, whole, run)
    module.limit_scale()
    return fitted.steps, fitted.samples, fitted.loss


def _card(config: EncoderConfig, sources: Sequence[Source], parts: EncoderParts, result: TrainingResult) -> ModelCard:
    seen = (*parts.collections, *(name for source in sources for name in source.collections))
    start = (
        {"start": config.start}
        if config.start
        else {"vision_encoder": config.vision_encoder, "text_encoder": config.text_encoder}
    )
    return ModelCard(
        stage="encoder",
        collections=tuple(dict.fromkeys(seen)),
        trained_on=trained_on((parts.trained_on, of_corpora(source.synthetic for source in sources))),
        extra={
            "made_from": start,
            "seed": config.optimisation.seed,
            "steps": result.steps,
            "samples": result.samples,
            "corpora": [source.name for source in sources],
        },
    )


@dataclass(frozen=True, eq=False)
class EncoderParts:
    """A dual encoder before training.

    Args:
        model: With `get_image_features`, `get_text_features` and `logit_scale`, every weight trained.
        tokenizer: Of its text encoder; its `model_max_length` is `longest`.
        image_processor: Of its vision encoder.
        longest: Most tokens of a report.
        collections: Collections of images that the vision encoder has learnt from.
        trained_on: See `ModelCard.learnt_from`.
    """

    model: Any
    tokenizer: Any
    image_processor: Any
    longest: int
    collections: tuple[str, ...]
    trained_on: str | None = None


def load_parts(config: EncoderConfig) -> EncoderParts:
    """Open or build the encoder that a config names, in float32 on the processor."""
    if config.start is not None:
        model, tokenizer, image_processor, collections, learnt = _to_go_on(config.start)
    else:
        model, tokenizer, image_processor, collections, learnt = _put_together(config)
    if config.image_size is not None:
        image_processor = build_image_processor(config.image_size)
    _check_size(model, image_processor)
    if tokenizer.pad_token_id is None:
        raise ConfigError("the tokenizer of the text encoder has no padding token, so reports make no batch.")
    longest = min(config.optimisation.max_length, longest_text(model, tokenizer))
    tokenizer.model_max_length = longest
    return EncoderParts(model.requires_grad_(True), tokenizer, image_processor, longest, collections, learnt)


def _to_go_on(start: str) -> tuple[Any, Any, Any, tuple[str, ...], str | None]:
    kind, _, argument = start.partition(":")
    if kind not in ("hf", "builtin") or not argument:
        raise ConfigError(f"start={start!r} does not name a dual encoder; write hf:FOLDER or builtin:NAME.")
    opened = open_encoder(folder_of(start), LoadSettings(device="cpu", dtype="float32"))
    if str(opened.model.config.model_type).startswith("siglip"):
        raise ConfigError(
            f"start={start!r} is a SigLIP, which was trained with another loss; take a CLIP or dual encoder."
        )
    collections, learnt = (opened.card.collections, opened.card.learnt_from) if opened.card else ((), None)
    return opened.model, opened.tokenizer, opened.image_processor, collections, learnt


def _put_together(config: EncoderConfig) -> tuple[Any, Any, Any, tuple[str, ...], str | None]:
    seed = config.optimisation.seed
    vision_encoder = load_vision_encoder(str(config.vision_encoder), seed=seed)
    text = load_text_encoder(str(config.text_encoder), seed=seed + 1)
    if config.text_head == "bert":
        model = build_dual_encoder(vision_encoder.model, text.model, config.projection_dim, seed + 2)
    else:
        model = _biomedclip(vision_encoder.model, text.model, config.projection_dim, seed + 2)
    return model, text.tokenizer, vision_encoder.image_processor, vision_encoder.collections, vision_encoder.trained_on


def _biomedclip(vision_encoder: Any, text: Any, shared: int, seed: int) -> Any:
    """First token and two matrices with a GELU between them on the text side, as BiomedCLIP has it."""
    import torch

    from cxrlab.models.projected_encoder import ProjectedDualEncoder, ProjectedDualEncoderConfig

    # The width between the two matrices lies half-way between theirs, as in open_clip.
    hidden = (int(text.config.hidden_size) + shared) // 2
    config = ProjectedDualEncoderConfig.from_vision_text_configs(
        vision_encoder.config, text.config, projection_dim=shared, text_hidden=hidden, text_pooling="first"
    )
    torch.manual_seed(seed)
    return ProjectedDualEncoder(config=config, vision_model=vision_encoder, text_model=text)


def _check_size(model: Any, image_processor: Any) -> None:
    """Refuse images of another size than the encoder has positions for: it would resample them without a word."""
    from cxrlab.training.images import output_side

    wanted = int(model.config.vision_config.image_size)
    given = output_side(image_processor)
    if given != (wanted, wanted):
        raise ConfigError(
            f"the image processor gives images of {given[0]} x {given[1]} pixels and the encoder was made for {wanted} x "
            f"{wanted}; set image_size={wanted}."
        )


def memory(model: Any, settings: Optimisation, longest: int) -> Memory:
    """What training takes on one device; roughly, see `checks.estimate`."""
    weights = sum(value.numel() * value.element_size() for value in model.parameters())
    trained = sum(value.numel() for value in model.parameters() if value.requires_grad)
    number = 2 if settings.precision == "bfloat16" else 4
    vision, text = model.config.vision_config, model.config.text_config
    kept = 0
    for config, tokens in ((vision, (vision.image_size // vision.patch_size) ** 2 + 1), (text, longest)):
        block = 16 * config.hidden_size + 3 * getattr(config, "intermediate_size", 4 * config.hidden_size)
        layers = config.num_hidden_layers
        kept += tokens * (layers * config.hidden_size + block if settings.gradient_checkpointing else layers * block)
    return Memory(weights, 3 * 4 * trained, settings.batch_size * kept * number)
