"""An adapter added into the weights it stands on: a folder that needs nothing beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.core.folders import refuse_taken, write_folder
from cxrlab.models.loading import Loading
from cxrlab.models.model_card import write_model_card


@dataclass(frozen=True)
class MergeConfig:
    """How an adapter is merged.

    Args:
        loading: Where and how the two are opened; with dtype auto the sum is made in float32 and kept in the
            precision of the base.
    """

    loading: Loading = Loading()


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
    from cxrlab.models.hf.adapters import lineage
    from cxrlab.models.hf.checkpoint import open_checkpoint
    from cxrlab.models.hf.source import ADAPTER_CONFIG, locate
    from cxrlab.models.local_files import quiet_loading

    loading = (config or MergeConfig()).loading
    folder = locate(adapter, loading)
    line = lineage(folder, loading)
    if len(line) == 1:
        raise DataError(f"{folder} has no {ADAPTER_CONFIG}, so there is nothing to merge; name an adapter.")
    refuse_taken(out)
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


def _stored_dtype(folder: Path, loading: Loading) -> Any:
    """What the weights are written in: the base's own precision unless another is asked for."""
    import torch
    from transformers import AutoConfig

    if loading.dtype != "auto":
        return getattr(torch, loading.dtype)
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=loading.trust_remote_code)
    return config.dtype if isinstance(config.dtype, torch.dtype) else torch.float32
