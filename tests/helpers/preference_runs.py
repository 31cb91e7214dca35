"""Settings and results of preference training on a tiny LLaVA and a few phantoms."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from training_fixtures import FAST, phantoms, saved_llava

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.data.corpus import load_corpus
from cxrlab.preference.config import Measure, PreferConfig, Validation
from cxrlab.preference.train import prefer

ADAPTER = "checkpoint/adapter_model.safetensors"
WRONG = ("Large right pneumothorax.", "Endotracheal tube above the carina. Moderate cardiomegaly.", "No edema.")


@contextmanager
def single_thread() -> Iterator[None]:
    """Use one thread: steps this small are faster with one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def write_lines(file: Path, history: list[dict[str, Any]]) -> Path:
    """Write a file with one JSON object per line."""
    file.write_text("".join(json.dumps(line) + "\n" for line in history))
    return file


def pair_lines(data: Path) -> list[dict[str, Any]]:
    """The true findings of each study of the train split, cut short, and something else."""
    corpus = load_corpus(data)
    found = []
    for number, key in enumerate(corpus.ids("train")):
        sections = corpus[key].sections
        assert sections is not None and sections.findings
        first = " ".join(sections.findings.split()[: 3 + number % 5])
        found.append({"id": key, "chosen": first, "rejected": WRONG[number % 3], "judge": "hand"})
    return found


def tiny_preference_config(top: Path) -> PreferConfig:
    """Six steps of four pairs, without validation or measurement."""
    data = phantoms(top / "corpus")
    return PreferConfig(
        data=data, pairs=write_lines(top / "pairs.jsonl", pair_lines(data)), start=f"hf:{saved_llava(top / 'start')}",
        lora_rank=4, lora_alpha=8.0, validation=Validation(n=0), measure=Measure(n=0), cache=top / "cache",
        optimisation=replace(FAST, log_every=1, warmup=0.0),
    )  # fmt: skip


def changed(config: PreferConfig, **changes: Any) -> PreferConfig:
    """The config with changed settings; those of the optimisation are given by name."""
    inner = {field.name for field in dataclasses.fields(config.optimisation)}
    how = {name: changes.pop(name) for name in list(changes) if name in inner}
    return replace(config, **changes, optimisation=replace(config.optimisation, **how))


def assert_rejected(config: PreferConfig, tmp_path: Path, message: str, **changes: Any) -> None:
    """Assert that the changed settings raise an error with this message, and that no run folder is made."""
    with pytest.raises((DataError, ConfigError), match=message):
        prefer(replace(config, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def history(out: Path) -> list[dict[str, Any]]:
    """The history of a run."""
    return [record for _, record in read_jsonl(out / "history.jsonl")]


def losses(out: Path) -> list[float]:
    """The losses in it."""
    return [line["loss"] for line in history(out) if "loss" in line]


def saved_adapter(out: Path) -> dict[str, torch.Tensor]:
    """The adapter that a run saved."""
    return load_file(out / ADAPTER)


def same_weights(one: Path, other: Path, apart: float) -> bool:
    """Whether the adapters of two runs differ by at most `apart`."""
    first, second = saved_adapter(one), saved_adapter(other)
    return first.keys() == second.keys() and all(
        torch.allclose(first[name], second[name], atol=apart) for name in first
    )
