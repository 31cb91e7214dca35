"""Settings of a conversion."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import make_folder, os_error
from cxrlab.core.folders import lock_folder, make_private, write_checksums
from cxrlab.core.tables import Table

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
