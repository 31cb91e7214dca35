"""DPO with TRL."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import datasets
import torch
from peft import LoraConfig
from preference_ways.common import (
    ALPHA,
    RANK,
    THREADS,
    Clock,
    clock_callback,
    measurements,
    open_model,
    peak_memory,
    randomise_adapters,
)
from trl import DPOConfig, DPOTrainer

from cxrlab.models.hf.prompting import prompt_text, report_text
from cxrlab.training.report_model import language_linears


def train(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Train with TRL; return speed, memory and the loss of the first batch."""
    torch.set_num_threads(THREADS)
    before = peak_memory()
    model, processor = open_model(folder / "model")
    model.requires_grad_(False)
    pairs = dataset(processor, folder / "pairs.json")
    clock = Clock(args.warm, args.window)
    with contextlib.redirect_stdout(sys.stderr):  # keep its log out of the result
        trainer = DPOTrainer(
            model=model,
            args=settings(folder, args),
            train_dataset=pairs.select(range(args.longest)),
            processing_class=processor,
            peft_config=adapters(model),
            callbacks=[clock_callback(clock)],
        )
        randomise_adapters(trainer.model, args.seed)
        batch = trainer.data_collator([pairs[number] for number in range(args.batch)])
        with torch.no_grad():
            loss = float(trainer.compute_loss(trainer.model, batch))
        trainer.train()
    return measurements(clock, loss, before, 0.0)


def dataset(processor: Any, file: Path) -> Any:
    """The pairs as texts; TRL's processor reads the image files."""
    begin, end = processor.tokenizer.bos_token, processor.tokenizer.eos_token
    rows = [
        {
            "prompt": begin + prompt_text(processor, pair["prompt"]),
            "chosen": report_text(processor, pair["chosen"]) + end,
            "rejected": report_text(processor, pair["rejected"]) + end,
            "images": [pair["image"]],
        }
        for pair in json.loads(file.read_text())
    ]
    return datasets.Dataset.from_list(rows).cast_column("images", datasets.List(datasets.Image()))


def settings(folder: Path, args: argparse.Namespace) -> DPOConfig:
    """Settings of the comparison; all others have their defaults."""
    return DPOConfig(
        output_dir=str(folder / "theirs"), per_device_train_batch_size=args.batch, max_steps=args.steps,
        learning_rate=5e-6, bf16=False, gradient_checkpointing=args.way.endswith("checkpointed"),
        max_length=None, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True, seed=args.seed,
    )  # fmt: skip


def adapters(model: Any) -> LoraConfig:
    """LoRA on all linear layers of the language model."""
    kinds = sorted({name.rpartition(".")[2] for name in language_linears(model)})
    return LoraConfig(
        r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
        target_modules=rf"model\.language_model\..*\.({'|'.join(kinds)})",
    )  # fmt: skip
