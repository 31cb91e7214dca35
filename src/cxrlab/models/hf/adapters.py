"""PEFT adapter folders: what they stand on, and how they are put onto it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_json
from cxrlab.core.memory import raise_if_memory_ran_out
from cxrlab.core.tables import load_reference
from cxrlab.models.hf.placement import refuse_cut
from cxrlab.models.hf.source import ADAPTER_CONFIG, locate
from cxrlab.models.loading import Loading
from cxrlab.models.local_files import first_line, quiet_loading, refused_code
from cxrlab.models.model_card import read_model_card

ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
# Name → folder; its module ships the weights.
_BUILTIN = "cxrlab.models.builtin:builtin_folder"


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and not a whole model."""
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / "config.json").is_file()


def lineage(folder: Path, loading: Loading) -> list[Path]:
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


def base_of(folder: Path, loading: Loading) -> str | Path:
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
        refuse_cut(folder / ADAPTER_WEIGHTS[0])
    try:
        with quiet_loading(), refused_code(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of keys that do not fit: they are refused below
            wrapped: Any = PeftModel.from_pretrained(model, str(folder), is_trainable=False, local_files_only=True)
            wanted = set(get_peft_model_state_dict(wrapped, save_embedding_layers=False))
            stored = set(load_peft_weights(str(folder), device="cpu"))
            # PEFT passes over what is missing on either side: layers would stay as if never trained.
            odd = (wanted - stored) | (stored - wanted - set(wrapped.state_dict()))
    except DataError:
        raise
    except Exception as error:  # of PEFT, safetensors and torch, each with errors of their own
        raise_if_memory_ran_out(error, folder)
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
