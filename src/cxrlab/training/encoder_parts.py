"""What stage 1 starts from: a vision encoder and a text encoder put together, or a dual encoder that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cxrlab.core.errors import ConfigError
from cxrlab.models.components import folder_of, load_text_encoder, load_vision_encoder
from cxrlab.models.dual_encoder import longest_text, open_encoder
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.random_init import build_dual_encoder, build_image_processor
from cxrlab.training.checks import Memory
from cxrlab.training.config import EncoderConfig, Optimisation


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
        model = build_dual_encoder(vision_encoder.model, text.model, config.shared, seed + 2)
    else:
        model = _biomedclip(vision_encoder.model, text.model, config.shared, seed + 2)
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
