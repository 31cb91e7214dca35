"""What transformers loads from a folder that the user has: nothing is fetched, and errors are one sentence."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json, unreadable

DUAL_ENCODERS = ("vision-text-dual-encoder", "projected-dual-encoder")  # as config.json calls their type
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")  # files that may hold pickles


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


@contextmanager
def refused_code(folder: Path) -> Iterator[None]:
    """Within it a file of the folder that torch refuses to unpickle is a `DataError` with the file's name.

    torch's own message advises to switch the protection off.
    """
    try:
        yield
    except pickle.UnpicklingError as error:
        files = sorted(file for file in folder.iterdir() if file.suffix in _PICKLED)
        raise _refused(error, next((file for file in files if _says_the_same(file, error)), folder)) from None


def load_torch(path: Path, device: Any = "cpu", *, mmap: bool = False) -> Any:
    """Tensors and plain values of a file that `torch.save` wrote; a pickle with code in it is refused, not run.

    Args:
        path: The file.
        device: Where its tensors go.
        mmap: Map the tensors in place of reading them, where the file allows it.
    """
    import torch

    zipped = _is_torch_zip(path)
    try:
        return torch.load(path, map_location=device, weights_only=True, mmap=mmap and zipped)
    except OSError as error:
        raise unreadable(error, path) from error
    except pickle.UnpicklingError as error:
        raise _refused(error, path) from None
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        raise DataError(f"{path} is damaged or no file of torch ({first_line(error)}); fetch it again.") from error


def _refused(error: pickle.UnpicklingError, path: Path) -> DataError:
    """What torch refused, without its advice."""
    code = re.search(r"GLOBAL (\S+)", str(error))
    if code is None:
        return DataError(f"{path} is damaged or no file of torch; fetch it again.")
    return DataError(
        f"{path} contains pickled code ({code[1]}); refused, nothing of it was run. Ask its maker for safetensors, or "
        "for a file with tensors alone."
    )


def _says_the_same(file: Path, error: pickle.UnpicklingError) -> bool:
    import torch

    try:
        torch.load(file, map_location="cpu", weights_only=True, mmap=_is_torch_zip(file))
    except Exception as own:  # of a file that is not the one that is looked for
        return isinstance(own, pickle.UnpicklingError) and str(own) == str(error)
    return False


def _is_torch_zip(path: Path) -> bool:
    """Whether torch wrote it in the form of the last years; the older one cannot be mapped.

    torch itself never compresses a member. One that is compressed may unpack to any size, so that it is refused.
    """
    import zipfile

    if not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            packed = next((info for info in archive.infolist() if info.compress_type != zipfile.ZIP_STORED), None)
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} is damaged or no file of torch ({first_line(error)}); fetch it again.") from error
    if packed is not None:
        raise DataError(f"{path} holds {packed.filename} compressed, which torch never writes; save it again by torch.")
    return True


def first_line(error: Exception) -> str:
    """The first line of an error's message; those of transformers and torch go on for paragraphs."""
    return str(error).strip().partition("\n")[0]
