"""An adapter added into the weights it stands on: a folder that needs nothing beside it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_json
from cxrlab.core.folders import require_new_folder, write_folder
from cxrlab.core.memory import raise_if_out_of_memory
from cxrlab.core.tables import load_reference
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
    """How an adapter is merged.

    Args:
        loading: Where and how the two are opened; with dtype auto the sum is made in float32 and kept in the
            precision of the base.
    """

    loading: LoadSettings = LoadSettings()


@dataclass(frozen=True)
class Merged:
    """What came of it.

    Args:
        folder: The new checkpoint.
        adapter: Folder of the adapter.
        base: Folder of what it stood on.
        parameters: Of the whole model.
        dtype: Precision of the stored weights.
    """

    folder: Path
    adapter: Path
    base: Path
    parameters: int
    dtype: str


def merge(adapter: str | Path, out: Path, config: MergeConfig | None = None) -> Merged:
    """Add an adapter into its base and write a whole checkpoint; the folder appears whole or not at all.

    Args:
        adapter: Folder or hub id of a PEFT adapter.
        out: The folder to make; it must not hold anything yet.
        config: Settings.
    """
    from cxrlab.models.hf.checkpoint import open_checkpoint

    loading = (config or MergeConfig()).loading
    folder = locate(adapter, loading)
    line = lineage(folder, loading)
    if len(line) == 1:
        raise DataError(f"{folder} has no {ADAPTER_CONFIG}, so there is nothing to merge; name an adapter.")
    require_new_folder(out)
    exact = loading.but(dtype="float32" if loading.dtype == "auto" else loading.dtype)
    found = open_checkpoint(folder, exact, merge=True)
    dtype = _stored_dtype(line[-1], loading)
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


def _stored_dtype(folder: Path, loading: LoadSettings) -> Any:
    """What the weights are written in: the base's own precision unless another is asked for."""
    import torch
    from transformers import AutoConfig

    if loading.dtype != "auto":
        return getattr(torch, loading.dtype)
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=loading.trust_remote_code)
    return config.dtype if isinstance(config.dtype, torch.dtype) else torch.float32


ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
# Name → folder; its module ships the weights.
_BUILTIN = "cxrlab.models.builtin:builtin_folder"


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and not a whole model."""
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / "config.json").is_file()


def lineage(folder: Path, loading: LoadSettings) -> list[Path]:
    """The folder and what it stands on, adapter after adapter, down to a whole model; alone where it is one.

    Raises:
        DataError: When an adapter stands on itself, at once or by way of others.
    """
    found = [folder]
    while is_adapter(found[-1]):
        base = locate(base_of(found[-1], loading), loading)
        if base.resolve() in [above.resolve() for above in found]:
            raise DataError(
                f"{folder} is an adapter that stands on itself ({found[-1]} names {base}); give the model that it was "
                "trained on with --loading.base."
            )
        found.append(base)
        loading = loading.but(base=None)
    return found


def base_of(folder: Path, loading: LoadSettings) -> str | Path:
    """Folder or hub id of what an adapter stands on.

    Asked in this order: `loading.base`; `base` of its cxrlab.json, a relative path counting from the
    adapter's folder; `base_model_name_or_path` of its adapter_config.json.
    """
    if loading.base:
        return resolve(loading.base, Path())
    card = read_model_card(folder)
    if card is not None and card.base:
        found = resolve(card.base, folder)
        if isinstance(found, Path) and not found.is_dir():
            raise DataError(
                f"{folder} is an adapter of {found}, which is not there (base in its cxrlab.json); "
                "give the model it was trained on with --loading.base."
            )
        return found
    config = read_json(folder / ADAPTER_CONFIG)
    named = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    if not named:
        raise ConfigError(
            f"{folder} is an adapter that does not say what it stands on; give that model with --loading.base."
        )
    return resolve(str(named), folder)


def resolve(name: str, folder: Path) -> str | Path:
    """A model's name into a folder or hub id; a relative path that exists counts from `folder`."""
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
    """The model with the adapter's layers in it, weights of both as they are; the class stays the model's own."""
    return _wrapped(model, folder).get_base_model()


def merged(model: Any, folder: Path) -> Any:
    """The model with the adapter's weights added into its own."""
    return _wrapped(model, folder).merge_and_unload(safe_merge=True)


def _wrapped(model: Any, folder: Path) -> Any:
    from peft import PeftModel, get_peft_model_state_dict, load_peft_weights

    if not any((folder / name).is_file() for name in ADAPTER_WEIGHTS):
        raise DataError(f"{folder} has {ADAPTER_CONFIG} but no {ADAPTER_WEIGHTS[0]}; copy the whole folder.")
    if (folder / ADAPTER_WEIGHTS[0]).is_file():
        check_safetensors(folder / ADAPTER_WEIGHTS[0])
    try:
        with quiet_loading(), pickled_code_refused(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of keys that do not fit: they are refused below
            wrapped: Any = PeftModel.from_pretrained(model, str(folder), is_trainable=False, local_files_only=True)
            wanted = set(get_peft_model_state_dict(wrapped, save_embedding_layers=False))
            stored = set(load_peft_weights(str(folder), device="cpu"))
            # PEFT passes over what is missing on either side: layers would stay as if never trained.
            odd = (wanted - stored) | (stored - wanted - set(wrapped.state_dict()))
    except DataError:
        raise
    except Exception as error:  # of PEFT, safetensors and torch, each with errors of their own
        raise_if_out_of_memory(error, folder)
        raise DataError(
            f"the adapter {folder} does not fit the {type(model).__name__} it was put onto ({first_line(error)}); "
            "give the model it was trained on with --loading.base."
        ) from error
    if odd:
        raise DataError(
            f"the adapter {folder} does not fit the {type(model).__name__} it was put onto: {len(odd)} tensors are on "
            f"one side alone (for example {min(odd)}); give the model it was trained on with --loading.base."
        )
    return wrapped
