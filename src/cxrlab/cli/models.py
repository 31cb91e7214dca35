"""`cxrlab models`: merge an adapter into its base, convert a published checkpoint."""

from __future__ import annotations

from pathlib import Path

from cxrlab.cli.output import Result
from cxrlab.models.convert import ConvertConfig
from cxrlab.models.hf.adapters import MergeConfig


def merge(adapter: str, config: MergeConfig, out: Path) -> Result:
    """Merge an adapter into the weights of its base model and write a whole checkpoint.

    The result generates the same as base and adapter together, and needs neither. OUT is written whole or not at all.

    Args:
        adapter: Folder of the adapter, such as the checkpoint of a fine-tuning run.
    """
    from cxrlab.models.hf.adapters import merge as run

    done = run(adapter, out, config)
    return Result(f"{out}: {done.parameters:,} parameters in {done.dtype}, {done.adapter} on {done.base}", done)


def convert(layout: str, source: Path, config: ConvertConfig, out: Path) -> Result:
    """Convert a published checkpoint from its authors' layout to a folder that transformers loads.

    llava: LLaVA-1.5 and LLaVA-Med 1.5. llava-rad: LLaVA 1.x with an open_clip encoder and LoRA. open-clip: encoders of a
    timm ViT and a BERT, such as BiomedCLIP. The result computes the same outputs, or the conversion is refused; OUT is
    written whole or not at all.

    Args:
        layout: llava-rad, llava or open-clip.
        source: Folder of the published files.
    """
    from cxrlab.models.convert import convert as run

    done = run(layout, source, config, out)
    text = f"{out}: {done.model}, {done.parameters:,} parameters, images of {done.image} px"
    if done.unused:
        reasons = sorted(set(done.unused.values()))
        text += f"\n  {len(done.unused):,} tensors not needed: {'; '.join(reasons)}"
    return Result(text, done)
