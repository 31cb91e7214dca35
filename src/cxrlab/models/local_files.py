"""From what a user names to a local folder, and what that folder would do to this machine.

Nothing is fetched unless it was asked for, and no program that comes with a checkpoint is run
unless it was trusted in so many words.
"""

from __future__ import annotations

import json
import math
import pickle
import re
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.files import read_json, unreadable
from cxrlab.core.folders import CHECKSUMS, find_damage
from cxrlab.core.terminal import NoticeStream
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_card import MODEL_CARD

ADAPTER_CONFIG = "adapter_config.json"
RESULT = "checkpoint"  # what a training leaves in its run folder
_MODELS = ("config.json", ADAPTER_CONFIG)
_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_CONFIGS = ("config.json", "processor_config.json", "preprocessor_config.json", "tokenizer_config.json")


def locate(path_or_id: str | Path, loading: LoadSettings, *, may_fetch: bool = True) -> Path:
    """The local folder of a checkpoint: the folder itself, or the copy of a hub id that this machine keeps.

    A folder with checksums is verified.

    Args:
        path_or_id: A folder, the run folder of a training, which stands for the checkpoint in it, or an id such as
            `org/name`.
        loading: `download` allows an id to be fetched.
        may_fetch: Whether the command that is run has a flag for that.
    """
    folder = Path(path_or_id).expanduser()
    if folder.is_dir():
        found = _result_of(folder)
        verify_checksums(found)
        return found
    if folder.exists():
        raise DataError(f"{folder} is a file; name the folder that holds config.json and the weights.")
    name = str(path_or_id)
    if not _ID.fullmatch(name) or ".." in name:
        raise DataError(f"{folder} does not exist.{_neighbours(folder)}")
    return _snapshot(name, loading, may_fetch)


def _result_of(folder: Path) -> Path:
    inner = folder / RESULT
    return inner if inner.is_dir() and not any((folder / name).is_file() for name in _MODELS) else folder


def verify_checksums(folder: Path) -> None:
    """Raise when a model folder that cxrlab wrote is not as it was written; once for the same files in a process.

    A folder from elsewhere has no checksums and is taken as it is; one of cxrlab 0.1.0 has none either, which is
    reported.
    """
    if (folder / CHECKSUMS).is_file():
        stats = {str(path): path.stat() for path in sorted(folder.rglob("*")) if path.is_file()}
        _verify(folder, tuple((name, one.st_ino, one.st_size, one.st_mtime_ns) for name, one in stats.items()))
    elif (folder / MODEL_CARD).is_file():
        _report_unverified(folder)


@cache
def _report_unverified(folder: Path) -> None:
    NoticeStream(sys.stderr).write(f"{folder} was not verified: it has no {CHECKSUMS} (cxrlab 0.1.0 wrote none)\n")


@cache
def _verify(folder: Path, files: tuple[tuple[str, int, int, int], ...]) -> None:
    if damage := find_damage(folder):
        raise DataError(
            f"{folder} is damaged: {damage}; copy or make the folder again, or remove {folder / CHECKSUMS} if you "
            "changed it on purpose."
        )


def _snapshot(name: str, loading: LoadSettings, may_fetch: bool) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, local_files_only=not loading.download))
    except Exception as error:  # of the client: its own errors, those of its HTTP library and of the disk
        if loading.download:
            raise DataError(
                f"'{name}' could not be fetched ({first_line(error)}); check the name and the network."
            ) from error
        raise DataError(
            f"'{name}' is neither a folder nor among the checkpoints kept on this machine;{_neighbours(Path(name))} "
            f"give a folder{', or --loading.download to fetch it' if may_fetch else '; this command fetches nothing'}."
        ) from error


def _neighbours(folder: Path) -> str:
    parent = folder.parent
    names = [entry.name for entry in parent.iterdir() if entry.is_dir()] if parent.is_dir() else []
    return did_you_mean(folder.name, names)


def check_remote_code(folder: Path, loading: LoadSettings) -> None:
    """A `ConfigError` when the checkpoint only works by running its own Python files and that was not allowed."""
    if loading.trust_remote_code:
        return
    files = remote_code_files(folder)
    if files:
        raise ConfigError(
            f"{folder} is no model of transformers alone: it would run {', '.join(files)} on this machine with your "
            "rights; read them, and give --loading.trust-remote-code if you trust them."
        )


def remote_code_files(folder: Path) -> list[str]:
    """Python files that a checkpoint brings and cannot do without; empty for a family that transformers knows."""
    from transformers import CONFIG_MAPPING

    maps = [auto_map(folder, name) for name in _CONFIGS]
    config = _json(folder / "config.json")
    if config.get("model_type") in CONFIG_MAPPING:
        return []  # transformers' own code is used
    named = {str(item) for entries in maps for item in _flat(entries)}
    # 'org/other--modeling.Class' lies in another repository, 'modeling.Class' in this folder.
    return sorted({f"{ref.rpartition('--')[0]} {_module(ref)}".strip() for ref in named})


def auto_map(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """Which classes of its own a config file asks for, by auto class."""
    found = _json(folder / name).get("auto_map")
    return found if isinstance(found, dict) else {}


def _flat(entries: dict[str, Any]) -> list[Any]:
    return [item for value in entries.values() for item in (value if isinstance(value, list) else [value]) if item]


def _module(reference: str) -> str:
    return f"{reference.rpartition('--')[2].rpartition('.')[0]}.py"


def _json(path: Path) -> dict[str, Any]:
    found = read_json(path) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


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
def pickled_code_refused(folder: Path) -> Iterator[None]:
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


WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
_BYTES_OF = {"float32": 4, "bfloat16": 2}
_HEADER_LIMIT = 100_000_000  # of safetensors itself


@dataclass(frozen=True)
class Stored:
    """What the headers of weight files say.

    Args:
        parameters: Numbers in floating tensors.
        bytes: What they take on disk.
        other: Bytes of tensors that are no floating numbers (quantised weights, indices).
    """

    parameters: int
    bytes: int
    other: int = 0

    def in_memory(self, dtype: str) -> int:
        """Bytes once loaded; `auto` keeps the precision of the disk."""
        return self.other + (self.bytes if dtype == "auto" else self.parameters * _BYTES_OF[dtype])


def stored_weights(folder: Path) -> Stored | None:
    """Sizes by the headers of the safetensors files of a checkpoint; None where it has pickled weights alone.

    Raises:
        DataError: When there are no weights, a part is missing, or a file is cut short.
    """
    files = weight_files(folder)
    if not files:
        return None
    parameters = size = other = 0
    for file in files:
        for kind, numbers, length in _tensors(file):
            if kind in _BYTES:
                parameters, size = parameters + numbers, size + length
            else:
                other += length
    return Stored(parameters, size, other)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint; empty where it has pickled weights alone."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        names = _indexed(folder / INDEX)
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise DataError(
                f"{folder} lacks {len(missing)} of its {len(names)} weight files ({missing[0]}); "
                "copy or fetch them again."
            )
        if names:
            return [folder / name for name in names]
    if any((folder / name).is_file() for name in _PICKLED_WEIGHTS):
        return []
    raise DataError(f"{folder} has no weights; it needs {WEIGHTS}, or {INDEX} with the files it names.")


def _indexed(index: Path) -> list[str]:
    """The files that an index names, all of them beside it: one that leads elsewhere was not made by a publisher."""
    found = read_json(index)
    places = found.get("weight_map") if isinstance(found, dict) else None
    names = {name if isinstance(name, str) else "" for name in places.values()} if isinstance(places, dict) else {""}
    if any(Path(name).name != name or not name for name in names):
        raise DataError(f"{index} does not name weight files that lie beside it; copy or fetch it again.")
    return sorted(names)


def check_safetensors(file: Path) -> None:
    """A `DataError` when a safetensors file does not hold all that its header lists."""
    for _ in _tensors(file):
        pass


def _tensors(file: Path) -> Iterator[tuple[str, int, int]]:
    """(type, numbers, bytes) of each tensor, after a check that the file holds them all."""
    try:
        with file.open("rb") as stream:
            length = struct.unpack("<Q", stream.read(8))[0]
            header: Any = json.loads(stream.read(length)) if length <= _HEADER_LIMIT else None
            size = file.stat().st_size
        header.pop("__metadata__", None)
        found = [(str(t["dtype"]), math.prod(t["shape"]), *t["data_offsets"]) for t in header.values()]
        whole = max((end for *_, end in found), default=0) + 8 + length == size
    except OSError as error:
        raise unreadable(error, file) from error
    except (ValueError, TypeError, KeyError, AttributeError, struct.error):  # bytes that are no header
        whole, found = False, []
    if not whole:
        raise DataError(f"{file} is cut short or damaged; copy or fetch it again.")
    for kind, numbers, start, end in found:
        yield kind, numbers, end - start
