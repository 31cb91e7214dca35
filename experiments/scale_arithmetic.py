"""Hours of large GPU work on 1, 8 and 64 GPUs, by arithmetic from speeds that were measured on one.

    python experiments/scale_arithmetic.py

Prints the tables of docs/scale.md; a test holds them equal. The counts of the audit are read from its config file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cxrlab.attacks.corruptions import CORRUPTIONS
from cxrlab.core.config import read_yaml

ROOT = Path(__file__).resolve().parent.parent
AUDIT = ROOT / "configs/robustness/mimic_cxr.yaml"
FINETUNE = ROOT / "configs/llava_rad/05_finetune.yaml"
CXR_697K = "CXR-697K"
PAIRS = {"MIMIC-CXR, stage 3 as published": 400_042, CXR_697K: 697_435}  # as LLaVA-Rad's supplement counts them
GPUS = (1, 8, 64)

# Measured on one H200 with transformers 5.17 and torch 2.11: random weights of LLaVA-Rad's sizes (7 billion), 518 pixels.
GRADIENT_S = 0.134  # per image: report loss to the pixels, activations computed again, 16 images at once
REPORT_S = 9.9 / 35  # per image: `generate`, 256 tokens each, key-value cache that grows
SAMPLES_PER_S = 5.1  # `train finetune`, batch 16, activations computed again
# Derived or assumed.
ANSWERS_S = 1.4 / 32  # per image: all closed questions in one forward pass, as long as the prefill of 32 images
STARTUP_S = 120.0  # per process: imports, 14 GB of weights; not measured


@dataclass(frozen=True)
class Work:
    """A job of independent items (images, samples), all of the same cost."""

    name: str
    items: int
    seconds: float  # per item
    each: str  # what an item costs, in words

    def hours(self, gpus: int) -> float:
        """Linear scaling: the GPU with the most items decides; every GPU starts up at the same time."""
        return (STARTUP_S + math.ceil(self.items / gpus) * self.seconds) / 3600


def gradients(attacks: Sequence[str], steps: int, radii: int) -> int:
    """Gradients of one image: fgsm takes one per radius, pgd and apgd one per step and radius, controls none."""
    return radii * sum({"fgsm": 1, "pgd": steps, "apgd": steps, "noise": 0}[name] for name in attacks)


def audit() -> Work:
    """The audit of the config file: every image under every attack, aim, radius and corruption."""
    config, _ = read_yaml(AUDIT)
    attacks, radii, aims = config["attacks"], len(config["eps"]), len(config["aims"])
    if config["corruptions"] != ["all"] or config["attack"]["restarts"] != 1:
        raise SystemExit(f"{AUDIT} has other corruptions or restarts than are counted here")
    steps = gradients(attacks, config["attack"]["steps"], radii) * aims
    controls = attacks.count("noise")
    conditions = 1 + radii * ((len(attacks) - controls) * aims + controls)
    conditions += len(CORRUPTIONS.names()) * len(config["severities"])
    seconds = steps * GRADIENT_S + conditions * (REPORT_S + ANSWERS_S)
    words = f"{steps} gradients, {conditions} conditions with a report and closed answers each"
    return Work(f"audit of `{AUDIT.relative_to(ROOT)}`", config["n"], seconds, words)


def pgd_sweep(images: int = 10_000, steps: int = 20, radii: int = 4) -> Work:
    """PGD against the report at several radii, and a report of every attacked and clean image."""
    count = gradients(["pgd"], steps, radii)
    seconds = count * GRADIENT_S + (1 + radii) * REPORT_S
    return Work(f"PGD sweep, {steps} steps, {radii} radii", images, seconds, f"{count} gradients, {1 + radii} reports")


def training(pairs: str) -> Work:
    """The passes of stage 3 over all pairs."""
    epochs = int(read_yaml(FINETUNE)[0]["optimisation"]["epochs"])
    return Work(
        f"{pairs}: `train finetune`, {epochs} epochs", PAIRS[pairs] * epochs, 1 / SAMPLES_PER_S, "1 training sample"
    )


def generation() -> Work:
    """A report for every image of CXR-697K."""
    return Work(f"{CXR_697K}: `generate`", PAIRS[CXR_697K], REPORT_S, "1 report of 256 tokens")


def markdown() -> str:
    """The table of all jobs."""
    columns = " | ".join(f"hours on {gpus}" for gpus in GPUS)
    lines = [f"| work | items | each item | seconds per item | {columns} |", f"|---|--:|---|--:|{'--:|' * len(GPUS)}"]
    for work in (audit(), pgd_sweep(), *map(training, PAIRS), generation()):
        hours = " | ".join(f"{work.hours(gpus):,.1f}" for gpus in GPUS)
        lines.append(f"| {work.name} | {work.items:,} | {work.each} | {work.seconds:.2f} | {hours} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
