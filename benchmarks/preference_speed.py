"""Preference training of cxrlab and of TRL's DPOTrainer on two CPU threads: steps per second and memory.

    python benchmarks/preference_speed.py [--pairs 192] [--batch 4] [--rounds 1]    about six minutes
    python benchmarks/preference_speed.py --tiny                                    a check that it runs

A LLaVA of the size of the built-in one (six layers of width 192 in encoder and language model, 128 px, 64 image tokens)
with random weights; DPO in float32 with adapters of rank 64 on all linear layers of the language model; phantoms with
their own findings as the chosen report and those of another study as the rejected one.

TRL gets the same model, images, texts, adapters, batch size and optimiser, its images as files that its own processor
reads, everything else at its defaults. Its default is gradient checkpointing. Both trainers are measured with and
without it, and compared with the same setting. cxrlab takes the pairs in random order, without grouping by length.

Each run has a process of its own. Steps per second are the median over windows of steps after a warm-up. The second
rate includes the preparation (decoded images, vision features, log probabilities of the reference model) for the stated
number of steps. On a busy machine the CPU time per step is the more stable measure.

Memory is the peak resident memory of the process minus its memory after all imports. It is measured twice: as
allocated, where half are blocks that the C library keeps for reuse, and in a short run over the longest pairs in which
the C library returns freed memory. The target applies to the latter, the memory that the training needs.

Before the first step every trainer computes its loss of one batch, with adapters that are not zero. These losses must
agree; otherwise the trainers cannot be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preference_ways.common import THREADS

SPEED, MEMORY = 1.5, 0.7  # targets
SHORT = 12  # steps of the run that measures memory
WAYS = {
    "trl": "trl.DPOTrainer",
    "images": "cxrlab, vision encoder run once per pair",
    "kept": "cxrlab, cached features",
    "trl-checkpointed": "trl.DPOTrainer, gradient checkpointing (its default)",
    "kept-checkpointed": "cxrlab, cached features, gradient checkpointing",
}
PAIRED = (("kept", "trl"), ("kept-checkpointed", "trl-checkpointed"))  # cxrlab and the TRL run that it is compared with


def make(folder: Path, args: argparse.Namespace) -> None:
    """Write model, images and pairs, the same files for every trainer."""
    from cxrlab.data.config import PhantomConfig
    from cxrlab.data.phantom.corpus import make_phantom
    from cxrlab.models.model_parts import load_language_model, load_vision_encoder
    from cxrlab.models.prompts import load_prompts
    from cxrlab.models.random_init import assemble_llava

    size = "tiny" if args.tiny else "phantom"
    vision_encoder, language = load_vision_encoder(f"fresh:{size}"), load_language_model(f"fresh:{size}", seed=1)
    model, processor = assemble_llava(
        vision_encoder.model, language.model, language.tokenizer, vision_encoder.image_processor, 2
    )
    model.save_pretrained(folder / "model")
    processor.save_pretrained(folder / "model")
    side = int(model.config.vision_config.image_size)
    corpus = make_phantom(
        PhantomConfig(n=args.pairs, size=side, seed=args.seed, masks=False, workers=1), folder / "corpus"
    )
    studies = list(corpus)
    pairs = []
    for number, study in enumerate(studies):
        other = studies[(number + 1) % len(studies)]
        assert study.sections is not None and other.sections is not None
        pairs.append(
            {
                "image": str(corpus.path / study.images[0].path),
                "prompt": load_prompts().ask(study.sections.indication),
                "chosen": study.sections.findings,
                "rejected": other.sections.findings,
            }
        )
    pairs.sort(key=lambda pair: -max(len(pair["chosen"]), len(pair["rejected"])))
    (folder / "pairs.json").write_text(json.dumps(pairs))


def train_here(args: argparse.Namespace) -> dict[str, Any]:
    """Run one trainer in this process; returns its measurements."""
    if args.way.startswith("trl"):
        from preference_ways.theirs import train
    else:
        from preference_ways.ours import train
    return train(args.folder, args)


def measure(way: str, folder: Path, args: argparse.Namespace, *, lean: bool) -> dict[str, Any]:
    """Run one trainer in a process of its own; `lean` is a short run in which the C library returns freed memory."""
    steps = min(SHORT, args.steps) if lean else args.steps
    flags = {name: getattr(args, name) for name in ("batch", "warm", "window", "seed")}
    flags |= {"way": way, "folder": folder, "steps": steps, "longest": steps * args.batch if lean else args.pairs}
    # Idle threads sleep: spinning threads slow down the trainer that leaves more of them idle.
    quiet = {"OMP_WAIT_POLICY": "passive", "CXRLAB_QUIET": "1", "OMP_NUM_THREADS": str(THREADS)}
    malloc = {"MALLOC_MMAP_THRESHOLD_": "131072"} if lean else {}
    command = [sys.executable, __file__, *(f"--{name}={value}" for name, value in flags.items())]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **quiet, **malloc})
    if run.returncode:
        sys.exit(f"{WAYS[way]} failed:\n{run.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return result


@dataclass(frozen=True)
class Measured:
    """Result of one trainer.

    Args:
        rate: Steps per second.
        processor: CPU seconds per step.
        whole: Steps per second, preparation included.
        prepared: Seconds of the preparation.
        needed: Memory in bytes if the C library returns freed memory.
        resident: Memory in bytes as allocated.
        loss: Loss of one batch.
    """

    rate: float
    processor: float
    whole: float
    prepared: float
    needed: float
    resident: float
    loss: float


def summarise(runs: list[dict[str, Any]], lean: dict[str, Any], steps: int) -> Measured:
    """Combine all runs of a trainer; they must agree on the loss."""
    losses = [one["loss"] for one in (*runs, lean)]
    check_losses(losses)
    return Measured(
        1 / statistics.median(span for one in runs for span in one["spans"]),
        statistics.median(span for one in runs for span in one["processor"]),
        steps / min(one["training_s"] + one["prepared_s"] for one in runs),
        min(one["prepared_s"] for one in runs),
        lean["memory"],
        min(one["memory"] for one in runs),
        losses[0],
    )


def check_losses(losses: list[float]) -> None:
    """Exit if the losses differ by more than the rounding of sums over hundreds of tokens."""
    if max(losses) - min(losses) > 1e-3 * max(losses):
        sys.exit(
            f"The losses of one batch differ ({min(losses):.6f} to {max(losses):.6f}); these are not the same training."
        )


def lines(found: dict[str, Measured], args: argparse.Namespace) -> Iterator[str]:
    """The table, and the comparison with the targets."""
    yield f"{args.steps} steps of {args.batch} of {args.pairs} pairs"
    yield ""
    yield "| trainer | steps/s | CPU s per step | preparation included | preparation | memory needed | as allocated | loss |"
    yield "|---|---|---|---|---|---|---|---|"
    for way, one in found.items():
        yield (
            f"| {WAYS[way]} | {one.rate:.2f} | {one.processor:.2f} | {one.whole:.2f} steps/s | {one.prepared:.1f} s "
            f"| {one.needed / 1e6:.0f} MB | {one.resident / 1e6:.0f} MB | {one.loss:.6f} |"
        )
    yield ""
    for mine, peer in PAIRED:
        if mine not in found or peer not in found:
            continue
        our, their = found[mine], found[peer]
        yield (
            f"{WAYS[mine]}, steps per second: target {SPEED} times TRL, measured {our.rate / their.rate:.2f} "
            f"({their.processor / our.processor:.2f} by CPU time), {our.whole / their.whole:.2f} with the preparation "
            f"for {args.steps} steps"
        )
        yield (
            f"{WAYS[mine]}, memory: target at most {MEMORY} times TRL, measured "
            f"{our.needed / their.needed:.2f}, {our.resident / their.resident:.2f} as allocated"
        )


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to check that the script runs")
    parser.add_argument("--pairs", type=int, default=192)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, help="default: one epoch")
    parser.add_argument("--warm", type=int, default=8)
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    for name, kind in (("way", str), ("folder", Path), ("longest", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)  # passed to its child processes
    args = parser.parse_args()
    if args.way is not None:
        print(json.dumps(train_here(args)))
        return
    ways = list(WAYS)
    if args.tiny:
        args.pairs, args.batch, args.warm, args.window, ways = 12, 2, 2, 2, ["trl", "kept"]
        print("Tiny model: a check that the script runs. The numbers below mean nothing.")
    args.steps = args.steps or args.pairs // args.batch
    if args.steps < args.warm + 2 * args.window:
        sys.exit(f"--steps must be at least {args.warm + 2 * args.window}: the warm-up and two windows.")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make(folder, args)
        runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        for _ in range(args.rounds):
            for way in ways:
                runs[way].append(measure(way, folder, args, lean=False))
        # The tiny run does not measure memory: each process takes seconds to start.
        lean = {way: runs[way][0] if args.tiny else measure(way, folder, args, lean=True) for way in ways}
    found = {way: summarise(runs[way], lean[way], args.steps) for way in ways}
    print("\n".join(lines(found, args)))
    check_losses([one.loss for one in found.values()])


if __name__ == "__main__":
    main()
