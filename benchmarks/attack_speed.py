"""PGD on report models in images per second: cxrlab's batches against the one-image loop of published attack code.

    python benchmarks/attack_speed.py                               both models on a GPU, a few minutes
    python benchmarks/attack_speed.py --model reporter --quick      few images; the default without a GPU
    python benchmarks/attack_speed.py --tiny                        a check that it runs; the numbers mean nothing

Two models: `builtin:reporter` (128 px, 64 image tokens), and a LLaVA of 1.4 billion random weights at 518 px with 1369
image tokens, made on the device. Ten steps of PGD with ε = 2/255, started at the clean image, maximise the loss of
the reference report. `attack_ways/one_by_one.py` describes the loop, `attack_ways/batched.py` is cxrlab's attack. Both
use the same precision and SDPA attention, without TF32. The last column compares with the loop in float32, the usual
precision of published attacks. No report is generated during the measurement.

Both implementations start from images and texts in memory and return images in memory. A warm-up of two steps precedes
each measurement. The loop attacks fewer images, because its time per image does not depend on their number. The target
applies to a large GPU; on a CPU one image already uses every core, and batches gain little.

Check of equal results: the images attacked by both are scored again in float32 by the same function, and a report is
generated for each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from attack_ways import batched, one_by_one
from attack_ways.subjects import Images, Strength, billion, in_precision, phantoms, reporter, tiny
from torch import Tensor

from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.checkpoint import Checkpoint
from cxrlab.models.hf.model import HfModel

LOOP, BATCHED = "one by one", "cxrlab, batched"


@dataclass(frozen=True)
class Plan:
    """One model and the size of its measurement.

    Args:
        make: Loads the model on a device.
        side: Height and width of its images in pixels.
        target: Target ratio of images per second, batched over loop.
        singles: Number of images attacked by the loop.
        images: Number of images attacked in batches, by precision.
        batches: Batch sizes, by precision.
        tokens: Maximum length of the reports generated at the end.
    """

    make: Callable[[str], Checkpoint]
    side: int
    target: float
    singles: int
    images: dict[str, int]
    batches: dict[str, tuple[int, ...]]
    tokens: int = 200


PLANS = {
    "tiny": Plan(
        tiny, 32, 1, 2, {"float32": 4, "bfloat16": 4}, {"float32": (2, 4), "bfloat16": (4,)}, tokens=8
    ),
    "reporter": Plan(
        reporter, 128, 10, 24, {"float32": 256, "bfloat16": 256},
        {"float32": (16, 64, 128), "bfloat16": (16, 64, 128)},
    ),
    # In float32 a single image already saturates the GPU, so fewer images are measured.
    "1b": Plan(
        billion, 518, 2.5, 8, {"float32": 16, "bfloat16": 64}, {"float32": (8,), "bfloat16": (4, 8, 16, 32)}, tokens=40
    ),
}  # fmt: skip
QUICK = {"singles": 4, "images": {"float32": 16, "bfloat16": 16}, "batches": {"float32": (16,), "bfloat16": (16,)}}


@dataclass(frozen=True)
class Measured:
    """Result of one implementation in one precision.

    Args:
        name: `LOOP` or `BATCHED`.
        dtype: Precision of the weights.
        batch: Batch size.
        rate: Images per second; 0 if the GPU ran out of memory.
        memory: Peak GPU memory in bytes, weights included; 0 on a CPU.
        perturbed: The images after the attack, on the CPU.
    """

    name: str
    dtype: str
    batch: int
    rate: float
    memory: int
    perturbed: Tensor


def measure(
    name: str, model: HfModel, batch: int, images: Images, run: Callable[[Images, int], Tensor], steps: int
) -> Measured:
    """Time one implementation; `run` takes images and a number of steps."""
    cuda = model.device.type == "cuda"
    dtype = str(model.model.dtype).removeprefix("torch.")
    perturbed, seconds = images.images[:0], float("inf")
    try:
        run(images[:batch], 2)
        if cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        perturbed = run(images, steps)  # ends with a copy to the CPU, which waits for the GPU
        seconds = time.perf_counter() - start
    except torch.OutOfMemoryError:
        pass  # reported as a rate of 0
    memory = torch.cuda.max_memory_allocated() if cuda else 0
    if cuda:
        torch.cuda.empty_cache()
    return Measured(name, dtype, batch, len(images) / seconds, memory, perturbed)


def measure_all(model: HfModel, images: Images, plan: Plan, dtype: str, strength: Strength) -> Iterator[Measured]:
    """Measure the loop, then cxrlab with every batch size."""
    prompts = [model.prompts.ask(indication) for indication in images.indications]

    def run_loop(some: Images, steps: int) -> Tensor:
        return one_by_one.attack(
            model.model, model.processor, prompts[: len(some)], some, replace(strength, steps=steps)
        )

    yield measure(LOOP, model, 1, images[: plan.singles], run_loop, strength.steps)
    for batch in plan.batches[dtype]:

        def run_batched(some: Images, steps: int, batch: int = batch) -> Tensor:
            return batched.attack(model, some, replace(strength, steps=steps), batch)

        yield measure(BATCHED, model, batch, images[: plan.images[dtype]], run_batched, strength.steps)


def table(results: list[Measured]) -> Iterator[str]:
    """One row per measurement."""
    loops = {result.dtype: result.rate for result in results if result.name == LOOP}
    yield "| attack | weights | batch | images/s | × loop, same precision | × loop, float32 | peak GPU memory |"
    yield "|---|---|---|---|---|---|---|"
    for result in results:
        ratios = [f"{result.rate / loops[base]:.2f}" if base in loops else "–" for base in (result.dtype, "float32")]
        memory = f"{result.memory / 1e9:.1f} GB" if result.memory else "–"
        rate = f"{result.rate:.2f}" if result.rate else "out of memory"
        yield f"| {result.name} | {result.dtype} | {result.batch} | {rate} | {ratios[0]} | {ratios[1]} | {memory} |"
    yield ""


def loop_and_fastest(results: list[Measured]) -> Iterator[tuple[Measured, Measured]]:
    """For each precision, the loop and the fastest batch size."""
    for dtype in dict.fromkeys(result.dtype for result in results):
        loop = next(result for result in results if result.name == LOOP and result.dtype == dtype)
        batched_results = (result for result in results if result.name == BATCHED and result.dtype == dtype)
        yield loop, max(batched_results, key=lambda result: result.rate)


def agreement(model: HfModel, results: list[Measured], images: Images, plan: Plan) -> Iterator[str]:
    """Compare the results of both implementations, scored by a model in float32."""
    some = images[: plan.singles]
    clean = report_losses(model, some)
    for loop, fastest in loop_and_fastest(results):
        if not fastest.rate:
            continue
        pair = [replace(some, images=result.perturbed[: len(some)]) for result in (loop, fastest)]
        loop_losses, batched_losses = (report_losses(model, one) for one in pair)
        difference = (loop_losses - batched_losses).abs()
        reports = [greedy_reports(model, one, plan.tokens) for one in pair]
        same = sum(a == b for a, b in zip(*reports, strict=True))
        yield (
            f"{loop.dtype}, {len(some)} images scored in float32: mean loss {clean.mean():.4f} clean, "
            f"{loop_losses.mean():.4f} after the loop, {batched_losses.mean():.4f} after batches; difference "
            f"{(batched_losses - loop_losses).mean():+.5f} on average, {difference.mean():.5f} absolute per image, "
            f"{difference.max():.5f} at most; identical reports {same} of {len(some)}"
        )


def report_losses(model: HfModel, images: Images, batch: int = 8) -> Tensor:
    """Loss of the reference report for each image."""
    parts = [images[start : start + batch] for start in range(0, len(images), batch)]
    with torch.no_grad():
        return torch.cat([model.losses(one.images, one.reports, one.indications).cpu() for one in parts])


def greedy_reports(model: HfModel, images: Images, tokens: int) -> list[str]:
    """The report of each image, decoded greedily."""
    answers = model.answers(images.images, images.indications, Decoding(max_new_tokens=tokens))
    return [answer[0].text for answer in answers]


def check_same_loss(model: HfModel, images: Images) -> None:
    """Exit if both implementations compute different losses for a clean image: they would maximise different things."""
    batched_loss = float(report_losses(model, images[:1]))
    with torch.no_grad():
        prompt = model.prompts.ask(images.indications[0])
        loss = one_by_one.OneLoss(model.model, model.processor, prompt, images.reports[0])
        loop_loss = float(loss(images.images[:1].to(model.device)))
    if abs(batched_loss - loop_loss) > 1e-3 * abs(loop_loss):
        sys.exit(
            f"The loss of a clean image is {batched_loss:.6f} in cxrlab and {loop_loss:.6f} in the loop; these are not "
            "the same attack."
        )


def compare(name: str, plan: Plan, dtypes: list[str], strength: Strength, device: str) -> None:
    """Measure one model and print its tables."""
    start = time.perf_counter()
    images = phantoms(max(plan.singles, *plan.images.values()), plan.side)
    checkpoint = plan.make(device)
    count = sum(weights.numel() for weights in checkpoint.model.parameters())
    print(f"{name}: {count / 1e6:.1f} million parameters, {plan.side} px, PGD-{strength.steps} at 2/255 on {device}\n")
    check_same_loss(in_precision(checkpoint, "float32"), images)
    results: list[Measured] = []
    for dtype in dtypes:
        results += measure_all(in_precision(checkpoint, dtype), images, plan, dtype, strength)
    print("\n".join(table(results)))
    for loop, fastest in loop_and_fastest(results):
        print(
            f"{loop.dtype}: target {plan.target:g} times the images per second of the loop; measured "
            f"{fastest.rate / loop.rate:.2f} with batches of {fastest.batch}",
            flush=True,
        )
    print("\n".join(agreement(in_precision(checkpoint, "float32"), results, images, plan)))
    print(f"{time.perf_counter() - start:.0f} s in total\n", flush=True)


def plan_from(name: str, args: argparse.Namespace) -> Plan:
    """The plan of a model with the changes from the command line."""
    plan = replace(PLANS[name], **QUICK) if args.quick else PLANS[name]
    if args.images:
        plan = replace(plan, images=dict.fromkeys(plan.images, args.images), singles=min(plan.singles, args.images))
    if args.batch:
        plan = replace(plan, batches=dict.fromkeys(plan.batches, tuple(args.batch)))
    return plan


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=("reporter", "1b", "both"), help="both on a GPU, else reporter --quick")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to check that the script runs")
    parser.add_argument("--quick", action="store_true", help="few images and one batch size")
    parser.add_argument("--images", type=int, help="images attacked in batches")
    parser.add_argument("--batch", type=int, nargs="+", help="batch sizes of cxrlab")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "both"), default="both")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    dtypes = ["float32", "bfloat16"] if args.dtype == "both" else [args.dtype]
    if args.model is None:
        args.model, args.quick = ("reporter", True) if args.device == "cpu" else ("both", args.quick)
    names = ["reporter", "1b"] if args.model == "both" else [args.model]
    if args.tiny:
        names, args.quick = ["tiny"], False
        print("Tiny model: a check that the script runs. The numbers below mean nothing.")
    for name in names:
        compare(name, plan_from(name, args), dtypes, Strength(steps=args.steps), args.device)


if __name__ == "__main__":
    main()
