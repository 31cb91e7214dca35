"""Generation in milliseconds per step: a cache of fixed size against a growing one and against plain transformers.

    python benchmarks/generation_speed.py                 one GPU of 140 GB, seven billion random weights
    python benchmarks/generation_speed.py --small         a CPU, six million weights, a minute
    python benchmarks/generation_speed.py --tiny          a check that it runs; the numbers mean nothing

A LLaVA with random weights in LLaVA-Rad's sizes: a ViT-B/14 at 518 px, 1,369 image tokens, a language model of 32 layers.
All ways generate the same number of tokens greedily for the same images, and no answer ends before. Milliseconds per step
are the difference between a long and a short generation over the difference of their tokens, so that reading the prompts
does not count; reading them is a column of its own. Every way runs once before it is measured. *Same words* compares with
the first row: on a GPU in bfloat16 two tokens may be equally likely, on a CPU in float32 all words must be equal.

The last rows sample several reports per image: in one call, which reads every prompt once, and in one call per sample.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))
from tiny_models import tiny_tokenizer

from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.checkpoint import Checkpoint
from cxrlab.models.hf.generation import image_tokens
from cxrlab.models.hf.model import HfModel
from cxrlab.models.prompts import load_prompts
from cxrlab.models.random_init import (
    PHANTOM,
    TINY,
    Size,
    assemble_llava,
    build_image_processor,
    build_language_model,
    build_vision_encoder,
)

Words = list[list[str]]
TARGET_MS, TARGET_RATIO = 14.0, 2.5


@dataclass(frozen=True)
class Plan:
    """Sizes of the model and of the measurement.

    Args:
        vision: Sizes of the vision encoder.
        language: Sizes of the language model.
        words: Embeddings of the language model.
        images: Rows of a batch.
        tokens: Of the short and the long generation.
        samples: Reports per image where they are sampled.
        sampled: Images for which they are.
        dtype: Of the weights.
    """

    vision: Size
    language: Size
    words: int
    images: int
    tokens: tuple[int, int]
    samples: int
    sampled: int
    dtype: torch.dtype


FULL = Plan(
    Size(image=518, patch=14, vision_encoder=12, width=768, head=64),
    Size(image=518, patch=14, language=32, width=4096, head=128, context=4096),
    32_000,
    32,
    (8, 128),
    4,
    32,
    torch.bfloat16,
)
SMALL = Plan(PHANTOM, PHANTOM, 2048, 32, (8, 64), 4, 8, torch.float32)
CHECK = Plan(TINY, TINY, 512, 3, (2, 6), 2, 3, torch.float32)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="six million weights")
    parser.add_argument("--tiny", action="store_true", help="only check that it runs")
    given = parser.parse_args()
    plan = CHECK if given.tiny else SMALL if given.small else FULL
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"{torch.cuda.get_device_name() if device == 'cuda' else 'CPU'}, torch {torch.__version__}")
    print(f"{plan.images} images, {plan.tokens[1]} tokens, {str(plan.dtype).removeprefix('torch.')}\n")
    checkpoint = random_llava(plan, device)
    static, growing = (HfModel(checkpoint, "random", load_prompts(), cache=cache) for cache in ("static", "growing"))
    pictures = torch.rand(plan.images, plan.vision.image, plan.vision.image, generator=torch.Generator().manual_seed(1))
    print("| cache | ms per step | times the first row | reading the prompts (s) | peak memory (GB) | same words |")
    print("|---|--:|--:|--:|--:|--:|")
    ways: dict[str, Callable[[int], Words]] = {
        "growing, transformers": lambda tokens: of_transformers(static, pictures, tokens, None),
        "static, transformers": lambda tokens: of_transformers(static, pictures, tokens, "static"),
        "growing": lambda tokens: ours(growing, pictures, Decoding(max_new_tokens=tokens)),
        "static": lambda tokens: ours(static, pictures, Decoding(max_new_tokens=tokens)),
    }
    first: tuple[float, Words] | None = None
    step_ms = 0.0
    for name, way in ways.items():
        seconds, words, memory = [], [], 0.0
        for tokens in plan.tokens:
            took, words, memory = measured(lambda tokens=tokens, way=way: way(tokens))
            seconds.append(took)
        step_ms = 1000 * (seconds[1] - seconds[0]) / (plan.tokens[1] - plan.tokens[0])
        first = first or (step_ms, words)
        prompts_s = max(seconds[0] - plan.tokens[0] * step_ms / 1000, 0.0)
        equal = sum(one == other for one, other in zip(words, first[1], strict=True))
        print(
            f"| {name} | {step_ms:.1f} | {first[0] / step_ms:.2f} | {prompts_s:.2f} | {memory:.1f} | {equal} of {len(words)} |"
        )
    print(f"\n{static.generation_cache}; target on an H200: at most {TARGET_MS:g} ms per step, here {step_ms:.1f}\n")
    once, each = sampled(static, pictures, plan)
    print(f"{plan.sampled} × {plan.samples} samples: {once:.1f} s in one call, {each:.1f} s in one call per sample,")
    print(f"{each / once:.2f} times; target at least {TARGET_RATIO:g} times")


def random_llava(plan: Plan, device: str) -> Checkpoint:
    """The model on its device."""
    tokenizer = tiny_tokenizer()
    before = torch.get_default_dtype()
    torch.set_default_dtype(plan.dtype)
    try:
        with torch.device(device):
            vision = build_vision_encoder(plan.vision, 0)
            language = build_language_model(tokenizer, plan.language, 1)
            language.resize_token_embeddings(plan.words, mean_resizing=False)
            processor = build_image_processor(plan.vision.image)
            model, processor = assemble_llava(vision, language, tokenizer, processor, 2)
    finally:
        torch.set_default_dtype(before)
    return Checkpoint(model.to(device).eval(), processor, processor.tokenizer, None, Path())


def measured(way: Callable[[], Words]) -> tuple[float, Words, float]:
    """Seconds of the second of two runs, its words, and the peak of GPU memory in GB."""
    for _ in range(2):
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        start = time.perf_counter()
        words = way()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return seconds, words, torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else float("nan")


def ours(model: HfModel, images: torch.Tensor, decoding: Decoding, first: int = 0) -> Words:
    """Our own generation; the end token is one that is never generated."""
    model.ends = image_tokens(model.model)
    return [[answer.text for answer in row] for row in model.answers_from(images, None, decoding, first)]


@torch.no_grad()
def of_transformers(model: HfModel, images: torch.Tensor, tokens: int, cache: str | None) -> Words:
    """The loop of transformers on the same inputs, which compiles its steps on a GPU if the cache is static."""
    prompts = [model.prompts.ask(None)] * len(images)
    inputs = model._encoder.encode([image[None] for image in images.to(model.device)], prompts, side="left").inputs
    never = image_tokens(model.model)
    found = model.model.generate(
        **inputs,
        max_new_tokens=tokens,
        do_sample=False,
        suppress_tokens=never,
        eos_token_id=never,
        pad_token_id=never[0],
        cache_implementation=cache,
    )
    texts = model.tokenizer.batch_decode(found[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return [[text.strip()] for text in texts]


def sampled(model: HfModel, images: torch.Tensor, plan: Plan) -> tuple[float, float]:
    """Seconds of all samples in one call, and in one call per sample; the same words, or the program ends."""
    few, tokens = images[: plan.sampled], plan.tokens[1]

    def decoding(answers: int) -> Decoding:
        return Decoding(strategy="sample", answers=answers, max_new_tokens=tokens)

    def one_by_one() -> Words:
        rows = [ours(model, few, decoding(1), number) for number in range(plan.samples)]
        return [[row[place][0] for row in rows] for place in range(len(few))]

    once, words, _ = measured(lambda: ours(model, few, decoding(plan.samples)))
    each, others, _ = measured(one_by_one)
    if plan.dtype == torch.float32 and words != others:
        raise SystemExit("samples of one call differ from those of one call per sample")
    return once, each


if __name__ == "__main__":
    main()
