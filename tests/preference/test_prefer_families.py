"""Preference training of every family: the margin of judged pairs moves, and the checkpoint holds what was trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from preference_runs import history, pair_lines, single_thread, write_lines
from tiny_families import FAMILIES, save_tiny
from training_fixtures import phantoms

from cxrlab.data.images import load_image
from cxrlab.models.hf.model import HfModel
from cxrlab.preference.config import LOSSES, LossSettings, Measure, PreferConfig, Validation
from cxrlab.preference.dataset import read_preferences
from cxrlab.preference.train import prefer
from cxrlab.training.config import Optimisation

pytestmark = pytest.mark.slow

STEPS = Optimisation(
    batch_size=2, accumulate=2, steps=8, max_length=1500, log_every=1, save_every=4, seed=5, learning_rate=1e-2,
    warmup=0.0, schedule="constant",
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with single_thread():
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return phantoms(tmp_path_factory.mktemp("prefer_families") / "corpus")


def config_of(family: str, data: Path, top: Path) -> PreferConfig:
    pairs = write_lines(top / "pairs.jsonl", pair_lines(data)[:8])
    return PreferConfig(
        data=data, pairs=pairs, start=f"hf:{save_tiny(family, top / 'start')}", lora_rank=4, lora_alpha=8.0,
        lora_dropout=0.0, validation=Validation(n=0), measure=Measure(n=0), cache=top / "cache", optimisation=STEPS,
    )  # fmt: skip


def margins(folder: str, config: PreferConfig, *, paired: bool = True) -> torch.Tensor:
    """Log-probability of the chosen report minus that of the rejected one, per pair, as the wrapper scores them."""
    samples = read_preferences(config.pairs, config.data, paired=paired).source.samples
    model = HfModel.load(folder)
    images = [load_image(sample.images[0].path) for sample in samples]
    with torch.no_grad():
        sums = model.log_probabilities(images, [one.report for one in samples], [one.indication for one in samples])
    return sums.sums[::2] - sums.sums[1::2]


@pytest.mark.parametrize("family", FAMILIES)
def test_dpo_moves_the_margin(family: str, data: Path, tmp_path: Path) -> None:
    """Before the first step the loss is log 2: the reference is the start itself, scored through the same inputs."""
    config = config_of(family, data, tmp_path)
    prefer(config, tmp_path / "run")
    lines = [line for line in history(tmp_path / "run") if "loss" in line]
    assert lines[0]["loss"] == pytest.approx(0.6931, abs=2e-3)
    assert lines[-1]["loss"] < 0.8 * lines[0]["loss"]
    before = margins(config.start.removeprefix("hf:"), config)
    after = margins(str(tmp_path / "run" / "checkpoint"), config)
    assert bool((after > before).all()) and float((after - before).mean()) > 1.0


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains_a_family_with_tiles(loss: str, data: Path, tmp_path: Path) -> None:
    config = replace(config_of("idefics3", data, tmp_path), loss=LossSettings(loss))
    config = replace(config, optimisation=replace(STEPS, gradient_checkpointing=True, steps=4))
    prefer(config, tmp_path / "run")
    found = [line["loss"] for line in history(tmp_path / "run") if "loss" in line]
    assert len(found) == 4 and all(abs(value) < 1e4 for value in found)
    before = margins(config.start.removeprefix("hf:"), config)
    after = margins(str(tmp_path / "run" / "checkpoint"), config)
    assert float((after - before).abs().mean()) > 1e-2


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_checkpoints_are_selected_and_measured_by_generated_reports(data: Path, tmp_path: Path, precision: Any) -> None:
    """Generation in between disturbs no number of the training."""
    settings = replace(STEPS, steps=4, precision=precision, gradient_checkpointing=True)
    short = replace(config_of("internvl", data, tmp_path), optimisation=settings)
    prefer(short, tmp_path / "plain")
    watched = replace(
        short,
        validation=Validation(n=2, every=2, max_new_tokens=4),
        measure=Measure(n=3, max_new_tokens=4, control_studies=0, metrics=("rougeL:google",)),
    )
    _, found = prefer(watched, tmp_path / "watched")
    assert found["n"] == 3 and [line["step"] for line in found["watched"]] == [0, 2, 4]
    both = [[line["loss"] for line in history(tmp_path / name) if "loss" in line] for name in ("plain", "watched")]
    assert both[0] == both[1]
