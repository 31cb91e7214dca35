"""FSDP2 by two processes over gloo: the weights of one process, exact resume, ordinary checkpoints."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from processes import train_together
from safetensors.torch import load_file
from tiny_families import save_tiny
from training_fixtures import FAST, losses, phantoms, saved_llava
from transformers import AutoModelForImageTextToText

from cxrlab.core.jsonl import read_jsonl
from cxrlab.training.align_finetune import align, finetune
from cxrlab.training.config import AlignConfig, FinetuneConfig, Validation
from cxrlab.training.run_folder import read_result

STEPS = dataclasses.replace(FAST, batch_size=1, accumulate=2, log_every=1, sharding="fsdp2")
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return phantoms(tmp_path_factory.mktemp("sharding") / "corpus")


@pytest.fixture(scope="module")
def config(corpus: Path) -> FinetuneConfig:
    """LoRA on a LLaVA, with gradient checkpointing and validation of 5 samples, which two processes divide unevenly."""
    return FinetuneConfig(
        data=corpus, start=f"hf:{saved_llava(corpus.parent / 'llava')}", n=16, lora_rank=4, lora_dropout=0.0,
        optimisation=dataclasses.replace(STEPS, gradient_checkpointing=True), validation=Validation(every=2, n=5),
        cache=corpus.parent / "cache",
    )  # fmt: skip


def by_one(config: Any) -> Any:
    """The same training by one process: two forward passes for the two processes."""
    alone = dataclasses.replace(config.optimisation, sharding="none", accumulate=2 * config.optimisation.accumulate)
    return dataclasses.replace(config, optimisation=alone)


def validation_losses(out: Path) -> list[float]:
    return [line["evaluation"]["loss"] for _, line in read_jsonl(out / "history.jsonl") if "evaluation" in line]


def furthest(one: Path, two: Path) -> float:
    """The largest difference of any weight of two checkpoints."""
    ours, theirs = load_file(one), load_file(two)
    assert ours.keys() == theirs.keys()
    return max(float((ours[name].float() - theirs[name].float()).abs().max()) for name in ours)


@pytest.fixture(scope="module")
def straight(config: FinetuneConfig) -> Path:
    out = config.data.parent / "straight"
    assert train_together(config, out) == [0, 0]
    return out


@pytest.mark.full
def test_two_processes_that_share_the_weights_equal_one(config: FinetuneConfig, straight: Path, tmp_path: Path) -> None:
    """Every loss, every weight of the last and of the best step; the adapter opens in plain transformers and PEFT."""
    done = finetune(by_one(config), tmp_path / "one")
    two = read_result(straight)
    assert (two.trained_parameters, two.parameters) == (done.trained_parameters, done.parameters)
    assert losses(straight) == pytest.approx(losses(tmp_path / "one"), rel=1e-5)
    assert validation_losses(straight) == pytest.approx(validation_losses(tmp_path / "one"), rel=1e-5)
    assert two.extra["validation"]["step"] == done.extra["validation"]["step"]
    for folder in ("checkpoint", "best"):
        file = f"{folder}/adapter_model.safetensors"
        assert furthest(straight / file, tmp_path / "one" / file) < TOLERANCE
    base = AutoModelForImageTextToText.from_pretrained(str(config.start)[3:], dtype=torch.float32)
    assert PeftModel.from_pretrained(base, str(straight / "checkpoint")).active_adapter == "default"


@pytest.mark.full
@pytest.mark.parametrize(
    ("trained", "precision", "apart"),
    [
        ("projector of a LLaVA", "float32", 1e-4),
        ("whole idefics2", "bfloat16", 0.02),
        ("vision encoder of a qwen3_vl", "float32", 1e-3),
    ],
)
def test_stages_and_families(
    config: FinetuneConfig, tmp_path: Path, trained: str, precision: Any, apart: float
) -> None:
    """Asked for by the environment of Accelerate's launcher; all weights of the result are those of one process."""
    wanted: AlignConfig | FinetuneConfig
    steps = dataclasses.replace(STEPS, steps=4, max_length=1500, sharding="none", precision=precision)
    if trained == "projector of a LLaVA":
        wanted = AlignConfig(config.data, start=config.start, n=16, cache=config.cache, optimisation=steps)
    else:
        start = f"hf:{save_tiny(trained.split()[-1], tmp_path / 'start')}"
        vision = {"train_vision_encoder": True, "lora_rank": 4} if "vision" in trained else {"lora_rank": 0}
        wanted = dataclasses.replace(config, start=start, n=8, optimisation=steps, **vision)  # type: ignore[arg-type]
    (finetune if isinstance(wanted, FinetuneConfig) else align)(by_one(wanted), tmp_path / "one")  # type: ignore[operator]
    launched = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_OFFLOAD_PARAMS": "false"}
    assert train_together(wanted, tmp_path / "two", **launched) == [0, 0]
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=apart)
    file = "checkpoint/model.safetensors"
    assert furthest(tmp_path / "two" / file, tmp_path / "one" / file) < apart
    assert AutoModelForImageTextToText.from_pretrained(tmp_path / "two" / "checkpoint")


@pytest.mark.full
def test_a_killed_training_that_shares_the_weights_ends_with_the_same_bytes(
    config: FinetuneConfig, straight: Path, tmp_path: Path
) -> None:
    """Killed before the first checkpoint, while it is written, and after it."""
    for moment in ("2", "saving", "5"):
        assert 0 not in train_together(config, tmp_path / "run", moment)
        assert (tmp_path / "run" / "steps" / "checkpoint-3").exists() == (moment != "2")
    assert train_together(config, tmp_path / "run") == [0, 0]
    for file in ("history.jsonl", "checkpoint/adapter_model.safetensors", "best/adapter_model.safetensors"):
        assert (tmp_path / "run" / file).read_bytes() == (straight / file).read_bytes()
