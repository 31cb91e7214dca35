"""Where stages 2 and 3 start: a whole LLaVA, or a encoder and a language model with a new projector between them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.runs import state
from cxrlab.models.components import folder_of, load_language_model, load_vision_encoder
from cxrlab.models.hf.checkpoint import open_checkpoint
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_card import trained_on
from cxrlab.models.random_init import assemble_llava
from cxrlab.training.checks import check_kind
from cxrlab.training.run_folder import RESULT


@dataclass(frozen=True, eq=False)
class Start:
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


def open_start(start: str | None, encoder: str | None, language_model: str | None, seed: int) -> Start:
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
    return Start(model, processor, names, collections=seen, trained_on=learnt)


def start_name(start: str) -> str:
    """The name by which the model that a config starts from is loaded elsewhere; a run folder becomes its result."""
    if _is_path(start):
        return f"hf:{_result_of(Path(start))}"
    refuse_weightless(start)
    return start


def _whole(start: str) -> Start:
    """A LLaVA by name: hf:FOLDER, builtin:NAME, or a run folder of a training."""
    loading = LoadSettings(device="cpu", dtype="float32")
    if _is_path(start):
        folder = _result_of(Path(start))
    else:
        refuse_weightless(start)
        folder = folder_of(start)
    opened = open_checkpoint(folder, loading, merge=True)
    check_kind(opened.model, start)
    card = opened.card
    seen, asked, learnt = (card.collections, card.prompts, card.learnt_from) if card is not None else ((), None, None)
    builtin = start if start.startswith("builtin:") else None
    return Start(opened.model, opened.processor, {"start": start}, folder, seen, builtin, asked, learnt)


def _is_path(start: str) -> bool:
    """Whether it names a run folder, which may have a colon in its name, and not a kind of model."""
    return ":" not in start or Path(start).is_dir()


def refuse_weightless(start: str) -> None:
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
