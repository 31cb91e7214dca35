"""Convert published checkpoints into folders that transformers loads: every tensor is placed, or the conversion fails."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cxrlab.core.atomic_folders import lock_folder, make_private, write_checksums
from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import make_folder, os_error, unreadable
from cxrlab.core.registry import Registry
from cxrlab.models.local_files import first_line, load_torch, quiet_loading

Dtype = Literal["auto", "float32", "float16", "bfloat16"]


@dataclass(frozen=True)
class ConvertConfig:
    """Settings of `cxrlab models convert`.

    Args:
        base: Folder of the language model under a LoRA; for LLaVA-Rad, Vicuna 7B v1.5.
        vision_encoder: Folder of the open_clip encoder whose vision encoder is used; default: beside the LoRA. For
            LLaVA-1.5 and LLaVA-Med the folder of CLIP (openai/clip-vit-large-patch14-336).
        text: Folder with config.json and tokenizer of an encoder's text model; default: beside its weights.
        keep_adapter: Keep the LoRA as an adapter folder with its base inside, instead of merging it.
        collections: Image collections that the model was trained on, as named in corpus cards; known for LLaVA-Rad.
        dtype: Number format of the weights written; auto keeps that of the source.
    """

    base: Path | None = None
    vision_encoder: Path | None = None
    text: Path | None = None
    keep_adapter: bool = False
    collections: tuple[str, ...] = ()
    dtype: Dtype = "auto"


# Each row is a function (source, config, out) -> Converted that writes into the empty folder `out`.
CONVERTERS = Registry(
    "checkpoint layout",
    {
        "llava": "cxrlab.models.convert_llava:convert_llava",
        "llava-rad": "cxrlab.models.convert_llava_rad:convert_llava_rad",
        "open-clip": "cxrlab.models.convert_open_clip:convert_open_clip",
    },
)


@dataclass(frozen=True)
class Converted:
    """Summary of a conversion."""

    model: str  # class of the model in transformers
    parameters: int
    image: int  # side of the image in pixels
    unused: dict[str, str]  # tensor of the source that the model does not need → the reason


def convert(name: str, source: Path, config: ConvertConfig, out: Path) -> Converted:
    """Convert the published checkpoint in the folder `source`; `out` appears complete or not at all.

    Args:
        name: A row of `CONVERTERS`.
        out: New or empty folder.
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
    """A temporary folder beside `out`, renamed to `out` when the block succeeds and removed when it fails.

    The remains of a killed process are removed by the next one.
    """
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise ConfigError(f"{out} already exists; choose another --out, or remove it first.")
    work = make_folder(out.parent / f".{out.name}.converting")
    part = work / "folder"
    try:
        with lock_folder(work):
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
    finally:
        with suppress(OSError):  # another process may be using it
            work.rmdir()


_NAMED = 5  # names that an error lists


def read_tensors(path: Path) -> dict[str, Any]:
    """Name → tensor of a safetensors file or a pickle of tensors.

    A training checkpoint is opened at its `state_dict`, and the prefix `module.` of distributed training is removed.
    Tensors of a pickle are memory-mapped, so that a file of many gigabytes costs no memory.
    """
    import numpy as np
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        with path.open("rb") as stream:
            if stream.read(32).startswith(b"version https://git-lfs"):
                raise DataError(f"{path} is a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'.")
        found: Any = load_file(path) if path.suffix == ".safetensors" else None
    except OSError as error:
        raise unreadable(error, path) from error
    except SafetensorError as error:
        raise DataError(f"{path} is damaged ({first_line(error)}); fetch it again.") from error
    if found is None:
        # Training scripts also store numpy numbers, such as the best loss so far.
        scalar: Any = np.float64(0).__reduce__()[0]
        numbers = [scalar, (scalar, "numpy.core.multiarray.scalar"), np.dtype, *map(type, map(np.dtype, "fdilq"))]
        with torch.serialization.safe_globals(numbers):
            found = load_torch(path, mmap=True)
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    if (
        not isinstance(found, Mapping)
        or not found
        or not all(isinstance(value, torch.Tensor) for value in found.values())
    ):
        raise DataError(f"{path} holds no weights: a table of names and tensors was expected.")
    if all(name.startswith("module.") for name in found):
        return {name.removeprefix("module."): tensor for name, tensor in found.items()}
    return dict(found)


def renamed(tensors: Mapping[str, Any], names: Mapping[str, tuple[str, ...]], where: str) -> dict[str, Any]:
    """The tensors under new names; raises if one is missing or left over.

    Args:
        names: Old name → new names; several new names split the tensor into equal parts along its first axis.
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
    """A model of a transformers class with exactly these tensors, in evaluation mode; `where` is for the message."""
    with quiet_loading():
        model, report = model_class.from_pretrained(
            None,
            config=config,
            state_dict=dict(tensors),
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # to report all of them, by name
            **kwargs,
        )
    check_loaded(report, where)
    return model.eval()


def check_loaded(report: Mapping[str, Any], where: str) -> None:
    """Raise if transformers filled a model incompletely; it only reports this and continues with random weights."""
    check_names(report["missing_keys"], report["unexpected_keys"], where)
    wrong = sorted(f"{name} ({shape(a)}, not {shape(b)})" for name, a, b in report["mismatched_keys"])
    if wrong:
        raise DataError(f"{where}: {_several(wrong, 'tensor')} of another shape than expected: {_first(wrong)}.")


def check_names(missing: Iterable[str], surplus: Iterable[str], where: str) -> None:
    """Raise if a tensor is missing or left over, with the first few names of each."""
    problems = []
    if names := sorted(missing):
        problems.append(f"{_several(names, 'tensor')} missing ({_first(names)})")
    if names := sorted(surplus):
        problems.append(f"{_several(names, 'tensor')} that this architecture does not have ({_first(names)})")
    if problems:
        raise DataError(f"{where}: {'; '.join(problems)}. It is another architecture, or the file is incomplete.")


def without(tensors: Mapping[str, Any], reasons: Mapping[str, str], unused: dict[str, str]) -> dict[str, Any]:
    """The tensors without those whose name matches a pattern in `reasons`; `unused` is extended by name → reason."""
    kept = {}
    for name, tensor in tensors.items():
        reason = next((why for pattern, why in reasons.items() if re.fullmatch(pattern, name)), None)
        if reason is None:
            kept[name] = tensor
        else:
            unused[name] = reason
    return kept


def under(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The tensors whose name begins with the prefix, which is removed."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def shape(tensor_or_size: Any) -> str:
    """A shape as `3×224×224`."""
    return "×".join(map(str, getattr(tensor_or_size, "shape", tensor_or_size))) or "a single number"


def _several(names: list[str], what: str) -> str:
    return f"{len(names):,} {what}{'s' if len(names) > 1 else ''}"


def _first(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
