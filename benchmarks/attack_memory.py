"""Memory and time of attack gradients at LLaVA-Rad's size: one plain graph against micro-batches and packed questions.

    python benchmarks/attack_memory.py                    one GPU of 140 GB, seven billion random weights
    python benchmarks/attack_memory.py --small            a CPU, 12 million weights, three minutes
    python benchmarks/attack_memory.py --tiny             a check that it runs; the numbers mean nothing

Ten steps of PGD (ε = 2/255, from the clean image), against the reference report and against 13 closed questions; gradient
steps alone, no report is generated. *Plain* is a loop as published attack code has it: one graph holds the batch, and all
questions. *cxrlab* is the attack of `robustness` at its defaults, which chooses the images per pass from its estimate. The
other rows change one thing each. *Difference* is the largest difference of a final loss from the first row that fits.

Peak memory includes the weights: on a GPU the peak of torch's allocator over all steps; on a CPU the weights and the peak of
what one gradient allocates, by torch's profiler. Seconds on a CPU are those of the processor.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))
from generation_speed import random_llava

from cxrlab.attacks.attack import AttackTask
from cxrlab.attacks.config import AttackSettings, Budget
from cxrlab.attacks.gradient import Pgd
from cxrlab.attacks.objectives import Objective, RaiseReportLoss, WrongAnswers
from cxrlab.core.errors import OutOfMemory
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.models.hf import image_prefix
from cxrlab.models.hf.gradient_memory import checkpoint_layers, estimate_gradient, free_memory, plan_gradients
from cxrlab.models.hf.model import HfModel
from cxrlab.models.prompts import load_prompts
from cxrlab.models.random_init import TINY, Size

FINDINGS = (
    "atelectasis", "cardiomegaly", "consolidation", "edema", "an enlarged cardiomediastinum", "a fracture",
    "a lung lesion", "a lung opacity", "a pleural effusion", "another pleural finding", "pneumonia", "a pneumothorax",
    "a support device",
)  # fmt: skip
QUESTIONS = [f"Is there {name}?" for name in FINDINGS]
REPORT = "The heart is normal in size. The lungs are clear. There is no pleural effusion or pneumothorax. " * 3
AIMS = {"report loss": (45.0, 2.0), "13 questions": (60.0, 6.0)}  # GB and seconds per image on an H200


@dataclass(frozen=True)
class Plan:
    """Sizes of the model and of the measurement."""

    vision: Size
    language: Size
    words: int  # Embeddings of the language model
    images: int  # Of the batch
    steps: int
    dtype: torch.dtype  # Of the weights


FULL = Plan(
    Size(image=518, patch=14, vision_encoder=12, width=768, head=64),
    Size(image=518, patch=14, language=32, width=4096, head=128, context=4096),
    32_000,
    16,
    10,
    torch.bfloat16,
)
MIDDLE = Size(image=256, patch=16, vision_encoder=6, language=8, width=256, head=64)
SMALL = Plan(MIDDLE, MIDDLE, 2048, 2, 2, torch.float32)
CHECK = Plan(TINY, TINY, 512, 2, 2, torch.float32)


@dataclass(frozen=True)
class Way:
    """One way to compute the gradients of a piece of work."""

    name: str  # In the table
    images: int  # Per pass
    objective: Objective
    checkpointing: bool = False
    packed: bool = True  # Whether the language model reads an image once for all questions


class OneGraph(WrongAnswers):
    """Every question in the same graph, each with its own pass over the image."""

    def __init__(self, model: HfModel, truths: Tensor) -> None:
        super().__init__(
            lambda images, rows: torch.stack([model.yes_margins(images, one) for one in QUESTIONS], dim=1),
            truths,
            [0] * len(truths),
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="12 million weights")
    parser.add_argument("--tiny", action="store_true", help="only check that it runs")
    given = parser.parse_args()
    plan = CHECK if given.tiny else SMALL if given.small else FULL
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = HfModel(random_llava(plan, device), "random", load_prompts())  # type: ignore[arg-type]
    size = (plan.vision.image, plan.vision.image)
    images = torch.rand(plan.images, 1, *size, generator=torch.Generator().manual_seed(1)).to(device)
    weights = sum(weight.nbytes for weight in model.model.parameters())
    print(f"{torch.cuda.get_device_name() if device == 'cuda' else 'CPU'}, torch {torch.__version__}")
    print(
        f"{model.parameter_count / 1e6:,.0f} million weights ({weights / 1e9:.2f} GB), {plan.images} images of {size[0]} px"
    )
    print(f"{plan.steps} steps of PGD\n")
    print("| work | way | images per pass | peak memory (GB) | seconds per image | times | difference |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for work, ways in (
        ("report loss", report_ways(model, size, plan)),
        ("13 questions", question_ways(model, size, plan)),
    ):
        first: tuple[float, Tensor] | None = None
        for way in ways:
            found = measured(way, model, images, plan)
            if found is None:
                print(f"| {work} | {way.name} | {way.images} | out of memory | – | – | – |", flush=True)
                continue
            memory, seconds, losses = found
            first = first or (seconds, losses)
            difference = float((losses - first[1]).abs().max())
            print(
                f"| {work} | {way.name} | {way.images} | {(weights + memory) / 1e9:.3f} | {seconds:.3f} | "
                f"{first[0] / seconds:.2f} | {difference:.1e} |",
                flush=True,
            )
    print(
        "\nTargets on an H200: "
        + "; ".join(f"{work} ≤ {gb:g} GB, ≤ {s:g} s per image" for work, (gb, s) in AIMS.items())
    )


def report_ways(model: HfModel, size: tuple[int, int], plan: Plan) -> list[Way]:
    """Of the loss of the reference report."""
    count = plan.images
    objective = RaiseReportLoss(model, [REPORT] * count, [None] * count, [""] * count, lambda images, rows: [])
    answer = model.report_length(REPORT)
    texts = [model.prompt_length(None, size) + answer]
    chosen = plan_gradients(estimate_gradient(model, size, texts, answer), count, free_memory(model.device))
    return [
        Way("plain", count, objective),
        Way("plain", 1, objective),
        Way("cxrlab", chosen.images, objective, chosen.checkpointing),
        Way("cxrlab, gradient checkpointing", count, objective, checkpointing=True),
    ]


def question_ways(model: HfModel, size: tuple[int, int], plan: Plan) -> list[Way]:
    """Of the closed answers."""
    truths = torch.tensor(
        [[float((row + column) % 2) for column in range(len(QUESTIONS))] for row in range(plan.images)]
    )

    def margins(images: Tensor, rows: Any) -> Tensor:
        return model.yes_margins_of_each(images, QUESTIONS)

    shared = WrongAnswers(margins, truths, [0] * plan.images)
    texts = model.question_lengths(QUESTIONS, size)
    chosen = plan_gradients(
        estimate_gradient(model, size, texts, 2 * len(texts)), plan.images, free_memory(model.device)
    )
    return [
        Way("plain", plan.images, OneGraph(model, truths)),
        Way("plain", 1, OneGraph(model, truths)),
        Way("cxrlab", chosen.images, shared, chosen.checkpointing),
        Way("cxrlab, image read for each question", chosen.images, shared, chosen.checkpointing, packed=False),
        Way("cxrlab, gradient checkpointing", plan.images, shared, checkpointing=True),
    ]


def measured(way: Way, model: HfModel, images: Tensor, plan: Plan) -> tuple[float, float, Tensor] | None:
    """Peak memory without the weights in bytes, seconds per image, and the final losses; None where memory runs out."""
    if model.device.type == "cuda":  # also what an attempt that did not fit has left
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    shared_length = image_prefix.shared_length
    checkpoint_layers(model.model, way.checkpointing)
    if not way.packed:
        image_prefix.shared_length = lambda *_: 0
    try:
        attacked(way, images[: way.images], 1)
        memory = peak_memory(lambda: attacked(way, images[: way.images], 1)) if model.device.type == "cpu" else 0.0
        clock = time.perf_counter if model.device.type == "cuda" else time.process_time
        start = clock()
        perturbed = attacked(way, images, plan.steps)
        if model.device.type == "cuda":
            torch.cuda.synchronize()
            memory = torch.cuda.max_memory_allocated() - sum(weight.nbytes for weight in model.model.parameters())
        seconds = (clock() - start) / len(images)
    except (OutOfMemory, torch.OutOfMemoryError):
        return None
    finally:
        image_prefix.shared_length = shared_length
        checkpoint_layers(model.model, False)
    with torch.no_grad():
        losses = [way.objective.losses(perturbed[row : row + 1], [row]).double().cpu() for row in range(len(images))]
    return memory, seconds, torch.cat(losses)


def attacked(way: Way, images: Tensor, steps: int) -> Tensor:
    """The images after PGD, `way.images` per pass; more than fit raise."""
    settings = AttackSettings(steps=steps, random_start=False)
    micro_batch = BatchSize(way.images)
    task = AttackTask(
        way.objective, images, Budget(2 / 255), tuple(map(str, range(len(images)))), 0, micro_batch=micro_batch
    )
    perturbed = Pgd(settings).perturb(task)
    if micro_batch.current < way.images:
        raise OutOfMemory(f"{way.images} images at once do not fit")
    return perturbed


def peak_memory(compute: Callable[[], Any]) -> float:
    """Largest sum of what is allocated on the CPU during a computation, in bytes."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        compute()
    events = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]  # type: ignore[union-attr]
    size = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        size += event.nbytes()
        peak = max(peak, size)
    return float(peak)


if __name__ == "__main__":
    main()
