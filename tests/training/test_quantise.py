"""QLoRA: what is stored in 4 bits, what is refused, and the training itself where bitsandbytes has kernels for the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from preference_runs import history, pair_lines, write_lines
from tiny_families import save_tiny, tiny
from training_fixtures import killed_after, losses, phantoms
from transformers import AutoModelForImageTextToText

from cxrlab.core.errors import ConfigError, MissingExtra
from cxrlab.extraction.config import Fitting
from cxrlab.preference.config import Measure, PreferConfig
from cxrlab.preference.config import Validation as Judged
from cxrlab.preference.train import prefer
from cxrlab.training.align_finetune import finetune
from cxrlab.training.config import FinetuneConfig, Optimisation, Validation
from cxrlab.training.memory_estimate import estimate
from cxrlab.training.report_model import check_quantisation, language_linears

STEPS = Optimisation(
    batch_size=4, steps=6, max_length=1500, log_every=1, save_every=2, seed=5, learning_rate=1e-2, warmup=0.0,
    schedule="constant", gradient_checkpointing=True,
)  # fmt: skip


def test_weights_in_4_bits_stay_frozen() -> None:
    """Whole models and trained vision encoders are saved whole, which 4 bits cannot be."""
    for kind in (Fitting, lambda **given: FinetuneConfig(data=Path("c"), start="hf:x", **given)):
        assert kind(quantise="4bit", lora_rank=4).quantise == "4bit"
        for wrong in ({"lora_rank": 0}, {"train_vision_encoder": True}):
            with pytest.raises(ConfigError, match="quantise=4bit"):
                kind(quantise="4bit", **wrong)


def test_a_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "bitsandbytes" else object())
    with pytest.raises(MissingExtra, match="qlora"):
        check_quantisation(torch.device("cuda"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(ConfigError, match="needs a GPU"):
        check_quantisation(torch.device("cpu"))
    with pytest.raises(ConfigError, match="sharding=none"):
        check_quantisation(torch.device("cuda"), sharded=True)
    check_quantisation(torch.device("cuda"))


def test_the_estimate_counts_half_a_byte_for_each_weight() -> None:
    """And one byte for each 64 of them."""
    model, _ = tiny("qwen2_5_vl")
    linears = sum(model.get_submodule(name).weight.numel() for name in language_linears(model))
    settings = Optimisation(precision="bfloat16")
    before, after = (estimate(model, settings, 10, 0, 0, quantised).weights for quantised in (0, linears))
    assert before - after == 2 * linears - linears // 2 - linears // 64


@pytest.fixture
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """bitsandbytes, and leave to run it on a CPU, without the layout of weights for inference on some CPUs."""
    for module in ("training.report_model", "training.align_finetune"):
        monkeypatch.setattr(f"cxrlab.{module}.check_quantisation", lambda device, sharded: None, raising=False)
    modules = pytest.importorskip("bitsandbytes.nn.modules")
    monkeypatch.setattr(modules, "has_avx512bf16", lambda: False)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llava", "idefics", "qwen2_5_vl"])
def test_adapters_train_on_a_base_in_4_bits(family: str, on_a_cpu: None, tmp_path: Path) -> None:
    """The loss falls, a killed run ends with the same bytes, and the adapter opens on the base as it was."""
    start = save_tiny(family, tmp_path / "start")
    config = FinetuneConfig(
        data=phantoms(tmp_path / "corpus"), start=f"hf:{start}", n=8, lora_rank=4, lora_alpha=8.0, lora_dropout=0.0,
        quantise="4bit", optimisation=STEPS, validation=Validation(n=2, every=2), cache=tmp_path / "cache",
    )  # fmt: skip
    finetune(config, tmp_path / "run")
    found = losses(tmp_path / "run")
    assert found[-1] < 0.95 * found[0]
    with killed_after(3):
        finetune(config, tmp_path / "again")
    finetune(config, tmp_path / "again")
    file = "checkpoint/adapter_model.safetensors"
    assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "run" / file).read_bytes()
    finetune(replace(config, quantise="none"), tmp_path / "plain")
    plain = losses(tmp_path / "plain")
    assert plain != found and found[0] == pytest.approx(plain[0], rel=0.1)
    base = AutoModelForImageTextToText.from_pretrained(start)
    PeftModel.from_pretrained(base, str(tmp_path / "run" / "checkpoint"))


@pytest.mark.slow
def test_preferences_are_learnt_on_a_base_in_4_bits(on_a_cpu: None, tmp_path: Path) -> None:
    """The reference is the start in 4 bits too: the first loss is log 2."""
    data = phantoms(tmp_path / "corpus")
    config = PreferConfig(
        data=data, pairs=write_lines(tmp_path / "pairs.jsonl", pair_lines(data)[:8]),
        start=f"hf:{save_tiny('qwen2_5_vl', tmp_path / 'start')}", lora_rank=4, quantise="4bit",
        validation=Judged(n=0), measure=Measure(n=0), optimisation=replace(STEPS, batch_size=2),
    )  # fmt: skip
    prefer(config, tmp_path / "run")
    found = [line["loss"] for line in history(tmp_path / "run") if "loss" in line]
    assert found[0] == pytest.approx(0.6931, abs=2e-3) and found[-1] < 0.8 * found[0]
