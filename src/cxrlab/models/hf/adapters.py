"""PEFT adapters: find their base models, attach them, and merge them into a standalone checkpoint."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cxrlab.core.atomic_folders import require_new_folder, write_folder
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_json
from cxrlab.core.out_of_memory import raise_if_out_of_memory
from cxrlab.core.registry import load_reference
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.local_files import (
    ADAPTER_CONFIG,
    check_safetensors,
    first_line,
    locate,
    pickled_code_refused,
    quiet_loading,
)
from cxrlab.models.model_card import read_model_card, write_model_card


@dataclass(frozen=True)
class MergeConfig:
    """Settings of merging.

    Args:
        loading: How adapter and base are loaded; with dtype auto the sum is computed in float32 and stored in the
            precision of the base.
    """

    loading: LoadSettings = LoadSettings()


@dataclass(frozen=True)
class Merged:
    """Summary of a merge: the folders of the new checkpoint, the adapter and its base; parameters of the whole model."""

    folder: Path
    adapter: Path
    base: Path
    parameters: int
    dtype: str


def merge(adapter: str | Path, out: Path, config: MergeConfig | None = None) -> Merged:
    """Merge a PEFT adapter (folder or hub id) into its base; `out` must be new and appears complete or not at all."""
    import torch
    from transformers import AutoConfig

    from cxrlab.models.hf.checkpoint import open_checkpoint

    loading = (config or MergeConfig()).loading
    folder = locate(adapter, loading)
    line = lineage(folder, loading)
    if len(line) == 1:
        raise DataError(f"{folder} has no {ADAPTER_CONFIG}, so there is nothing to merge; name an adapter.")
    require_new_folder(out)
    exact = loading.but(dtype="float32" if loading.dtype == "auto" else loading.dtype)
    found = open_checkpoint(folder, exact, merge=True)
    if loading.dtype != "auto":
        dtype = getattr(torch, loading.dtype)
    else:
        base = AutoConfig.from_pretrained(line[-1], local_files_only=True, trust_remote_code=loading.trust_remote_code)
        dtype = base.dtype if isinstance(base.dtype, torch.dtype) else torch.float32
    model = found.model.to(dtype)
    card = found.card

    def write(target: Path) -> None:
        with quiet_loading():
            model.save_pretrained(target)
            found.processor.save_pretrained(target)
        if card is not None:
            write_model_card(replace(card, base=None, extra={**card.extra, "merged_onto": card.base}), target)

    write_folder(out, write)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Merged(out, folder, line[1], parameters, str(dtype).removeprefix("torch."))


ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_BUILTIN = "cxrlab.models.builtin:builtin_folder"


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter."""
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / "config.json").is_file()


def lineage(folder: Path, loading: LoadSettings) -> list[Path]:
    """The folder and its bases, adapter after adapter, down to a whole model.

    Raises:
        DataError: If an adapter is its own base, directly or through others.
    """
    found = [folder]
    while is_adapter(found[-1]):
        base = locate(base_of(found[-1], loading), loading)
        if base.resolve() in [above.resolve() for above in found]:
            raise DataError(
                f"{folder} is an adapter of itself ({found[-1]} names {base}); give the model that it was trained on "
                "with --loading.base."
            )
        found.append(base)
        loading = loading.but(base=None)
    return found


def base_of(folder: Path, loading: LoadSettings) -> str | Path:
    """Folder or hub id of an adapter's base.

    The first of: `loading.base`; `base` in its cxrlab.json, relative to the adapter's folder;
    `base_model_name_or_path` in its adapter_config.json.
    """
    if loading.base:
        return resolve(loading.base, Path())
    card = read_model_card(folder)
    if card is not None and card.base:
        found = resolve(card.base, folder)
        if isinstance(found, Path) and not found.is_dir():
            raise DataError(
                f"{folder} is an adapter of {found}, which does not exist (base in its cxrlab.json); "
                "give the model it was trained on with --loading.base."
            )
        return found
    config = read_json(folder / ADAPTER_CONFIG)
    named = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    if not named:
        raise ConfigError(
            f"{folder} is an adapter that does not name its base model; give that model with --loading.base."
        )
    return resolve(str(named), folder)


def resolve(name: str, folder: Path) -> str | Path:
    """The folder or hub id of a model's name; an existing relative path is relative to `folder`."""
    kind, _, rest = name.partition(":")
    if kind == "builtin":
        return Path(load_reference(_BUILTIN)(rest))
    name = rest if kind == "hf" else name
    path = Path(name).expanduser()
    if path.is_absolute():
        return path
    beside = (folder / path).resolve()
    if beside.is_dir() or name.startswith("."):
        return beside
    return name


def attach(model: Any, folder: Path) -> Any:
    """The model with the adapter's layers added, the weights of both unchanged, of the model's own class."""
    return _wrapped(model, folder).get_base_model()


def merged(model: Any, folder: Path) -> Any:
    """The model with the adapter's weights merged into its own; each sum is computed in float32, one layer at a time."""
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer

    wrapped = _wrapped(model, folder)
    for layer in wrapped.modules():
        if isinstance(layer, BaseTunerLayer):
            inner: Any = layer.get_base_layer()
            dtype = inner.weight.dtype
            inner.to(torch.float32)
            layer.merge(safe_merge=True)
            inner.to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that everything is merged already
        return wrapped.merge_and_unload()


def _wrapped(model: Any, folder: Path) -> Any:
    from peft import PeftModel, get_peft_model_state_dict, load_peft_weights

    if not any((folder / name).is_file() for name in ADAPTER_WEIGHTS):
        raise DataError(f"{folder} has {ADAPTER_CONFIG} but no {ADAPTER_WEIGHTS[0]}; copy the whole folder.")
    if (folder / ADAPTER_WEIGHTS[0]).is_file():
        check_safetensors(folder / ADAPTER_WEIGHTS[0])
    try:
        with quiet_loading(), pickled_code_refused(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # mismatched keys are refused below
            wrapped: Any = PeftModel.from_pretrained(model, str(folder), is_trainable=False, local_files_only=True)
            wanted = set(get_peft_model_state_dict(wrapped, save_embedding_layers=False))
            stored = set(load_peft_weights(str(folder), device="cpu"))
            # PEFT ignores keys that are missing on either side, so layers would stay untrained.
            odd = (wanted - stored) | (stored - wanted - set(wrapped.state_dict()))
    except DataError:
        raise
    except Exception as error:  # PEFT, safetensors and torch each have errors of their own
        raise_if_out_of_memory(error, folder)
        raise DataError(
            f"the adapter {folder} does not fit the {type(model).__name__} of its base ({first_line(error)}); "
            "give the model it was trained on with --loading.base."
        ) from error
    if odd:
        raise DataError(
            f"the adapter {folder} does not fit the {type(model).__name__} of its base: {len(odd)} tensors are on one "
            f"side only (for example {min(odd)}); give the model it was trained on with --loading.base."
        )
    return wrapped
