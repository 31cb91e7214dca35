"""Where stages 2 and 3 start: a whole LLaVA, or a encoder and a language model with a new projector between them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.runs import state
from cxrlab.models.components import folder_of, load_language_model, load_vision_encoder
from cxrlab.models.hf.checkpoint import open_checkpoint
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_card import trained_on
from cxrlab.models.random_init import assemble_llava
from cxrlab.training.augment import varied
from cxrlab.training.config import NONE, Augmentation
from cxrlab.training.image_features import to_pixels, vision_encoder_features
from cxrlab.training.memory import check_kind
from cxrlab.training.run_folder import RESULT


@dataclass(frozen=True, eq=False)
class StartModel:
    """A LLaVA to be trained.

    Args:
        model: With `model.vision_tower`, `model.multi_modal_projector` and `model.language_model`.
        processor: With its tokenizer and image processor.
        names: What it was made from: the names that the config gives.
        folder: The folder that it lies in; None when it was put together from parts.
        collections: Collections of images that its parts have learnt from.
        builtin: The name of a model that ships with the package, which needs no path.
        prompts: What it was taught to be asked by; None where its card does not tell.
        trained_on: See `ModelCard.learnt_from`.
    """

    model: Any
    processor: Any
    names: dict[str, str]
    folder: Path | None = None
    collections: tuple[str, ...] = ()
    builtin: str | None = None
    prompts: str | None = None
    trained_on: str | None = None

    def base(self, result: Path) -> str:
        """How an adapter in the folder `result` names what it stands on: a relative path, or a built-in model."""
        if self.builtin is not None:
            return self.builtin
        if self.folder is None:
            raise ConfigError("what an adapter stands on must lie in a folder.")
        return f"hf:{Path(os.path.relpath(self.folder.resolve(), result.resolve())).as_posix()}"


def load_start(start: str | None, encoder: str | None, language_model: str | None, seed: int) -> StartModel:
    """The model that a config starts from, in float32; see the fields of `AlignConfig` and `FinetuneConfig`.

    An adapter is merged into what it stands on: what is trained next stands on both.
    """
    if start is not None:
        return _whole(start)
    if encoder is None or language_model is None:
        raise ConfigError("there is no start; give start, or both encoder and language_model.")
    vision_encoder, language = (
        load_vision_encoder(encoder, seed=seed),
        load_language_model(language_model, seed=seed + 1),
    )
    model, processor = assemble_llava(
        vision_encoder.model, language.model, language.tokenizer, vision_encoder.image_processor, seed + 2
    )
    names = {"encoder": encoder, "language_model": language_model}
    seen = tuple(dict.fromkeys((*vision_encoder.collections, *language.collections)))
    learnt = trained_on((vision_encoder.trained_on, language.trained_on))
    return StartModel(model, processor, names, collections=seen, trained_on=learnt)


def start_model_name(start: str) -> str:
    """The name by which the model that a config starts from is loaded elsewhere; a run folder becomes its result."""
    if _is_path(start):
        return f"hf:{_result_of(Path(start))}"
    check_has_weights(start)
    return start


def _whole(start: str) -> StartModel:
    """A LLaVA by name: hf:FOLDER, builtin:NAME, or a run folder of a training."""
    loading = LoadSettings(device="cpu", dtype="float32")
    if _is_path(start):
        folder = _result_of(Path(start))
    else:
        check_has_weights(start)
        folder = folder_of(start)
    opened = open_checkpoint(folder, loading, merge=True)
    check_kind(opened.model, start)
    card = opened.card
    seen, asked, learnt = (card.collections, card.prompts, card.learnt_from) if card is not None else ((), None, None)
    builtin = start if start.startswith("builtin:") else None
    return StartModel(opened.model, opened.processor, {"start": start}, folder, seen, builtin, asked, learnt)


def _is_path(start: str) -> bool:
    """Whether it names a run folder, which may have a colon in its name, and not a kind of model."""
    return ":" not in start or Path(start).is_dir()


def check_has_weights(start: str) -> None:
    """Refuse every kind of name but a run folder and those of weights: stub:normal, retrieval:CORPUS, an address."""
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


PROJECTOR = "multi_modal_projector"


def language_linears(model: Any) -> list[str]:
    """Names of the linear layers inside the language model of a LLaVA; its head is not one of them."""
    found = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.startswith("model.language_model.")
    ]
    if not found:
        raise ConfigError(f"{type(model).__name__} has no linear layer under model.language_model to put adapters on.")
    return found


def add_adapters(
    model: Any, rank: int, alpha: float, dropout: float, *, train_projector: bool, autocast: bool = False
) -> Any:
    """The model as a `PeftModel`: adapters on the language model, the projector trained beside them.

    Args:
        model: A LLaVA; it is changed in place.
        rank: Of the adapters.
        alpha: Their scale, divided by the rank.
        dropout: Share of their inputs that is dropped.
        train_projector: Train a copy of the projector, kept in the adapter's folder.
        autocast: The model will run under autocast alone, which casts the small adapters; their inputs are then not
            copied into float32 first, which would cost more than the adapters themselves.
    """
    from peft import LoraConfig, get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    # Kinds of layer, not their numbers: the pattern stays short, and the prefix keeps the encoder's namesakes out.
    kinds = sorted({name.rpartition(".")[2] for name in language_linears(model)})
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]  # peft divides it by the rank, whole or not
        lora_dropout=dropout,
        bias="none",
        target_modules=rf"model\.language_model\..*\.({'|'.join(kinds)})",
        modules_to_save=[PROJECTOR] if train_projector else None,
        task_type="CAUSAL_LM",
    )
    peft = get_peft_model(model, config)
    for layer in peft.modules():
        if autocast and isinstance(layer, BaseTunerLayer):
            layer.cast_input_dtype_enabled = False  # type: ignore[assignment]
    return peft


class ReportLoss(nn.Module):
    """A LLaVA together with the loss of its reports; what is trained is what has `requires_grad`.

    Args:
        model: The LLaVA, with adapters inside or without.
        image_processor: Scales and normalises its images.
        augmentation: How images are varied in training, for a vision encoder that is trained.
    """

    def __init__(self, model: Any, image_processor: Any, augmentation: Augmentation = NONE) -> None:
        super().__init__()
        self.model = model
        self.image_processor, self.augmentation = image_processor, augmentation

    @property
    def config(self) -> Any:
        """The model's, where launchers look for sizes."""
        return self.model.config

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
            image_places: Where features of images stand in the batch laid flat, [R × P].
            places: After which places of the batch laid flat a target comes, [K].
            targets: The tokens that come there, [K].
            features: Of the frozen vision encoder, [R, P, D].
            images: In place of features, uint8 [R, H, W] or [R, H, W, 3].
            seeds: For the variation of each image, [R]; None leaves them as they are.
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
        """Scores of all tokens after each of the places, [K, V]; see `forward`.

        Args:
            input_ids: [B, L].
            image_places: [copies × R × P].
            places: [K].
            features: [R, P, D].
            images: In place of features.
            copies: How often the images stand in the batch, one after the other in the same order: R images are then
                looked at and projected once for copies × R rows.
        """
        inner = self.model.model
        words = inner.get_input_embeddings()(input_ids)
        seen = self._seen(features, images)
        if seen is not None and copies > 1:
            seen = seen.repeat(copies, 1, 1)
        if (0 if seen is None else seen.shape[0] * seen.shape[1]) != image_places.shape[0]:
            raise ValueError(f"{image_places.shape[0]} image tokens do not match the images of the batch")
        flat = words.flatten(0, 1)
        if seen is not None:
            flat = flat.index_copy(0, image_places, seen.flatten(0, 1).to(flat.dtype))
        elif self._projector_trained():
            # Every process must give every trained parameter a gradient, also in a batch without an image.
            flat = flat + 0.0 * inner.multi_modal_projector(self._nothing()).sum().to(flat.dtype)
        hidden = inner.language_model(inputs_embeds=flat.view_as(words), use_cache=False).last_hidden_state
        scores: Tensor = self.model.lm_head(hidden.flatten(0, 1).index_select(0, places))
        return scores

    def train(self, mode: bool = True) -> Self:
        """As ever, but a frozen vision encoder stays in evaluation mode: its features must not depend on the step."""
        super().train(mode)
        if not any(parameter.requires_grad for parameter in self.model.model.vision_tower.parameters()):
            self.model.model.vision_tower.eval()
        return self

    def _seen(self, features: Tensor | None, images: Tensor | None) -> Tensor | None:
        """What the language model is given for the images, [R, P, D]; None in a batch without any."""
        if features is None and images is None:
            return None
        if features is None:
            vision_encoder = self.model.model.vision_tower
            trained = any(parameter.requires_grad for parameter in vision_encoder.parameters())
            with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
                pixels = to_pixels(images, self.image_processor) if images is not None else images
                features = vision_encoder_features(self.model, pixels.to(next(vision_encoder.parameters()).dtype))  # type: ignore[union-attr]
        return self._project(features)

    def _project(self, features: Tensor) -> Tensor:
        projector = self.model.model.multi_modal_projector
        found: Tensor = projector(features.to(next(projector.parameters()).dtype))
        return found

    def _projector_trained(self) -> bool:
        return any(parameter.requires_grad for parameter in self.model.model.multi_modal_projector.parameters())

    def _nothing(self) -> Tensor:
        projector = self.model.model.multi_modal_projector
        weight = next(parameter for parameter in projector.parameters() if parameter.ndim == 2)
        return torch.zeros(1, 1, weight.shape[1], dtype=weight.dtype, device=weight.device)
