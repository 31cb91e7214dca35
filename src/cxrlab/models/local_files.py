"""Find a checkpoint's local folder and read its files safely: nothing is downloaded, and no code of it run, unasked."""

from __future__ import annotations

import json
import math
import pickle
import re
import struct
import sys
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.atomic_folders import CHECKSUMS, find_damage
from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.files import read_json, unreadable
from cxrlab.core.terminal import NoticeStream
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_card import MODEL_CARD

ADAPTER_CONFIG = "adapter_config.json"
RESULT = "checkpoint"  # subfolder of a training run
_MODELS = ("config.json", ADAPTER_CONFIG)
_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_CONFIGS = ("config.json", "processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
_VERIFIED: set[Hashable] = set()  # states of folders that were verified by this process


def locate(path_or_id: str | Path, loading: LoadSettings, *, may_fetch: bool = True) -> Path:
    """The local folder of a checkpoint, its checksums verified if it has any.

    Args:
        path_or_id: A folder, the run folder of a training (for the checkpoint in it), or a hub id such as `org/name`,
            for its local copy.
        loading: `download` allows an id to be fetched.
        may_fetch: Whether the current command has a flag for that.
    """
    from huggingface_hub import snapshot_download

    folder = Path(path_or_id).expanduser()
    if folder.is_dir():
        inner = folder / RESULT
        if inner.is_dir() and not any((folder / name).is_file() for name in _MODELS):
            folder = inner
        verify_checksums(folder)
        _register_own_types(folder)
        return folder
    if folder.exists():
        raise DataError(f"{folder} is a file; name the folder that holds config.json and the weights.")
    name = str(path_or_id)
    if not _ID.fullmatch(name) or ".." in name:
        raise DataError(f"{folder} does not exist.{_neighbours(folder)}")
    try:
        return Path(snapshot_download(name, local_files_only=not loading.download))
    except Exception as error:  # errors of the client, of its HTTP library and of the disk
        if loading.download:
            raise DataError(
                f"'{name}' could not be fetched ({first_line(error)}); check the name and the network."
            ) from error
        raise DataError(
            f"'{name}' is neither a folder nor among the checkpoints kept on this machine;{_neighbours(Path(name))} "
            f"give a folder{', or --loading.download to fetch it' if may_fetch else '; this command fetches nothing'}."
        ) from error


def _register_own_types(folder: Path) -> None:
    """Make a model type of this package known to transformers, where a folder names it."""
    config = folder / "config.json"
    if config.is_file() and b'"grid-encoder"' in config.read_bytes():
        import cxrlab.models.grid_encoder  # noqa: F401


def verify_checksums(folder: Path) -> None:
    """Raise if a model folder that cxrlab wrote has changed; unchanged files are checked once per process.

    A folder from elsewhere has no checksums and is not checked.
    """
    if (folder / CHECKSUMS).is_file():
        stats = {str(path): path.stat() for path in sorted(folder.rglob("*")) if path.is_file()}
        state = tuple((name, one.st_ino, one.st_size, one.st_mtime_ns) for name, one in stats.items())
        if state in _VERIFIED:
            return
        if damage := find_damage(folder):
            raise DataError(
                f"{folder} is damaged: {damage}; copy or make the folder again, or remove {folder / CHECKSUMS} if you "
                "changed it on purpose."
            )
        _VERIFIED.add(state)
    elif (folder / MODEL_CARD).is_file() and folder not in _VERIFIED:
        _VERIFIED.add(folder)
        NoticeStream(sys.stderr).write(f"{folder} was not verified: it has no {CHECKSUMS} (cxrlab 0.1.0 wrote none)\n")


def _neighbours(folder: Path) -> str:
    parent = folder.parent
    names = [entry.name for entry in parent.iterdir() if entry.is_dir()] if parent.is_dir() else []
    return did_you_mean(folder.name, names)


def check_remote_code(folder: Path, loading: LoadSettings) -> None:
    """Raise `ConfigError` if the checkpoint needs its own Python files and running them was not allowed."""
    if loading.trust_remote_code:
        return
    files = remote_code_files(folder)
    if files:
        raise ConfigError(
            f"{folder} needs more than transformers: it would run {', '.join(files)} on this machine with your rights; "
            "read them, and give --loading.trust-remote-code if you trust them."
        )


def remote_code_files(folder: Path) -> list[str]:
    """Python files of a checkpoint that it cannot do without; empty for a family that transformers knows."""
    from transformers import CONFIG_MAPPING

    maps = [auto_map(folder, name) for name in _CONFIGS]
    if _json(folder / "config.json").get("model_type") in CONFIG_MAPPING:
        return []  # transformers' own code is used
    values = [value for entries in maps for value in entries.values()]
    references = {str(one) for value in values for one in (value if isinstance(value, list) else [value]) if one}
    files = set()
    for reference in references:  # 'org/other--modeling.Class' in another repository, 'modeling.Class' in this folder
        repository, _, place = reference.rpartition("--")
        files.add(f"{repository} {place.rpartition('.')[0]}.py".strip())
    return sorted(files)


def auto_map(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """The checkpoint's own classes that a config file requires, by auto class."""
    found = _json(folder / name).get("auto_map")
    return found if isinstance(found, dict) else {}


def _json(path: Path) -> dict[str, Any]:
    found = read_json(path) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


DUAL_ENCODERS = ("vision-text-dual-encoder", "projected-dual-encoder")  # model types in config.json
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
    # If files are missing, transformers silently makes an empty tokenizer for a family that it knows.
    if len(found) <= len(found.all_special_tokens):
        raise _without_tokenizer(folder, "its vocabulary is empty")
    return found


def _without_tokenizer(folder: Path, reason: str) -> DataError:
    return DataError(
        f"{folder} holds no tokenizer that transformers can load ({reason}); "
        "it needs tokenizer.json and tokenizer_config.json, or vocab.txt."
    )


def load_image_processor(folder: Path) -> Any:
    """The image processor in a local folder, in the variant that works on Pillow images, alike on every machine."""
    import transformers

    try:
        with quiet_loading():
            # transformers' own search needs torchvision in some versions, although the class that it finds does not.
            for file in ("preprocessor_config.json", "processor_config.json"):
                settings = _json(folder / file)
                settings = settings.get("image_processor", settings)
                named = settings.get("image_processor_type") if isinstance(settings, dict) else None
                if isinstance(named, str):
                    plain = named.removesuffix("Pil").removesuffix("Fast")
                    if (known := getattr(transformers, f"{plain}Pil", None)) is not None:
                        return known.from_pretrained(folder, local_files_only=True)
            return transformers.AutoImageProcessor.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, use_fast=False
            )
    except (OSError, ValueError, ImportError) as error:
        raise DataError(
            f"{folder} has no image processor that transformers can load ({first_line(error)}); it needs "
            "preprocessor_config.json or processor_config.json."
        ) from error


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Context in which transformers shows errors only, for loading a part of a checkpoint on purpose."""
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
    """Context in which a file of the folder that torch refuses to unpickle raises a `DataError` that names the file.

    torch's own message advises to disable the protection.
    """
    import torch

    try:
        yield
    except pickle.UnpicklingError as error:
        culprit = folder  # find the file that raises the same error
        for file in sorted(file for file in folder.iterdir() if file.suffix in _PICKLED):
            try:
                torch.load(file, map_location="cpu", weights_only=True, mmap=_is_torch_zip(file))
            except Exception as own:
                if isinstance(own, pickle.UnpicklingError) and str(own) == str(error):
                    culprit = file
                    break
        raise _refused(error, culprit) from None


def load_torch(path: Path, device: Any = "cpu", *, mmap: bool = False) -> Any:
    """Tensors and plain values of a file that `torch.save` wrote; pickled code is refused, not run.

    Args:
        device: Where its tensors go.
        mmap: Memory-map the tensors if the file allows it.
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
    """Torch's refusal without its advice."""
    code = re.search(r"GLOBAL (\S+)", str(error))
    if code is None:
        return DataError(f"{path} is damaged or no file of torch; fetch it again.")
    return DataError(
        f"{path} contains pickled code ({code[1]}); refused, nothing of it was run. Ask its publisher for safetensors, "
        "or for a file with tensors only."
    )


def _is_torch_zip(path: Path) -> bool:
    """Whether a file has torch's zip format, which can be memory-mapped; the older format cannot.

    torch never compresses a member. A compressed one could unpack to any size, so it is refused.
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
    """The first line of an error's message; those of transformers and torch have paragraphs."""
    return str(error).strip().partition("\n")[0]


WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
_BYTES_OF = {"float32": 4, "float16": 2, "bfloat16": 2}
_HEADER_LIMIT = 100_000_000  # of safetensors itself


@dataclass(frozen=True)
class Stored:
    """Sizes in the headers of weight files."""

    parameters: int  # number of floating-point values
    bytes: int  # their size on disk
    other: int = 0  # bytes of other tensors (quantised weights, indices)

    def in_memory(self, dtype: str) -> int:
        """Bytes once loaded; `auto` keeps the stored precision."""
        return self.other + (self.bytes if dtype == "auto" else self.parameters * _BYTES_OF[dtype])


def stored_weights(folder: Path) -> Stored | None:
    """Sizes of a checkpoint's safetensors files by their headers; None if it has pickled weights only.

    Raises:
        DataError: If there are no weights, a part is missing, or a file is truncated.
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
    """The safetensors files of a checkpoint; empty if it has pickled weights only."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        index = read_json(folder / INDEX)
        places = index.get("weight_map") if isinstance(index, dict) else None
        named: list[Any] = list(places.values()) if isinstance(places, dict) else [None]
        # No publisher writes an index that points outside the folder.
        if any(not isinstance(name, str) or not name or Path(name).name != name for name in named):
            raise DataError(f"{folder / INDEX} does not name weight files beside it; copy or fetch it again.")
        names = sorted(set(named))
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


def check_safetensors(file: Path) -> None:
    """Raise `DataError` if a safetensors file does not hold all that its header lists."""
    for _ in _tensors(file):
        pass


def _tensors(file: Path) -> Iterator[tuple[str, int, int]]:
    """(type, values, bytes) of each tensor, after a check that the file holds them all."""
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
