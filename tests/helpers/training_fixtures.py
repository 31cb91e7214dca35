"""A small phantom corpus, a tiny LLaVA and fast settings for tests of training stages 2 and 3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tiny_models import tiny_llava

from cxrlab.core.jsonl import read_jsonl
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.training.config import Optimisation
from cxrlab.training.trainer import Journal

FAST = Optimisation(batch_size=4, steps=6, max_length=400, log_every=2, save_every=3, seed=5, learning_rate=3e-3)


def phantoms(folder: Path, n: int = 40, size: int = 32) -> Path:
    """A corpus of n images of 32 pixels."""
    make_phantom(PhantomConfig(n=n, size=size, seed=3, workers=1, masks=False), folder)
    return folder


def saved_llava(folder: Path, seed: int = 0) -> Path:
    """A tiny LLaVA in a folder."""
    model, processor = tiny_llava(seed)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def losses(out: Path) -> list[float]:
    """The losses in the history of a run."""
    return [record["loss"] for _, record in read_jsonl(out / "history.jsonl") if "loss" in record]


@contextmanager
def killed_after(step: int) -> Iterator[None]:
    """The training within ends after this step, before it is logged, evaluated or saved."""
    whole = Journal.on_step_end

    def stop(self: Journal, args: Any, state: Any, control: Any, **named: Any) -> Any:
        if state.global_step == step:
            raise SystemExit
        return whole(self, args, state, control, **named)

    with patch.object(Journal, "on_step_end", stop), pytest.raises(SystemExit):
        yield


def trained_names(module: Any) -> set[str]:
    """Names of the parameters that are trained."""
    return {name for name, value in module.named_parameters() if value.requires_grad}
