"""Fine-tuning of a Qwen2.5-VL: samples per second, compared with a plain transformers.Trainer in the same run.

    python benchmarks/family_speed.py [--batch 8] [--steps 40] [--compiled]   GPU: the sizes of Qwen2.5-VL-3B, 518 px
    python benchmarks/family_speed.py --small [--precision bfloat16]          a CPU: 12 million weights, 112 px
    python benchmarks/family_speed.py --tiny                                  any machine: a check that it runs

Random weights, adapters of rank 64 on the language model, frozen vision encoder, phantoms with their reports.

The baseline is `transformers.Trainer` with PEFT as a user would start: the model's own loss over all positions, its
processor in the collator, random batches padded to the longest, everything else at its default. cxrlab groups samples
by length, computes logits at report tokens alone, and reads images in its workers, or the features of the vision encoder
from a cache, which is filled before. Both read the same files. Warm-up steps are left out; the rate is the median over
windows of steps, with the GPU synchronised at the end of each. On a CPU it counts processor time of one thread, which other
programs change little.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from finetune_speed import Clock, Measured, autocast, device, peak, reset_memory
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessorPil,
    Trainer,
    TrainingArguments,
)

from cxrlab.data.config import PhantomConfig
from cxrlab.data.images import load_image
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.models.hf.checkpoint import without_video
from cxrlab.models.hf.prompting import prompt_text, report_text
from cxrlab.models.prompts import load_prompts
from cxrlab.models.random_init import train_tokenizer
from cxrlab.training.align_finetune import select_trainable
from cxrlab.training.config import ExtraCorpus, FinetuneConfig, Optimisation
from cxrlab.training.image_features import open_family_features
from cxrlab.training.image_text import ImageTextDataset, ImageTextLoss, load_image_text
from cxrlab.training.report_dataset import ask_for_report
from cxrlab.training.report_model import compile_layers, find_parts, language_linears
from cxrlab.training.run_folder import training_run
from cxrlab.training.samples import Source, read_source
from cxrlab.training.trainer import ExactTrainer, Job, Part, fit, plan

RATIO = 1.3  # target
RANK, ALPHA = 64, 128.0
MARKS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.content %}{% if c.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Scale:
    """Sizes of the model and the images."""

    image: int
    text: dict[str, Any]
    vision: dict[str, Any]


THREE_BILLION = Scale(
    518,
    {
        "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 11_008, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 2, "max_position_embeddings": 32_768,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
    },
    {
        "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14,
        "out_hidden_size": 2048, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
    },
)  # fmt: skip
SMALL = Scale(
    112,
    {
        "vocab_size": 8000, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 12, 12]},
    },
    {
        "depth": 8, "hidden_size": 256, "intermediate_size": 768, "num_heads": 4, "patch_size": 14,
        "out_hidden_size": 256, "window_size": 112, "fullatt_block_indexes": [3, 7],
    },
)  # fmt: skip
TINY = Scale(
    56,
    {
        "vocab_size": 600, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": 2048, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
    },
    {
        "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 14, "out_hidden_size": 32,
        "window_size": 112, "fullatt_block_indexes": [1],
    },
)  # fmt: skip


def make_processor(texts: Sequence[str]) -> Any:
    """A Qwen2.5-VL's processor with a small tokenizer."""
    backend = train_tokenizer(list(texts), 500).backend_tokenizer
    words = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<|im_end|>", padding_side="right",
        extra_special_tokens={"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"},
    )  # fmt: skip
    words.add_special_tokens({"additional_special_tokens": [*MARKS]})
    return without_video(Qwen2_5_VLProcessor)(Qwen2VLImageProcessorPil(), words, chat_template=TEMPLATE)


def build(scale: Scale, processor: Any, args: argparse.Namespace) -> Any:
    """The model with random weights in the precision of the training, on the device."""
    words = processor.tokenizer
    start, end = words.convert_tokens_to_ids([*MARKS[2:]])
    config = Qwen2_5_VLConfig(
        text_config={**scale.text, "bos_token_id": None, "eos_token_id": words.eos_token_id},
        vision_config=scale.vision, image_token_id=words.image_token_id,
        video_token_id=words.video_token_id, vision_start_token_id=start, vision_end_token_id=end,
    )  # fmt: skip
    torch.manual_seed(args.seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if args.precision == "bfloat16" else torch.float32)
    try:
        with torch.device(device()):
            model = Qwen2_5_VLForConditionalGeneration(config)
    finally:
        torch.set_default_dtype(before)
    return model.requires_grad_(False)


class ProcessorClock(Clock):
    """A clock of processor time, for a CPU that other programs use too."""

    def now(self) -> float:
        """Seconds of processor time of this process."""
        return time.process_time()


def make_clock(args: argparse.Namespace) -> Clock:
    """Of wall time on a GPU, of processor time on a CPU."""
    return (Clock if torch.cuda.is_available() else ProcessorClock)(args.warm, args.window)


def measure_cxrlab(
    source: Source, scale: Scale, processor: Any, args: argparse.Namespace, folder: Path, *, cached: bool
) -> Measured:
    """Fine-tuning by cxrlab, with cached features or with the vision encoder at every step."""
    reset_memory()
    model = build(scale, processor, args)
    settings = Optimisation(
        steps=args.steps, batch_size=args.batch, precision=args.precision, save_every=10**9, log_every=args.steps,
        workers=args.workers, seed=args.seed,
    )  # fmt: skip
    rows = load_image_text([source], model, processor, None, settings, ask_for_report)
    recipe = FinetuneConfig(
        Path("none"), start="none", lora_rank=RANK, lora_alpha=ALPHA, lora_dropout=0.0, train_projector=False,
        optimisation=settings,
    )  # fmt: skip
    parts = find_parts(model)
    select_trainable(model, recipe)
    if cached:
        features = open_family_features(
            model, rows.encoder, rows.files, rows.sizes, folder / "cache", cache="on", most_gb=100,
            dtype=getattr(torch, args.precision), device=device(),
        )  # fmt: skip
        rows = dataclasses.replace(rows, features=features)
    module = ImageTextLoss(model, parts).to(device())
    if args.compiled:
        compile_layers(model)
    loss = first_batch_loss(module, rows, args)
    clock = make_clock(args)

    class Timed(ExactTrainer):
        """The trainer with a clock."""

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.add_callback(clock)

    order = plan([Part(len(rows))], args.batch, 1.0, args.steps, args.seed, rows.lengths)
    with training_run(settings, folder / f"run_{cached}", args.seed) as run:
        fit(Job(module, rows, order, trainer_class=Timed), settings, run)
    return Measured(
        "cxrlab, cached features" if cached else "cxrlab, encoder at every step",
        clock.rate(args.batch),
        0.0,
        peak(),
        loss,
    )


def first_batch_loss(module: ImageTextLoss, rows: ImageTextDataset, args: argparse.Namespace) -> float:
    """Mean loss per report token of the first batch."""
    batch = rows.__getitems__(list(range(args.batch)))
    items = int(batch.pop("items"))
    module.eval()
    with torch.no_grad(), autocast(args):
        return float(module(**{name: value.to(device()) for name, value in batch.items()})) / items


def measure_trainer(source: Source, scale: Scale, processor: Any, args: argparse.Namespace) -> Measured:
    """transformers.Trainer with PEFT at the defaults."""
    from peft import LoraConfig, get_peft_model

    reset_memory()
    model = build(scale, processor, args)
    kinds = sorted({name.rpartition(".")[2] for name in language_linears(model)})
    targets = rf"model\.language_model\..*\.({'|'.join(kinds)})"
    adapted = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=int(ALPHA), target_modules=targets))
    prompts, end = load_prompts(None), MARKS[1]

    def collate(samples: Sequence[Any]) -> dict[str, torch.Tensor]:
        """The processor's inputs, padded to the longest; labels at report tokens."""
        from PIL import Image

        pictures = [Image.fromarray((load_image(one.images[0].path) * 255).round().astype("uint8")).convert("RGB")
                    for one in samples]  # fmt: skip
        asked = [prompt_text(processor, prompts.ask(one.indication)) for one in samples]
        texts = [text + report_text(processor, one.report) + end for text, one in zip(asked, samples, strict=True)]
        batch = dict(processor(text=texts, images=pictures, padding=True, return_tensors="pt"))
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        for row, (text, picture) in enumerate(zip(asked, pictures, strict=True)):
            labels[row, : len(processor(text=[text], images=[picture])["input_ids"][0])] = -100
        return {**batch, "labels": labels}

    samples = list(source.samples)
    adapted.eval()
    with torch.no_grad(), autocast(args):
        given = {name: value.to(device()) for name, value in collate(samples[: args.batch]).items()}
        loss = float(adapted(**given).loss)
    clock = make_clock(args)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=args.batch, max_steps=args.steps, seed=args.seed,
            bf16=args.precision == "bfloat16", remove_unused_columns=False, report_to="none", save_strategy="no",
            disable_tqdm=True, use_cpu=not torch.cuda.is_available(), dataloader_num_workers=args.workers,
        )  # fmt: skip
        trainer = Trainer(adapted, settings, data_collator=collate, train_dataset=samples, callbacks=[clock])  # type: ignore[arg-type]
        with contextlib.redirect_stdout(sys.stderr):  # keep its log out of the table
            trainer.train()
    return Measured("transformers.Trainer with PEFT, defaults", clock.rate(args.batch), 0.0, peak(), loss)


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to check that the script runs")
    parser.add_argument("--small", action="store_true", help="a small model, for a CPU")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warm", type=int, default=8)
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--workers", type=int, default=4, help="processes that read batches, for both")
    parser.add_argument("--compiled", action="store_true", help="measure cxrlab with optimisation.compiled")
    parser.add_argument("--precision", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1 if args.small else torch.get_num_threads())
    if args.small:
        args.workers, args.steps, args.warm, args.window, args.samples = 0, 24, 4, 4, 200
    elif args.tiny or not torch.cuda.is_available():
        args.tiny, args.workers, args.precision = True, 0, "float32"
        args.batch, args.steps, args.warm, args.window, args.samples = 2, 6, 2, 2, 12
        print("Tiny model (no GPU, or --tiny): a check that the script runs. The numbers below mean nothing.")
    if args.steps < args.warm + 2 * args.window:
        sys.exit(f"--steps must be at least {args.warm + 2 * args.window}: the warm-up and two windows.")
    scale = TINY if args.tiny else SMALL if args.small else THREE_BILLION
    if torch.cuda.is_available():
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, batch {args.batch}, {args.precision}")
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        make_phantom(PhantomConfig(n=2 * args.samples, size=scale.image, seed=args.seed, masks=False), corpus)
        source = read_source(ExtraCorpus(corpus), args.samples, args.seed)
        processor = make_processor([one.report for one in source.samples] * 8)
        results = [
            measure_trainer(source, scale, processor, args),
            *(measure_cxrlab(source, scale, processor, args, Path(folder), cached=cached) for cached in (False, True)),
        ]
    print(f"{len(source.samples)} samples of a corpus of phantoms of {scale.image} px\n")
    print("| trainer | samples/s | peak GB | loss of one batch |\n|---|---|---|---|")
    for one in results:
        print(f"| {one.name} | {one.rate:.2f} | {one.memory:.1f} | {one.loss:.4f} |")
    running, cached = (one.rate / results[0].rate for one in results[1:])
    print(f"\nSamples per second: target {RATIO:.1f} times the plain Trainer, measured {cached:.2f}", end="")
    print(f" with cached features, {running:.2f} without")
    # Pixels are rounded to 8 bits before the Trainer's processor resizes them.
    spread = max(one.loss for one in results) / min(one.loss for one in results) - 1
    if spread > 0.01:
        sys.exit(f"The losses of one batch differ by {100 * spread:.2f} %; these are not the same training.")


if __name__ == "__main__":
    main()
