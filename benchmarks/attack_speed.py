"""PGD on report models in batches, beside the loop over single images of published attack code: images a second.

    python benchmarks/attack_speed.py                               with a GPU both models, in some minutes
    python benchmarks/attack_speed.py --model reporter --quick      few images; what runs where there is no GPU
    python benchmarks/attack_speed.py --tiny                        that it works, no claim

Two models: `builtin:reporter` (128 px, 64 image tokens), and a LLaVA of 1.4 billion random weights at 518 px with 1369
image tokens, made on the device. Ten steps of PGD in the ball of 2/255 from the clean image raise the loss of the true
report. `attack_ways/one_by_one.py` says what the loop does and what is in its favour, `attack_ways/batched.py` is ours.
Both are measured in the same precision with SDPA attention, without tf32; the last column sets ours beside the loop in
float32, in which published attacks end. Nothing is written for any image while the clock runs.

Both ways start from images and texts in memory and end with images there. Each is run once before, for two steps. The
loop gets fewer images: its time an image does not depend on how many there are. What is aimed at holds for a large
GPU: on a processor a single image keeps every core busy, and batches gain little.

Same results: the images that both have attacked are scored once more in float32, by one function, and a report is
written for each.
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

LOOP, OURS = "one by one", "cxrlab, batched"


@dataclass(frozen=True)
class Plan:
    """One model and how much of it is measured.

    Args:
        make: Opens it on a device.
        side: Of its images in pixels.
        aim: How many times the images a second of the loop are aimed at.
        singles: Images that the loop attacks.
        images: Images that ours attacks, by precision.
        batches: Batch sizes of ours, by precision.
        tokens: Longest report that is written at the end.
    """

    make: Callable[[str], Checkpoint]
    side: int
    aim: float
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
    # In float32 a single image keeps the GPU busy: less is measured there.
    "1b": Plan(
        billion, 518, 2.5, 8, {"float32": 16, "bfloat16": 64}, {"float32": (8,), "bfloat16": (4, 8, 16, 32)}, tokens=40
    ),
}  # fmt: skip
QUICK = {"singles": 4, "images": {"float32": 16, "bfloat16": 16}, "batches": {"float32": (16,), "bfloat16": (16,)}}


@dataclass(frozen=True)
class Measured:
    """One way in one precision.

    Args:
        way: `LOOP` or `OURS`.
        dtype: Precision of the weights.
        batch: Images at once.
        rate: Images a second; 0 where the memory did not suffice.
        memory: Most bytes on the GPU at a time, weights included; 0 on a processor.
        found: The images after the attack, on the processor.
    """

    way: str
    dtype: str
    batch: int
    rate: float
    memory: int
    found: Tensor


def measured(
    way: str, model: HfModel, batch: int, images: Images, run: Callable[[Images, int], Tensor], steps: int
) -> Measured:
    """One way by the clock; `run` takes images and a number of steps."""
    cuda = model.device.type == "cuda"
    dtype = str(model.model.dtype).removeprefix("torch.")
    found, spent = images.images[:0], float("inf")
    try:
        run(images[:batch], 2)
        if cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        found = run(images, steps)  # it ends with a copy to the processor, which waits for the GPU
        spent = time.perf_counter() - began
    except torch.OutOfMemoryError:
        pass  # told by a rate of 0
    memory = torch.cuda.max_memory_allocated() if cuda else 0
    if cuda:
        torch.cuda.empty_cache()
    return Measured(way, dtype, batch, len(images) / spent, memory, found)


def ways(model: HfModel, images: Images, plan: Plan, dtype: str, strength: Strength) -> Iterator[Measured]:
    """The loop, then ours with every batch size."""
    prompts = [model.prompts.ask(reason) for reason in images.indications]

    def singly(some: Images, steps: int) -> Tensor:
        return one_by_one.attack(
            model.model, model.processor, prompts[: len(some)], some, replace(strength, steps=steps)
        )

    yield measured(LOOP, model, 1, images[: plan.singles], singly, strength.steps)
    for batch in plan.batches[dtype]:

        def together(some: Images, steps: int, batch: int = batch) -> Tensor:
            return batched.attack(model, some, replace(strength, steps=steps), batch)

        yield measured(OURS, model, batch, images[: plan.images[dtype]], together, strength.steps)


def table(found: list[Measured]) -> Iterator[str]:
    """One row a way."""
    loops = {one.dtype: one.rate for one in found if one.way == LOOP}
    yield "| way | weights | batch | images/s | × the loop, same precision | × the loop in float32 | peak GPU memory |"
    yield "|---|---|---|---|---|---|---|"
    for one in found:
        shares = [f"{one.rate / loops[base]:.2f}" if base in loops else "–" for base in (one.dtype, "float32")]
        memory = f"{one.memory / 1e9:.1f} GB" if one.memory else "–"
        rate = f"{one.rate:.2f}" if one.rate else "out of memory"
        yield f"| {one.way} | {one.dtype} | {one.batch} | {rate} | {shares[0]} | {shares[1]} | {memory} |"
    yield ""


def verdicts(found: list[Measured], aim: float) -> Iterator[str]:
    """What was aimed at and what was reached, in each precision with the best batch."""
    for dtype in dict.fromkeys(one.dtype for one in found):
        loop = next(one for one in found if one.way == LOOP and one.dtype == dtype)
        best = best_of(found, dtype)
        yield (
            f"{dtype}: aimed at {aim:g} times the images a second of the loop; reached {best.rate / loop.rate:.2f} "
            f"with batches of {best.batch}"
        )


def best_of(found: list[Measured], dtype: str) -> Measured:
    """The fastest batch of ours in a precision."""
    return max((one for one in found if one.way == OURS and one.dtype == dtype), key=lambda one: one.rate)


def agreement(model: HfModel, found: list[Measured], images: Images, plan: Plan) -> Iterator[str]:
    """Whether both ways come to the same, by a model in float32."""
    some = images[: plan.singles]
    clean = scored(model, some)
    for dtype in dict.fromkeys(one.dtype for one in found):
        loop = next(one for one in found if one.way == LOOP and one.dtype == dtype)
        ours = best_of(found, dtype)
        if not ours.rate:
            continue
        pair = [replace(some, images=one.found[: len(some)]) for one in (loop, ours)]
        theirs, mine = (scored(model, one) for one in pair)
        apart = (theirs - mine).abs()
        texts = [written(model, one, plan.tokens) for one in pair]
        same = sum(a == b for a, b in zip(*texts, strict=True))
        yield (
            f"{dtype}, {len(some)} images scored in float32: loss {clean.mean():.4f} before, {theirs.mean():.4f} after "
            f"the loop, {mine.mean():.4f} after ours; between the two {(mine - theirs).mean():+.5f} on average, "
            f"{apart.mean():.5f} an image, {apart.max():.5f} at most; same report word for word {same} of {len(some)}"
        )


def scored(model: HfModel, images: Images, batch: int = 8) -> Tensor:
    """Loss of each image."""
    parts = [images[start : start + batch] for start in range(0, len(images), batch)]
    with torch.no_grad():
        return torch.cat([model.losses(one.images, one.reports, one.indications).cpu() for one in parts])


def written(model: HfModel, images: Images, tokens: int) -> list[str]:
    """The greedy report of each image."""
    answers = model.answers(images.images, images.indications, Decoding(max_new_tokens=tokens))
    return [answer[0].text for answer in answers]


def check_start(model: HfModel, images: Images) -> None:
    """End with an error where the loop's loss of a clean image is not ours: they would attack different things."""
    ours = float(scored(model, images[:1]))
    with torch.no_grad():
        prompt = model.prompts.ask(images.indications[0])
        loss = one_by_one.OneLoss(model.model, model.processor, prompt, images.reports[0])
        theirs = float(loss(images.images[:1].to(model.device)))
    if abs(ours - theirs) > 1e-3 * abs(theirs):
        sys.exit(f"the loss of a clean image is {ours:.6f} here and {theirs:.6f} in the loop: not the same attack.")


def compare(name: str, plan: Plan, dtypes: list[str], strength: Strength, device: str) -> None:
    """One model, whole."""
    began = time.perf_counter()
    images = phantoms(max(plan.singles, *plan.images.values()), plan.side)
    checkpoint = plan.make(device)
    count = sum(weights.numel() for weights in checkpoint.model.parameters())
    print(f"{name}: {count / 1e6:.1f} million parameters, {plan.side} px, PGD-{strength.steps} at 2/255 on {device}\n")
    check_start(in_precision(checkpoint, "float32"), images)
    found: list[Measured] = []
    for dtype in dtypes:
        found += ways(in_precision(checkpoint, dtype), images, plan, dtype, strength)
    print("\n".join([*table(found), *verdicts(found, plan.aim)]), flush=True)
    print("\n".join(agreement(in_precision(checkpoint, "float32"), found, images, plan)))
    print(f"{time.perf_counter() - began:.0f} s in all\n", flush=True)


def planned(name: str, args: argparse.Namespace) -> Plan:
    """A plan with what the command line changes."""
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
    parser.add_argument("--tiny", action="store_true", help="a model that says nothing but that it works")
    parser.add_argument("--quick", action="store_true", help="few images and one batch size")
    parser.add_argument("--images", type=int, help="images that ours attacks")
    parser.add_argument("--batch", type=int, nargs="+", help="batch sizes of ours")
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
        print("a tiny model: that it works; no figure below is a claim")
    for name in names:
        compare(name, planned(name, args), dtypes, Strength(steps=args.steps), args.device)


if __name__ == "__main__":
    main()
