"""Preference training beside TRL's DPOTrainer on two processor threads: steps a second and memory.

    python benchmarks/preference_speed.py [--pairs 192] [--batch 4] [--rounds 1]    about six minutes
    python benchmarks/preference_speed.py --tiny                                    that it works, no claim

A LLaVA of the size of the built-in one (six layers of width 192 in encoder and language model, 128 px, 64 image tokens)
with random weights; DPO in float32 with adapters of rank 64 on all linear layers of the language model; phantoms with
their own findings as the chosen report and those of another study as the rejected one.

TRL gets the same model, images, texts, adapters, batch size and optimiser, its images as files that its own processor
reads, everything else at its defaults. By default it computes activations twice to keep few of them (gradient
checkpointing); both trainers are measured with it and without, and like is compared with like. Ours takes the pairs in
the order as drawn, without its grouping of like lengths.

Each run is a process of its own. Steps a second are the median over windows of steps after a warm-up; the second
figure counts what is prepared first (images decoded, features of the encoder, reference) over the stated number of
steps. Where other work shares the machine, the processor's time a step is the steadier figure.
Memory is the largest resident size of the process less its size when everything is imported. It is taken twice: as it
comes, where half is blocks that the C library keeps for later, and in a short run over the longest pairs in which
it gives back what is freed, so that the figure is what the training needs. The aim is about the latter.

Before the first step every way gives its loss of one batch, with adapters that are not zero; these must agree, or the
figures say nothing of each other.
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

SPEED, MEMORY = 1.5, 0.7  # what is aimed at
SHORT = 12  # steps of the run that measures memory
WAYS = {
    "trl": "trl.DPOTrainer",
    "images": "cxrlab, vision encoder run once a pair",
    "kept": "cxrlab, features kept",
    "trl-checkpointed": "trl.DPOTrainer, gradient checkpointing (its default)",
    "kept-checkpointed": "cxrlab, features kept, gradient checkpointing",
}
PAIRED = (("kept", "trl"), ("kept-checkpointed", "trl-checkpointed"))  # ours and the peer that it is compared with


def make(folder: Path, args: argparse.Namespace) -> None:
    """Model, images and pairs, for every way the same files."""
    from cxrlab.data.config import PhantomConfig
    from cxrlab.data.phantom.corpus import make_phantom
    from cxrlab.models.components import load_language_model, load_vision_encoder
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
    found = []
    for number, study in enumerate(studies):
        other = studies[(number + 1) % len(studies)]
        assert study.sections is not None and other.sections is not None
        found.append(
            {
                "image": str(corpus.path / study.images[0].path),
                "prompt": load_prompts().ask(study.sections.indication),
                "chosen": study.sections.findings,
                "rejected": other.sections.findings,
            }
        )
    found.sort(key=lambda pair: -max(len(pair["chosen"]), len(pair["rejected"])))
    (folder / "pairs.json").write_text(json.dumps(found))


def trained(args: argparse.Namespace) -> dict[str, Any]:
    """What one way came to, in this process."""
    if args.way.startswith("trl"):
        from preference_ways.theirs import train
    else:
        from preference_ways.ours import train
    return train(args.folder, args)


def measure(way: str, folder: Path, args: argparse.Namespace, *, lean: bool) -> dict[str, Any]:
    """One way in a process of its own; lean: a short run in which freed memory is given back."""
    steps = min(SHORT, args.steps) if lean else args.steps
    handed = {name: getattr(args, name) for name in ("batch", "warm", "window", "seed")}
    handed |= {"way": way, "folder": folder, "steps": steps, "longest": steps * args.batch if lean else args.pairs}
    # Idle threads sleep: spinning ones would slow down whichever way leaves more of them idle.
    quiet = {"OMP_WAIT_POLICY": "passive", "CXRLAB_QUIET": "1", "OMP_NUM_THREADS": str(THREADS)}
    given_back = {"MALLOC_MMAP_THRESHOLD_": "131072"} if lean else {}
    command = [sys.executable, __file__, *(f"--{name}={value}" for name, value in handed.items())]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **quiet, **given_back})
    if run.returncode:
        sys.exit(f"{WAYS[way]} failed:\n{run.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return found


@dataclass(frozen=True)
class Measured:
    """One way.

    Args:
        rate: Steps a second.
        processor: Seconds of both cores that a step takes.
        whole: Steps a second with what is prepared first.
        prepared: Seconds of that.
        needed: Bytes of memory.
        resident: The same as it comes.
        loss: Of one batch.
    """

    rate: float
    processor: float
    whole: float
    prepared: float
    needed: float
    resident: float
    loss: float


def summed(runs: list[dict[str, Any]], lean: dict[str, Any], steps: int) -> Measured:
    """All runs of a way as one; they must agree on the loss."""
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
    """End with an error where they differ by more than rounding in sums over hundreds of tokens."""
    if max(losses) - min(losses) > 1e-3 * max(losses):
        sys.exit(f"the losses of one batch differ ({min(losses):.6f} to {max(losses):.6f}): not the same training.")


def lines(found: dict[str, Measured], args: argparse.Namespace) -> Iterator[str]:
    """The table and what it says."""
    yield f"{args.steps} steps of {args.batch} of {args.pairs} pairs"
    yield ""
    yield "| way | steps/s | CPU s a step | with what is prepared | in | memory needed | as it comes | loss |"
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
            f"{WAYS[mine]}: aimed at {SPEED} times the steps a second of TRL; reached {our.rate / their.rate:.2f} "
            f"({their.processor / our.processor:.2f} by the processor's time), {our.whole / their.whole:.2f} with what "
            f"is prepared over {args.steps} steps"
        )
        yield (
            f"{WAYS[mine]}: aimed at {MEMORY} times the memory of TRL at most; reached "
            f"{our.needed / their.needed:.2f}, {our.resident / their.resident:.2f} as it comes"
        )


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="a size that says nothing but that it works")
    parser.add_argument("--pairs", type=int, default=192)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, help="one pass through the pairs when left out")
    parser.add_argument("--warm", type=int, default=8)
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    for name, kind in (("way", str), ("folder", Path), ("longest", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)  # of the processes that it starts
    args = parser.parse_args()
    if args.way is not None:
        print(json.dumps(trained(args)))
        return
    ways = list(WAYS)
    if args.tiny:
        args.pairs, args.batch, args.warm, args.window, ways = 12, 2, 2, 2, ["trl", "kept"]
        print("a tiny model: that it works; no figure below is a claim")
    args.steps = args.steps or args.pairs // args.batch
    if args.steps < args.warm + 2 * args.window:
        sys.exit(f"--steps must be at least {args.warm + 2 * args.window}: the warm-up and two windows.")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make(folder, args)
        runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        for _ in range(args.rounds):
            for way in ways:
                runs[way].append(measure(way, folder, args, lean=False))
        # The tiny run has nothing to say about memory, and each process takes seconds to start.
        lean = {way: runs[way][0] if args.tiny else measure(way, folder, args, lean=True) for way in ways}
    found = {way: summed(runs[way], lean[way], args.steps) for way in ways}
    print("\n".join(lines(found, args)))
    check_losses([one.loss for one in found.values()])


if __name__ == "__main__":
    main()
