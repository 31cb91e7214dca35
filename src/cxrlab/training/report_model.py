"""The model that a training starts from, its parts and adapters, and the loss of reports of a LLaVA."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.runs import state
from cxrlab.models.hf.checkpoint import open_checkpoint
from cxrlab.models.hf.families import find_family
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_card import ModelCard, trained_on
from cxrlab.models.model_parts import STORED, folder_of, load_language_model, load_vision_encoder
from cxrlab.models.random_init import assemble_llava
from cxrlab.training.augment import varied
from cxrlab.training.config import NONE, Augmentation
from cxrlab.training.image_cache import sized_processor
from cxrlab.training.image_features import to_pixels, vision_encoder_features
from cxrlab.training.run_folder import RESULT


@dataclass(frozen=True, eq=False)
class StartModel:
    """The model that a training starts from.

    Args:
        model: An image-text-to-text model.
        processor: With its tokenizer and image processor.
        names: The names in the config that it was made from.
        folder: Its folder; None when it was assembled from parts.
        collections: Collections of images that its parts were trained on.
        builtin: The name of a model that ships with the package, which needs no path.
        prompts: Row of the prompts table it was trained with; None where its card does not record it.
        trained_on: See `ModelCard.learnt_from`.
        card: Its card; None where it has none, or was assembled from parts.
    """

    model: Any
    processor: Any
    names: dict[str, str]
    folder: Path | None = None
    collections: tuple[str, ...] = ()
    builtin: str | None = None
    prompts: str | None = None
    trained_on: str | None = None
    card: ModelCard | None = None

    def base(self, result: Path) -> str:
        """How an adapter in the folder `result` names its base model: a relative path, or a built-in model."""
        if self.builtin is not None:
            return self.builtin
        if self.folder is None:
            raise ConfigError("the base model of an adapter must be in a folder.")
        return f"hf:{Path(os.path.relpath(self.folder.resolve(), result.resolve())).as_posix()}"


def load_start(
    start: str | None,
    encoder: str | None,
    language_model: str | None,
    seed: int,
    precision: str = "float32",
    *,
    any_family: bool = False,
    image_size: int | None = None,
) -> StartModel:
    """The model that a config starts from; an adapter is merged into its base.

    Args:
        start: hf:FOLDER, builtin:NAME or the run folder of a training.
        encoder: In place of start, with a language model: its parts, with a new projector between them.
        language_model: See `encoder`.
        seed: Of new weights.
        precision: Of the training. With bfloat16 weights keep the precision of their files, so that there is no copy in
            float32; new ones are float32.
        any_family: Accept every family that has the parts of `ModelParts`, instead of a LLaVA alone.
        image_size: Of parts whose image processor gives another size than the vision encoder's.
    """
    dtype: Any = "float32" if precision == "float32" else STORED
    if start is None:
        if encoder is None or language_model is None:
            raise ConfigError("there is no start; give start, or both encoder and language_model.")
        vision = load_vision_encoder(encoder, seed=seed, dtype=dtype, image_size=image_size)
        language = load_language_model(language_model, seed=seed + 1, dtype=dtype)
        wanted = None if vision.any_size else image_size
        image_processor = sized_processor(vision.image_processor, int(vision.model.config.image_size), wanted)
        model, processor = assemble_llava(vision.model, language.model, language.tokenizer, image_processor, seed + 2)
        names = {"encoder": encoder, "language_model": language_model}
        seen = tuple(dict.fromkeys((*vision.collections, *language.collections)))
        data = trained_on((vision.trained_on, language.trained_on))
        return StartModel(model, processor, names, collections=seen, trained_on=data)
    check_has_weights(start)
    folder = _result_of(Path(start)) if _is_path(start) else folder_of(start)
    opened = open_checkpoint(folder, LoadSettings(device="cpu", dtype=dtype), merge=True)
    if any_family:
        find_parts(opened.model)
    else:
        check_kind(opened.model, start)
    card = opened.card
    seen, prompts, learned = (
        (card.collections, card.prompts, card.learnt_from) if card is not None else ((), None, None)
    )
    builtin = start if start.startswith("builtin:") else None
    return StartModel(opened.model, opened.processor, {"start": start}, folder, seen, builtin, prompts, learned, card)


def check_kind(model: Any, name: str) -> None:
    """Refuse a start that is not a LLaVA."""
    if not is_llava(model):
        kind = getattr(model.config, "model_type", None)
        raise ConfigError(
            f"'{name}' is a model of the type '{kind}', and this training takes a LLaVA (model type 'llava'); models of "
            "other families are trained by `cxrlab train finetune`."
        )


def is_llava(model: Any) -> bool:
    """Whether it is a LLaVA, which is trained on cached images and features of its vision encoder."""
    return getattr(model.config, "model_type", None) == "llava"


@dataclass(frozen=True, eq=False)
class ModelParts:
    """The parts of a model, by the names that its family declares.

    Args:
        prefix: Name of the language model inside the model.
        projector_name: Last part of the projector's name.
        language_model: Without its head. In IDEFICS it is the whole model, vision encoder and projector included.
        vision_encoder: In some families it contains the projector.
        projector: Between the two.
        head: Of the language model.
    """

    prefix: str
    projector_name: str
    language_model: Any
    vision_encoder: Any
    projector: Any
    head: Any

    def vision_parameters(self) -> list[nn.Parameter]:
        """Parameters of the vision encoder without those of a projector inside it."""
        return _without(self.vision_encoder, self.projector)

    def language_parameters(self) -> list[nn.Parameter]:
        """Parameters of the language model with its head, without those of a vision encoder and projector inside it."""
        return [*_without(self.language_model, self.vision_encoder, self.projector), *self.head.parameters()]


def _without(module: nn.Module, *others: nn.Module) -> list[nn.Parameter]:
    """Parameters of a module that are in none of the others."""
    inside = {id(parameter) for other in others for parameter in other.parameters()}
    return [parameter for parameter in module.parameters() if id(parameter) not in inside]


def find_parts(model: Any) -> ModelParts:
    """The parts of a model, before adapters are added to it.

    Raises:
        ConfigError: If the model has no parts of the names that its family declares.
    """
    family = find_family(model.config.model_type)
    try:
        language, vision, projector = (
            model.get_submodule(name) for name in (family.language_model, family.vision_encoder, family.projector)
        )
    except AttributeError as error:
        raise ConfigError(
            f"a '{model.config.model_type}' cannot be trained, since its parts are unknown ({error}); declare them in "
            "models/hf/families."
        ) from None
    name = family.projector.rpartition(".")[2]
    return ModelParts(family.language_model, name, language, vision, projector, model.get_output_embeddings())


def start_model_name(start: str) -> str:
    """The name under which `load_model` opens a start; a run folder becomes its checkpoint."""
    if _is_path(start):
        return f"hf:{_result_of(Path(start))}"
    check_has_weights(start)
    return start


def _is_path(start: str) -> bool:
    """Whether it is a run folder, whose name may contain a colon."""
    return ":" not in start or Path(start).is_dir()


def check_has_weights(start: str) -> None:
    """Refuse a start without weights, such as stub:normal, retrieval:CORPUS or an address."""
    if not _is_path(start) and not start.startswith(("hf:", "builtin:")):
        raise ConfigError(
            f"'{start}' cannot be a start: give a run folder, hf:FOLDER or builtin:NAME; models without weights cannot "
            "be trained."
        )


def _result_of(run: Path) -> Path:
    """The checkpoint in a run folder that is finished."""
    if not run.is_dir():
        raise DataError(f"{run} does not exist; give the run folder of `cxrlab train align`, or hf:FOLDER.")
    if (run / "config.json").is_file() or (run / "adapter_config.json").is_file():
        return run
    if state(run) != "finished" or not (run / RESULT).is_dir():
        raise DataError(f"{run} holds no finished training; run it to its end first.")
    return run / RESULT


def language_linears(model: Any) -> list[str]:
    """Names of the linear layers inside the language model; its head is not one of them."""
    family = find_family(model.config.model_type)
    found = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
        and name.startswith(f"{family.language_model}.")
        and not name.startswith((f"{family.vision_encoder}.", f"{family.projector}."))
    ]
    if not found:
        raise ConfigError(f"{type(model).__name__} has no linear layer under {family.language_model} for adapters.")
    return found


def add_adapters(
    model: Any, rank: int, alpha: float, dropout: float, *, train_projector: bool, autocast: bool = False
) -> Any:
    """Put adapters on the language model, in place; returns the `PeftModel`.

    Args:
        model: An image-text-to-text model.
        rank: Of the adapters.
        alpha: Their scale, divided by the rank.
        dropout: On their inputs.
        train_projector: Train a copy of the projector, kept in the adapter's folder.
        autocast: The model will run under autocast alone, which casts the small adapters. Their inputs are then not
            copied to float32 first, which would cost more than the adapters themselves.
    """
    from peft import LoraConfig, get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    # Kinds of layer, not their numbers: the pattern stays short, and the prefix excludes the encoder's layers of the same name.
    kinds = sorted({name.rpartition(".")[2] for name in language_linears(model)})
    parts, family = find_parts(model), find_family(model.config.model_type)
    inside = [name for name in (family.vision_encoder, family.projector) if name.startswith(f"{parts.prefix}.")]
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]  # peft divides it by the rank, whole or not
        lora_dropout=dropout,
        bias="none",
        target_modules=rf"{re.escape(parts.prefix)}\..*\.({'|'.join(kinds)})",
        exclude_modules=rf"({'|'.join(map(re.escape, inside))})\..*" if inside else None,
        modules_to_save=[parts.projector_name] if train_projector else None,
        task_type="CAUSAL_LM",
    )
    peft = get_peft_model(model, config)
    for layer in peft.modules():
        if autocast and isinstance(layer, BaseTunerLayer):
            layer.cast_input_dtype_enabled = False  # type: ignore[assignment]
    return peft


def check_quantisation(device: torch.device, *, sharded: bool = False) -> None:
    """Refuse a base in 4 bits where bitsandbytes or a GPU is missing, or where processes share the weights."""
    require("qlora")
    if sharded:
        raise ConfigError("quantise=4bit is for weights that every process has; give sharding=none, or leave it out.")
    if device.type != "cuda":
        raise ConfigError(f"quantise=4bit needs a GPU, and this training is on {device}; leave it out.")


def quantise_language_model(model: Any, precision: str) -> None:
    """Store the linear layers of the language model in 4 bits from when they are moved to a device, as in QLoRA.

    NF4 with double quantisation, computed in the precision of the training. The checkpoint names the base as it is.
    """
    from bitsandbytes.nn import Linear4bit, Params4bit

    for name in language_linears(model):
        linear = model.get_submodule(name)
        small = Linear4bit(linear.in_features, linear.out_features, linear.bias is not None, device="meta",
                           compute_dtype=getattr(torch, precision), quant_type="nf4")  # fmt: skip
        small.weight = Params4bit(linear.weight.data, requires_grad=False, quant_type="nf4", module=small)
        small.bias = linear.bias
        model.set_submodule(name, small)
    model.is_loaded_in_4bit = True  # PEFT's adapters of other layers would not compute with 4 bits


def enable_gradient_checkpointing(model: Any, vision_encoder_frozen: bool) -> None:
    """Recompute activations in the backward pass instead of keeping them."""
    settings, parts = {"use_reentrant": False}, find_parts(model)
    parts.language_model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)
    if not vision_encoder_frozen and hasattr(parts.vision_encoder, "gradient_checkpointing_enable"):
        parts.vision_encoder.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)


def compile_layers(model: Any) -> None:
    """Compile the layers of the language model for batches of any length; equal layers share the compiled code."""
    language = find_parts(model).language_model
    layers = getattr(language, "layers", None)
    if layers is None:
        raise ConfigError(f"compiled=true: {type(language).__name__} has no list of layers to compile.")
    for layer in layers:
        layer.compile(dynamic=True)


class ReportLoss(nn.Module):
    """A LLaVA together with the loss of its reports.

    Args:
        model: The LLaVA, with or without adapters.
        image_processor: Scales and normalises its images.
        augmentation: How images are varied in training, for a vision encoder that is trained.
    """

    def __init__(self, model: Any, image_processor: Any, augmentation: Augmentation = NONE) -> None:
        super().__init__()
        self.model = model
        self.image_processor, self.augmentation = image_processor, augmentation

    def forward(
        self,
        input_ids: Tensor,
        image_places: Tensor,
        places: Tensor,
        targets: Tensor,
        features: Tensor | None = None,
        images: Tensor | None = None,
        seeds: Tensor | None = None,
    ) -> Tensor:
        """Sum of -log p of the targets, a scalar.

        Args:
            input_ids: [B, L], padded on the right.
            image_places: Places of the image tokens in the flattened batch, [R × P].
            places: Places in the flattened batch that precede a target, [K].
            targets: The tokens that follow them, [K].
            features: Of the frozen vision encoder, [R, P, D].
            images: In place of features, uint8 [R, H, W] or [R, H, W, 3].
            seeds: For the augmentation of each image, [R]; without them there is none.
        """
        if self.training and images is not None and seeds is not None:
            images = varied(images, seeds, self.augmentation)
        scores = self.scores(input_ids, image_places, places, features, images)
        return functional.cross_entropy(scores.float(), targets, reduction="sum")

    def scores(
        self,
        input_ids: Tensor,
        image_places: Tensor,
        places: Tensor,
        features: Tensor | None = None,
        images: Tensor | None = None,
        copies: int = 1,
    ) -> Tensor:
        """Logits of the tokens after each of the places, [K, V]; see `forward`.

        The batch may hold `copies` × R rows for R images, which are then encoded once; the rows repeat their order.
        """
        inner = self.model.model
        projector, vision_encoder = inner.multi_modal_projector, inner.vision_tower
        words = inner.get_input_embeddings()(input_ids)
        if features is None and images is not None:
            trained = any(parameter.requires_grad for parameter in vision_encoder.parameters())
            with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
                pixels = to_pixels(images, self.image_processor).to(next(vision_encoder.parameters()).dtype)
                features = vision_encoder_features(self.model, pixels)
        seen = None if features is None else projector(features.to(next(projector.parameters()).dtype))
        if seen is not None and copies > 1:
            seen = seen.repeat(copies, 1, 1)
        if (0 if seen is None else seen.shape[0] * seen.shape[1]) != image_places.shape[0]:
            raise ValueError(f"{image_places.shape[0]} image tokens do not match the images of the batch")
        flat = words.flatten(0, 1)
        if seen is not None:
            flat = flat.index_copy(0, image_places, seen.flatten(0, 1).to(flat.dtype))
        elif any(parameter.requires_grad for parameter in projector.parameters()):
            # With several processes every trained parameter needs a gradient, also in a batch without an image.
            weight = next(parameter for parameter in projector.parameters() if parameter.ndim == 2)
            blank = torch.zeros(1, 1, weight.shape[1], dtype=weight.dtype, device=weight.device)
            flat = flat + 0.0 * projector(blank).sum().to(flat.dtype)
        hidden = inner.language_model(inputs_embeds=flat.view_as(words), use_cache=False).last_hidden_state
        scores: Tensor = self.model.lm_head(hidden.flatten(0, 1).index_select(0, places))
        return scores

    def target_scores(self, batch: Mapping[str, Tensor], copies: int = 1) -> tuple[Tensor, Tensor]:
        """Logits of every target [K, V] and the row that it is in [K]; see `scores`."""
        ids, image_places, places = (batch[name] for name in ("input_ids", "image_places", "places"))
        scores = self.scores(ids, image_places, places, batch.get("features"), batch.get("images"), copies)
        return scores, torch.div(places, ids.shape[1], rounding_mode="floor")

    def train(self, mode: bool = True) -> Self:
        """Set the mode; a frozen vision encoder stays in evaluation mode, so that its features stay the same."""
        super().train(mode)
        if not any(parameter.requires_grad for parameter in self.model.model.vision_tower.parameters()):
            self.model.model.vision_tower.eval()
        return self
