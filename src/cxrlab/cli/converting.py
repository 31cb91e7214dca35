"""`cxrlab models convert`: published checkpoints as folders that transformers loads."""

from __future__ import annotations

from pathlib import Path

from cxrlab.cli.result import Result
from cxrlab.models.convert.conversion import ConvertConfig


def convert(layout: str, source: Path, config: ConvertConfig, out: Path) -> Result:
    """Rewrite a published checkpoint in its maker's layout as a folder that transformers loads.

    llava-rad: LLaVA 1.x with an open_clip encoder and LoRA. open-clip: encoders of a timm ViT and a BERT, such as
    BiomedCLIP. The result computes the same, or the conversion is refused; OUT appears whole or not at all.

    Args:
        layout: llava-rad or open-clip.
        source: Folder of the published files.
        config: Settings.
        out: The folder to make.
    """
    from cxrlab.models.convert.conversion import convert as run

    done = run(layout, source, config, out)
    text = f"{out}: {done.model}, {done.parameters:,} parameters, images of {done.image} px"
    if done.unused:
        reasons = sorted(set(done.unused.values()))
        text += f"\n  {len(done.unused):,} tensors not needed: {'; '.join(reasons)}"
    return Result(text, done)
