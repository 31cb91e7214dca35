"""Convert published checkpoints into folders that transformers loads: every tensor is placed, or the conversion fails."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import make_folder, os_error, unreadable
from cxrlab.core.folders import lock_folder, make_private, write_checksums
from cxrlab.core.tables import Table
from cxrlab.models.local_files import first_line, load_torch, quiet_loading

Dtype = Literal["auto", "float32", "float16", "bfloat16"]


@dataclass(frozen=True)
class ConvertConfig:
    """What a conversion may need beside the published files.

    Args:
        base: Folder of the language model that a LoRA stands on, for LLaVA-Rad that of Vicuna 7B v1.5.
        vision_encoder: Folder of the open_clip encoder whose vision encoder is used; else looked for beside the LoRA.
        text: Folder with config.json and tokenizer of an encoder's text model; else looked for beside its weights.
        keep_adapter: Keep the LoRA apart, as an adapter folder with its base inside, instead of merging it.
        collections: Collections of images that the model has learnt from, as cards of corpora name them;
            those of LLaVA-Rad are known.
        dtype: Number format of the weights written; auto keeps that of the source.
    """

    base: Path | None = None
    vision_encoder: Path | None = None
    text: Path | None = None
    keep_adapter: bool = False
    collections: tuple[str, ...] = ()
    dtype: Dtype = "auto"


# Each row is a function (source, config, out) -> Converted that writes into the empty folder `out`.
CONVERTERS = Table(
    "checkpoint layout",
    {
        "llava-rad": "cxrlab.models.convert.llava_rad:convert_llava_rad",
        "open-clip": "cxrlab.models.convert.open_clip:convert_open_clip",
    },
)


@dataclass(frozen=True)
class Converted:
    """What a conversion wrote.

    Args:
        model: Class of the model, as transformers calls it.
        parameters: Numbers in it.
        image: Side of the image in pixels.
        unused: Tensors of the source that the model does not need, with the reason.
    """

    model: str
    parameters: int
    image: int
    unused: dict[str, str]


def convert(name: str, source: Path, config: ConvertConfig, out: Path) -> Converted:
    """Convert a published checkpoint; `out` appears complete or not at all.

    Args:
        name: A row of `CONVERTERS`.
        source: Folder of the published files.
        config: What else is needed.
        out: The folder to make; it must not exist, or be empty.
    """
    converter = CONVERTERS.load(name)
    require("models")
    if not source.is_dir():
        raise DataError(f"{source} is not a folder; name the folder that holds the published files.")
    with whole_folder(out) as part:
        done: Converted = converter(source, config, part)
    return done


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` to write into, which becomes `out` when the block ends well and is removed when not.

    What a killed process left behind is removed by the next one.
    """
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise ConfigError(f"{out} is already there; choose another --out, or remove it first.")
    work = make_folder(out.parent / f".{out.name}.converting")
    try:
        with lock_folder(work):
            yield from _written(work / "folder", out)
    finally:
        with suppress(OSError):  # another process may be at work in it
            work.rmdir()


def _written(part: Path, out: Path) -> Iterator[Path]:
    shutil.rmtree(part, ignore_errors=True)
    make_folder(part)
    try:
        yield part
        make_private(part)
        write_checksums(part)
        with suppress(FileNotFoundError):
            out.rmdir()
        part.rename(out)
    except OSError as error:
        raise os_error(error, out) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


_NAMED = 5  # names that an error spells out


def read_tensors(path: Path) -> dict[str, Any]:
    """Name → tensor of a safetensors file or a pickle of tensors.

    A training checkpoint is opened at its `state_dict`, and the `module.` that distributed training puts in front
    of every name is taken off. Tensors of a pickle are mapped, not read: a file of many gigabytes costs no memory.
    """
    _refuse_pointer(path)
    found = _safetensors(path) if path.suffix == ".safetensors" else _pickled(path)
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    if not isinstance(found, Mapping) or not found or not all(map(_is_tensor, found.values())):
        raise DataError(f"{path} holds no weights: a table of names and tensors was expected.")
    if all(name.startswith("module.") for name in found):
        return {name.removeprefix("module."): tensor for name, tensor in found.items()}
    return dict(found)


def renamed(tensors: Mapping[str, Any], names: Mapping[str, tuple[str, ...]], where: str) -> dict[str, Any]:
    """The tensors under other names, none missing and none left over.

    Args:
        tensors: Name → tensor.
        names: Old name → new names; several new names share the tensor in equal parts along its first axis.
        where: What the tensors belong to, for the message.
    """
    check_names(set(names) - set(tensors), set(tensors) - set(names), where)
    placed: dict[str, Any] = {}
    for old, new in names.items():
        parts = tensors[old].chunk(len(new))
        if len(parts) != len(new) or len({part.shape for part in parts}) != 1:
            raise DataError(f"{where}: {old} has the shape {shape(tensors[old])}, which is not {len(new)} equal parts.")
        placed |= dict(zip(new, parts, strict=True))
    return placed


def filled(model_class: Any, config: Any, tensors: Mapping[str, Any], where: str, dtype: Any, **kwargs: Any) -> Any:
    """A model of this class and config that holds exactly these tensors, in evaluation mode.

    Args:
        model_class: A class of transformers.
        config: Its config.
        tensors: Name → tensor, named as in published checkpoints of that class.
        where: What the tensors belong to, for the message.
        dtype: Number format of the model.
        **kwargs: For the constructor of the model.
    """
    with quiet_loading():
        model, told = model_class.from_pretrained(
            None,
            config=config,
            state_dict=dict(tensors),
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that all of them are told, and by name
            **kwargs,
        )
    check_loaded(told, where)
    return model.eval()


def check_loaded(told: Mapping[str, Any], where: str) -> None:
    """Raise when transformers filled a model incompletely; it tells so, but goes on with random weights."""
    check_names(told["missing_keys"], told["unexpected_keys"], where)
    wrong = sorted(f"{name} ({shape_words(a)}, not {shape_words(b)})" for name, a, b in told["mismatched_keys"])
    if wrong:
        raise DataError(f"{where}: {_several(wrong, 'tensor')} of another shape than expected: {_first(wrong)}.")


def check_names(missing: Iterable[str], surplus: Iterable[str], where: str) -> None:
    """Raise when a name is missing or left over, with the first few of each."""
    told = []
    if names := sorted(missing):
        told.append(f"{_several(names, 'tensor')} missing ({_first(names)})")
    if names := sorted(surplus):
        told.append(f"{_several(names, 'tensor')} that this architecture does not have ({_first(names)})")
    if told:
        raise DataError(f"{where}: {'; '.join(told)}. It is another architecture, or the file is incomplete.")


def without(tensors: Mapping[str, Any], reasons: Mapping[str, str], unused: dict[str, str]) -> dict[str, Any]:
    """The tensors less those that are deliberately not used; their names go into `unused` with the reason.

    Args:
        tensors: Name → tensor.
        reasons: Pattern of a whole name → why it is not needed.
        unused: Name → reason, added to.
    """
    kept = {}
    for name, tensor in tensors.items():
        reason = next((why for pattern, why in reasons.items() if re.fullmatch(pattern, name)), None)
        if reason is None:
            kept[name] = tensor
        else:
            unused[name] = reason
    return kept


def under(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The tensors whose name begins with the prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def shape(tensor: Any) -> str:
    """Its shape as a person writes it."""
    return shape_words(tensor.shape)


def shape_words(size: Iterable[int]) -> str:
    """`3×224×224`; a single number has no sides."""
    return "×".join(map(str, size)) or "a single number"


def _refuse_pointer(path: Path) -> None:
    try:
        with path.open("rb") as stream:
            start = stream.read(32)
    except OSError as error:
        raise unreadable(error, path) from error
    if start.startswith(b"version https://git-lfs"):
        raise DataError(f"{path} is a note of Git LFS about the file and not the file; fetch it with 'git lfs pull'.")


def _safetensors(path: Path) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except OSError as error:
        raise unreadable(error, path) from error
    except SafetensorError as error:
        raise DataError(f"{path} is damaged ({first_line(error)}); fetch it again.") from error


def _pickled(path: Path) -> Any:
    import torch

    with torch.serialization.safe_globals(_harmless()):
        return load_torch(path, mmap=True)


def _harmless() -> list[Any]:
    """What training scripts leave in checkpoints beside tensors: numbers of numpy, such as the best loss so far."""
    import numpy as np

    scalar: Any = np.float64(0).__reduce__()[0]
    return [scalar, (scalar, "numpy.core.multiarray.scalar"), np.dtype, *map(type, map(np.dtype, "fdilq"))]


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _several(names: list[str], what: str) -> str:
    return f"{len(names):,} {what}{'s' if len(names) > 1 else ''}"


def _first(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
