"""What transformers loads from a folder that the user has: nothing is fetched, and errors are one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json

DUAL_ENCODERS = ("vision-text-dual-encoder", "projected-dual-encoder")  # as config.json calls their type


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in a local folder."""
    from transformers import AutoTokenizer

    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; name the folder that holds the tokenizer's files.")
    try:
        found = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise _without_tokenizer(folder, first_line(error)) from error
    # For a family that it knows, transformers makes up a tokenizer without a word where the files are missing.
    if len(found) <= len(found.all_special_tokens):
        raise _without_tokenizer(folder, "its vocabulary is empty")
    return found


def _without_tokenizer(folder: Path, reason: str) -> DataError:
    return DataError(
        f"{folder} holds no tokenizer that transformers can load ({reason}); "
        "it needs tokenizer.json and tokenizer_config.json, or vocab.txt."
    )


def load_image_processor(folder: Path) -> Any:
    """The image processor in a local folder, the one that works on pictures of Pillow, on every machine alike."""
    from transformers import AutoImageProcessor

    try:
        with quiet_loading():
            if (known := _pillow_class(folder)) is not None:
                return known.from_pretrained(folder, local_files_only=True)
            return AutoImageProcessor.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, use_fast=False
            )
    except (OSError, ValueError, ImportError) as error:
        raise DataError(
            f"{folder} has no image processor that transformers can load ({first_line(error)}); it needs "
            "preprocessor_config.json or processor_config.json."
        ) from error


def _pillow_class(folder: Path) -> Any:
    """What opens the image processor that a folder names; None where it names none that works on Pillow's pictures.

    transformers' own search needs torchvision in some versions, although the class that it finds does not.
    """
    import transformers

    for name in ("preprocessor_config.json", "processor_config.json"):
        settings = read_json(folder / name) if (folder / name).is_file() else {}
        settings = settings.get("image_processor", settings) if isinstance(settings, dict) else {}
        named = settings.get("image_processor_type") if isinstance(settings, dict) else None
        if isinstance(named, str):
            plain = named.removesuffix("Pil").removesuffix("Fast")
            if (found := getattr(transformers, f"{plain}Pil", None)) is not None:
                return found
    return None


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Within it transformers reports errors alone and shows no bar; for loading part of a checkpoint on purpose."""
    from transformers.utils import logging as typed

    logging: Any = typed
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def first_line(error: Exception) -> str:
    """The first line of an error's message; those of transformers and torch go on for paragraphs."""
    return str(error).strip().partition("\n")[0]
