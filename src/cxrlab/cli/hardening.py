"""`cxrlab harden`: a vision encoder that is harder to fool, and what that has cost it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cxrlab.cli.result import Result, columns
from cxrlab.robustness.harden_config import HardenConfig


def harden(config: HardenConfig, out: Path) -> Result:
    """Fine-tune a model's vision encoder so that it sees in attacked images what it saw in clean ones.

    Images alone are learnt from; projector and language model stay as they are. RUN/checkpoint is the whole model,
    named hf:RUN/checkpoint; RUN/harden.json tells how far an attack moves the features of held-out images before and
    after,
    and how near the features of clean images have stayed. What it has cost in reports is told by generate, score and
    compare on both models.
    A stopped run goes on where it stopped and ends with the same weights; a finished one is left as it is.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.robustness.harden import harden as run

    done, found = run(config, out)
    lines = [
        f"{done.steps:,} steps on {done.rows:,} images against changes of up to {config.budget.label} a pixel; the "
        f"result is in {out / done.checkpoint}",
        f"trained {done.trained_parameters:,} of {done.parameters:,} weights",
    ]
    if left := sum(done.left_out.values()):
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in done.left_out.items())
        lines.append(f"{left:,} studies were left out ({reasons})")
    if found["measured"] is not None:
        lines.append(f"\n{_table(found['measured'])}")
    return Result("\n".join(lines), {"training": done, "harden": found})


def _table(measured: Mapping[str, Any]) -> str:
    """How far features are from those of clean images before hardening."""
    attacked = measured["attacked"]
    rows = [
        ["features, against clean ones before", "distance²", "of their length²", "cosine"],
        _row("attacked, before", attacked["before"]),
        _row("attacked, after", attacked["after"]),
        _row("clean, after", measured["clean"]),
    ]
    attack = measured["attack"]
    told = f"means over {measured['n']} images of the {measured['split']} split; PGD of {attack['steps']} steps at "
    return f"{columns(rows)}\n{told}{attack['eps']}"


def _row(name: str, values: Mapping[str, float]) -> list[str]:
    return [name, f"{values['distance']:.4g}", f"{values['share']:.3f}", f"{values['cosine']:.3f}"]
