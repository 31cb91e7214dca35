"""Stage 3 on one GPU: samples per second and FLOP utilisation, compared with a plain transformers.Trainer.

    python benchmarks/finetune_speed.py [--batch 16] [--steps 40] [--compiled]  GPU: one billion parameters, 518 px
    python benchmarks/finetune_speed.py --tiny                                  any machine: a check that it runs

A LLaVA with random weights: a DINOv2-shaped encoder (ViT-B/14 at 518 px, 1,369 image tokens), a Llama of a billion
parameters (16 layers of 2,048, vocabulary 32,000), adapters of rank 64 on all its linear layers, a trained projector.
Reports have 60 to 250 tokens, prompts 40. Everything is in bfloat16 with trained weights in float32.

The baseline is `transformers.Trainer` with PEFT as a user would start: weights in bfloat16 as stored, `bf16=True`,
everything else at its default (AdamW, no gradient checkpointing, random batches padded to the longest, the model's own
loss). It gets the same samples at the same batch size, its images already scaled, normalised and in memory.

`cxrlab.models.hf.operations` counts the useful operations: a frozen weight costs its forward pass and the gradient of its
input; padding and recomputed activations do not count. Warm-up steps are left out. The rate is the median over windows
of steps, with the GPU synchronised at the end of each.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    Dinov2Config,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from cxrlab.models.hf.operations import GPUS, Shape, sample_flops, shape_of
from cxrlab.models.random_init import build_image_processor
from cxrlab.training.align_finetune import select_trainable
from cxrlab.training.config import FinetuneConfig, Optimisation
from cxrlab.training.image_features import Features, to_pixels, vision_encoder_features
from cxrlab.training.report_dataset import ReportDataset, Tokens
from cxrlab.training.report_model import ReportLoss, compile_layers, language_linears
from cxrlab.training.run_folder import training_run
from cxrlab.training.trainer import ExactTrainer, Job, Part, fit, length_multiple, plan

PEAK = GPUS["h200-141gb"].operations
UTILISATION, RATIO = 0.35, 1.2  # targets
EPOCHS = 3  # over which the one pass of the vision encoder is spread
PAD, BEGIN, IMAGE, FIRST = 0, 1, 2, 3
PROMPT, SHORTEST, LONGEST = 40, 60, 250  # tokens
RANK, ALPHA, DROPOUT = 64, 128.0, 0.05


@dataclass(frozen=True)
class Scale:
    """Sizes of the model and the data."""

    image: int
    patch: int
    vision_encoder: tuple[int, int, int]  # layers, width, heads
    language: tuple[int, int, int, int, int]  # layers, width, inner width, heads, key heads
    vocabulary: int
    images: int


BILLION = Scale(518, 14, (12, 768, 12), (16, 2048, 8192, 32, 8), 32_000, 64)
TINY = Scale(56, 14, (2, 32, 2), (2, 32, 64, 2, 2), 300, 6)


@dataclass
class Clock(TrainerCallback):
    """Records the time after the warm-up and after every window of steps, with the GPU synchronised."""

    warm: int
    window: int
    marks: list[float] = field(default_factory=list)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the time at the end of a window."""
        if state.global_step >= self.warm and (state.global_step - self.warm) % self.window == 0:
            wait()
            self.marks.append(self.now())

    def now(self) -> float:
        """The time in seconds."""
        return time.perf_counter()

    def rate(self, batch: int) -> float:
        """Samples per second: the median over windows."""
        spans = [b - a for a, b in zip(self.marks, self.marks[1:], strict=False)]
        return self.window * batch / statistics.median(spans)


@dataclass(frozen=True)
class Data:
    """The samples: tokens, and images as uint8."""

    tokens: Tokens
    image_of: np.ndarray
    images: np.ndarray
    rows: int
    image_tokens: int

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sample, image tokens included."""
        return np.diff(self.tokens.starts) + self.image_tokens - 1

    @property
    def reports(self) -> np.ndarray:
        """Report tokens of each sample, those with a loss."""
        return np.diff(self.tokens.starts) - self.tokens.prompts


def device() -> torch.device:
    """The GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def wait() -> None:
    """Wait for the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def make_data(scale: Scale, samples: int, seed: int) -> Data:
    """Random tokens and images; their values do not change the number of operations."""
    rng = np.random.default_rng(seed)
    reports = rng.integers(SHORTEST, LONGEST + 1, samples)
    starts = np.concatenate([[0], np.cumsum(PROMPT + reports)]).astype(np.int64)
    ids = rng.integers(FIRST, scale.vocabulary, starts[-1]).astype(np.int32)
    ids[starts[:-1]], ids[starts[:-1] + 1] = BEGIN, IMAGE
    tokens = Tokens(ids, starts, np.full(samples, PROMPT, np.int32), np.ones((samples, 1), np.int32))
    images = rng.integers(0, 256, (scale.images, scale.image, scale.image), dtype=np.uint8)
    return Data(tokens, np.arange(samples) % scale.images, images, samples, (scale.image // scale.patch) ** 2)


def build(scale: Scale, dtype: torch.dtype, seed: int) -> LlavaForConditionalGeneration:
    """The LLaVA with random weights, on the device in this dtype; vision encoder and language model are frozen."""
    layers, width, inner, heads, keys = scale.language
    depth, patch_width, patch_heads = scale.vision_encoder
    config = LlavaConfig(
        vision_config=Dinov2Config(
            hidden_size=patch_width, num_hidden_layers=depth, num_attention_heads=patch_heads, mlp_ratio=4,
            image_size=scale.image, patch_size=scale.patch, use_mask_token=False,
        ),
        text_config=LlamaConfig(
            vocab_size=scale.vocabulary, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=keys, max_position_embeddings=4096,
            pad_token_id=PAD, bos_token_id=BEGIN, eos_token_id=BEGIN, tie_word_embeddings=False,
        ),
        image_token_index=IMAGE,
        vision_feature_layer=-2,
        image_seq_length=(scale.image // scale.patch) ** 2,
    )  # fmt: skip
    torch.manual_seed(seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device()):
            model = LlavaForConditionalGeneration(config)
    finally:
        torch.set_default_dtype(before)
    return model.requires_grad_(False)


@dataclass(frozen=True)
class Measured:
    """Result of one trainer: samples per second, useful FLOP per sample, peak memory in GB, and the loss of one batch."""

    name: str
    rate: float
    flops: float
    memory: float
    loss: float


def measure_cxrlab(data: Data, scale: Scale, args: argparse.Namespace, *, cached: bool) -> tuple[Measured, float]:
    """Stage 3 of cxrlab; the second value is the vision encoder's images per second if its features are cached."""
    reset_memory()
    dtype = torch.bfloat16 if args.precision == "bfloat16" else torch.float32
    model = build(scale, dtype, args.seed)
    processor = build_image_processor(scale.image)
    features, vision_encoder_rate = run_vision_encoder(model, data, processor, dtype) if cached else (None, 0.0)
    length = int(data.lengths.max())
    settings = Optimisation(
        steps=args.steps, batch_size=args.batch, precision=args.precision, max_length=length, save_every=10**9,
        log_every=args.steps, workers=args.workers, seed=args.seed,
    )  # fmt: skip
    recipe = FinetuneConfig(
        Path("none"), start="none", lora_rank=RANK, lora_alpha=ALPHA, lora_dropout=DROPOUT, optimisation=settings
    )
    shape = shape_of(select_trainable(model, recipe), features_kept=cached)
    module = ReportLoss(model, processor).to(device())
    if args.compiled:
        compile_layers(model)
    images = None if cached else data.images  # an array gives images by index, as the image cache does
    fixed = (data.image_tokens, IMAGE, PAD, length, length_multiple())
    rows = ReportDataset(data.tokens, data.image_of[:, None], images, features, *fixed)  # type: ignore[arg-type]
    loss = first_batch_loss(module, rows, args)
    clock = Clock(args.warm, args.window)

    class Timed(ExactTrainer):
        """The trainer with a clock."""

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.add_callback(clock)

    order = plan([Part(len(rows))], args.batch, 1.0, args.steps, args.seed, rows.lengths)
    with tempfile.TemporaryDirectory() as folder, training_run(settings, Path(folder) / "run", args.seed) as run:
        fit(Job(module, rows, order, trainer_class=Timed), settings, run)
    name = "cxrlab, cached features" if cached else "cxrlab, vision encoder at every step"
    return Measured(name, clock.rate(args.batch), mean_flops(shape, data), peak(), loss), vision_encoder_rate


def run_vision_encoder(
    model: Any, data: Data, processor: Any, dtype: torch.dtype, batch: int = 16
) -> tuple[Features, float]:
    """Features of every image, and images per second."""
    features = []
    with torch.no_grad():
        for first in [0, *range(0, len(data.images), batch)]:  # the first batch twice: once to warm up
            if len(features) == 1:
                wait()
                start = time.perf_counter()
            images = torch.from_numpy(data.images[first : first + batch]).to(device())
            output = vision_encoder_features(model, to_pixels(images, processor).to(dtype))
            features.append((output.view(torch.uint16) if dtype == torch.bfloat16 else output).cpu().numpy())
    return Features(np.concatenate(features[1:]), dtype), len(data.images) / (time.perf_counter() - start)


def first_batch_loss(module: ReportLoss, rows: ReportDataset, args: argparse.Namespace) -> float:
    """Mean loss of the first batch, without dropout."""
    batch = rows.__getitems__(list(range(args.batch)))
    items = int(batch.pop("items"))
    module.eval()
    with torch.no_grad(), autocast(args):
        return float(module(**{key: value.to(device()) for key, value in batch.items()})) / items


def measure_trainer(data: Data, scale: Scale, args: argparse.Namespace) -> Measured:
    """transformers.Trainer with PEFT at the defaults."""
    from peft import LoraConfig, get_peft_model

    reset_memory()
    dtype = torch.bfloat16 if args.precision == "bfloat16" else torch.float32
    model = build(scale, dtype, args.seed)
    kinds = sorted({name.rpartition(".")[2] for name in language_linears(model)})
    adapted = get_peft_model(
        model,
        LoraConfig(
            r=RANK, lora_alpha=int(ALPHA), lora_dropout=DROPOUT, modules_to_save=["multi_modal_projector"],
            target_modules=rf".*language_model.*\.({'|'.join(kinds)})",
        ),
    )  # fmt: skip
    shape = shape_of(adapted, features_kept=False)
    pixels = to_pixels(torch.from_numpy(data.images), build_image_processor(scale.image))
    samples = [sample(data, number, pixels) for number in range(data.rows)]
    loss = trainer_loss(adapted, collate(samples[: args.batch]), args)
    clock = Clock(args.warm, args.window)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=args.batch, max_steps=args.steps, seed=args.seed,
            bf16=args.precision == "bfloat16", remove_unused_columns=False, report_to="none", save_strategy="no",
            disable_tqdm=True, use_cpu=not torch.cuda.is_available(),
        )  # fmt: skip
        trainer = Trainer(adapted, settings, data_collator=collate, train_dataset=samples, callbacks=[clock])
        with contextlib.redirect_stdout(sys.stderr):  # keep its log out of the table
            trainer.train()
    name = "transformers.Trainer with PEFT, defaults"
    return Measured(name, clock.rate(args.batch), mean_flops(shape, data), peak(), loss)


def sample(data: Data, number: int, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
    """One sample in the form of the model's own forward."""
    first, last = data.tokens.starts[number], data.tokens.starts[number + 1]
    own = torch.from_numpy(data.tokens.ids[first:last].astype(np.int64))
    ids = torch.cat([own[:1], torch.full((data.image_tokens,), IMAGE), own[2:]])
    labels = ids.clone()
    labels[: len(ids) - int(data.reports[number])] = -100
    return {"input_ids": ids, "labels": labels, "pixel_values": pixels[data.image_of[number]]}


def collate(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """A batch padded to its longest sample."""
    pad = torch.nn.utils.rnn.pad_sequence
    ids = [one["input_ids"] for one in samples]
    return {
        "input_ids": pad(ids, batch_first=True, padding_value=PAD),
        "attention_mask": pad([torch.ones_like(one) for one in ids], batch_first=True, padding_value=0),
        "labels": pad([one["labels"] for one in samples], batch_first=True, padding_value=-100),
        "pixel_values": torch.stack([one["pixel_values"] for one in samples]),
    }


def trainer_loss(model: Any, batch: dict[str, torch.Tensor], args: argparse.Namespace) -> float:
    """Mean loss of the same batch by the model's own forward."""
    model.eval()
    with torch.no_grad(), autocast(args):
        return float(model(**{key: value.to(device()) for key, value in batch.items()}).loss)


def autocast(args: argparse.Namespace) -> Any:
    """The precision of the training."""
    return torch.autocast(device().type, torch.bfloat16, enabled=args.precision == "bfloat16")


def reset_memory() -> None:
    """Free GPU memory and reset its peak."""
    import gc

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak() -> float:
    """Peak GPU memory since the last reset, in GB."""
    return torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else float("nan")


def mean_flops(shape: Shape, data: Data) -> float:
    """Mean useful FLOP per sample."""
    pairs = zip(data.lengths.tolist(), data.reports.tolist(), strict=True)
    return statistics.fmean(sample_flops(shape, tokens, report) for tokens, report in pairs)


def lines(results: list[Measured], data: Data, vision_encoder_rate: float) -> Iterator[str]:
    """The table, and the comparison with the targets."""
    tokens = float(data.lengths.mean())
    yield f"{data.rows} samples of {tokens:.0f} tokens on average, {data.image_tokens} of them image tokens"
    yield ""
    yield "| trainer | samples/s | tokens/s | useful TFLOP per sample | share of 989 TFLOP/s | peak GB | loss of one batch |"
    yield "|---|---|---|---|---|---|---|"
    for result in results:
        yield (
            f"| {result.name} | {result.rate:.2f} | {result.rate * tokens:,.0f} | {result.flops / 1e12:.4g} "
            f"| {100 * result.rate * result.flops / PEAK:.1f} % | {result.memory:.1f} | {result.loss:.4f} |"
        )
    baseline, best = results[0], results[-1]
    spread = 1 / (1 / best.rate + 1 / (EPOCHS * vision_encoder_rate))
    yield ""
    yield (
        f"Vision encoder alone: {vision_encoder_rate:.1f} images/s. Training, with one pass of the vision encoder over "
        f"{EPOCHS} epochs: {spread:.2f} samples/s"
    )
    yield (f"FLOP utilisation: target {100 * UTILISATION:.0f} %, measured {100 * best.rate * best.flops / PEAK:.1f} %")
    ratio, spread_ratio, running = (rate / baseline.rate for rate in (best.rate, spread, results[1].rate))
    yield (
        f"Samples per second: target {RATIO:.1f} times the plain Trainer, measured {ratio:.2f}; with the pass of the "
        f"vision encoder {spread_ratio:.2f}, with the vision encoder at every step {running:.2f}"
    )


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to check that the script runs")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warm", type=int, default=8)
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument(
        "--workers", type=int, default=2, help="processes that read batches for cxrlab; the Trainer has 0"
    )
    parser.add_argument("--compiled", action="store_true", help="measure cxrlab with optimisation.compiled")
    parser.add_argument("--precision", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    if args.tiny or not torch.cuda.is_available():
        args.tiny, args.workers = True, 0
        args.batch, args.steps, args.warm, args.window, args.samples = 2, 6, 2, 2, 12
        print("Tiny model (no GPU, or --tiny): a check that the script runs. The numbers below mean nothing.")
    if args.steps < args.warm + 2 * args.window:
        sys.exit(f"--steps must be at least {args.warm + 2 * args.window}: the warm-up and two windows.")
    scale = TINY if args.tiny else BILLION
    data = make_data(scale, args.samples, args.seed)
    if torch.cuda.is_available():
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, batch {args.batch}, {args.precision}")
    baseline = measure_trainer(data, scale, args)
    running, _ = measure_cxrlab(data, scale, args, cached=False)
    cached, vision_encoder_rate = measure_cxrlab(data, scale, args, cached=True)
    print("\n".join(lines([baseline, running, cached], data, vision_encoder_rate)))
    # Speeds can only be compared if all three compute the same loss.
    batch_losses = [result.loss for result in (baseline, running, cached)]
    spread = max(batch_losses) / min(batch_losses) - 1
    if spread > (0.01 if args.precision == "bfloat16" else 1e-4):
        sys.exit(f"The losses of one batch differ by {100 * spread:.2f} %; these are not the same training.")


if __name__ == "__main__":
    main()
