"""Settings and sizes that are refused before hours are spent."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tables import every_row
from tiny_models import tiny_llava

from cxrlab.core.config import config_from
from cxrlab.core.errors import ConfigError
from cxrlab.training.config import NONE, Augmentation, FinetuneConfig, Optimisation, parse_extra_corpora
from cxrlab.training.distributed import shares_weights
from cxrlab.training.memory_estimate import (
    Memory,
    available_memory,
    check_context,
    check_memory,
    estimate,
    gathered_weights,
)
from cxrlab.training.report_model import check_kind, find_parts

CPU = torch.device("cpu")


def test_the_estimate_counts_weights_and_what_is_trained() -> None:
    """All weights once, the trained ones four times more (copy, gradient, two states of Adam), 4 bytes each."""
    model, _ = tiny_llava()
    found = estimate(model, Optimisation(batch_size=2), 100, 1000)
    weights = sum(value.numel() for value in model.parameters())
    assert found.weights == 4 * weights and found.trained == 16 * 1000
    assert estimate(model, Optimisation(batch_size=4), 100, 1000).activations == 2 * found.activations
    less = estimate(model, Optimisation(batch_size=2, gradient_checkpointing=True), 100, 1000)
    # A validation batch keeps one layer at a time: it counts where its samples are many times as long.
    assert estimate(model, Optimisation(batch_size=2), 100, 1000, validated=100) == found
    layers = model.config.text_config.num_hidden_layers
    longer = estimate(model, Optimisation(batch_size=2), 100, 1000, validated=300 * layers)
    assert longer.activations == 3 * found.activations
    assert less.activations < found.activations
    assert estimate(model, Optimisation(precision="bfloat16"), 100, 1000).weights == 2 * weights


def test_processes_that_share_the_weights_gather_two_layers_and_what_is_outside() -> None:
    model, _ = tiny_llava()
    parts = find_parts(model)
    layer, vision = (sum(value.numel() for value in one.parameters()) for one in (
        parts.language_model.layers[0], model.get_submodule("model.vision_tower").encoder.layer[0],
    ))  # fmt: skip
    language, visual = (parts.language_model.config.num_hidden_layers, model.config.vision_config.num_hidden_layers)
    weights = sum(value.numel() for value in model.parameters())
    found = gathered_weights(model, Optimisation(precision="bfloat16"))
    assert found == 2 * (weights - language * layer - visual * vision + 2 * max(layer, vision))
    assert Memory(100, 60, 7).shared(4, 30) == Memory(25 + 30, 15, 7)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, "DeepSpeed is not supported.*fsdp.yaml"),
        ({"FSDP_VERSION": "1"}, "fsdp_version: 1 .*use 2"),
        ({"FSDP_OFFLOAD_PARAMS": "true"}, "fsdp_offload_params: true .*use false"),
        ({}, "one was started.*fsdp.yaml"),
    ],
)
def test_what_the_launcher_of_the_shipped_file_asks_for_is_had(
    changed: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accelerate's own reader of `fsdp.yaml` gives an environment that is accepted; changes to it are refused."""
    launch = pytest.importorskip("accelerate.commands.launch")
    file = Path(__file__).parents[2] / "configs" / "distributed" / "fsdp.yaml"
    arguments = launch.launch_command_parser().parse_args(["--config_file", str(file), "-m", "cxrlab"])
    arguments, _, _ = launch._validate_launch_command(arguments)
    environment = pytest.importorskip("accelerate.utils.launch").prepare_multi_gpu_env(arguments)
    monkeypatch.setattr("os.environ", {**os.environ, **environment, **changed})
    with pytest.raises(ConfigError, match=message):
        shares_weights(Optimisation())


def test_what_does_not_fit_is_refused_with_figures() -> None:
    needed = Memory(int(14e9), int(2e9), int(40e9))
    with pytest.raises(ConfigError, match=r"about 61.6 GB \(weights 14.0 GB, .* 40.0 GB\) and cpu has 24.0 GB"):
        check_memory(needed, CPU, int(24e9))
    check_memory(needed, CPU, int(80e9))
    check_memory(Memory(1, 1, 1), CPU)
    assert (available_memory(CPU) or 1) > 0


def test_a_sample_longer_than_the_model_reads_is_refused() -> None:
    model, _ = tiny_llava()
    with pytest.raises(ConfigError, match="longest sample has 513 tokens .* reads 512; use max_length=512"):
        check_context(model, 513)
    check_context(model, 512)


def test_only_a_llava_is_trained() -> None:
    with pytest.raises(ConfigError, match="'hf:x' is a model of the type 'clip'"):
        check_kind(SimpleNamespace(config=SimpleNamespace(model_type="clip")), "hf:x")


def test_a_model_whose_parts_are_unknown_is_refused() -> None:
    model = torch.nn.Linear(1, 1)
    model.config = SimpleNamespace(model_type="blip")  # type: ignore[assignment]
    with pytest.raises(ConfigError, match="a 'blip' cannot be trained"):
        find_parts(model)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"warmup": 1.0}, "warmup=1.0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"steps": 0}, "steps=0"),
        ({"clip": -1.0}, "clip=-1.0"),
        ({"epochs": -1.0}, "epochs=-1.0"),
    ],
)
def test_settings_out_of_range_are_refused(changes: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Optimisation(**changes)  # type: ignore[arg-type]


@every_row(
    ("changes", "said"),
    [
        ({}, "there is no start"),
        ({"encoder": "fresh:tiny"}, "there is no start"),
        ({"start": "runs/a", "encoder": "fresh:tiny"}, "contradict each other"),
        ({"start": "a", "lora_rank": -1}, "lora_rank=-1"),
        ({"start": "a", "lora_dropout": 1.0}, "lora_dropout=1.0"),
        ({"start": "a", "train_vision_encoder": True, "cache_features": "on"}, "contradict each other"),
        ({"start": "a", "augmentation": Augmentation()}, "augmentation needs train_vision_encoder"),
        ({"start": "a", "n": 0}, "n=0"),
        ({"start": "a", "cache_gb": -1.0}, "cache_gb"),
        ({"start": "a", "extra_corpora": {"x": {"data": "c", "weight": 0}}}, "weight=0"),
        ({"start": "a", "extra_corpora": {"x": {"daat": "c"}}}, "there is no setting 'daat'"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        FinetuneConfig(data=Path("c"), **changes)  # type: ignore[arg-type]


def test_images_are_varied_by_what_the_file_names_alone(tmp_path: Path) -> None:
    """Off by default: a file that asks for a shift gets a shift, and none of the strengths of stage 1."""
    file = tmp_path / "a.yaml"
    file.write_text("data: c\nstart: hf:x\ntrain_vision_encoder: true\naugmentation: {shift: 0.1}\n")
    assert config_from(FinetuneConfig, file).augmentation == replace(NONE, shift=0.1)


def test_further_corpora_come_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "data: c\nstart: hf:x\nextra_corpora:\n  scenes: {data: s, weight: 0.5}\n  words: {data: c, images: false}\n"
    )
    found = parse_extra_corpora(config_from(FinetuneConfig, file).extra_corpora)
    assert found["scenes"].weight == 0.5 and found["scenes"].images and not found["words"].images
