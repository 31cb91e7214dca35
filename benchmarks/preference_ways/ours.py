"""DPO with cxrlab."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import peft  # noqa: F401  imported before memory is measured
import torch
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

from cxrlab.preference.config import LossSettings
from cxrlab.preference.dataset import PreferenceDataset, reference_log_probabilities
from cxrlab.preference.losses import PreferenceLoss
from cxrlab.training.config import Optimisation
from cxrlab.training.image_cache import ImageFile, open_images
from cxrlab.training.image_features import open_features
from cxrlab.training.report_dataset import ReportDataset, count_image_tokens, tokenise
from cxrlab.training.report_model import ReportLoss, add_adapters, enable_gradient_checkpointing
from cxrlab.training.run_folder import training_run
from cxrlab.training.trainer import ExactTrainer, Job, Part, fit, plan


def train(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Train with cxrlab; return speed, memory and the loss of the first batch."""
    torch.set_num_threads(THREADS)
    before = peak_memory()
    model, processor = open_model(folder / "model")
    model.requires_grad_(False)
    pairs = json.loads((folder / "pairs.json").read_text())
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        cache = Path(temporary) / "cache"
        rows = preference_dataset(model, processor, pairs, cache, cached=args.way != "images")
        reporter = ReportLoss(model, processor.image_processor)
        reference = reference_log_probabilities(reporter, rows, cache, precision="float32", batch_size=args.batch)
        rows = replace(rows, reference=reference)
        prepared = time.perf_counter() - start
        randomise_adapters(add_adapters(model, RANK, float(ALPHA), 0.0, train_projector=False), args.seed)
        module = PreferenceLoss(reporter, LossSettings("dpo")).eval()
        loss = first_loss(module, rows, args.batch)
        if args.way.endswith("checkpointed"):
            enable_gradient_checkpointing(model, vision_encoder_frozen=True)
        clock = Clock(args.warm, args.window)
        run_training(module, rows, clock, Path(temporary) / "run", args)
    return measurements(clock, loss, before, prepared)


def preference_dataset(
    model: Any, processor: Any, pairs: list[dict[str, str]], cache: Path, *, cached: bool
) -> PreferenceDataset:
    """Both reports of every pair with their image, or with its cached vision features."""
    token = int(model.config.image_token_id)
    tokens = tokenise(
        processor,
        token,
        [pair["prompt"] for pair in pairs for _ in range(2)],
        [pair[name] for pair in pairs for name in ("chosen", "rejected")],
    )
    images = open_images([ImageFile(Path(pair["image"])) for pair in pairs], processor.image_processor, cache)
    mode, cpu = "on" if cached else "off", torch.device("cpu")
    features = open_features(model, images, cache, cache=mode, most_gb=40, dtype=torch.float32, device=cpu)
    fixed = (count_image_tokens(model), token, processor.tokenizer.pad_token_id, 1024)
    reports = ReportDataset(tokens, np.repeat(np.arange(len(pairs)), 2)[:, None], None, None, *fixed)
    return PreferenceDataset(reports, images, features)


def first_loss(module: PreferenceLoss, rows: PreferenceDataset, size: int) -> float:
    """Mean loss of the first batch."""
    batch = rows.__getitems__(list(range(size)))
    items = int(batch.pop("items"))
    with torch.no_grad():
        return float(module(**batch)) / items


def run_training(
    module: PreferenceLoss, rows: PreferenceDataset, clock: Clock, out: Path, args: argparse.Namespace
) -> None:
    """Run all steps with a clock."""

    class Timed(ExactTrainer):
        """The trainer with a clock."""

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.add_callback(clock_callback(clock))

    settings = Optimisation(
        learning_rate=5e-6, steps=args.steps, batch_size=args.batch, max_length=1024, save_every=10**9,
        log_every=10, seed=args.seed,
    )  # fmt: skip
    # In random order, as TRL does: without grouping by length, which saves padding.
    order = plan([Part(args.longest)], args.batch, 1.0, args.steps, args.seed, None)
    with training_run(settings, out, args.seed) as run:
        fit(Job(module, rows, order, trainer_class=Timed), settings, run)
