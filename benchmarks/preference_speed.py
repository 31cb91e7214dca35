"""Preference training beside TRL's DPOTrainer on two processor threads: steps a second and memory.

    python benchmarks/preference_speed.py [--pairs 192] [--batch 4] [--rounds 1]    about six minutes
    python benchmarks/preference_speed.py --tiny                                    that it works, no claim

A LLaVA of the size of the built-in one (six layers of width 192 in tower and language model, 128 px, 64 image tokens)
with random weights; DPO in float32 with adapters of rank 64 on all linear layers of the language model; phantoms with
their own findings as the chosen report and those of another study as the rejected one.

TRL gets the same model, films, texts, adapters, batch size and optimiser, its films as files that its own processor
reads, everything else at its defaults. By default it computes activations twice to keep few of them (gradient
checkpointing); both trainers are measured with it and without, and like is compared with like.

Each run is a process of its own. Steps a second are the median over windows of steps after a warm-up; the second
figure counts what is prepared first (films decoded, features of the tower, reference) over the stated number of steps.
Where other work shares the machine, the processor's time a step is the steadier figure.
Memory is the largest resident size of the process less its size when everything is imported. It is taken twice: as it
comes, where half is blocks that the C library keeps for later, and in a short run over the longest pairs in which
it gives back what is freed, so that the figure is what the training needs. The aim is about the latter.

Before the first step every way gives its loss of one batch, with adapters that are not zero; these must agree, or the
figures say nothing of each other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

SPEED, MEMORY = 1.5, 0.7  # what is aimed at
RANK, ALPHA, THREADS = 64, 128, 2
SHORT = 12  # steps of the run that measures memory
WAYS = {
    "trl": "trl.DPOTrainer",
    "films": "cxrlab, tower run once a pair",
    "kept": "cxrlab, features kept",
    "trl-checkpointed": "trl.DPOTrainer, gradient checkpointing (its default)",
    "kept-checkpointed": "cxrlab, features kept, gradient checkpointing",
}
PAIRED = (("kept", "trl"), ("kept-checkpointed", "trl-checkpointed"))  # ours and the peer that it is compared with


def make(folder: Path, args: argparse.Namespace) -> None:
    """Model, films and pairs, for every way the same files."""
    from cxrlab.data.config import PhantomConfig
    from cxrlab.data.phantom.corpus import make_phantom
    from cxrlab.models.building import assemble_llava
    from cxrlab.models.parts import load_language_model, load_tower
    from cxrlab.models.prompts import load_prompts

    size = "tiny" if args.tiny else "phantom"
    tower, language = load_tower(f"fresh:{size}"), load_language_model(f"fresh:{size}", seed=1)
    model, processor = assemble_llava(tower.model, language.model, language.tokenizer, tower.image_processor, 2)
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
                "film": str(corpus.path / study.images[0].path),
                "prompt": load_prompts().ask(study.sections.indication),
                "chosen": study.sections.findings,
                "rejected": other.sections.findings,
            }
        )
    found.sort(key=lambda pair: -max(len(pair["chosen"]), len(pair["rejected"])))
    (folder / "pairs.json").write_text(json.dumps(found))


def open_model(folder: Path) -> tuple[Any, Any]:
    """(model, processor)."""
    from transformers import AutoProcessor, LlavaForConditionalGeneration

    return LlavaForConditionalGeneration.from_pretrained(folder), AutoProcessor.from_pretrained(folder)


def stir(model: Any, seed: int) -> None:
    """New adapters change nothing, and every DPO loss would be ln 2; these are given numbers, the same in every way."""
    import torch

    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in sorted(model.named_parameters()):
            if "lora_" in name:
                value.copy_(0.05 * torch.randn(value.shape, generator=rng))


class Clock:
    """Notes the time when the training begins and after every window of steps, those of the warm-up left out."""

    def __init__(self, warm: int, window: int) -> None:
        self.warm, self.window = warm, window
        self.marks: list[tuple[float, float]] = []  # on the wall, of the processor
        self.began = self.ended = 0.0

    def begin(self) -> None:
        """The first step begins."""
        self.began = time.perf_counter()

    def step(self, number: int) -> None:
        """A step is done."""
        self.ended = time.perf_counter()
        if number >= self.warm and (number - self.warm) % self.window == 0:
            self.marks.append((self.ended, time.process_time()))

    def spans(self, kind: int) -> list[float]:
        """Seconds a step of every window: 0 on the wall, 1 of the processor."""
        marks = [mark[kind] for mark in self.marks]
        return [(b - a) / self.window for a, b in zip(marks, marks[1:], strict=False)]


def listener(clock: Clock) -> Any:
    """The clock as a callback."""
    from transformers import TrainerCallback

    class Listener(TrainerCallback):
        """Tells the clock."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Before the first step."""
            clock.begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """After each."""
            clock.step(state.global_step)

    return Listener()


def size_now() -> int:
    """Largest resident size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def theirs(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """TRL's training."""
    import datasets
    import torch
    from peft import LoraConfig
    from trl import DPOConfig, DPOTrainer

    from cxrlab.models.hf.prompting import prompt_text, report_text
    from cxrlab.training.lora import language_linears

    torch.set_num_threads(THREADS)
    before = size_now()
    model, processor = open_model(folder / "model")
    model.requires_grad_(False)
    kinds = sorted({name.rpartition(".")[2] for name in language_linears(model)})
    begin, end = processor.tokenizer.bos_token, processor.tokenizer.eos_token
    rows = [
        {
            "prompt": begin + prompt_text(processor, pair["prompt"]),
            "chosen": report_text(processor, pair["chosen"]) + end,
            "rejected": report_text(processor, pair["rejected"]) + end,
            "images": [pair["film"]],
        }
        for pair in json.loads((folder / "pairs.json").read_text())
    ]
    pairs = datasets.Dataset.from_list(rows).cast_column("images", datasets.List(datasets.Image()))
    clock = Clock(args.warm, args.window)
    with contextlib.redirect_stdout(sys.stderr):  # its own lines are not part of the answer
        trainer = DPOTrainer(
            model=model,
            args=DPOConfig(
                output_dir=str(folder / "theirs"), per_device_train_batch_size=args.batch, max_steps=args.steps,
                learning_rate=5e-6, bf16=False, gradient_checkpointing=args.way.endswith("checkpointed"),
                max_length=None, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True, seed=args.seed,
            ),
            train_dataset=pairs.select(range(args.longest)),
            processing_class=processor,
            peft_config=LoraConfig(
                r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
                target_modules=rf"model\.language_model\..*\.({'|'.join(kinds)})",
            ),
            callbacks=[listener(clock)],
        )  # fmt: skip
        stir(trainer.model, args.seed)
        batch = trainer.data_collator([pairs[number] for number in range(args.batch)])
        with torch.no_grad():
            loss = float(trainer.compute_loss(trainer.model, batch))
        trainer.train()
    return told(clock, loss, before, 0.0)


def ours(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The same training on our engine."""
    import numpy as np
    import peft  # noqa: F401  imported before the size is taken
    import torch

    from cxrlab.preference.objective import PreferenceLoss
    from cxrlab.preference.reference import reference_log_probabilities
    from cxrlab.preference.rows import TwinRows
    from cxrlab.preference.train_config import LossSettings
    from cxrlab.training.config import Optimisation
    from cxrlab.training.engine import Engine, Job, fit
    from cxrlab.training.feature_store import open_features
    from cxrlab.training.films import FilmFile, open_films
    from cxrlab.training.lora import add_adapters
    from cxrlab.training.order import Part, plan
    from cxrlab.training.reporter import ReporterLoss
    from cxrlab.training.reports import checkpointed, image_tokens
    from cxrlab.training.run_folder import training_run
    from cxrlab.training.tokens import ReportRows, tokenise

    torch.set_num_threads(THREADS)
    before = size_now()
    model, processor = open_model(folder / "model")
    model.requires_grad_(False)
    pairs = json.loads((folder / "pairs.json").read_text())
    began = time.perf_counter()
    token = int(model.config.image_token_id)
    tokens = tokenise(
        processor,
        token,
        [pair["prompt"] for pair in pairs for _ in range(2)],
        [pair[name] for pair in pairs for name in ("chosen", "rejected")],
    )
    with tempfile.TemporaryDirectory() as place:
        cache = Path(place) / "cache"
        films = open_films([FilmFile(Path(pair["film"])) for pair in pairs], processor.image_processor, cache)
        wanted, cpu = "off" if args.way == "films" else "on", torch.device("cpu")
        features = open_features(model, films, cache, cache=wanted, most_gb=40, dtype=torch.float32, device=cpu)
        fixed = (image_tokens(model), token, processor.tokenizer.pad_token_id, 1024)
        reports = ReportRows(tokens, np.repeat(np.arange(len(pairs)), 2), None, None, *fixed)
        rows = TwinRows(reports, films, features)
        reporter = ReporterLoss(model, processor.image_processor)
        reference = reference_log_probabilities(reporter, rows, cache, precision="float32", batch_size=args.batch)
        rows = replace(rows, reference=reference)
        prepared = time.perf_counter() - began
        stir(add_adapters(model, RANK, float(ALPHA), 0.0, train_projector=False), args.seed)
        module = PreferenceLoss(reporter, LossSettings("dpo")).eval()
        batch = rows.__getitems__(list(range(args.batch)))
        items = int(batch.pop("items"))
        with torch.no_grad():
            loss = float(module(**batch)) / items
        clock = Clock(args.warm, args.window)

        class Timed(Engine):
            """The engine with a clock."""

            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                self.add_callback(listener(clock))

        settings = Optimisation(
            learning_rate=5e-6, steps=args.steps, batch_size=args.batch, max_length=1024, save_every=10**9,
            log_every=10, seed=args.seed,
        )  # fmt: skip
        if args.way.endswith("checkpointed"):
            checkpointed(model, tower_frozen=True)
        order = plan([Part(args.longest)], args.batch, 1.0, args.steps, args.seed, rows.lengths[: args.longest])
        with training_run(settings, Path(place) / "run", args.seed) as run:
            fit(Job(module, rows, order, engine=Timed), settings, run)
    return told(clock, loss, before, prepared)


def told(clock: Clock, loss: float, before: int, prepared: float) -> dict[str, Any]:
    """What a way came to, for the process that asked."""
    return {
        "spans": clock.spans(0),
        "processor": clock.spans(1),
        "training_s": clock.ended - clock.began,
        "prepared_s": prepared,
        "loss": loss,
        "memory": size_now() - before,
        "imported": before,
    }


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
        print(json.dumps((theirs if args.way.startswith("trl") else ours)(args.folder, args)))
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
